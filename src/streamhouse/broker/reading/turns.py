"""Turns: so many at once, and whoever waits is served partition by partition.

Data path   reader -> **turns** -> object store, or disk tier
Owns        who is next
Leaves      what is done with a turn to the caller

In one queue for all, a partition whose readers have a hundred blocks to catch up on would be served a hundred times
before a reader of another one gets its first. Here each partition has a queue of its own, and they go round.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


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
