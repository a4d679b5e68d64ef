"""Addresses of agents, and how a read or a write of Spark logs in there.

Data path   options, Spark's configuration, environment -> **address** -> clients of agents on driver and executors
Owns        names of the options of logins and TLS, ours and Kafka's; what wins where several say something
Leaves      what credentials do to `client.credentials`

Options travel to executors in tasks; passwords and tokens are in no repr.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from streamhouse.client.credentials import Credentials
from streamhouse.client.http import Http
from streamhouse.errors import Misconfigured

OWN_PREFIX: Final = "streamhouse."
_FIELDS: Final = {
    f"{OWN_PREFIX}{name}": name.replace(".", "_")
    for name in ("user", "password", "token", "token.file", "ca", "cert", "key")
}
LOGIN_OPTIONS: Final = tuple(_FIELDS)
"""Options of a read or a write; with `spark.` in front, settings of a Spark session."""
CONF_PREFIX: Final = "spark."

_PROTOCOL: Final = "kafka.security.protocol"
_MECHANISM: Final = "kafka.sasl.mechanism"
_JAAS: Final = "kafka.sasl.jaas.config"
_TRUST_STORE: Final = "kafka.ssl.truststore.location"
_TRUST_STORE_TYPE: Final = "kafka.ssl.truststore.type"
_KEY_STORE: Final = "kafka.ssl.keystore.location"
_KEY_STORE_TYPE: Final = "kafka.ssl.keystore.type"
_JAAS_VALUE: Final = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")


@dataclass(frozen=True, slots=True)
class AgentLogin:
    """Addresses of agents with the credentials that options give."""

    address: str
    credentials: Credentials

    def __str__(self) -> str:
        return self.address


AgentAddress: TypeAlias = str | AgentLogin
"""A plain address: the credentials are those of the process's environment."""


def open_http(agents: AgentAddress, *, timeout_s: float) -> Http:
    if isinstance(agents, AgentLogin):
        return Http(agents.address, timeout_s=timeout_s, credentials=agents.credentials)
    return Http(agents, timeout_s=timeout_s, credentials=Credentials.from_environment(os.environ))


def address_options(agents: AgentAddress) -> dict[str, str]:
    """The options with which `format("streamhouse")` connects to these agents; `with_login` the other way round."""
    if isinstance(agents, str):
        return {"agents": agents}
    known = {name: getattr(agents.credentials, field) for name, field in _FIELDS.items()}
    return {"agents": agents.address, **{name: value for name, value in known.items() if value}}


def as_caller(agents: str, *, token: str = "", token_file: str = "") -> AgentLogin:
    """Agents under another login than this process's, with the TLS of its environment."""
    own = Credentials.from_environment(os.environ)
    return AgentLogin(
        agents,
        Credentials(token=token, token_file=token_file, ca=own.ca, cert=own.cert, key=own.key).for_agents(agents),
    )


def with_login(address: str, options: Mapping[str, str]) -> AgentAddress:
    """The address with the login of options, whose names are in lower case: ours, else Kafka's, else none."""
    given = {field: options[name] for name, field in _FIELDS.items() if options.get(name)}
    credentials = Credentials(**given) if given else _kafka_credentials(options)  # type: ignore[arg-type]
    return address if credentials is None else AgentLogin(address, credentials.for_agents(address))


def _kafka_credentials(options: Mapping[str, str]) -> Credentials | None:
    """The credentials of Kafka's connector; None: its options name no login and no TLS."""
    protocol = options.get(_PROTOCOL, "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return None
    user, password = _jaas_login(options.get(_JAAS, "")) if protocol.startswith("SASL_") else ("", "")
    return Credentials(
        user=user,
        password=password,
        ca=_pem(options, _TRUST_STORE, _TRUST_STORE_TYPE),
        cert=_pem(options, _KEY_STORE, _KEY_STORE_TYPE),
        tls=protocol.endswith("SSL"),
    )


def _jaas_login(text: str) -> tuple[str, str]:
    """The user and the password in `… required username="alice" password="…";`. The text is in no error."""
    values = {match[1]: _unquoted(match) for match in _JAAS_VALUE.finditer(text)}
    try:
        return values["username"], values["password"]
    except KeyError:
        raise Misconfigured(
            f"a login without username and password; option={_JAAS}"
            ' do=write it like org.apache.kafka…ScramLoginModule required username="…" password="…";'
            " or use the option streamhouse.token"
        ) from None


def _unquoted(match: re.Match[str]) -> str:
    quoted = match[2] if match[2] is not None else match[3]
    return re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match[4]


def _pem(options: Mapping[str, str], location: str, kind: str) -> str:
    """The path of a PEM file; Java's stores can't be read here."""
    path = options.get(location, "")
    if path and options.get(kind, "JKS").upper() != "PEM":
        raise Misconfigured(f"only PEM files can be read; option={location} do=set {kind}=PEM and name a PEM file")
    return path
