"""Limits on concurrent work: a fair limiter, a first-in-first-out limiter, and loops that yield to the event loop.

`FairLimiter` bounds concurrent reads and serves waiting partitions in turn. With one queue for all, a reader with a
hundred blocks to read would be served a hundred times before a reader of another partition gets its first block.
`FifoLimiter` bounds the number and the bytes of items in flight, in order of arrival.
`LargeWork` runs what would take the event loop too long in threads, a few at a time.
`iterate_fairly` splits a loop over the many elements of one request, so that other requests are served in between.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeVar

from streamhouse.errors import Overloaded


class FairLimiter:
    """At most `limit` holders at once; the keys that wait are served in turn."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<FairLimiter free={self._free} waiting={self.waiting} of={len(self._waiting)}>"

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def slot(self, key: Hashable) -> AsyncIterator[None]:
        await self._acquire(key)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, key: Hashable) -> None:
        if self._free > 0:  # then no task waits: a slot that is released goes to a waiter first
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.cancelled():
                self._leave(key, waiter)
            else:
                self._release()  # the slot was passed on while its waiter was cancelled
            raise

    def _leave(self, key: Hashable, waiter: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(key)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[key]

    def _release(self) -> None:
        """Pass the slot to the first waiter of the key that was served longest ago."""
        while self._waiting:
            key, queue = next(iter(self._waiting.items()))
            waiter = queue.popleft()
            if queue:
                self._waiting.move_to_end(key)
            else:
                del self._waiting[key]
            if not waiter.done():  # else it was cancelled, and hasn't left yet
                waiter.set_result(None)
                return
        self._free += 1


RETRY_AFTER_S = 1.0


class _Waiting(NamedTuple):
    size_bytes: int
    admitted: "asyncio.Future[None]"


class FifoLimiter:
    """At most `max_items` items and `max_bytes` bytes at once; the others wait in order of arrival."""

    def __init__(self, what: str, *, max_items: int, max_bytes: int, max_waiting: int) -> None:
        self._what = what
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_waiting = max_waiting
        self._queue: deque[_Waiting] = deque()
        self.items = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<FifoLimiter {self._what} items={self.items} bytes={self.size_bytes} waiting={len(self._queue)}>"

    @asynccontextmanager
    async def inside(self, size_bytes: int) -> AsyncIterator[None]:
        await self.enter(size_bytes)
        try:
            yield
        finally:
            self.leave(size_bytes)

    async def enter(self, size_bytes: int) -> None:
        """Wait for room; raise `Overloaded` when too many items wait already."""
        if not self._queue and self._has_room(size_bytes):
            self._take(size_bytes)
            return
        if len(self._queue) >= self._max_waiting:
            raise Overloaded(self._what, limit_bytes=self._max_bytes, retry_after_s=RETRY_AFTER_S)
        waiting = _Waiting(size_bytes, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting.admitted.done() and not waiting.admitted.cancelled():
                self.leave(size_bytes)  # it was admitted while it was cancelled
            elif waiting in self._queue:
                self._queue.remove(waiting)
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        self.items -= 1
        self.size_bytes -= size_bytes
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._has_room(self._queue[0].size_bytes):
            waiting = self._queue.popleft()
            if not waiting.admitted.done():
                self._take(waiting.size_bytes)
                waiting.admitted.set_result(None)

    def _has_room(self, size_bytes: int) -> bool:
        """An item larger than the limit is admitted when no other is inside."""
        fits = self.size_bytes + size_bytes <= self._max_bytes or self.items == 0
        return fits and self.items < self._max_items

    def _take(self, size_bytes: int) -> None:
        self.items += 1
        self.size_bytes += size_bytes


T = TypeVar("T")

LARGE_AT_ONCE: Final = 2
"""Threads for the work of large requests: they share the interpreter with the event loop."""


class LargeWork:
    """Work of large requests, in threads: at most `limit` at once, the others wait."""

    def __init__(self, limit: int = LARGE_AT_ONCE) -> None:
        self._slots = asyncio.Semaphore(limit)
        self.done = 0

    def __repr__(self) -> str:
        return f"<LargeWork done={self.done}>"

    async def run(self, work: Callable[[], T], *, is_large: bool = True) -> T:
        """The result of `work`, which is called on the event loop if it isn't large."""
        if not is_large:
            return work()
        async with self._slots:
            self.done += 1
            return await asyncio.to_thread(work)


ELEMENTS_PER_SLICE: Final = 200
"""Elements of one request that are handled in a row; most take less than 0.05 ms."""


class _Yield:
    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


async def yield_to_loop() -> None:
    """Let other tasks that are ready run first. No time passes, so this needs no clock."""
    await _Yield()


async def iterate_fairly(elements: Iterable[T]) -> AsyncIterator[T]:
    """Yield the elements; other tasks run after every `ELEMENTS_PER_SLICE` of them."""
    left = ELEMENTS_PER_SLICE
    for each in elements:
        if left == 0:
            await yield_to_loop()
            left = ELEMENTS_PER_SLICE
        left -= 1
        yield each
