"""Exposure: which listeners can be reached from other machines, and the sentence that says what that means.

There is no authentication and no access control: whoever reaches a listener may do everything.
"""

from collections.abc import Mapping

from streamhouse.config.fields import is_loopback, parse_address
from streamhouse.config.settings import Settings


def exposed_listeners(settings: Settings) -> Mapping[str, str]:
    """The listeners that aren't on loopback, with the addresses that they were given."""
    listeners = {"Kafka": settings.kafka.listen, "HTTP": settings.http.listen, "gRPC": settings.grpc.listen}
    return {
        name: address for name, address in listeners.items() if address and not is_loopback(parse_address(address).host)
    }


def exposure_warning(listeners: Mapping[str, str]) -> str:
    """What to tell operators of these listeners; empty where there are none."""
    if not listeners:
        return ""
    named = ", ".join(f"{name} {address}" for name, address in listeners.items())
    return (
        f"no authentication: everybody on the network of {named} is an administrator and may read, write and delete "
        "everything; listen on 127.0.0.1, or let only those in whom you trust (firewall, network policy)"
    )
