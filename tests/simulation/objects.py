"""SimObjects: a bucket that outlives agents, and the door through which one agent reaches it in any weather.

Owns        what a fault of an object store looks like from outside
Leaves      when faults happen to `weather`, the objects themselves to the product's memory store
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextvars import Context
from typing import TypeVar

from streamhouse.errors import Unavailable
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta, ObjectMissing
from streamhouse.stores.objects.memory import MemoryObjectStore

from .clocks import EPOCH_MS
from .loop import SimLoop, Violation
from .metadata import SimDatabase
from .weather import Weather

T = TypeVar("T")

CALL_S = 0.004
LATE_S = 8.0
CUT_SHARE = 0.3
"""Of the wrong answers, those that end too early."""


class ObjectDoor:
    """An `ObjectStore`, as one agent sees it."""

    def __init__(
        self,
        loop: SimLoop,
        bucket: MemoryObjectStore,
        database: SimDatabase,
        weather: Weather,
        *,
        damaged: Set[str] = frozenset(),
        detached: float = 0.0,
        sending: Callable[[str], None] | None = None,
    ) -> None:
        """`damaged` are objects that may be missing though rows name them.

        `detached` is the share of PUTs that arrive whatever becomes of the process that sent them meanwhile.
        `sending` is told of each of the others, when it is about to travel."""
        self._loop = loop
        self._database = database
        self._bucket = bucket
        self._weather = weather
        self._damaged = damaged
        self._chance = weather.chance
        self._detached = detached
        self._sending = sending

    async def put_new(self, key: str, body: Buffers) -> None:
        sent = b"".join(body)
        if self._detached and self._chance.random() < self._detached:
            await self._put_detached(key, sent)
            return
        if self._sending is not None:
            self._sending(key)
        outcome = await self._travel()
        if sent != b"".join(body):
            self._loop.fail(Violation(f"the bytes of a PUT changed while it was under way; key={key}"))
        self._loop.note(f"put {key} bytes={len(sent)} {outcome}")
        if outcome == "late":
            delay = self._chance.uniform(0, LATE_S)
            self._loop.call_later(delay, self._land, key, sent, context=Context())
            await asyncio.sleep(self._chance.uniform(0, 1))
        elif outcome != "refused":
            await self._bucket.put_new(key, [sent])
        await self._return(outcome, key)

    async def _put_detached(self, key: str, sent: bytes) -> None:
        """On the wire already: it arrives though its sender is stopped or dead."""
        done: asyncio.Future[ObjectExists | None] = self._loop.create_future()
        delay = self._weather.delay(self._weather.objects, CALL_S)
        outcome = self._weather.outcome(self._weather.objects)
        self._loop.note(f"put {key} bytes={len(sent)} {outcome} detached")
        if outcome == "late":
            self._loop.call_later(self._chance.uniform(0, LATE_S), self._land, key, sent, context=Context())
            await asyncio.sleep(self._chance.uniform(0, 1))
        elif outcome != "refused":
            self._loop.call_later(delay, self._arrive, key, sent, done, context=Context())
            if (error := await done) is not None:
                raise error
        await self._return(outcome, key)

    def _arrive(self, key: str, sent: bytes, done: "asyncio.Future[ObjectExists | None]") -> None:
        self._loop.create_task(self._put_and_tell(key, sent, done), name="detached-put")

    async def _put_and_tell(self, key: str, sent: bytes, done: "asyncio.Future[ObjectExists | None]") -> None:
        error: ObjectExists | None = None
        try:
            await self._bucket.put_new(key, [sent])
        except ObjectExists as exists:
            error = exists
        if not done.done():
            done.set_result(error)

    def _land(self, key: str, sent: bytes) -> None:
        """A PUT that nobody waits for any more arrives."""
        self._loop.note(f"late put lands {key}")
        self._loop.create_task(self._put_quietly(key, sent), name="late-put")

    async def _put_quietly(self, key: str, sent: bytes) -> None:
        try:
            await self._bucket.put_new(key, [sent])
        except ObjectExists:
            return

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._rotten(await self._read(lambda: self._bucket.get_range(key, start, end), key))

    async def get_suffix(self, key: str, length: int) -> bytes:
        return self._rotten(await self._read(lambda: self._bucket.get_suffix(key, length), key))

    def _rotten(self, data: bytes) -> bytes:
        """Now and then a bit is wrong, or the end is missing, and the store doesn't know."""
        if not data or self._chance.random() >= self._weather.objects.rot:
            return data
        if self._chance.random() < CUT_SHARE:
            self._loop.note("a body is cut short")
            return data[: self._chance.randrange(len(data))]
        bit = self._chance.randrange(len(data) * 8)
        self._loop.note(f"a bit is wrong; bit={bit}")
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        return bytes(wrong)

    async def head(self, key: str) -> ObjectMeta:
        return await self._read(lambda: self._bucket.head(key), key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        await self._return(await self._travel(), prefix)
        newest_ms = EPOCH_MS + (self._loop.time() - self._weather.objects.list_late_s) * 1000
        async for meta in self._bucket.list(prefix):
            if meta.modified_at_ms > newest_ms:
                self._loop.note(f"not listed yet: {meta.key}")
                continue
            yield meta
            if self._chance.random() < 0.1:
                await self._return(await self._travel(), prefix)

    async def delete(self, key: str) -> None:
        outcome = await self._travel()
        self._loop.note(f"delete {key} {outcome}")
        if outcome == "late" and self._detached:
            self._loop.call_later(self._chance.uniform(0, LATE_S), self._delete_late, key, context=Context())
        elif outcome != "refused":
            if self._database.is_published(key):
                self._loop.fail(Violation(f"an object was deleted that readers need; key={key}"))
            await self._bucket.delete(key)
        await self._return(outcome, key)

    def _delete_late(self, key: str) -> None:
        self._loop.note(f"late delete lands {key}")
        if self._database.is_published(key):
            self._loop.fail(Violation(f"an object was deleted that readers need; key={key}"))
        self._loop.create_task(self._bucket.delete(key), name="late-delete")

    async def aclose(self) -> None:
        return

    async def _read(self, call: Callable[[], Awaitable[T]], key: str) -> T:
        outcome = await self._travel()
        await self._return(outcome, key)
        try:
            return await call()
        except ObjectMissing:
            if self._database.is_published(key) and key not in self._damaged:
                self._loop.fail(Violation(f"an object is missing that readers need; key={key}"))
            raise

    async def _travel(self) -> str:
        await asyncio.sleep(self._weather.delay(self._weather.objects, CALL_S))
        return self._weather.outcome(self._weather.objects)

    async def _return(self, outcome: str, key: str) -> None:
        await asyncio.sleep(self._weather.delay(self._weather.objects, CALL_S))
        if outcome != "fine":
            raise Unavailable(f"object store answered 503; key={key} fate={outcome}")
