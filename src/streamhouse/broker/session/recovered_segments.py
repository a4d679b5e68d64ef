"""RecoveredSegments: the segments that a recovery writes from a dead session's log, and its losses.

Data path   entries of a dead session's WAL -> **recovered_segments** -> object store; rows follow in `recovery`
Owns        which entries are valid: those of the lease's epoch, at or above the flushed end; which offsets are lost,
            and where a partition continues if the number of assigned offsets is unknown
Leaves      reading the log to `wal`, claims and the publishing transaction to `recovery`

In a damaged log the other entries still have their offsets. What is missing between two entries of a partition remains
a gap. After the last entry the extent is unknown, so a partition without an entry after the last loss continues
`cluster.reserve_offsets` higher for each lost place.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.segments.producer_snapshots import load_producers
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.wal.base import WalReader
from streamhouse.clock import AgreedTime
from streamhouse.config import FlushSettings
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.format.batch import BatchHeader, Buffer, read_header
from streamhouse.format.loss_report import PartitionLoss
from streamhouse.format.object_keys import RECOVERED_SEQUENCES, segment_key
from streamhouse.format.producer_snapshot import encode_producers
from streamhouse.format.segment import EncodedSegment, RunInput, encode_segment
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit, SegmentObject
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.objects.base import ObjectMissing

log = logging.getLogger(__name__)

MAX_GAPS: Final = 100
"""Maximum gaps of one partition in a report."""


@dataclass(slots=True, kw_only=True)
class _RecoveredPartition:
    """One partition during a recovery."""

    state: PartitionState
    next_offset: int
    base: int
    gaps: list[tuple[int, int]] = field(default_factory=list)
    doubts: list[int] = field(default_factory=list)
    """Positions in `placed` before which entries were lost."""
    batches: list[Buffer] = field(default_factory=list)
    placed: list[tuple[BatchHeader, int, Buffer]] = field(default_factory=list)
    producers: ProducerTable | None = None
    """The producer state at `base`; known when the first segment is written."""

    def wants(self, entry: WalEntry) -> bool:
        return entry.epoch == self.state.epoch and entry.base >= self.next_offset

    def take(self, entry: WalEntry) -> int:
        """Add the entry's batch; a gap before it (lost entries) remains a gap. Returns the number of recovered
        records."""
        header = read_header(entry.batch)
        if entry.base > self.next_offset:
            self.gaps.append((self.next_offset, entry.base))
            self.doubts.append(len(self.placed))
        self.placed.append((header, entry.base, entry.batch))
        self.batches.append(entry.batch)
        self.next_offset = entry.end
        return header.record_count

    def run_input(self, *, now: AgreedTime) -> RunInput:
        assert self.producers is not None
        self._replay(self.producers, now_ms=now.later_ms)
        return RunInput(
            partition=self.state.partition,
            epoch=self.state.epoch,
            base=self.base,
            end=self.next_offset,
            batches=self.batches,
            producers=encode_producers(self.producers.entries(now_ms=now.earlier_ms)),
        )

    def _replay(self, producers: ProducerTable, *, now_ms: int) -> None:
        """Replay batches up to a gap. After it the producers' last sequence numbers are uncertain: their next one is
        accepted."""
        start = 0
        for position in self.doubts:
            producers.replay(self.placed[start:position], now_ms=now_ms)
            producers.mark_uncertain(self.placed[position - 1][1] if position else self.base)
            start = position
        producers.replay(self.placed[start:], now_ms=now_ms)

    def take_aborted(self) -> tuple[AbortedTransaction, ...]:
        """Return and clear the transactions aborted in the last run."""
        assert self.producers is not None
        aborted = tuple(self.producers.aborted)
        self.producers.aborted.clear()
        return aborted

    def published(self) -> None:
        self.base = self.next_offset
        self.batches = []
        self.placed = []
        self.doubts = []


class RecoveredSegments:
    """The segments of one recovery."""

    def __init__(self, dependencies: Dependencies, dead: SessionId, claim: int, reader: SegmentReader) -> None:
        self._dependencies = dependencies
        self._dead = dead
        self._reader = reader
        # Each claim has its own range of numbers, so that it never collides with objects of an interrupted recovery.
        self._sequence = RECOVERED_SEQUENCES + claim * 10**9
        self._commits: list[SegmentCommit] = []
        self._states: Mapping[PartitionId, PartitionState] = {}
        self._rescues: dict[PartitionId, _RecoveredPartition] = {}
        self._known: dict[PartitionId, int] = {}
        """The number of losses before the last entry of a partition."""
        self._flushed: dict[PartitionId, int] = {}
        """Ends of the last entries below the flushed ends."""
        self.records = 0

    async def publish(self, reading: WalReader, held: Sequence[PartitionState]) -> Sequence[SegmentCommit]:
        """Write segments of all valid entries; returns the commits to register."""
        self._states = {state.partition: state for state in held}
        size = 0
        async for entry in reading.entries():
            state = self._states.get(entry.partition)
            if state is None or entry.epoch != state.epoch:
                continue
            self._known[entry.partition] = reading.damage.losses
            if entry.base < state.flushed_end:
                self._flushed[entry.partition] = max(entry.end, self._flushed.get(entry.partition, 0))
                continue
            rescue = self._rescues.get(entry.partition)
            if rescue is None:
                rescue = _RecoveredPartition(state=state, next_offset=state.flushed_end, base=state.flushed_end)
                self._rescues[entry.partition] = rescue
            if not rescue.wants(entry):
                continue
            self.records += rescue.take(entry)
            size += len(entry.batch)
            if size >= self._dependencies.settings.flush.segment_bytes:
                await self._put(list(self._rescues.values()))
                size = 0
        await self._put(list(self._rescues.values()))
        return self._commits

    def continue_at(self, losses: int) -> Mapping[PartitionId, int]:
        """The offsets at which partitions continue that may have lost entries after their last known one."""
        each = self._dependencies.settings.cluster.reserve_offsets
        return {
            partition: max(self._end(state) + unknown * each, state.reserved_until)
            for partition, state in self._states.items()
            if (unknown := losses - self._known.get(partition, 0)) > 0
        }

    @property
    def has_gaps(self) -> bool:
        """Whether assigned offsets are missing; never in a complete log."""
        return any(rescue.gaps for rescue in self._rescues.values())

    async def unpublished(self) -> Mapping[PartitionId, tuple[int, int]]:
        """Offsets below the flushed end that are in this log but in no segment. What was deleted since the leases were
        read, with its topic or by retention, is not missing: both are looked at after the runs."""
        metadata = self._dependencies.metadata
        runs = await metadata.last_runs(list(self._flushed)) if self._flushed else ()
        ends = {run.partition: run.end for run in runs}
        suspects = {at: ends.get(at, 0) for at, flushed in self._flushed.items() if ends.get(at, 0) < flushed}
        held = await metadata.held_by(self._dead) if suspects else ()
        return {
            state.partition: (end, self._states[state.partition].flushed_end)
            for state in held
            if state.partition in suspects
            and (end := max(suspects[state.partition], state.log_start)) < self._flushed[state.partition]
        }

    def lost(
        self, continue_at: Mapping[PartitionId, int], unpublished: Mapping[PartitionId, tuple[int, int]]
    ) -> Iterable[PartitionLoss]:
        """The partitions with lost, or possibly lost, offsets."""
        for partition, state in self._states.items():
            rescue = self._rescues.get(partition)
            gaps = rescue.gaps[:MAX_GAPS] if rescue is not None else []
            skipped = [(self._end(state), continue_at[partition])] if partition in continue_at else []
            missed = [unpublished[partition]] if partition in unpublished else []
            if gaps or skipped or missed:
                yield PartitionLoss(
                    topic_id=str(partition.topic_id),
                    partition=partition.partition,
                    epoch=state.epoch,
                    gaps=gaps,
                    skipped=skipped,
                    unpublished=missed,
                )

    def _end(self, state: PartitionState) -> int:
        rescue = self._rescues.get(state.partition)
        return rescue.next_offset if rescue is not None else state.flushed_end

    async def _know_producers(self, recoveries: Sequence[_RecoveredPartition]) -> None:
        unknown = {rescue.state.partition: rescue for rescue in recoveries if rescue.producers is None}
        tables = await load_producers(
            {at: rescue.state.flushed_end for at, rescue in unknown.items()},
            self._dependencies.settings.producers,
            metadata=self._dependencies.metadata,
            reader=self._reader,
            log_starts={at: rescue.state.log_start for at, rescue in unknown.items()},
            now_ms=self._dependencies.agreed_time().later_ms,
        )
        for partition, table in tables.items():
            if isinstance(table, Unavailable) and not isinstance(table.__cause__, ObjectMissing):
                raise table
            state = unknown[partition].state
            known = self._unknown_producers(state, table) if isinstance(table, StreamhouseError) else table
            unknown[partition].producers = known

    def _unknown_producers(self, state: PartitionState, why: StreamhouseError) -> ProducerTable:
        """Continue without the producer state if its segment is damaged: the producers' next sequence numbers are
        accepted."""
        log.error(
            "producer state of a recovered partition is lost",
            extra={"partition": str(state.partition), "session": self._dead, "why": str(why)},
        )
        settings = self._dependencies.settings.producers
        table = ProducerTable(
            limit=settings.max_per_partition,
            expire_ms=round(settings.expire_s * 1000),
            key_limit=settings.max_keys_per_partition,
        )
        return table.mark_uncertain(state.log_start)

    async def _put(self, recoveries: Sequence[_RecoveredPartition]) -> None:
        full = [rescue for rescue in recoveries if rescue.batches]
        if not full:
            return
        await self._know_producers(full)
        now = self._dependencies.agreed_time()
        encode = partial(_encode, full, now=now, settings=self._dependencies.settings.flush)
        encoded = await asyncio.get_running_loop().run_in_executor(None, encode)
        self._sequence += 1
        key = segment_key(self._dead, self._sequence)
        await self._dependencies.objects.put_new(key, encoded.body)
        self._commits.append(
            SegmentCommit(
                segment=SegmentObject(key=key, size_bytes=encoded.size_bytes, created_at_ms=now.later_ms),
                runs=tuple(layout.run(key) for layout in encoded.layouts),
                aborted={rescue.state.partition: each for rescue in full if (each := rescue.take_aborted())},
            )
        )
        for rescue in full:
            rescue.published()


def _encode(full: Sequence[_RecoveredPartition], *, now: AgreedTime, settings: FlushSettings) -> EncodedSegment:
    """Encode a segment; runs in a thread, because many small batches take long."""
    runs = [rescue.run_input(now=now) for rescue in full]
    # Clients wait for the partitions: compressed batches get their key filters when they are merged.
    return encode_segment(runs, block_bytes=settings.block_bytes, key_filters=settings.key_filters, decompress_bytes=0)
