"""A model of the object WAL's protocol on the simulated loop: one writer that is taken for dead, those who recover it,
a bucket in bad weather, and what must be true of all that the writer ever acknowledged.

There are no leases here, so that the log has to keep its promise alone: whatever it acknowledges, also as a zombie and
also after its objects were removed, is flushed or was found by the recovery that ended it. A zombie takes a number of
further appends only: without an end, it could outrun whoever reads its log, which leases prevent.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import Context
from typing import Final

from streamhouse.broker.wal.object_recovery import ObjectWalFactory, ObjectWalReader
from streamhouse.broker.wal.object_wal import ObjectWal
from streamhouse.clock import Ids
from streamhouse.config import WalSettings
from streamhouse.errors import AppendFailed, Overloaded, SessionSealed, Unavailable
from streamhouse.format.object_keys import parse_wal_key, wal_key
from streamhouse.format.wal_file import WalEntry
from streamhouse.format.wal_object import SEAL_BYTES, WalObject, read_object
from streamhouse.model.names import Epoch, PartitionId
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta, ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.retrying import RetryingStore, RetrySettings
from tests.broker.wal.object_support import DEAD
from tests.broker.wal.support import CLICKS, ORDERS
from tests.simulation.clocks import SimClock
from tests.simulation.loop import SimLoop, Violation

PARTITIONS: Final = (ORDERS, CLICKS)
SETTINGS: Final = WalSettings(
    kind="object", window_ms=30, window_bytes=600, uploads=4, max_pending_bytes=6000, retry_s=0.05, retry_max_s=0.5
)


class StormyBucket:
    """Calls take time and fail; a PUT that failed may have happened, or may happen seconds later."""

    may_overwrite = False

    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self.inner = MemoryObjectStore(SimClock(loop))
        self.trouble = chance.choice([0.0, 0.05, 0.15])

    async def put_new(self, key: str, body: Buffers) -> None:
        sent = b"".join(body)
        outcome = await self._travel()
        if outcome == "late":
            self._loop.call_later(self._chance.uniform(0, 5), self._land, key, sent, context=Context())
        elif outcome != "refused":
            await self._store(key, sent)
        await self._return(outcome)

    def _land(self, key: str, sent: bytes) -> None:
        self._loop.create_task(self._store_quietly(key, sent), name="late-put")

    async def _store_quietly(self, key: str, sent: bytes) -> None:
        with suppress(ObjectExists):
            await self._store(key, sent)

    async def _store(self, key: str, sent: bytes) -> None:
        if self.may_overwrite:
            await self.inner.delete(key)
        await self.inner.put_new(key, [sent])

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        outcome = await self._travel()
        data = await self.inner.get_range(key, start, end)
        await self._return(outcome)
        return data

    async def get_suffix(self, key: str, length: int) -> bytes:
        raise NotImplementedError

    async def head(self, key: str) -> ObjectMeta:
        outcome = await self._travel()
        meta = await self.inner.head(key)
        await self._return(outcome)
        return meta

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        await self._return(await self._travel())
        async for meta in self.inner.list(prefix):
            yield meta

    async def delete(self, key: str) -> None:
        outcome = await self._travel()
        if outcome != "refused":
            await self.inner.delete(key)
        await self._return(outcome)

    async def aclose(self) -> None:
        return

    async def _travel(self) -> str:
        await self._delay()
        dice = self._chance.random()
        return next((name for name in ("lost", "refused", "late") if (dice := dice - self.trouble) < 0), "fine")

    async def _return(self, outcome: str) -> None:
        await self._delay()
        if outcome != "fine":
            raise Unavailable(f"time-out; fate={outcome}")

    async def _delay(self) -> None:
        slow = self._chance.uniform(10, 100) if self._chance.random() < self.trouble else 1.0
        await asyncio.sleep(self._chance.expovariate(1 / 0.01) * slow)


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.loop = SimLoop(self.chance)
        self.clock = SimClock(self.loop)
        self.bucket = StormyBucket(self.loop, self.chance)
        # The writer sees every fault itself, or what is left of them behind the retries that all stores have.
        self.wals = self._wals(self._retrying())
        self.writers_wals = self._wals(self.bucket if self.chance.random() < 0.5 else self._retrying())
        self.next = dict.fromkeys(PARTITIONS, 0)
        self.acked: dict[PartitionId, set[int]] = {partition: set() for partition in PARTITIONS}
        # What the metadata store holds, and who may still change it.
        self.flushed = dict.fromkeys(PARTITIONS, 0)
        self.mark = 0
        self.is_claimed = False
        self.found: list[WalEntry] | None = None
        self.damaged: dict[PartitionId, set[int]] = {partition: set() for partition in PARTITIONS}
        """What stood in objects that the bucket lost."""
        self.wal: ObjectWal | None = None

    def _retrying(self) -> RetryingStore:
        deadline = RetrySettings(attempts=8, first_wait_s=0.02, max_wait_s=0.2)
        return RetryingStore(self.bucket, self.clock, Ids(self.chance), deadline)

    def _wals(self, objects: ObjectStore) -> ObjectWalFactory:
        return ObjectWalFactory(objects, SETTINGS, clock=self.clock, ids=Ids(self.chance))

    def run(self) -> int:
        """Live through the seed; returns how many offsets were acknowledged."""
        self.loop.run(self._main(), max_steps=300_000)
        assert not self.loop.problems, self.loop.problems
        return sum(map(len, self.acked.values()))

    # --- the writer

    async def _write(self) -> None:
        self.wal = await self.writers_wals.open(DEAD)
        left = self.chance.choice([0, 10, 100])
        while self.wal.failed is None and left:
            left -= self.is_claimed
            partition = self.chance.choice(PARTITIONS)
            entries = [self._entry(partition, n) for n in range(self.chance.randrange(1, 4))]
            with suppress(Overloaded):
                commit = self.wal.append(entries)
                self.next[partition] += len(entries)
                commit.add_done_callback(lambda done, entries=entries: self._ack(done, entries))  # type: ignore[misc]
            await asyncio.sleep(self.chance.choice([0.0, 0.001, 0.02, 0.2]))

    def _entry(self, partition: PartitionId, ahead: int) -> WalEntry:
        base = self.next[partition] + ahead
        return WalEntry(partition, Epoch(1), base, base + 1, bytes(self.chance.choice([0, 50, 700])))

    def _ack(self, commit: "asyncio.Future[None]", entries: list[WalEntry]) -> None:
        if commit.exception() is None:
            self.acked[entries[0].partition].update(entry.base for entry in entries)

    async def _flush_and_beat(self) -> None:
        """Publish some of what is durable, truncate the log, and store the mark with the next heartbeat."""
        while self.wal is None or self.wal.failed is None:
            await asyncio.sleep(self.chance.uniform(0, 0.5))
            if self.wal is None:
                continue
            partition = self.chance.choice(PARTITIONS)
            durable = max(self.acked[partition], default=-1) + 1
            if not self.is_claimed and durable > self.flushed[partition]:
                self.flushed[partition] = self.chance.randint(self.flushed[partition], durable)
            published = self.flushed[partition]
            await asyncio.sleep(self.chance.uniform(0, 0.1))
            await self.wal.truncate({partition: published})
            mark = self.wal.first_retained
            await asyncio.sleep(self.chance.uniform(0, 0.3))
            if self.is_claimed:
                continue
            self.mark = mark
            await asyncio.sleep(self.chance.uniform(0, 0.1))
            await self.wal.delete_below(mark)

    # --- recovery

    async def _recover(self, start: int) -> None:
        while self.found is None:
            try:
                async with self.wals.read(DEAD, start=start) as reading:
                    results = [entry async for entry in reading.entries()]
                    self._check_damage(reading)
                    self.found = self.found or results
                    await reading.remove()
            except Unavailable:
                await asyncio.sleep(0.1)

    async def _damage_at_rest(self, start: int) -> None:
        """Nothing happens to what was stored, in this world."""

    def _check_damage(self, reading: ObjectWalReader) -> None:
        assert reading.damage.is_clean

    async def _main(self) -> None:
        writer = self.loop.new_process("writer")
        self.loop.spawn(writer, self._write(), name="write")
        self.loop.spawn(writer, self._flush_and_beat(), name="beat")
        await asyncio.sleep(self.chance.uniform(0.2, 4))
        outcome = self.chance.choice(["kill", "pause", "presumed"])
        if outcome == "kill":
            self.loop.kill(writer)
        elif outcome == "pause":
            self.loop.pause(writer, self.chance.uniform(0.1, 6))
        await asyncio.sleep(self.chance.uniform(0, 1))
        self.is_claimed = True
        start = self.mark
        await self._damage_at_rest(start)
        await self._recover_by_turns(start)
        self.bucket.trouble = 0.0
        await asyncio.sleep(20)
        self._check()
        if outcome != "kill":
            await self._require_sealed()

    async def _require_sealed(self) -> None:
        assert self.wal is not None
        with suppress(AppendFailed):
            await self.wal.append([self._entry(ORDERS, 0)])
            raise Violation("a sealed log took an append")
        if not isinstance(self.wal.failed, SessionSealed):
            raise Violation(f"the zombie never learned that it is dead; wal={self.wal!r}")

    async def _recover_by_turns(self, start: int) -> None:
        """Recoverers die half-way; at last one gets through."""
        for _ in range(self.chance.randrange(3)):
            doomed = self.loop.new_process("recoverer")
            self.loop.spawn(doomed, self._recover(start), name="recover")
            await asyncio.sleep(self.chance.uniform(0, 0.5))
            self.loop.kill(doomed)
        await self._recover(start)

    # --- what must be true

    def _check(self) -> None:
        assert self.found is not None
        for partition in PARTITIONS:
            results = [entry.base for entry in self.found if entry.partition == partition]
            if results != sorted(set(results)):
                raise Violation(f"entries out of order, or twice; partition={partition} found={results}")
            lost = {base for base in self.acked[partition] if base >= self.flushed[partition]} - set(results)
            lost -= self.damaged[partition]
            if lost:
                raise Violation(f"acknowledged and lost; partition={partition} lost={sorted(lost)}")
        if not any(len(held.body) == SEAL_BYTES for held in self.bucket.inner._objects.values()):
            raise Violation("the seal is gone")


class LossyWorld(World):
    """The bucket loses an object that was durable, and that another one says so of."""

    lost: int | None = None
    noticed = False

    async def _damage_at_rest(self, start: int) -> None:
        numbers = [name.sequence for name in map(parse_wal_key, self.bucket.inner._objects) if name is not None]
        durable = max([(await self._read(number)).durable_below or 0 for number in numbers], default=0)
        choices = [number for number in numbers if start <= number < durable]
        if not choices:
            return
        self.lost = self.chance.choice(sorted(choices))
        for entry in (await self._read(self.lost)).entries:
            self.damaged[entry.partition].add(entry.base)
        self.stored = {wal_key(DEAD, number) for number in numbers if number >= start and number != self.lost}
        await self.bucket.inner.delete(wal_key(DEAD, self.lost))

    async def _read(self, number: int) -> WalObject:
        data = await self.bucket.inner.get_range(wal_key(DEAD, number), 0, 1 << 30)
        return read_object(memoryview(data), session=DEAD, sequence=number)

    def _check_damage(self, reading: ObjectWalReader) -> None:
        self.noticed = not reading.damage.is_clean
        # A late PUT of the same object may bring it back.
        if self.lost is None or wal_key(DEAD, self.lost) in self.bucket.inner._objects:
            return
        if (reading.damage.missing, reading.damage.skipped) != (1, 0):
            raise Violation(f"a lost object was not noticed; number={self.lost} damage={reading.damage}")

    def _check(self) -> None:
        super()._check()
        if self.noticed and (gone := self.stored - set(self.bucket.inner._objects)):
            raise Violation(f"objects of a damaged log were deleted; {sorted(gone)}")
