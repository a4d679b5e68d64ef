"""TLS handshakes: an accepted connection counts before it is encrypted, and has limited time for that.

asyncio makes a protocol known to its connection only after the handshake, so that clients that never finish one would
be in no limit. Here the protocol has the connection from its first byte on: `connection_made` is called twice, with the
plain transport and with the encrypted one.
"""

import asyncio
import ssl
from collections.abc import Callable

from streamhouse.wire.listener import OpenListener


def is_unencrypted(listener: OpenListener, transport: asyncio.BaseTransport) -> bool:
    """Whether the handshake is still to come."""
    return listener.tls is not None and transport.get_extra_info("ssl_object") is None


def begin_handshake(
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    context: ssl.SSLContext,
    *,
    timeout_s: float,
    on_failure: Callable[[], None],
) -> asyncio.Task[None]:
    """Encrypt a connection, then call `protocol.connection_made` again; or `on_failure`, when it is closed."""
    transport.pause_reading()  # what the client sends belongs to the handshake

    async def handshake() -> None:
        loop = asyncio.get_running_loop()
        try:
            encrypted = await loop.start_tls(
                transport, protocol, context, server_side=True, ssl_handshake_timeout=timeout_s
            )
        except OSError:  # also what TLS doesn't like, and the timeout
            encrypted = None
        if encrypted is None:
            transport.abort()
            on_failure()
        else:
            protocol.connection_made(encrypted)

    return asyncio.get_running_loop().create_task(handshake(), name="tls-handshake")
