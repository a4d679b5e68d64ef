"""Credentials: who a program is for the cluster, and whom it trusts: a user or a token, and TLS.

One value for every connection of a client, over HTTP and over the Kafka protocol. Passwords and tokens are in no repr.
"""

import base64
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from streamhouse.errors import Misconfigured

SaslMechanism: TypeAlias = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
KafkaProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

VARIABLES: Final = (
    "STREAMHOUSE_USER",
    "STREAMHOUSE_PASSWORD",
    "STREAMHOUSE_PASSWORD_FILE",
    "STREAMHOUSE_TOKEN",
    "STREAMHOUSE_TOKEN_FILE",
    "STREAMHOUSE_CA",
    "STREAMHOUSE_CERT",
    "STREAMHOUSE_KEY",
)
"""Environment variables that `from_environment` reads."""

MAX_SECRET_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How a client logs in, and how it connects.

    Login: `user` and `password`, or a bearer token or API key. The token is `token`, or is read from `token_file` or
    made by `make_token` for each request, if it changes.

    TLS: `ca` is a PEM file of the authorities that sign the agents' certificates (default: the system's); `cert` and
    `key` are the client's own certificate (mTLS). `tls` makes addresses without `https://` TLS too; `ca` and `cert`
    imply it. `kafka_protocol` is the protocol of the Kafka listener, if it differs from what login and TLS imply.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    make_token: Callable[[], str] | None = field(default=None, repr=False)
    ca: str = ""
    cert: str = ""
    key: str = ""
    tls: bool = False
    sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    kafka_protocol: KafkaProtocol | None = None

    def __post_init__(self) -> None:
        if self.user and self.has_token:
            raise Misconfigured("a client logs in with a user or with a token, not with both")
        if self.user and not self.password:
            raise Misconfigured(f"a user logs in with a password, and there is none; user={self.user}")
        if self.password and not self.user:
            raise Misconfigured("there is a password, and no user that it belongs to")
        if self.key and not self.cert:
            raise Misconfigured("there is a private key, and no certificate that it belongs to")
        if self.sasl_mechanism not in get_args(SaslMechanism):
            allowed = ", ".join(get_args(SaslMechanism))
            raise Misconfigured(f"no such SASL mechanism; mechanism={self.sasl_mechanism!r} allowed={allowed}")
        if self.kafka_protocol not in (None, *get_args(KafkaProtocol)):
            allowed = ", ".join(get_args(KafkaProtocol))
            raise Misconfigured(f"no such protocol; protocol={self.kafka_protocol!r} allowed={allowed}")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Credentials":
        """The credentials in `VARIABLES`."""

        def value(name: str) -> str:
            return environ.get(f"STREAMHOUSE_{name}", "")

        def secret(name: str) -> str:
            path = value(f"{name}_FILE")
            return value(name) or (read_secret_file(path, f"STREAMHOUSE_{name}_FILE") if path else "")

        return cls(
            user=value("USER"),
            password=secret("PASSWORD"),
            token=secret("TOKEN"),
            ca=value("CA"),
            cert=value("CERT"),
            key=value("KEY"),
        )

    def as_environment(self) -> dict[str, str]:
        """Environment variables for another process: the inverse of `from_environment`."""
        values = {
            "USER": self.user,
            "PASSWORD": self.password,
            "TOKEN": self.token,
            "CA": self.ca,
            "CERT": self.cert,
            "KEY": self.key,
        }
        return {f"STREAMHOUSE_{name}": value for name, value in values.items() if value}

    def for_agents(self, address: str) -> "Credentials":
        """The same credentials, with TLS if one of the agents' addresses has `https://`."""
        return replace(self, tls=True) if "https://" in address and not self.tls else self

    @property
    def uses_tls(self) -> bool:
        return self.tls or bool(self.ca or self.cert)

    @property
    def has_login(self) -> bool:
        return bool(self.user) or self.has_token

    @property
    def has_token(self) -> bool:
        return bool(self.token or self.token_file or self.make_token)

    @property
    def bearer(self) -> str:
        """The current token; empty without one."""
        if self.make_token is not None:
            return self.make_token()
        return read_secret_file(self.token_file, "token file") if self.token_file else self.token

    @property
    def scheme(self) -> str:
        """The default scheme of agents' addresses."""
        return "https" if self.uses_tls else "http"

    @property
    def headers(self) -> Mapping[str, str]:
        """The authentication header of an HTTP request; empty without a login."""
        if self.has_token:
            return {"authorization": f"Bearer {self.bearer}"}
        if self.user:
            pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            return {"authorization": f"Basic {pair}"}
        return {}

    def ssl_context(self) -> ssl.SSLContext:
        """TLS as a client: certificates and host names are checked. Raises `Misconfigured` for unusable files."""
        return _ssl_context(self.ca, self.cert, self.key)


NO_CREDENTIALS: Final = Credentials()
"""No login, and no TLS: what a cluster on loopback needs."""


@lru_cache(maxsize=16)
def _ssl_context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    for name, path in (("CA", ca), ("certificate", cert), ("key", key)):
        if path and not Path(path).is_file():
            raise Misconfigured(f"the {name} file is not there; path={path}")
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except (ssl.SSLError, OSError) as error:
        raise Misconfigured(f"the CA file has no certificates in PEM format; path={ca} why={error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert:
        try:
            context.load_cert_chain(cert, key or None, password=_no_password)
        except (ssl.SSLError, OSError) as error:
            raise Misconfigured(
                f"the client's certificate and key can't be used; cert={cert} key={key or cert} why={error}"
            ) from None
    return context


def _no_password() -> str:
    """Called for the password of an encrypted key; without it, OpenSSL would prompt on the terminal."""
    raise OSError("the key is encrypted; give it without a password, readable only for you")


def read_secret_file(path: str, where: str) -> str:
    """The secret in a file, without the line end."""
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
        secret = data.decode().rstrip("\r\n")
    except OSError as error:
        raise Misconfigured(f"the secret can't be read; where={where} path={path} why={error.strerror}") from None
    except UnicodeDecodeError:
        raise Misconfigured(f"the secret is not UTF-8; where={where} path={path}") from None
    if not secret or len(data) > MAX_SECRET_BYTES:
        raise Misconfigured(
            f"the file must hold one secret of at most {MAX_SECRET_BYTES} bytes; where={where} path={path}"
        )
    return secret
