"""TLS acceptor: connections of an encrypted listener count before their handshake, which has limited time.

A server of asyncio makes a protocol known to its connection only after the handshake. Clients that never finish one
would not count towards any limit. A handshake costs more than a request, so a client above its limit of connections
waits before it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from streamhouse.clock import Clock
from streamhouse.config.fields import peer_host
from streamhouse.telemetry import RateLimitedLog
from streamhouse.wire.listener import OpenListener
from streamhouse.wire.tls import ACCEPTED

log = logging.getLogger(__name__)

NO_ACCEPT_S: Final = 0.1
"""How long nothing is accepted after that failed: the process may have no file descriptors left."""


class TlsAcceptor:
    """`admit` counts a connection of an address, and returns how long it has to wait, or None if it is refused; `leave`
    is called if its handshake fails; `make` makes the protocol of a connection that was admitted and has waited."""

    def __init__(
        self,
        listener: OpenListener,
        *,
        admit: Callable[[str], float | None],
        leave: Callable[[str], None],
        make: Callable[[], asyncio.BaseProtocol],
        timeout_s: float,
        clock: Clock,
    ) -> None:
        self._listener = listener
        self._admit = admit
        self._leave = leave
        self._make = make
        self._timeout_s = timeout_s
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure = RateLimitedLog(log, "connections can't be accepted", level=logging.WARNING)

    def __repr__(self) -> str:
        return f"<TlsAcceptor {self._listener!r} tasks={len(self._tasks)}>"

    def start(self) -> None:
        self._keep(asyncio.get_running_loop().create_task(self._accept(), name=f"tls-{self._listener.spec.name}"))

    async def close(self) -> None:
        """Accept nothing more; end handshakes."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.listening.close()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, (host, *_) = await loop.sock_accept(self._listener.listening)
            except OSError as error:
                self._failure.write(self._clock.monotonic(), why=str(error))
                await self._clock.sleep(NO_ACCEPT_S)
                continue
            host = peer_host(host)
            if (wait_s := self._admit(host)) is None:
                accepted.close()
            else:
                self._keep(loop.create_task(self._encrypt(accepted, host, wait_s), name="tls-handshake"))

    async def _encrypt(self, accepted: socket.socket, host: str, wait_s: float) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if wait_s > 0:
                await self._clock.sleep(wait_s)
            ACCEPTED.set(accepted)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, accepted, ssl=self._listener.tls, ssl_handshake_timeout=self._timeout_s
            )
        except BaseException as error:
            self._leave(host)
            accepted.close()
            if not isinstance(error, OSError):  # also raised for TLS errors and the timeout
                raise
