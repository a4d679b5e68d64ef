"""Listen: opening a port, and the address of it that others are told, for every wire.

Owns        the errors that name the address and what changes it; that no two agents are told apart by an address that
            all of them have
"""

import socket
from typing import Final

from streamhouse.config.fields import Address
from streamhouse.errors import Misconfigured

BACKLOG: Final = 1024
EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})


def bind(address: Address, *, flag: str) -> socket.socket:
    """A listening socket; raises `Misconfigured` when the address can't be had."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # Without the protocol's number asyncio wouldn't take it for TCP and leave TCP_NODELAY off: the body of an answer
    # would wait 40 ms for a client's acknowledgement of its headers.
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
    """The address that clients and other agents use: the one we were told, else the listener's own.

    Raises `Misconfigured` for an address that leads nobody here. In containers every agent listens on 0.0.0.0, and
    clients would take all of them for one, or for themselves.
    """
    host, port = listener.getsockname()[:2]
    address = configured or Address(host, port)
    if address.host in EVERYWHERE or address.port == 0:
        raise Misconfigured(
            f"nobody can connect to {address}; say which address others shall use, "
            f"with --set {setting}=HOST:{port} or STREAMHOUSE_{setting.replace('.', '_').upper()}=HOST:{port}"
        )
    return address
