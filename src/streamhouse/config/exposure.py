"""Exposure: which listeners other machines can reach without a login; an agent with such a listener doesn't start
unless a setting allows it.
"""

from collections.abc import Mapping

from streamhouse.config.listener_spec import ListenerSpec, listeners_of
from streamhouse.config.settings import Settings
from streamhouse.errors import Misconfigured


def kafka_listeners(settings: Settings) -> tuple[ListenerSpec, ...]:
    """Kafka's listeners; agents use the first one among themselves."""
    kafka = settings.kafka
    return listeners_of("kafka", kafka.listen, kafka.advertise, kafka.protocol)


def http_listeners(settings: Settings) -> tuple[ListenerSpec, ...]:
    """HTTP's listeners; agents use the first one among themselves."""
    http = settings.http
    return listeners_of("http", http.listen, http.advertise, http.protocol)


def grpc_listeners(settings: Settings) -> tuple[ListenerSpec, ...]:
    """gRPC's listeners; none where there is no gRPC."""
    grpc = settings.grpc
    return listeners_of("grpc", grpc.listen, "", grpc.protocol) if grpc.listen else ()


def check_listeners(settings: Settings) -> None:
    """Raise `Misconfigured` for listeners that make no sense together."""
    if not kafka_listeners(settings) or not http_listeners(settings):
        raise Misconfigured("an agent needs a Kafka and an HTTP listener; where=kafka.listen, http.listen")
    grpc_listeners(settings)


def anonymous_listeners(settings: Settings) -> Mapping[str, str]:
    """The listeners without login that other machines reach, with their addresses as configured."""
    listeners = {
        "Kafka": kafka_listeners(settings),
        "HTTP": http_listeners(settings),
        "gRPC": grpc_listeners(settings),
    }
    open_to_all = {
        name: [str(spec.bind) for spec in specs if spec.is_exposed and not _authenticates(spec, settings)]
        for name, specs in listeners.items()
    }
    return {name: ",".join(addresses) for name, addresses in open_to_all.items() if addresses}


def _authenticates(spec: ListenerSpec, settings: Settings) -> bool:
    """Whether clients of a listener log in, or show a certificate."""
    return spec.protocol.has_login or (spec.protocol.has_tls and settings.security.tls_client_auth == "required")


def check_exposure(settings: Settings) -> None:
    """Raise `Misconfigured` for a listener that other machines reach without a login, unless that is allowed."""
    listeners = anonymous_listeners(settings)
    if not listeners or settings.security.allow_anonymous_network_access:
        return
    raise Misconfigured(
        f"other machines reach {_named(listeners)}, and nobody logs in there; have them log in "
        "(kafka.protocol, http.protocol, grpc.protocol = SASL_SSL; docs/security.md), listen on 127.0.0.1, or allow it "
        "with security.allow_anonymous_network_access=true"
    )


def exposure_warning(settings: Settings) -> str:
    """The warning for operators of listeners that others reach without a login; empty if there are none."""
    listeners = anonymous_listeners(settings)
    if not listeners:
        return ""
    if settings.security.authorization == "acls":
        return (
            f"no login: everybody on the network of {_named(listeners)} may do what access rules allow User:ANONYMOUS; "
            "set SASL_SSL as the protocol of these listeners"
        )
    return (
        f"no login: everybody on the network of {_named(listeners)} is an administrator and may read, write and "
        "delete everything; set SASL_SSL as the protocol of these listeners and security.authorization=acls, or let "
        "only those in whom you trust reach them (firewall, network policy)"
    )


def _named(listeners: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {address}" for name, address in listeners.items())
