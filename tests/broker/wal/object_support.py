"""Support for tests of the object WAL: a bucket whose results a test decides, and helpers to write and read."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.broker.wal.object_wal import ObjectWal
from streamhouse.clock import Clock, Ids
from streamhouse.config import WalSettings
from streamhouse.errors import Unavailable
from streamhouse.format.object_keys import parse_wal_key, wal_key, wal_prefix
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.broker.wal.support import ManualClock, plain, settle

DEAD = SessionId("s-" + "d" * 32)
ALIVE = SessionId("s-" + "a" * 32)


class Bucket:
    """An `ObjectStore` in memory. PUTs meet the fate that a test gave to their key: `lost` (it happens, the answer is
    an error), `refused` (only the error), `late` (the error now; it happens when the test says `land`), `held` (no
    answer, and nothing happens, until `release`). Buffers must not change while a PUT is under way."""

    def __init__(self, clock: Clock) -> None:
        self.inner = MemoryObjectStore(clock)
        self.is_away = False
        self.puts: list[str] = []
        self.deleted: list[str] = []
        self.wrong_bits: deque[int] = deque()
        """Of the next reads: which byte comes wrong; negative: none."""
        self._outcomes: dict[str, deque[str]] = {}
        self._late: dict[str, bytes] = {}
        self._held: dict[str, asyncio.Event] = {}

    def outcome(self, sequence: int, *outcomes: str, session: SessionId = DEAD) -> None:
        self._outcomes[wal_key(session, sequence)] = deque(outcomes)

    async def land(self, sequence: int, session: SessionId = DEAD) -> None:
        """A late PUT arrives, if there is one; its result is lost."""
        key = wal_key(session, sequence)
        if (sent := self._late.pop(key, None)) is not None:
            with suppress(ObjectExists):
                await self.inner.put_new(key, [sent])

    async def release(self, sequence: int, session: SessionId = DEAD) -> None:
        self._held.pop(wal_key(session, sequence)).set()
        await settle()

    async def put_new(self, key: str, body: Buffers) -> None:
        self.puts.append(key)
        sent = b"".join(body)
        outcome = self._outcomes[key].popleft() if self._outcomes.get(key) else "fine"
        if outcome == "held":
            self._held[key] = asyncio.Event()
            await self._held[key].wait()
        assert sent == b"".join(body), "a buffer changed while its PUT was under way"
        if outcome == "late":
            self._late[key] = sent
        elif outcome != "refused" and not self.is_away:
            await self.inner.put_new(key, [sent])
        if outcome in ("lost", "refused", "late") or self.is_away:
            raise Unavailable(f"time-out; fate={outcome}")

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        self._require_here()
        data = await self.inner.get_range(key, start, end)
        wrong = self.wrong_bits.popleft() if self.wrong_bits else -1
        return data if wrong < 0 else data[:wrong] + bytes([data[wrong] ^ 1]) + data[wrong + 1 :]

    async def get_suffix(self, key: str, length: int) -> bytes:
        self._require_here()
        return await self.inner.get_suffix(key, length)

    async def head(self, key: str) -> ObjectMeta:
        self._require_here()
        return await self.inner.head(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        self._require_here()
        async for meta in self.inner.list(prefix):
            yield meta

    async def delete(self, key: str) -> None:
        self._require_here()
        self.deleted.append(key)
        await self.inner.delete(key)

    async def aclose(self) -> None:
        return

    def _require_here(self) -> None:
        if self.is_away:
            raise Unavailable("nobody answers")

    async def numbers(self, session: SessionId = DEAD) -> Sequence[int]:
        """Which objects of the session are there."""
        names = [parse_wal_key(meta.key) async for meta in self.inner.list(wal_prefix(session))]
        return [name.sequence for name in names if name is not None]

    async def replace(self, sequence: int, data: bytes, session: SessionId = DEAD) -> None:
        await self.inner.delete(wal_key(session, sequence))
        await self.inner.put_new(wal_key(session, sequence), [data])

    async def bytes_of(self, sequence: int, session: SessionId = DEAD) -> bytes:
        return await self.inner.get_range(wal_key(session, sequence), 0, 1 << 40)


def wals_on(bucket: Bucket, clock: Clock | None = None, **settings: Any) -> ObjectWalFactory:
    """Without pauses between objects, unless a test is about them: time stands still here."""
    chosen = WalSettings(kind="object", **{"window_ms": 0, **settings})
    return ObjectWalFactory(bucket, chosen, clock=clock or ManualClock(), ids=Ids(random.Random(1)))


async def open_object_wal(
    bucket: Bucket, clock: Clock | None = None, session: SessionId = DEAD, **settings: Any
) -> ObjectWal:
    return await wals_on(bucket, clock, **settings).open(session)


async def recovered(bucket: Bucket, *, start: int = 0, session: SessionId = DEAD) -> list[WalEntry]:
    """What a recoverer finds, who seals the log."""
    async with wals_on(bucket).read(session, start=start) as reading:
        results = [plain(entry) async for entry in reading.entries()]
        assert reading.damage.is_clean
        return results
