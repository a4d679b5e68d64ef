"""Block cache: an LRU cache of decoded segment blocks.

Data path   fetch -> reader -> **cache** -> object store
Owns        which blocks are in memory; one read per block for concurrent callers
Leaves      reading and decoding to the caller's function
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from streamhouse.errors import Stopping
from streamhouse.format import batch as batches
from streamhouse.format.batch import BatchSpan


class Block:
    """A decoded block with the positions of its batches, so that a fetch is a bisect and a slice."""

    __slots__ = ("data", "ends", "spans")

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.spans: list[BatchSpan] = batches.iter_batches(data)
        self.ends = [span.end for span in self.spans]

    @property
    def weight(self) -> int:
        return len(self.data)

    def slice(
        self, offset: int, *, max_bytes: int, at_least_one: bool, until: int | None = None
    ) -> tuple[memoryview, int]:
        """Whole batches from the one that contains `offset`, none extending beyond `until`, and the offset after them;
        offsets are the block's."""
        first = last = bisect_right(self.ends, offset)
        stop_at = len(self.spans) if until is None else bisect_right(self.ends, until)
        if first >= stop_at:
            return self.data[:0], offset
        start = end = self.spans[first].position
        while last < stop_at:
            stop = self.spans[last].position + self.spans[last].size_bytes
            if stop - start > max_bytes and not (at_least_one and last == first):
                break
            end, last = stop, last + 1
        return self.data[start:end], self.ends[last - 1] if last > first else offset


class Weighed(Protocol):
    @property
    def weight(self) -> int: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Weighed)


class CacheCounters(Protocol):
    """Counters of a cache. A lookup that waits for another one's read is a hit."""

    hits: int
    misses: int
    evictions: int

    def __len__(self) -> int: ...


class SingleFlightCache(Generic[K, V]):
    """An LRU cache by weight; a missing value is created once for all concurrent callers."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._values: OrderedDict[K, V] = OrderedDict()
        self._flights: dict[K, asyncio.Future[V]] = {}
        self._closed = False
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __repr__(self) -> str:
        return f"<SingleFlightCache values={len(self._values)} weight={self._weight} limit={self._limit}>"

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values or key in self._flights

    @property
    def weight(self) -> int:
        return self._weight

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        value = self._values.get(key)
        if value is not None:
            self.hits += 1
            self._values.move_to_end(key)
            return value
        flight = self._flights.get(key)
        if flight is None:
            if self._closed:
                raise Stopping("the cache is closed: the agent is stopping")
            self.misses += 1
            flight = asyncio.ensure_future(self._fly(key, make))
            self._flights[key] = flight
            flight.add_done_callback(_consume_exception)
        else:
            self.hits += 1
        # Cancelling a waiter must not cancel the shared read.
        return await asyncio.shield(flight)

    async def _fly(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        try:
            value = await make()
            self.keep(key, value)
            return value
        finally:
            del self._flights[key]

    def keep(self, key: K, value: V) -> None:
        """Keep a value that `get` finds; the least recently used ones make room for it."""
        self._values[key] = value
        self._weight += value.weight
        while self._weight > self._limit and len(self._values) > 1:
            _, dropped = self._values.popitem(last=False)
            self._weight -= dropped.weight
            self.evictions += 1

    def forget(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._weight -= value.weight

    async def aclose(self) -> None:
        """Cancel reads in flight, and reject later ones."""
        self._closed = True
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        self._values.clear()
        self._weight = 0


def _consume_exception(flight: "asyncio.Future[V]") -> None:
    """Retrieve the exception, so that asyncio doesn't report a failed read without waiters."""
    if not flight.cancelled():
        flight.exception()
