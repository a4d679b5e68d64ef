"""RetryingStore: trouble that passes is waited out, within limits.

Data path   broker -> **retrying** -> (adaptive ->) metered -> a bucket
Owns        when to retry and when to give up; distinguishing our own earlier write from another writer's
Leaves      what counts as trouble to the bucket's module, longer patience to the caller

A write that failed may have happened. When the next try finds the name taken, the object is read back: same length and
same checksum is our own write, which succeeded; anything else is another writer's. Only after a failure of ours: a
name that is taken at the first try is taken. Errors that need an operator are not retried here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from crc32c import crc32c

from streamhouse.clock import Clock, Ids
from streamhouse.errors import Unavailable
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta, ObjectMissing, ObjectStore, Refused

T = TypeVar("T")

_READ_BACK_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    attempts: int = 5
    total_s: float = 20.0  # no new attempt begins after this
    attempt_timeout_s: float | None = 30.0  # None: the store keeps deadlines of its own
    first_wait_s: float = 0.1  # doubles with every attempt, with jitter
    max_wait_s: float = 3.0


class _RetryBudget:
    """Counts the attempts of one call."""

    def __init__(self, settings: RetrySettings, clock: Clock, ids: Ids) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._give_up_at = clock.monotonic() + settings.total_s
        self.failures = 0

    async def wait(self, error: Unavailable) -> None:
        """Wait before the next attempt, or raise the error when there is none."""
        if isinstance(error, Refused):
            raise error
        self.failures += 1
        longest = min(self._settings.max_wait_s, self._settings.first_wait_s * 2 ** (self.failures - 1))
        wait_s = self._ids.jitter(longest)
        if self.failures >= self._settings.attempts or self._clock.monotonic() + wait_s > self._give_up_at:
            raise error
        await self._clock.sleep(wait_s)


class RetryingStore:
    """An `ObjectStore` around another."""

    def __init__(self, inner: ObjectStore, clock: Clock, ids: Ids, settings: RetrySettings | None = None) -> None:
        self._inner = inner
        self._clock = clock
        self._ids = ids
        self._settings = settings or RetrySettings()

    def __repr__(self) -> str:
        return f"<RetryingStore attempts={self._settings.attempts} {self._inner!r}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        budget = self._retry_budget()
        while True:
            try:
                return await self._put_once(key, body, maybe_written=budget.failures > 0)
            except Unavailable as error:
                await budget.wait(error)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        return await self._retry(partial(self._inner.get_range, key, start, end))

    async def get_suffix(self, key: str, length: int) -> bytes:
        return await self._retry(partial(self._inner.get_suffix, key, length))

    async def head(self, key: str) -> ObjectMeta:
        return await self._retry(partial(self._inner.head, key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """A retry continues after the last key seen; keys are sorted, so none is missed or repeated."""
        budget = self._retry_budget()
        last = ""
        while True:
            try:
                async for meta in self._inner.list(prefix):
                    if meta.key > last:
                        last = meta.key
                        yield meta
            except Unavailable as error:
                await budget.wait(error)
            else:
                return

    async def delete(self, key: str) -> None:
        await self._retry(partial(self._inner.delete, key))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _retry_budget(self) -> _RetryBudget:
        return _RetryBudget(self._settings, self._clock, self._ids)

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        budget = self._retry_budget()
        while True:
            try:
                return await self._once(call)
            except Unavailable as error:
                await budget.wait(error)

    async def _once(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._settings.attempt_timeout_s):
                return await call()
        except TimeoutError:
            raise Unavailable(f"object store timed out; timeout_s={self._settings.attempt_timeout_s}") from None

    async def _put_once(self, key: str, body: Buffers, *, maybe_written: bool) -> None:
        try:
            await self._once(partial(self._inner.put_new, key, body))
        except ObjectExists:
            if not (maybe_written and await self._once(partial(self._is_there, key, body))):
                raise

    async def _is_there(self, key: str, body: Buffers) -> bool:
        """Whether the object has this body. If it neither exists nor can be created, the error is transient: the next
        attempt decides."""
        try:
            meta = await self._inner.head(key)
            if meta.size_bytes != sum(memoryview(buffer).nbytes for buffer in body):
                return False
            return await self._stored_checksum(key, meta.size_bytes) == _checksum(body)
        except ObjectMissing:
            raise Unavailable(f"object store says both that a key is taken and that it is not; key={key}") from None

    async def _stored_checksum(self, key: str, size_bytes: int) -> int:
        checksum = 0
        for start in range(0, size_bytes, _READ_BACK_BYTES):
            checksum = crc32c(await self._inner.get_range(key, start, start + _READ_BACK_BYTES), checksum)
        return checksum


def _checksum(body: Buffers) -> int:
    checksum = 0
    for buffer in body:
        checksum = crc32c(buffer, checksum)
    return checksum
