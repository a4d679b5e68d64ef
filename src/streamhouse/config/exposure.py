"""Exposure: which listeners other machines can reach, and the warning about it.

There is no authentication and no access control: every client that reaches a listener may do everything.
"""

from collections.abc import Mapping

from streamhouse.config.fields import is_loopback, parse_address
from streamhouse.config.settings import Settings


def exposed_listeners(settings: Settings) -> Mapping[str, str]:
    """The listeners that aren't on loopback, with their addresses as configured."""
    listeners = {"Kafka": settings.kafka.listen, "HTTP": settings.http.listen, "gRPC": settings.grpc.listen}
    return {
        name: address for name, address in listeners.items() if address and not is_loopback(parse_address(address).host)
    }


def exposure_warning(listeners: Mapping[str, str]) -> str:
    """The warning for operators of these listeners; empty if there are none."""
    if not listeners:
        return ""
    named = ", ".join(f"{name} {address}" for name, address in listeners.items())
    return (
        f"no authentication: everybody on the network of {named} is an administrator and may read, write and delete "
        "everything; listen on 127.0.0.1, or let only those in whom you trust (firewall, network policy)"
    )
