"""WatchedStore: whether writes of this agent reach the object store.

Data path   flush, WAL -> **watched** -> retrying -> ... -> a bucket
Owns        when a write last reached the store, and since when none does
Leaves      what follows from it to the broker
"""

from collections.abc import AsyncIterator

from streamhouse.clock import Clock
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta, ObjectStore


class PutWatch:
    """The state of the writes, by the monotonic clock; does no I/O."""

    def __init__(self) -> None:
        self.last_at: float | None = None
        """When a write last reached the store."""
        self.failing_since: float | None = None
        """Since when none does, though one was tried; None while nothing is wrong, or nothing was written."""
        self.in_flight = 0

    def __repr__(self) -> str:
        return f"<PutWatch last_at={self.last_at} failing_since={self.failing_since} in_flight={self.in_flight}>"

    def began(self, now: float) -> None:
        self.in_flight += 1
        if self.failing_since is None:
            self.failing_since = now

    def ended(self, now: float, *, reached: bool) -> None:
        self.in_flight -= 1
        if reached:
            self.last_at = now
            self.failing_since = now if self.in_flight else None


class WatchedStore:
    """An `ObjectStore` around another."""

    def __init__(self, inner: ObjectStore, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.puts = PutWatch()

    def __repr__(self) -> str:
        return f"<WatchedStore {self.puts!r} {self._inner!r}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        self.puts.began(self._clock.monotonic())
        reached = False
        try:
            await self._inner.put_new(key, body)
            reached = True
        except ObjectExists:
            reached = True
            raise
        finally:
            self.puts.ended(self._clock.monotonic(), reached=reached)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        return await self._inner.get_range(key, start, end)

    async def get_suffix(self, key: str, length: int) -> bytes:
        return await self._inner.get_suffix(key, length)

    async def head(self, key: str) -> ObjectMeta:
        return await self._inner.head(key)

    def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        return self._inner.list(prefix)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)

    async def aclose(self) -> None:
        await self._inner.aclose()
