"""HTTP port: the server behind the HTTP listeners, which is imported and built at the first connection.

Data path   first connection -> **port** -> server
Owns        when the server is built; connections wait meanwhile in the sockets' backlog
Leaves      everything else to `server`, which this module doesn't import

The server, its routes and their documents are a fifth of the CPU time of a start and a fifth of the memory of an idle
agent. An agent without HTTP requests needs neither.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamhouse.wire.listener import OpenListener

if TYPE_CHECKING:
    from streamhouse.wire.http.server import HttpServer


class HttpPort:
    """`make` builds the server; it is called once, in a thread."""

    def __init__(self, listeners: Sequence[OpenListener], make: "Callable[[], HttpServer]") -> None:
        self._listeners = listeners
        self._make = make
        self._server: HttpServer | None = None
        self._connected = asyncio.Event()
        self._opening: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<HttpPort {', '.join(map(repr, self._listeners))} {'open' if self._server else 'waits'}>"

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.add_reader(listener.listening.fileno(), self._on_connection)
        self._opening = loop.create_task(self._open(), name="http-port")

    async def opened(self) -> None:
        """Wait until the server is open; raises what prevents that."""
        assert self._opening is not None, "not started"
        await asyncio.shield(self._opening)

    async def stop(self) -> None:
        self._forget_listeners()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._server is not None:
            await self._server.stop()

    def _on_connection(self) -> None:
        self._forget_listeners()
        self._connected.set()

    def _forget_listeners(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            if (descriptor := listener.listening.fileno()) >= 0 and not self._connected.is_set():
                loop.remove_reader(descriptor)

    async def _open(self) -> None:
        await self._connected.wait()
        server = await asyncio.get_running_loop().run_in_executor(None, self._make)
        server.start()
        self._server = server
