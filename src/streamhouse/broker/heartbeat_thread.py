"""HeartbeatThread: heartbeats in a thread of their own, with a connection of their own to the metadata store.

Data path   tenure -> **heartbeat thread** -> metadata store
Owns        the thread, its event loop, the store that only heartbeats use
Leaves      when a heartbeat is due and what it means to `heartbeat`
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from streamhouse.broker.heartbeat import Heartbeat, SessionStore

log = logging.getLogger(__name__)

JOIN_S: Final = 5.0
"""How long the thread may take to end; it is a daemon, so a process can end without it."""

OpenStore = Callable[[], AbstractAsyncContextManager[SessionStore]]


class HeartbeatThread:
    """A `HeartbeatRunner`. Made by `open_heartbeats`."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._store: SessionStore | None = None
        self._thread = threading.Thread(target=self._main, name="heartbeat", daemon=True)

    def __repr__(self) -> str:
        return f"<HeartbeatThread {'open' if self._store is not None else 'closed'}>"

    async def start(self) -> None:
        """Return when its store is open; raise what opening it raised."""
        self._thread.start()
        await self._opened

    async def run(self, heartbeat: Heartbeat) -> None:
        assert self._store is not None, "the thread has no store"
        running = asyncio.run_coroutine_threadsafe(heartbeat.run(self._store), self._loop)
        await asyncio.wrap_future(running)  # cancelled, it cancels the heartbeats

    async def aclose(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        try:
            async with asyncio.timeout(JOIN_S):
                await self._ended
        except TimeoutError:
            log.warning("the thread of heartbeats did not end in time", extra={"seconds": JOIN_S})

    # --- in the thread from here on

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - it goes to whoever waits for the thread
            self._tell(self._opened, error)
        finally:
            self._loop.close()
            self._tell(self._ended, None)

    async def _serve(self) -> None:
        async with self._open_store() as store:
            self._store = store
            self._tell(self._opened, None)
            await self._stop.wait()
            self._store = None

    def _tell(self, future: "asyncio.Future[None]", error: BaseException | None) -> None:
        try:
            self._owner.call_soon_threadsafe(_settle, future, error)
        except RuntimeError:  # the owner's loop is closed: nobody waits any more
            log.debug("nobody waits for the thread of heartbeats")


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


async def open_heartbeats(open_store: OpenStore) -> HeartbeatThread:
    """A thread whose store is open; `open_store` is called in it, and left when the thread ends."""
    thread = HeartbeatThread(open_store)
    await thread.start()
    return thread
