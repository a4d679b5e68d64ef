"""MeteredStore: metrics of requests to the object store: count, outcome, bytes, duration.

Data path   retrying -> **metered** -> a bucket, so that every attempt counts: a bucket bills attempts
Owns        the metrics of the object store
Leaves      collecting them to the registry it is given
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from streamhouse.clock import Clock
from streamhouse.errors import Unavailable
from streamhouse.stores.objects.base import (
    Buffers,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectStore,
    Refused,
    Throttled,
)

OPERATIONS: Final = ("put_new", "get_range", "get_suffix", "head", "list", "delete")
OUTCOMES: Final = ("ok", "exists", "missing", "throttled", "refused", "unavailable", "cancelled", "error")
LIST_PAGE: Final = 1000  # objects in one page of a listing
_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class MeteredStore:
    """An `ObjectStore` around another. A registry can have the metrics of one store only."""

    def __init__(self, inner: ObjectStore, registry: CollectorRegistry, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        requests = Counter(
            "streamhouse_object_store_requests",
            "requests to the object store, every attempt counted",
            ["operation", "outcome"],
            registry=registry,
        )
        shipped_bytes = Counter(
            "streamhouse_object_store_bytes", "bytes written to and read from it", ["operation"], registry=registry
        )
        seconds = Histogram(
            "streamhouse_object_store_seconds", "time it took", ["operation"], buckets=_BUCKETS_S, registry=registry
        )
        self._requests = {
            (name, outcome): requests.labels(name, outcome) for name in OPERATIONS for outcome in OUTCOMES
        }
        self._bytes = {name: shipped_bytes.labels(name) for name in ("put_new", "get_range", "get_suffix")}
        self._seconds = {name: seconds.labels(name) for name in OPERATIONS}

    def __repr__(self) -> str:
        return f"<MeteredStore {self._inner!r}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        with self._measured("put_new"):
            await self._inner.put_new(key, body)
        self._bytes["put_new"].inc(sum(memoryview(buffer).nbytes for buffer in body))

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        with self._measured("get_range"):
            data = await self._inner.get_range(key, start, end)
        self._bytes["get_range"].inc(len(data))
        return data

    async def get_suffix(self, key: str, length: int) -> bytes:
        with self._measured("get_suffix"):
            data = await self._inner.get_suffix(key, length)
        self._bytes["get_suffix"].inc(len(data))
        return data

    async def head(self, key: str) -> ObjectMeta:
        with self._measured("head"):
            return await self._inner.head(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """List objects; counts every page as a request. The duration includes the caller's own time."""
        listed = 0
        with self._measured("list"):
            async for meta in self._inner.list(prefix):
                listed += 1
                if listed > LIST_PAGE:
                    self._requests["list", "ok"].inc()
                    listed = 1
                yield meta

    async def delete(self, key: str) -> None:
        with self._measured("delete"):
            await self._inner.delete(key)

    async def aclose(self) -> None:
        await self._inner.aclose()

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        began = self._clock.monotonic()
        outcome = "error"
        try:
            yield
            outcome = "ok"
        except GeneratorExit:
            outcome = "ok"  # the caller has stopped reading the listing
            raise
        except BaseException as error:
            outcome = _outcome(error)
            raise
        finally:
            self._requests[operation, outcome].inc()
            self._seconds[operation].observe(self._clock.monotonic() - began)


def _outcome(error: BaseException) -> str:
    match error:
        case ObjectExists():
            return "exists"
        case ObjectMissing():
            return "missing"
        case Throttled():
            return "throttled"
        case Refused():
            return "refused"
        case Unavailable():
            return "unavailable"
        case asyncio.CancelledError():
            return "cancelled"
        case _:
            return "error"
