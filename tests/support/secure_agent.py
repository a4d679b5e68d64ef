"""An agent that asks its clients to log in, with or without TLS."""

from collections.abc import Mapping
from pathlib import Path

from streamhouse.clock import SystemClock
from streamhouse.model.access import Principal
from streamhouse.model.cluster_tokens import ClusterTokens
from tests.support.agent import LiveAgent
from tests.support.certificates import make_authority

PASSWORD = "correct horse battery"
SECRET = "a secret of this cluster"


class SecureAgent:
    def __init__(self, folder: Path, protocol: str, more: Mapping[str, str] | None = None) -> None:
        self.protocol = protocol
        self.folder = folder
        self.authority = make_authority(folder)
        self.authority.issue(folder, "agent")
        self.ca = folder / "ca.pem"
        (folder / "password").write_text(PASSWORD)
        (folder / "secret").write_text(SECRET)
        settings = {
            "kafka.protocol": protocol,
            "security.authorization": "acls",
            "security.bootstrap_user": "admin",
            "security.bootstrap_password": f"file:{folder / 'password'}",
            "security.cluster_secret": f"file:{folder / 'secret'}",
            "security.tls_certificate": str(folder / "agent.pem"),
            "security.tls_key": str(folder / "agent.key"),
            "security.tls_ca": str(self.ca),
            "groups.initial_rebalance_delay_s": "0",
            **(more or {}),
        }
        self.live = LiveAgent(
            folder / "data",
            *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")),
            ca=self.ca if settings.get("http.protocol", "").endswith("SSL") else None,
        )

    def token(self, name: str = "admin") -> str:
        return ClusterTokens(SECRET, clock=SystemClock()).make(Principal("User", name))
