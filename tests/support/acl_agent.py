"""An agent with access control, and users with rules, for tests of programs that act for somebody."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.support.agent import LiveAgent
from tests.support.certificates import make_authority

SECRET = "a secret of this cluster"
PASSWORD = "correct horse battery"
WAIT_S = 60.0


class AclAgent(LiveAgent):
    """`admin` may do everything, others what `allow` says. HTTP and Kafka ask for a login, over TLS."""

    def __init__(self, folder: Path, *flags: str) -> None:
        make_authority(folder).issue(folder, "agent")
        self.ca = folder / "ca.pem"
        self._tls = ssl.create_default_context(cafile=str(self.ca))
        (folder / "password").write_text(PASSWORD)
        self.secret_file = folder / "secret"
        self.secret_file.write_text(SECRET)
        settings = {
            "kafka.protocol": "SASL_SSL",
            "http.protocol": "SASL_SSL",
            "security.authorization": "acls",
            "security.bootstrap_user": "admin",
            "security.bootstrap_password": f"file:{folder / 'password'}",
            "security.cluster_secret": f"file:{self.secret_file}",
            "security.scram_iterations": "4096",
            "security.tls_certificate": str(folder / "agent.pem"),
            "security.tls_key": str(folder / "agent.key"),
            "security.tls_ca": str(self.ca),
        }
        set_all = (part for key, value in settings.items() for part in ("--set", f"{key}={value}"))
        super().__init__(folder / "data", *set_all, *flags)

    @property
    def process_environment(self) -> dict[str, str]:
        """Of SQL workers and supervisors: the cluster secret, and no user."""
        secret = {"STREAMHOUSE_SECURITY_CLUSTER_SECRET": f"file:{self.secret_file}"}
        return {**secret, "STREAMHOUSE_CA": str(self.ca)}

    def login(self, user: str) -> dict[str, str]:
        """The environment of a program of a user's."""
        return {"STREAMHOUSE_USER": user, "STREAMHOUSE_PASSWORD": PASSWORD, "STREAMHOUSE_CA": str(self.ca)}

    @property
    def address(self) -> str:
        return f"https://{self.http}"

    def client(self, user: str | None, password: str = PASSWORD) -> httpx.Client:
        """Requests with a user's password; None: with none."""
        auth = None if user is None else (user, password)
        return httpx.Client(base_url=self.address, auth=auth, verify=self._tls, timeout=300, trust_env=False)

    def send(self, user: str | None, method: str, path: str, **more: Any) -> httpx.Response:
        with self.client(user) as client:
            return client.request(method, path, **more)

    def _is_ready(self) -> bool:
        try:
            return self.send(None, "GET", "/health/ready").is_success
        except httpx.TransportError:
            return False

    def create_user(self, user: str) -> None:
        assert self.send("admin", "POST", "/v1/users", json={"name": user, "password": PASSWORD}).is_success

    def allow(self, user: str, operation: str, kind: str, name: str = "kafka-cluster") -> None:
        acl = {"principal": f"User:{user}", "operation": operation, "resource_type": kind, "name": name}
        response = self.send("admin", "POST", "/v1/acls", json={"acls": [acl]})
        assert response.is_success, response.text

    def forbid(self, user: str, operation: str, kind: str, name: str) -> None:
        """Take rules away."""
        chosen = {"principal": f"User:{user}", "operation": operation, "resource_type": kind, "name": name}
        response = self.send("admin", "DELETE", "/v1/acls", params=chosen)
        assert response.is_success, response.text


def wait_until(is_so: Callable[[], Any], *, timeout_s: float = WAIT_S, what: str = "") -> Any:
    """The first true value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := is_so():
            return value
        time.sleep(0.1)
    raise AssertionError(f"not in time: {what}")
