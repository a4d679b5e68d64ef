"""Exposure: which listeners other machines can reach, and the warning about it.

There is no authentication and no access control: every client that reaches a listener may do everything.
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


def exposed_listeners(settings: Settings) -> Mapping[str, str]:
    """The listeners that aren't on loopback, with their addresses as configured."""
    listeners = {
        "Kafka": kafka_listeners(settings),
        "HTTP": http_listeners(settings),
        "gRPC": grpc_listeners(settings),
    }
    exposed = {name: [str(spec.bind) for spec in specs if spec.is_exposed] for name, specs in listeners.items()}
    return {name: ",".join(addresses) for name, addresses in exposed.items() if addresses}


def exposure_warning(listeners: Mapping[str, str]) -> str:
    """The warning for operators of these listeners; empty if there are none."""
    if not listeners:
        return ""
    named = ", ".join(f"{name} {address}" for name, address in listeners.items())
    return (
        f"no authentication: everybody on the network of {named} is an administrator and may read, write and delete "
        "everything; listen on 127.0.0.1, or let only those in whom you trust (firewall, network policy)"
    )
