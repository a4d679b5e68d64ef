"""AdaptiveStore: adapts the number of concurrent requests to the bucket's slow-down responses and errors.

Data path   retrying -> **adaptive** -> metered -> a bucket
Owns        the number of concurrent requests, the pause after a slow-down response, the queues
Leaves      retries to `retrying`; recognising slow-down responses to the bucket's module

Reads, WAL writes, other writes and housekeeping (deletes, listings) have a queue each, so that none of them waits for
another: an ack never waits for segments of 64 MiB, and deletes proceed while reads are throttled. In a queue, the limit
grows by one for every round of successes and is halved on slow-down responses and errors, like TCP's congestion window;
requests that were in flight at a cut don't cut again. After a slow-down response nothing is sent for a pause, then one
request, and others only after it succeeded. The pause doubles with every further slow-down response: each queue then
sends one request per pause.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from streamhouse.clock import Clock, Ids
from streamhouse.errors import Unavailable
from streamhouse.format.object_keys import WAL_PREFIX
from streamhouse.stores.objects.base import (
    Buffers,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectStore,
    Refused,
    Throttled,
)

OPERATION_CLASSES: Final = ("read", "wal", "write", "housekeeping")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySettings:
    max_concurrent: int = 64  # concurrent requests of one queue
    max_waiting: int = 1024  # calls waiting in one queue; further ones are rejected
    max_wait_s: float = 30.0  # longest wait in a queue
    first_pause_s: float = 0.1  # after a slow-down response; doubles with the next one, with jitter
    max_pause_s: float = 5.0


class ConcurrencyLimit:
    """The limit of concurrent requests of a queue, and the time of the next request. Without I/O."""

    def __init__(self, settings: ConcurrencySettings, ids: Ids) -> None:
        self._settings = settings
        self._ids = ids
        self._limit = float(settings.max_concurrent)
        self._pause_s = 0.0
        self._cut_at = float("-inf")
        self.resume_at = float("-inf")

    @property
    def limit(self) -> int:
        """The current limit; 1 after a slow-down response until that request succeeded."""
        return 1 if self._pause_s > 0 else int(self._limit)

    def succeeded(self, *, began_at: float) -> None:
        if began_at >= self._cut_at:
            self._pause_s = 0.0
        self._limit = min(float(self._settings.max_concurrent), self._limit + 1 / self._limit)

    def failed(self, *, began_at: float, now: float, complained: bool) -> None:
        if began_at < self._cut_at:
            return  # part of the burst that has caused the cut
        self._cut_at = now
        self._limit = max(1.0, self._limit / 2)
        if complained:
            first_s, longest_s = self._settings.first_pause_s, self._settings.max_pause_s
            self._pause_s = min(longest_s, max(first_s, self._pause_s * 2))
            self.resume_at = now + self._ids.jitter(self._pause_s)


class RequestQueue:
    """A FIFO queue of requests to the bucket."""

    def __init__(self, name: str, settings: ConcurrencySettings, clock: Clock, ids: Ids) -> None:
        self.name = name
        self.pace = ConcurrencyLimit(settings, ids)
        self._settings = settings
        self._clock = clock
        self._running = 0
        self._waiting = 0
        self._turn = asyncio.Lock()  # its holder is the first of the queue
        self._freed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<RequestQueue {self.name} running={self._running} limit={self.pace.limit} waiting={self._waiting}>"

    @asynccontextmanager
    async def slot(self, *, counts: bool = True) -> AsyncIterator[None]:
        """A slot for one request; its outcome adapts the limit. Results from an already fetched page don't count as
        successes."""
        await self._admit()
        began_at = self._clock.monotonic()
        try:
            yield
            if counts:
                self.pace.succeeded(began_at=began_at)
        except (ObjectExists, ObjectMissing):
            self.pace.succeeded(began_at=began_at)
            raise
        except Refused:
            raise  # neither a success nor a sign of overload
        except Unavailable as error:
            complained = isinstance(error, Throttled)
            self.pace.failed(began_at=began_at, now=self._clock.monotonic(), complained=complained)
            raise
        finally:
            self._running -= 1
            self._freed.set()

    async def _admit(self) -> None:
        if not self._turn.locked() and self._is_free():
            self._running += 1
            return
        if self._waiting >= self._settings.max_waiting:
            raise Unavailable(f"too many calls wait for the object store; lane={self.name} waiting={self._waiting}")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.max_wait_s), self._turn:
                await self._wait_until_free()
                self._running += 1
        except TimeoutError:
            raise Unavailable(
                f"waited too long for a turn at the object store; lane={self.name}"
                f" waited_s={self._settings.max_wait_s:g} limit={self.pace.limit}"
            ) from None
        finally:
            self._waiting -= 1

    async def _wait_until_free(self) -> None:
        """Wait for a slot. Reads the clock once per round: a pause that ends between two reads would look like a full
        queue."""
        while (pause_s := self.pace.resume_at - self._clock.monotonic()) > 0 or self._running >= self.pace.limit:
            if pause_s > 0:
                await self._clock.sleep(pause_s)
            else:
                self._freed.clear()
                await self._freed.wait()

    def _is_free(self) -> bool:
        return self._running < self.pace.limit and self._clock.monotonic() >= self.pace.resume_at


class AdaptiveStore:
    """An `ObjectStore` around another."""

    def __init__(
        self,
        inner: ObjectStore,
        clock: Clock,
        ids: Ids,
        registry: CollectorRegistry,
        settings: ConcurrencySettings | None = None,
    ) -> None:
        self._inner = inner
        queues = [RequestQueue(name, settings or ConcurrencySettings(), clock, ids) for name in OPERATION_CLASSES]
        self._read, self._wal, self._write, self._housekeeping = queues
        _register(registry, queues)

    def __repr__(self) -> str:
        queues = f"{self._read!r} {self._wal!r} {self._write!r} {self._housekeeping!r}"
        return f"<AdaptiveStore {queues} {self._inner!r}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        queue = self._wal if key.startswith(WAL_PREFIX) else self._write
        async with queue.slot():
            await self._inner.put_new(key, body)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        async with self._read.slot():
            return await self._inner.get_range(key, start, end)

    async def get_suffix(self, key: str, length: int) -> bytes:
        async with self._read.slot():
            return await self._inner.get_suffix(key, length)

    async def head(self, key: str) -> ObjectMeta:
        async with self._read.slot():
            return await self._inner.head(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """List objects; holds a slot only during requests, so that the caller may delete listed objects."""
        listing = aiter(self._inner.list(prefix))
        while True:
            async with self._housekeeping.slot(counts=False):
                meta = await anext(listing, None)
            if meta is None:
                return
            yield meta

    async def delete(self, key: str) -> None:
        async with self._housekeeping.slot():
            await self._inner.delete(key)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _register(registry: CollectorRegistry, queues: Sequence[RequestQueue]) -> None:
    limits = Gauge(
        "streamhouse_object_store_concurrency_limit",
        "requests that may be under way at once; below store.max_concurrent: the store asked for fewer",
        ["lane"],
        registry=registry,
    )
    for queue in queues:
        limits.labels(queue.name).set_function(partial(_limit_of, queue))


def _limit_of(queue: RequestQueue) -> float:
    return queue.pace.limit
