"""Security of a local cluster: certificates, a cluster secret, a first user, and the files with which clients connect.

DIR/security/ca.pem  ca-key.pem  server.pem  server-key.pem  cluster-secret  password
             client.properties (Java)  librdkafka.conf (kcat and others)  curl.conf
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from streamhouse.clock import Clock, Ids
from streamhouse.dev.certificates import make_certificates, write_private

USER: Final = "admin"
PROTOCOL: Final = "SASL_SSL"
MECHANISM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSecurity:
    """Files in `folder`, and the super user that exists from the start."""

    folder: Path
    user: str = USER
    password: str = field(repr=False)

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    @property
    def java_file(self) -> Path:
        return self.folder / "client.properties"

    @property
    def librdkafka_file(self) -> Path:
        return self.folder / "librdkafka.conf"

    @property
    def curl_file(self) -> Path:
        return self.folder / "curl.conf"

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of every agent: TLS and logins on all listeners, and access rules."""
        return {
            "kafka.protocol": PROTOCOL,
            "http.protocol": PROTOCOL,
            "grpc.protocol": PROTOCOL,
            "security.authorization": "acls",
            "security.tls_certificate": str(self.folder / "server.pem"),
            "security.tls_key": str(self.folder / "server-key.pem"),
            "security.tls_ca": str(self.ca),
            "security.cluster_secret": f"file:{self.folder / 'cluster-secret'}",
            "security.bootstrap_user": self.user,
            "security.bootstrap_password": f"file:{self.password_file}",
        }

    @property
    def client_environment(self) -> Mapping[str, str]:
        """With which the command line, the Python client and Spark connect."""
        return {
            "STREAMHOUSE_CA": str(self.ca),
            "STREAMHOUSE_USER": self.user,
            "STREAMHOUSE_PASSWORD_FILE": str(self.password_file),
        }


def prepare_security(folder: Path, *, clock: Clock) -> LocalSecurity:
    """Make what is missing. Secrets and the certificate authority are kept over restarts; only the owner may read the
    folder."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_certificates(folder, now=datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC))
    _secret(folder / "cluster-secret")
    security = LocalSecurity(folder=folder, password=_secret(folder / "password"))
    for path, text in (
        (security.java_file, _java(security)),
        (security.librdkafka_file, _librdkafka(security)),
        (security.curl_file, f'user = "{security.user}:{security.password}"\ncacert = "{security.ca}"\n'),
    ):
        write_private(path, text.encode())
    return security


def _secret(path: Path) -> str:
    if not path.exists():
        write_private(path, f"{Ids().token()}\n".encode())
    return path.read_text().strip()


def _java(security: LocalSecurity) -> str:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return (
        f"security.protocol={PROTOCOL}\n"
        f"sasl.mechanism={MECHANISM}\n"
        f'sasl.jaas.config={login} required username="{security.user}" password="{security.password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={security.ca}\n"
    )


def _librdkafka(security: LocalSecurity) -> str:
    return (
        f"security.protocol={PROTOCOL}\n"
        f"sasl.mechanisms={MECHANISM}\n"
        f"sasl.username={security.user}\n"
        f"sasl.password={security.password}\n"
        f"ssl.ca.location={security.ca}\n"
    )
