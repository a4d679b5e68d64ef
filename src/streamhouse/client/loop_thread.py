"""Loop thread: an event loop in a thread of its own, for programs without one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from streamhouse.errors import Rejected

T = TypeVar("T")


class LoopThread:
    """May be used from several threads at once. A daemon thread: a program that forgets to close it still ends."""

    def __init__(self, name: str = "streamhouse-client") -> None:
        self._runner = asyncio.Runner()
        self._ready = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def __repr__(self) -> str:
        return f"<LoopThread {self._thread.name} {'closed' if self._closed else 'running'}>"

    def _run(self) -> None:
        with self._runner:
            self.loop = self._runner.get_loop()
            self._stop = asyncio.Event()
            self._ready.set()
            self._runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result; Ctrl-C while waiting cancels it."""
        if self._closed or threading.current_thread() is self._thread:
            work.close()
            raise Rejected(
                "the client is closed"
                if self._closed
                else "a SyncClient can't be used on its own event loop; use Client in async code"
            )
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def iterate(self, source: AsyncIterator[list[T]]) -> Iterator[T]:
        """Yield the items of an async iterator of lists. The iterator is closed when the iteration ends."""
        try:
            while True:
                batch = self.run(_next(source))
                if batch is None:
                    return
                yield from batch
        finally:
            if not self._closed:
                self.run(_close(source))

    def close(self) -> None:
        """Cancel what still runs, and wait until the thread has ended."""
        if self._closed:
            return
        self._closed = True
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


async def _next(source: AsyncIterator[list[T]]) -> list[T] | None:
    try:
        return await anext(source)
    except StopAsyncIteration:
        return None


async def _close(source: Any) -> None:
    await source.aclose()
