"""Listeners: opening a port, and its advertised address, for every protocol.

Owns        errors that name the address and the setting to change; rejecting advertised addresses that all agents would
            share
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import DEFAULT_NAME, ListenerSpec
from streamhouse.errors import Misconfigured

BACKLOG: Final = 1024
EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})


UserOf = Callable[[Mapping[str, Any] | None], str | None]


def no_user(certificate: Mapping[str, Any] | None) -> str | None:
    """The principal of a client certificate is ignored."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenListener:
    """A listening socket with its name, protocol and advertised address."""

    spec: ListenerSpec
    listening: socket.socket
    advertised: Address
    """The address for other agents; clients of this agent get `spec.advertised`, or the address that
    they have connected to."""
    tls: ssl.SSLContext | None = None
    user_of: UserOf = no_user
    """The user whom a client's certificate names."""
    bound: Address = field(init=False)
    """The address that is listened on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", Address(*self.listening.getsockname()[:2]))

    def __repr__(self) -> str:
        return f"<OpenListener {self.spec.name} {self.spec.protocol} {self.bound}>"

    @classmethod
    def plain(cls, listening: socket.socket, advertised: Address | None = None) -> "OpenListener":
        """The only listener of an interface, without TLS and login."""
        bound = Address(*listening.getsockname()[:2])
        spec = ListenerSpec(name=DEFAULT_NAME, bind=bound, advertised=advertised)
        return cls(listening=listening, spec=spec, advertised=advertised or bound)


def bind(address: Address, *, flag: str) -> socket.socket:
    """A listening socket; raises `Misconfigured` if the address can't be bound."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # Without the protocol number asyncio would not recognise it as TCP and leave TCP_NODELAY off: the body of a
    # response would wait 40 ms for the client's acknowledgement of its headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Misconfigured(
            f"can't listen on {address}: {error.strerror}; choose another address with {flag} HOST:PORT"
        ) from None
    listener.setblocking(False)
    return listener


def advertised(configured: Address | None, listener: socket.socket, *, setting: str) -> Address:
    """The address for clients and other agents: the configured one, or else the listener's own.

    Raises `Misconfigured` for an address that can't be connected to. In containers every agent listens on 0.0.0.0, and
    clients would take all of them for the same agent, or for their own machine.
    """
    host, port = listener.getsockname()[:2]
    address = configured or Address(host, port)
    if address.host in EVERYWHERE or address.port == 0:
        raise Misconfigured(
            f"clients can't connect to {address}; set the advertised address "
            f"with --set {setting}=HOST:{port} or STREAMHOUSE_{setting.replace('.', '_').upper()}=HOST:{port}"
        )
    return address
