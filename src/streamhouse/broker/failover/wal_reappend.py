"""WalReappend: records on a disk that came back after its session was abandoned are appended again, as new records.

Data path   the local WAL of an abandoned session -> **wal_reappend** -> the partition's leader, local or remote
Owns        which entries are appended (the lease's epoch, within the abandoned range), their order, when a file is
            deleted
Leaves      abandoning sessions to `cluster_sync`; reading the WAL to `wal.disk_recovery`

Other leaders have continued above every offset that the dead session could have assigned, so its offsets remain a gap
and its records get new ones. Sequence numbers are removed, since they would be out of order by now. A file is deleted
once the leaders have acknowledged all of it. An agent that dies before that appends the file again, so consumers may
see these records twice, but none is lost.

Records of transactions are appended without their transaction, once it is known that it was not aborted.
`TransactionOutcomes` finds that out: from the marker in the same WAL, or from the row that an abort leaves in the
metadata store. That row is written with the segment of the marker, so it is read only after everything up to the end
of the transaction is flushed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.wal.disk_recovery import DiskWalReader, DiskWalRecovery
from streamhouse.errors import ConcurrentTransactions, NotLeader, StreamhouseError, Unavailable
from streamhouse.format.batch import BatchHeader, read_header, without_log_fields
from streamhouse.format.loss_report import LossReport, encode_report
from streamhouse.format.transactions import read_marker
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.cluster import AbandonedRange
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.names import PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic
from streamhouse.model.transaction import AbortedTransaction, TransactionState


class _EndMarker(NamedTuple):
    offset: int
    is_commit: bool


class TransactionOutcomes:
    """The outcomes of the transactions in one log; `add_markers` must be called with all its markers first."""

    def __init__(
        self, dependencies: Dependencies, *, latest: Callable[[TopicPartition], Awaitable[OffsetResult]]
    ) -> None:
        self._metadata = dependencies.metadata
        self._page = dependencies.settings.transactions.aborted_kept
        self._latest = latest
        self._ends: dict[tuple[PartitionId, int], list[_EndMarker]] = {}
        self._flushed_at: dict[PartitionId, int] = {}
        self.has_markers = False

    def __repr__(self) -> str:
        return f"<TransactionOutcomes producers={len(self._ends)}>"

    def add_markers(self, entries: Iterable[WalEntry]) -> None:
        """Add markers, in the order of the log."""
        self.has_markers = True
        for entry in entries:
            marker = read_marker(entry.batch)
            at = (entry.partition, marker.producer.producer_id)
            self._ends.setdefault(at, []).append(_EndMarker(entry.base, marker.is_commit))

    async def is_aborted(self, name: TopicPartition, entry: WalEntry, header: BatchHeader) -> bool:
        """Whether the batch's transaction was aborted. Raises `Retriable` while the outcome is unknown."""
        for end in self._ends.get((entry.partition, header.producer_id), ()):
            if end.offset > entry.base:
                return not end.is_commit
        await self._require_ended(entry.partition, header)
        await self._require_flushed(name, entry.partition)
        rows = await self._rows(entry.partition, entry.base)
        return any(each.producer_id == header.producer_id and each.first_offset <= entry.base for each in rows)

    async def _require_ended(self, partition: PartitionId, header: BatchHeader) -> None:
        row = await self._metadata.transaction_of(header.producer_id)
        if row is None or partition not in row.partitions:
            return
        if row.state is TransactionState.ONGOING or row.state.is_prepared:
            raise ConcurrentTransactions(row.transactional_id)

    async def _require_flushed(self, name: TopicPartition, partition: PartitionId) -> None:
        """Raise until everything up to the high watermark at the first call is flushed."""
        if partition not in self._flushed_at:
            self._flushed_at[partition] = (await self._latest(name)).offset
        states = await self._metadata.partitions([partition.topic_id])
        flushed_end = max((state.flushed_end for state in states if state.partition == partition), default=0)
        if flushed_end < self._flushed_at[partition]:
            raise Unavailable(f"the end of a transaction may not be flushed yet; partition={name}")

    async def _rows(self, partition: PartitionId, offset: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions with markers at or above `offset`."""
        aborted: list[AbortedTransaction] = []
        while True:
            page = (await self._metadata.aborted({partition: offset}, limit=self._page)).get(partition, ())
            aborted += page
            if len(page) < self._page:
                return aborted
            offset = page[-1].last_offset + 1


log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Pass:
    """One pass over one log."""

    ranges: Mapping[PartitionId, AbandonedRange]
    topics: Mapping[TopicId, Topic]
    acknowledged: dict[PartitionId, int]
    """The position of each partition, including earlier passes."""
    outcomes: TransactionOutcomes
    stuck: dict[PartitionId, StreamhouseError] = field(default_factory=dict)
    """Partitions skipped for the rest of this pass, because a rejected entry must not be overtaken."""
    skipped_records: int = 0

    def wants(self, entry: WalEntry) -> bool:
        given_up = self.ranges.get(entry.partition)
        return (
            given_up is not None
            and entry.epoch == given_up.epoch
            and given_up.from_offset <= entry.base < given_up.until
            and entry.base >= self.acknowledged.get(entry.partition, 0)
        )


class WalReappend:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        cluster: Cluster,
        append: Callable[[TopicPartition, memoryview], Awaitable[PendingAppend]],
        acknowledge: Callable[[PendingAppend], Awaitable[None]],
        latest: Callable[[TopicPartition], Awaitable[OffsetResult]],
    ) -> None:
        self._dependencies = dependencies
        self._cluster = cluster
        self._append_here = append
        self._acknowledge = acknowledge
        self._latest = latest
        self._outcomes: dict[SessionId, TransactionOutcomes] = {}
        self._acknowledged: dict[SessionId, dict[PartitionId, int]] = {}
        self.waiting = 0
        """Logs on this disk that are not completely re-appended."""
        self.records = 0
        self.skipped_records = 0
        self.aborted_records = 0

    def __repr__(self) -> str:
        return f"<WalReappend waiting={self.waiting} records={self.records} skipped={self.skipped_records}>"

    async def run(self, own: SessionId) -> None:
        """Re-append the logs of abandoned sessions on this disk; returns when none is left."""
        wals = self._dependencies.wals_of("disk")
        if self._dependencies.single_agent or not isinstance(wals, DiskWalRecovery):
            return
        settings = self._dependencies.settings.flush
        wait = settings.retry_s
        while True:
            before = self.records
            try:
                if await self._round(wals, own):
                    return
            except (StreamhouseError, OSError) as error:
                log.warning("records of this disk not appended again yet", extra={"why": str(error)})
            wait = settings.retry_s if self.records > before else min(wait * 2, settings.retry_max_s)
            await self._dependencies.clock.sleep(self._dependencies.ids.jitter(wait))

    async def _round(self, wals: DiskWalRecovery, own: SessionId) -> bool:
        abandoned: dict[SessionId, Sequence[AbandonedRange]] = {}
        for session_id in await wals.dead_sessions(own):
            if ranges := await self._dependencies.metadata.abandoned_ranges(session_id):
                abandoned[session_id] = ranges
        self.waiting = len(abandoned)
        for session_id, ranges in abandoned.items():
            async with wals.read(session_id) as reading:
                if await self._return(session_id, ranges, reading, own):
                    self.waiting -= 1
        return self.waiting == 0

    async def _return(
        self, session_id: SessionId, ranges: Sequence[AbandonedRange], reading: DiskWalReader, own: SessionId
    ) -> bool:
        """Re-append one log; False if another pass is needed."""
        work = _Pass(
            ranges={each.partition: each for each in ranges},
            topics={topic.topic_id: topic for topic in await self._dependencies.metadata.topics()},
            acknowledged=self._acknowledged.setdefault(session_id, {}),
            outcomes=self._outcomes.setdefault(
                session_id, TransactionOutcomes(self._dependencies, latest=self._latest)
            ),
        )
        before, is_complete = self.records, True
        for name in await reading.files():
            work.skipped_records = 0
            if await self._return_file(reading, name, work, own):
                self.skipped_records += work.skipped_records
                if reading.is_damaged(name):
                    await self._keep(session_id, reading, own)
                await reading.remove_file(name)
            else:
                is_complete = False
        _report(session_id, work, self.records - before)
        if not is_complete:
            return False
        # Rows first: the next start removes a log without rows, but rows without a log would remain forever.
        await self._dependencies.metadata.forget_abandoned(session_id)
        await reading.remove()
        del self._acknowledged[session_id], self._outcomes[session_id]
        return True

    async def _keep(self, session_id: SessionId, reading: DiskWalReader, own: SessionId) -> None:
        """Retain an unreadable file on this disk with a report: it may be repaired from a copy."""
        now_ms, damage = self._dependencies.clock.now_ms(), reading.damage
        report = LossReport(
            session=session_id,
            kind="disk",
            found_by=own,
            found_at_ms=now_ms,
            losses=damage.losses,
            skipped=damage.skipped,
            cut=damage.cut,
            unreadable_bytes=damage.unreadable_bytes,
            places=damage.places,
        )
        await reading.keep(encode_report(report), number=now_ms)

    async def _return_file(self, reading: DiskWalReader, name: str, work: _Pass, own: SessionId) -> bool:
        """Re-append one file; True if the current leaders have acknowledged all of its valid entries."""
        entries_by_partition: dict[PartitionId, list[WalEntry]] = {}
        has_transactions = False
        async for entry in reading.entries_in(name):
            if entry.partition.topic_id not in work.topics:
                work.skipped_records += read_header(entry.batch).record_count
            elif work.wants(entry):
                entries_by_partition.setdefault(entry.partition, []).append(entry)
                has_transactions = has_transactions or read_header(entry.batch).is_transactional
        if has_transactions:
            await self._see_markers(reading, work)
        turns = asyncio.Semaphore(self._dependencies.settings.cluster.returns_at_once)

        async def in_turn(partition: PartitionId, entries: Sequence[WalEntry]) -> None:
            async with turns:
                await self._append_all(partition, entries, work, own)

        async with asyncio.TaskGroup() as tasks:
            for partition, entries in entries_by_partition.items():
                tasks.create_task(in_turn(partition, entries), name="return")
        # Decided by acknowledgements, not by the absence of errors: a file with unacknowledged entries is never
        # deleted.
        return all(work.acknowledged.get(each, 0) >= entries[-1].end for each, entries in entries_by_partition.items())

    async def _see_markers(self, reading: DiskWalReader, work: _Pass) -> None:
        """Read the markers of all files once: a marker may be in a later file than its batches."""
        if work.outcomes.has_markers:
            return
        ranges = work.ranges
        markers: list[WalEntry] = []
        for name in await reading.files():
            async for entry in reading.entries_in(name):
                given_up = ranges.get(entry.partition)
                if given_up is not None and entry.epoch == given_up.epoch and read_header(entry.batch).is_control:
                    markers.append(entry)
        work.outcomes.add_markers(markers)

    async def _append_all(
        self, partition: PartitionId, entries: Sequence[WalEntry], work: _Pass, own: SessionId
    ) -> None:
        """Append in order: each entry after the previous one is acknowledged."""
        topic = work.topics[partition.topic_id]
        for entry in entries:
            if partition in work.stuck:
                return
            try:
                counted = await self._append_one(topic, entry, work, own)
            except StreamhouseError as error:
                work.stuck[partition] = error
                self._cluster.invalidate_leases(partition.topic_id)
            else:
                work.acknowledged[partition] = entry.end
                self.records += counted

    async def _append_one(self, topic: Topic, entry: WalEntry, work: _Pass, own: SessionId) -> int:
        """Append one entry; returns the number of appended records, 0 for an entry that is skipped."""
        header = read_header(entry.batch)
        if header.is_control:
            return 0
        name = TopicPartition(topic.name, entry.partition.partition)
        if header.is_transactional and await work.outcomes.is_aborted(name, entry, header):
            self.aborted_records += header.record_count
            return 0
        await self._append(name, entry.partition, without_log_fields(entry.batch), own)
        return header.record_count

    async def _append(self, name: TopicPartition, partition: PartitionId, batch: bytearray, own: SessionId) -> None:
        leader = (await self._cluster.leader_of(partition)).session
        if leader is None:
            raise NotLeader(name, node_id=None, epoch=-1, address=None)
        if leader.session_id == own:
            await self._acknowledge(await self._append_here(name, memoryview(batch)))
        else:
            await self._dependencies.agents.append(leader.kafka, partition, batch)


def _report(session_id: SessionId, work: _Pass, records: int) -> None:
    fields = {"session": session_id, "records": records}
    if work.stuck:
        partition, why = next(iter(work.stuck.items()))
        stuck = {"partitions": len(work.stuck), "first": str(partition), "why": str(why)}
        log.warning("records of this disk not appended again yet", extra={**fields, **stuck})
    else:
        log.info("records of this disk appended again, as new ones", extra=fields)
