"""Recovery: what a dead session had acknowledged and not flushed becomes segments.

Data path   dead session's WAL -> **recovery** -> object store, then one metadata transaction that publishes and
            frees the leases
Owns        which entries count: those of the lease's epoch, at and above the flushed end
Leaves      claims to the metadata store, reading and locking of the dead WAL to `wal`

Exactly one agent finishes a recovery, because the claim's number is checked in the transaction that ends it. Whoever
dies half-way leaves objects that nobody refers to, and the next claim begins again.
"""

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.broker.producers import ProducerTable
from streamhouse.broker.reading.reader import SegmentReader
from streamhouse.broker.reading.snapshots import load_producers
from streamhouse.broker.store_time import AgreedTime
from streamhouse.broker.wal.base import Buffer, WalEntry, WalReading
from streamhouse.errors import LeaseLost, Misconfigured, SessionLost, StreamhouseError
from streamhouse.format.batch import BatchHeader, read_header
from streamhouse.format.keys import segment_key
from streamhouse.format.producers import encode_producers
from streamhouse.format.segment import EncodedSegment, RunInput, encode_segment
from streamhouse.model.lease import PartitionState, Session
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit, SegmentObject
from streamhouse.model.transaction import AbortedTransaction

log = logging.getLogger(__name__)

RECOVERED_SEQUENCES: Final = 10**18
"""Recovered segments of a session are numbered from here, above all that it wrote while it lived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a recovery brought back."""

    sessions: int = 0
    records: int = 0
    skipped_entries: int = 0
    abandoned_sessions: int = 0

    def __add__(self, other: "Recovered") -> "Recovered":
        return Recovered(
            sessions=self.sessions + other.sessions,
            records=self.records + other.records,
            skipped_entries=self.skipped_entries + other.skipped_entries,
            abandoned_sessions=self.abandoned_sessions + other.abandoned_sessions,
        )


@dataclass(slots=True, kw_only=True)
class _Rescue:
    """One partition during a recovery."""

    state: PartitionState
    next_offset: int
    base: int
    batches: list[Buffer] = field(default_factory=list)
    placed: list[tuple[BatchHeader, int, Buffer]] = field(default_factory=list)
    producers: ProducerTable | None = None
    """As they stood at `base`; known when the first segment is made."""

    def wants(self, entry: WalEntry) -> bool:
        return entry.epoch == self.state.epoch and entry.base >= self.next_offset

    def take(self, entry: WalEntry) -> int:
        """Keep the entry's batch; a gap before it (a damaged entry) stays a gap. Returns the records gained."""
        header = read_header(entry.batch)
        self.placed.append((header, entry.base, entry.batch))
        self.batches.append(entry.batch)
        self.next_offset = entry.end
        return header.record_count

    def run_input(self, *, now: AgreedTime) -> RunInput:
        assert self.producers is not None
        self.producers.replay(self.placed, now_ms=now.later_ms)
        return RunInput(
            partition=self.state.partition,
            epoch=self.state.epoch,
            base=self.base,
            end=self.next_offset,
            batches=self.batches,
            producers=encode_producers(self.producers.entries(now_ms=now.earlier_ms)),
        )

    def take_aborted(self) -> tuple[AbortedTransaction, ...]:
        """What is aborted in the run that was just made."""
        assert self.producers is not None
        aborted = tuple(self.producers.aborted)
        self.producers.aborted.clear()
        return aborted

    def published(self) -> None:
        self.base = self.next_offset
        self.batches = []
        self.placed = []


class Recovery:
    def __init__(self, doors: Doors, *, by: SessionId, reader: SegmentReader) -> None:
        self._doors = doors
        self._by = by
        self._reader = reader

    async def recover_all(self) -> Recovered:
        """Recover every session known to be dead: its WAL's lock is free, or nobody else can use these stores."""
        dead = set(await self._doors.wals.dead_sessions(self._by))
        if self._doors.alone:
            dead |= {session.session_id for session in (await self._doors.metadata.roll_call()).sessions} - {self._by}
        total = Recovered()
        for session_id in sorted(dead):
            claim = await self._doors.metadata.claim_recovery(session_id, by=self._by, proven_dead=True)
            if claim is None:
                await self._remove_ended(session_id)
            else:
                total += await self._recover(session_id, claim)
        return total

    async def recover(self, dead: Session, *, may_abandon: bool = False) -> Recovered:
        """Recover a session whose time is up by the store's clock, unless somebody else does.

        One whose log can't be read here is left to its own agent, or abandoned where that may be.
        """
        if not await self._is_readable(dead):
            # Only leaders with a disk have reserved what they hand out.
            return await self._abandon(dead) if may_abandon and dead.wal == "disk" else Recovered()
        claim = await self._doors.metadata.claim_recovery(dead.session_id, by=self._by, proven_dead=False)
        return Recovered() if claim is None else await self._recover(dead.session_id, claim)

    async def _is_readable(self, dead: Session) -> bool:
        """A log in the object store can be read by everybody, one on a disk only where that disk is."""
        wals = self._doors.wals_of(dead.wal)
        if wals is None:
            return False
        return dead.wal == "object" or dead.session_id in await wals.dead_sessions(self._by)

    async def _abandon(self, dead: Session) -> Recovered:
        """Its partitions go on above all that it had reserved; what its disk holds is appended again by `returns`."""
        claim = await self._doors.metadata.claim_recovery(dead.session_id, by=self._by, proven_dead=False)
        if claim is None:
            return Recovered()
        await self._doors.metadata.abandon_recovery(dead.session_id, claim)
        log.warning(
            "session abandoned: nobody reaches its disk, and its partitions go on above what it had reserved",
            extra={"session": dead.session_id, "node": dead.node_id, "kafka": str(dead.kafka)},
        )
        return Recovered(abandoned_sessions=1)

    async def _recover(self, dead: SessionId, claim: int) -> Recovered:
        # Read after the claim: no heartbeat moves the mark any more, and nothing above it was deleted.
        session = await self._claimed(dead)
        held = await self._doors.metadata.held_by(dead)
        wals = self._doors.wals_of(session.wal)
        if wals is None:
            raise Misconfigured(
                f"a dead session's write-ahead log can't be read here; session={dead} wal={session.wal}"
            )
        async with wals.read(dead, start=session.wal_start) as reading:
            rescue = _Publication(self._doors, dead, claim, self._reader)
            commits, records = await rescue.publish(reading, held)
            await self._finish(dead, claim, commits)
            damage = reading.damage
            await reading.remove()
        log.info(
            "session recovered",
            extra={"session": dead, "records": records, "skipped": damage.skipped, "cut_bytes": damage.cut_bytes},
        )
        return Recovered(sessions=1, records=records, skipped_entries=damage.skipped)

    async def _claimed(self, dead: SessionId) -> Session:
        for session in (await self._doors.metadata.roll_call()).sessions:
            if session.session_id == dead:
                return session
        raise SessionLost(dead, why="somebody else has recovered it")

    async def _remove_ended(self, dead: SessionId) -> None:
        """A session that ended had flushed everything, unless it was abandoned: then its log is for `returns`. One that
        the store never heard of is another story: its log belongs to other metadata, and may be all that is left of
        what was acknowledged."""
        if await self._doors.metadata.abandoned_ranges(dead):
            return
        try:
            await self._doors.metadata.end_session(dead)
        except SessionLost as error:
            log.warning("write-ahead log left alone", extra={"session": dead, "why": str(error)})
        else:
            await self._doors.wals.remove(dead)

    async def _finish(self, dead: SessionId, claim: int, commits: Sequence[SegmentCommit]) -> None:
        """Publish and end; without the partitions whose topic was deleted in the meantime."""
        while True:
            try:
                return await self._doors.metadata.finish_recovery(dead, claim, commits)
            except LeaseLost as error:
                kept = _without(commits, set(error.partitions))
                if kept == commits:
                    raise
                commits = kept


def _without(commits: Sequence[SegmentCommit], lost: Container[object]) -> list[SegmentCommit]:
    kept = [commit.only([run for run in commit.runs if run.partition not in lost]) for commit in commits]
    return [commit for commit in kept if commit.runs]


class _Publication:
    """The segments of one recovery."""

    def __init__(self, doors: Doors, dead: SessionId, claim: int, reader: SegmentReader) -> None:
        self._doors = doors
        self._dead = dead
        self._reader = reader
        # Each claim numbers from its own start, so that a recoverer who died half-way is never collided with.
        self._sequence = RECOVERED_SEQUENCES + claim * 10**9
        self._commits: list[SegmentCommit] = []

    async def publish(self, reading: WalReading, held: Sequence[PartitionState]) -> tuple[Sequence[SegmentCommit], int]:
        states = {state.partition: state for state in held}
        rescues: dict[PartitionId, _Rescue] = {}
        size = records = 0
        async for entry in reading.entries():
            state = states.get(entry.partition)
            if state is None or entry.epoch != state.epoch or entry.base < state.flushed_end:
                continue
            rescue = rescues.get(entry.partition)
            if rescue is None:
                rescue = _Rescue(state=state, next_offset=state.flushed_end, base=state.flushed_end)
                rescues[entry.partition] = rescue
            if not rescue.wants(entry):
                continue
            records += rescue.take(entry)
            size += len(entry.batch)
            if size >= self._doors.settings.flush.segment_bytes:
                await self._put(list(rescues.values()))
                size = 0
        await self._put(list(rescues.values()))
        return self._commits, records

    async def _know_producers(self, rescues: Sequence[_Rescue]) -> None:
        unknown = {rescue.state.partition: rescue for rescue in rescues if rescue.producers is None}
        tables = await load_producers(
            {at: rescue.state.flushed_end for at, rescue in unknown.items()},
            self._doors.settings.producers,
            metadata=self._doors.metadata,
            reader=self._reader,
            log_starts={at: rescue.state.log_start for at, rescue in unknown.items()},
            now_ms=self._doors.agreed_time().later_ms,
        )
        for partition, table in tables.items():
            if isinstance(table, StreamhouseError):
                raise table
            unknown[partition].producers = table

    async def _put(self, rescues: Sequence[_Rescue]) -> None:
        full = [rescue for rescue in rescues if rescue.batches]
        if not full:
            return
        await self._know_producers(full)
        now = self._doors.agreed_time()
        encode = partial(_encode, full, now=now, block_bytes=self._doors.settings.flush.block_bytes)
        encoded = await asyncio.get_running_loop().run_in_executor(None, encode)
        self._sequence += 1
        key = segment_key(self._dead, self._sequence)
        await self._doors.objects.put_new(key, encoded.body)
        self._commits.append(
            SegmentCommit(
                segment=SegmentObject(key=key, size_bytes=encoded.size_bytes, created_at_ms=now.later_ms),
                runs=tuple(layout.run(key) for layout in encoded.layouts),
                aborted={rescue.state.partition: each for rescue in full if (each := rescue.take_aborted())},
            )
        )
        for rescue in full:
            rescue.published()


def _encode(full: Sequence[_Rescue], *, now: AgreedTime, block_bytes: int) -> EncodedSegment:
    """In a thread: many small batches take long to replay and to encode."""
    return encode_segment([rescue.run_input(now=now) for rescue in full], block_bytes=block_bytes)
