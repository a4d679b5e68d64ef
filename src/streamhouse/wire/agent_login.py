"""AgentLogin: how this agent connects to other agents, with TLS and a token of the cluster if they require them."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from streamhouse.clock import Clock
from streamhouse.config import Settings
from streamhouse.config.secrets import Secrets
from streamhouse.model.access import AGENT, Principal
from streamhouse.model.cluster_tokens import ClusterTokens
from streamhouse.wire.listener import OpenListener
from streamhouse.wire.tls import TlsFiles

OAUTHBEARER: Final = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLogin:
    """`make_token` makes a token for a new connection or request; None: other agents require no login."""

    make_token: Callable[[], str] | None = None
    kafka_tls: ssl.SSLContext | None = None
    http_tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        words = {"token": self.make_token, "kafka-tls": self.kafka_tls, "http-tls": self.http_tls}
        return f"<AgentLogin {' '.join(word for word, is_used in words.items() if is_used)}>"

    @property
    def http_scheme(self) -> str:
        return "http" if self.http_tls is None else "https"

    def http_headers(self) -> dict[str, str]:
        return {} if self.make_token is None else {"authorization": f"Bearer {self.make_token()}"}

    def sasl_message(self) -> bytes:
        """The client's message of SASL OAUTHBEARER (RFC 7628)."""
        assert self.make_token is not None
        return f"n,,\x01auth=Bearer {self.make_token()}\x01\x01".encode()


NO_LOGIN: Final = AgentLogin()


def agent_login(
    settings: Settings, secrets: Secrets, *, kafka: OpenListener, http: OpenListener, clock: Clock
) -> AgentLogin:
    """How this agent connects to the first listeners of other agents, which are like its own."""
    files = TlsFiles(settings=settings.security, key_password=secrets.tls_key_password)
    make_token = None
    if secrets.cluster_secret:  # on every listener: nothing else distinguishes an agent from a client
        principal = Principal(AGENT, str(kafka.advertised))
        make_token = partial(ClusterTokens(secrets.cluster_secret, clock=clock).make, principal)
    return AgentLogin(
        make_token=make_token,
        kafka_tls=files.client_context() if kafka.spec.protocol.has_tls else None,
        http_tls=files.client_context() if http.spec.protocol.has_tls else None,
    )
