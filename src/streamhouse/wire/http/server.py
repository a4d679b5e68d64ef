"""Server: uvicorn on the agent's own event loop.

Data path   sockets -> **server** -> connection -> gate
Owns        the HTTP listener: opening, closing, and that it does nothing while nobody asks
Leaves      signals to `agent`, limits of connections to `connection`, routes to `app`
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from streamhouse.config import HttpSettings
from streamhouse.wire.http.connection import connection_class
from streamhouse.wire.http.gate import Gate


class _Uvicorn(uvicorn.Server):
    """Uvicorn without signal handlers, the agent has one for all its servers, and without a clock that ticks."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.exit = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.exit.wait()


class HttpServer:
    def __init__(self, settings: HttpSettings, app: Gate, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=connection_class(settings, app.metrics),
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                lifespan="off",
                timeout_keep_alive=round(settings.idle_timeout_s),
                timeout_graceful_shutdown=2,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<HttpServer {self._listener.getsockname()}>"

    def start(self) -> None:
        self._serving = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._listener]), name="http-server"
        )

    async def stop(self) -> None:
        self._server.should_exit = True
        self._server.exit.set()
        if self._serving is not None:
            await self._serving
