"""Listen: opening a port, for every wire.

Owns        the error that names the address and the flag that changes it
"""

import socket
from typing import Final

from streamhouse.errors import Misconfigured
from streamhouse.model.lease import Address

BACKLOG: Final = 1024


def bind(address: Address, *, flag: str) -> socket.socket:
    """A listening socket; raises `Misconfigured` when the address can't be had."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
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
