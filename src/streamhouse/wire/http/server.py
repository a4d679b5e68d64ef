"""Server: uvicorn on the agent's own event loop.

Owns        the HTTP listener: opening, limits, closing
Leaves      signals to `agent`, routes to `app`
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from streamhouse.config import HttpSettings


class _Uvicorn(uvicorn.Server):
    """Uvicorn without signal handlers: the agent has one for all its servers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    def __init__(self, settings: HttpSettings, app: ASGIApp, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                limit_concurrency=settings.max_requests,
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
        if self._serving is not None:
            await self._serving
