"""Turns: so many at once, and whoever waits is served partition by partition.

Data path   reader -> **turns** -> object store, or disk tier
Owns        who is next
Leaves      what is done with a turn to the caller

In one queue for all, a partition whose readers have a hundred blocks to catch up on would be served a hundred times
before a reader of another one gets its first. Here each partition has a queue of its own, and they go round.

Gate: so much at once and no more; who comes too early waits in line.

Data path   whoever sends something to another agent goes through a **gate** first
Owns        the count and the bytes inside, the line outside
Leaves      what the limits are, and how long somebody waits, to the caller

Turns: how much of one request is done before other requests have their turn.

Data path   beside handlers and whatever goes through the many elements of a request one by one
Owns        giving way to others on the event loop, without which one request for everything stops all others
Leaves      how many requests of a client are begun in a row to the wires
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Generator, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeVar

from streamhouse.errors import Overloaded


class Turns:
    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Turns free={self._free} waiting={self.waiting} of={len(self._waiting)}>"

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, whose: Hashable) -> AsyncIterator[None]:
        await self._take(whose)
        try:
            yield
        finally:
            self._give()

    async def _take(self, whose: Hashable) -> None:
        if self._free > 0:  # then nobody waits: a turn that ends goes to a waiter first
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(whose, deque()).append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.cancelled():
                self._leave(whose, waiter)
            else:
                self._give()  # the turn came in the moment in which its owner left
            raise

    def _leave(self, whose: Hashable, waiter: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(whose)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[whose]

    def _give(self) -> None:
        """To the first of the partition that was served longest ago."""
        while self._waiting:
            whose, queue = next(iter(self._waiting.items()))
            waiter = queue.popleft()
            if queue:
                self._waiting.move_to_end(whose)
            else:
                del self._waiting[whose]
            if not waiter.done():  # else it was cancelled, and hasn't left yet
                waiter.set_result(None)
                return
        self._free += 1


RETRY_AFTER_S = 1.0


class _Waiting(NamedTuple):
    size_bytes: int
    admitted: "asyncio.Future[None]"


class Gate:
    def __init__(self, what: str, *, max_items: int, max_bytes: int, max_waiting: int) -> None:
        self._what = what
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_waiting = max_waiting
        self._line: deque[_Waiting] = deque()
        self.items = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<Gate {self._what} items={self.items} bytes={self.size_bytes} waiting={len(self._line)}>"

    @asynccontextmanager
    async def inside(self, size_bytes: int) -> AsyncIterator[None]:
        await self.enter(size_bytes)
        try:
            yield
        finally:
            self.leave(size_bytes)

    async def enter(self, size_bytes: int) -> None:
        """Wait for a place; raise `Overloaded` when the line is too long already."""
        if not self._line and self._has_room(size_bytes):
            self._take(size_bytes)
            return
        if len(self._line) >= self._max_waiting:
            raise Overloaded(self._what, limit_bytes=self._max_bytes, retry_after_s=RETRY_AFTER_S)
        waiting = _Waiting(size_bytes, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting.admitted.done() and not waiting.admitted.cancelled():
                self.leave(size_bytes)  # it was let in at the moment in which it gave up
            elif waiting in self._line:
                self._line.remove(waiting)
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        self.items -= 1
        self.size_bytes -= size_bytes
        self._admit()

    def _admit(self) -> None:
        while self._line and self._has_room(self._line[0].size_bytes):
            waiting = self._line.popleft()
            if not waiting.admitted.done():
                self._take(waiting.size_bytes)
                waiting.admitted.set_result(None)

    def _has_room(self, size_bytes: int) -> bool:
        """What is larger than the limit goes alone."""
        fits = self.size_bytes + size_bytes <= self._max_bytes or self.items == 0
        return fits and self.items < self._max_items

    def _take(self, size_bytes: int) -> None:
        self.items += 1
        self.size_bytes += size_bytes


T = TypeVar("T")

ELEMENTS_A_TURN: Final = 200
"""So many elements of one request are handled in a row; most take less than 0.05 ms."""


class YieldToLoop:
    """Awaited: whoever else is ready goes first. No time passes, so it is none of the clock's business."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


async def in_turns(elements: Iterable[T]) -> AsyncIterator[T]:
    """The elements, one after the other; others have their turn after every `ELEMENTS_A_TURN` of them."""
    left = ELEMENTS_A_TURN
    for each in elements:
        if left == 0:
            await YieldToLoop()
            left = ELEMENTS_A_TURN
        left -= 1
        yield each
