"""PartitionLog: one open partition on its leader, from the flushed end to the next offset.

Data path   produce -> **log** (check the sequence, assign offsets, queue in the WAL: one synchronous step) -> WAL ->
            flush
Owns        offsets, the tail in memory, the high watermark, the producer state
Leaves      durability to `wal`; segments to `session.flush` and `segments.reader`; the lease to
            `session.agent_session`; the last stable offset to `stable_offset`

Invariants  log_start <= flushed_end <= high_watermark <= next_offset, and none of them ever decreases
            log_start <= last_stable_offset <= high_watermark
            the tail holds exactly the batches of [flushed_end, next_offset)
            bytes of an appended batch are never written again: readers and sockets hold views of them
"""

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from streamhouse.broker.partition.backpressure import AppendBarrier
from streamhouse.broker.partition.offset_reservation import UNLIMITED, OffsetReservation
from streamhouse.broker.partition.producer_state import FIRST_KEY_ID, ProducerTable
from streamhouse.broker.partition.stable_offset import MAX_RETAINED, AbortedIndex, LastStableOffset
from streamhouse.broker.wal.base import Wal
from streamhouse.errors import AppendFailed, Retriable
from streamhouse.format import batch as batches
from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.producer_snapshot import ProducerEntry
from streamhouse.format.transactions import marker_batch
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.topic import TopicConfig
from streamhouse.model.transaction import AbortedTransaction, Marker


class TailBatch(NamedTuple):
    header: BatchHeader
    base: int
    end: int
    data: Buffer
    appended_at: float


class HighWatermarkListener(Protocol):
    """Somebody who waits for a partition to move: a long poll."""

    def wake(self) -> None: ...


class PendingAppend(NamedTuple):
    """An append that has its offsets and is on its way into the WAL, or a duplicate of one."""

    log: "PartitionLog"
    base_offset: int
    end: int
    append_time_ms: int
    commit: "asyncio.Future[None] | None"

    async def wait_durable(self) -> None:
        """Return once the append may be acknowledged; raise `AppendFailed` when it never will be."""
        if self.commit is not None:
            # One waiter who gives up must not cancel the commit for everybody else in the group.
            await asyncio.shield(self.commit)
            self.log.advance_high_watermark(self.end)
        else:
            await self.log.wait_high_watermark(self.end)


class PartitionLog:
    def __init__(
        self,
        name: TopicPartition,
        state: PartitionState,
        config: TopicConfig,
        *,
        producers: ProducerTable,
        wal: Wal,
        reserve: OffsetReservation = UNLIMITED,
        aborted: AbortedIndex | None = None,
        aborted_kept: int = MAX_RETAINED,
    ) -> None:
        self.name = name
        self.partition: PartitionId = state.partition
        self.epoch = state.epoch
        self.epoch_start = state.flushed_end
        self.config = config
        self.log_start = state.log_start
        self.flushed_end = state.flushed_end
        self.high_watermark = state.flushed_end
        self.next_offset = state.flushed_end
        self.closed: Retriable | None = None
        self.sealed = False
        self.refused: Sequence[BatchHeader] = ()
        """Batches that had been placed and were never acknowledged; known once the log is sealed."""
        self.flushing = False
        self.gate = AppendBarrier()
        """Appends pass it; it is shut while segments are placed."""
        self.reserve = reserve
        self._wal = wal
        self._producers = producers
        self._stored_producers = producers.copy()
        self._stability = LastStableOffset(producers.open_transactions(), aborted or AbortedIndex(), kept=aborted_kept)
        self._tail: list[TailBatch] = []
        self._tail_ends: list[int] = []
        self._tail_bytes = 0
        self._watchers: dict[HighWatermarkListener, None] = {}  # woken in the order in which they came
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._waiting_for_flush: dict[asyncio.Future[None], int] = {}
        self._hurried_end = 0

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.name} epoch={self.epoch} start={self.log_start} flushed={self.flushed_end} "
            f"high_watermark={self.high_watermark} next={self.next_offset} tail={self._tail_bytes >> 10}KiB"
            f"{' closed' if self.closed else ''}>"
        )

    @property
    def tail_bytes(self) -> int:
        return self._tail_bytes

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the tail that are durable; all of it, as a rule, because the WAL is milliseconds behind."""
        if self.high_watermark == self.next_offset:
            return self._tail_bytes
        # Counted from the end: what isn't durable yet is short, the tail may hold a million batches.
        pending = self._tail[bisect_right(self._tail_ends, self.high_watermark) :]
        return self._tail_bytes - sum(len(item.data) for item in pending)

    @property
    def oldest_at(self) -> float | None:
        """When the oldest batch of the tail came in, by the monotonic clock."""
        return self._tail[0].appended_at if self._tail else None

    # --- writing

    def append(self, header: BatchHeader, data: memoryview, *, now: float, now_ms: int) -> PendingAppend:
        """Judge, place and queue one checked batch. No await in here: nobody can come between check and write."""
        self._require_open()
        idempotent = header.producer_id >= 0
        if idempotent and (known := self._producers.check_sequence(self.name, header)) is not None:
            return PendingAppend(self, known.base_offset, known.end_offset, -1, None)
        base = self.next_offset
        end = base + header.last_offset_delta + 1
        if end > self.reserve.extend_at:
            self.reserve.require(end)
        append_time_ms = -1
        if self.config.log_append_time:
            append_time_ms = now_ms
            batches.stamp_append_time(data, now_ms)
            header = batches.read_header(data)
        batches.assign_offset(data, base_offset=base, leader_epoch=self.epoch)
        header = header._replace(base_offset=base, leader_epoch=self.epoch)
        commit = self._wal.append((WalEntry(self.partition, self.epoch, base, end, data),))
        self.next_offset = end
        self._tail.append(TailBatch(header, base, end, data, now))
        self._tail_ends.append(end)
        self._tail_bytes += len(data)
        if idempotent:
            self._producers.record(header, base, now_ms=now_ms)
            if header.is_transactional:
                self._stability.started(header.producer_id, base)
        commit.add_done_callback(lambda done: self._committed(done, end))
        return PendingAppend(self, base, end, append_time_ms, commit)

    def append_marker(self, marker: Marker, *, now: float, now_ms: int) -> PendingAppend:
        """End the producer's transaction here. A number that was taken before changes nothing: what is answered waits
        until everything is durable that was placed by now, the first one too. Raises `MarkerFenced`."""
        self._require_open()
        if self._producers.has_marker(self.name, marker):
            return PendingAppend(self, self.next_offset, self.next_offset, -1, None)
        base = self.next_offset
        end = base + 1
        if end > self.reserve.extend_at:
            self.reserve.require(end)
        data = memoryview(marker_batch(marker, now_ms=now_ms))
        batches.assign_offset(data, base_offset=base, leader_epoch=self.epoch)
        commit = self._wal.append((WalEntry(self.partition, self.epoch, base, end, data),))
        self.next_offset = end
        self._tail.append(TailBatch(batches.read_header(data), base, end, data, now))
        self._tail_ends.append(end)
        self._tail_bytes += len(data)
        aborted = self._producers.end(marker, base, now_ms=now_ms)
        self._stability.ended(marker.producer.producer_id, end, aborted)
        commit.add_done_callback(lambda done: self._committed(done, end))
        return PendingAppend(self, base, end, -1, commit)

    def may_be_stale(self, marker: Marker) -> bool:
        """Whether only the producer's row can tell that the marker isn't one of an earlier transaction."""
        return self._producers.may_be_stale(marker)

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether a batch may be the first of a transaction here, so that somebody must know of it before it is placed;
        a duplicate isn't."""
        return (
            header.is_transactional
            and not self._producers.has_open(header)
            and not self._producers.is_duplicate(header)
        )

    def transaction_token(self, producer_id: int) -> int:
        """What `verify` must be given: taken before the question whether the transaction is under way."""
        return self._producers.marker_number(producer_id)

    def verify(self, header: BatchHeader, token: int) -> bool:
        """Whether the answer still holds: no marker of the producer came since. For the very step that places it."""
        return self._producers.marker_number(header.producer_id) == token

    def _committed(self, commit: "asyncio.Future[None]", end: int) -> None:
        """Runs whether or not the producer still waits: a lost connection can't hold the high watermark back."""
        error = commit.exception() if not commit.cancelled() else AppendFailed("write-ahead log was stopped")
        if error is not None:
            self.close(error if isinstance(error, Retriable) else AppendFailed(str(error)))
        elif not self.sealed:
            self.advance_high_watermark(end)

    def advance_high_watermark(self, end: int) -> None:
        """Everything below `end` is durable: the WAL commits in the order in which it was asked."""
        if end <= self.high_watermark:
            return
        if self.sealed:
            raise AppendFailed(f"log was sealed before the append was noticed; partition={self.name} end={end}")
        self.high_watermark = end
        self._stability.advance(end)
        for waiting in [waiting for waiting, until in self._waiting.items() if until <= end]:
            self._waiting.pop(waiting)
            if not waiting.done():
                waiting.set_result(None)
        self.wake_watchers()

    async def wait_high_watermark(self, end: int) -> None:
        """Return once the high watermark has reached `end`."""
        if end <= self.high_watermark:
            return
        self._require_open()
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = end
        try:
            await waiting
        finally:
            self._waiting.pop(waiting, None)

    async def wait_flushed(self, end: int) -> None:
        """Return once a registered segment holds everything below `end`; the flusher sees that somebody waits."""
        if end <= self.flushed_end:
            return
        self._require_open()
        waiting = asyncio.get_running_loop().create_future()
        self._waiting_for_flush[waiting] = end
        try:
            await waiting
        finally:
            self._waiting_for_flush.pop(waiting, None)

    @property
    def has_flush_waiters(self) -> bool:
        """Whether somebody waits for a flush, here or at another agent."""
        return bool(self._waiting_for_flush) or self.flushed_end < self._hurried_end

    def request_flush(self, end: int) -> None:
        """Somebody whom this agent doesn't see waits until a segment holds everything below `end`."""
        self._hurried_end = max(self._hurried_end, end)

    def _require_open(self) -> None:
        if self.closed is not None:
            # One error is raised many times; with its old traceback it would keep the frames, and so the batches, of
            # everybody who was refused.
            raise self.closed.with_traceback(None)

    def close(self, why: Retriable) -> None:
        """Accept nothing more. What is durable stays readable; what isn't may be found by recovery, if by anybody."""
        if self.closed is not None:
            return
        self.closed = why
        self.gate.close(why)
        for waiting in (*self._waiting, *self._waiting_for_flush):
            if not waiting.done():
                waiting.set_exception(why)
        self._waiting.clear()
        self._waiting_for_flush.clear()
        self.wake_watchers()

    def seal(self) -> None:
        """The end of a closed log: the high watermark stays, and nothing above it is acknowledged any more."""
        assert self.closed is not None, "only a closed log is sealed"
        self.sealed = True
        self.refused = [item.header for item in self._tail if item.end > self.high_watermark]

    def knows_producer(self, header: BatchHeader) -> bool:
        return self._producers.knows(header)

    def sequence_gap_before(self, header: BatchHeader) -> int | None:
        """The sequence that an idempotent producer's batch leaves out, if any."""
        return self._producers.sequence_gap(header) if header.producer_id >= 0 else None

    def open_entries(self) -> Sequence[ProducerEntry]:
        """The producers whose transactions are open: few of many."""
        found = map(self._producers.get, self._stability.open_producers)
        return [each for each in found if each is not None]

    def producers(self, *, now_ms: int) -> Sequence[ProducerEntry]:
        """The idempotent producers that are remembered, with what they sent last; idempotency keys are none."""
        return [each for each in self._producers.entries(now_ms=now_ms) if each.producer_id < FIRST_KEY_ID]

    # --- reading

    @property
    def open_transactions(self) -> int:
        """How many there are."""
        return len(self._stability.open_producers)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, for good."""
        if self._stability.is_stable:
            return self.high_watermark
        return max(self.log_start, min(self._stability.first_open_offset(), self.high_watermark))

    def aborted_between(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions that have something in [start, end); the store has those whose markers stand below
        `aborted_complete_from`."""
        return self._stability.aborted_between(start, end)

    @property
    def has_aborted(self) -> bool:
        """Whether any aborted transaction is known here."""
        return self._stability.has_aborted

    @property
    def aborted_complete_from(self) -> int:
        return self._stability.complete_from

    def forget_aborted(self, last_offsets: Collection[int]) -> None:
        """Compaction has left nothing of these transactions, and takes their markers."""
        self._stability.forget(last_offsets)

    def read_tail(self, offset: int, *, max_bytes: int, at_least_one: bool, until: int | None = None) -> list[Buffer]:
        """Durable whole batches from the one that holds `offset`, up to `max_bytes`, or one if asked for; none that
        reaches beyond `until`."""
        found: list[Buffer] = []
        size = 0
        end = self.high_watermark if until is None else min(until, self.high_watermark)
        for index in range(bisect_right(self._tail_ends, offset), len(self._tail)):
            item = self._tail[index]
            size_after = size + len(item.data)
            if item.end > end or (size_after > max_bytes and (found or not at_least_one)):
                break
            found.append(item.data)
            size = size_after
        return found

    def durable_tail(self) -> Sequence[TailBatch]:
        """The durable part of the tail."""
        return self._tail[: bisect_right(self._tail_ends, self.high_watermark)]

    def require_tail(self) -> None:
        """Raise when the log is over and has let go of records that are not in a segment: others have them."""
        if self.closed is not None and not self._tail and self.flushed_end < self.high_watermark:
            self._require_open()

    def watch(self, watcher: HighWatermarkListener) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: HighWatermarkListener) -> None:
        self._watchers.pop(watcher, None)

    def wake_watchers(self) -> None:
        """Have everyone who watches this log look at it again."""
        for watcher in tuple(self._watchers):
            watcher.wake()

    # --- flushing

    def unflushed(self, *, limit_bytes: int | None = None) -> Sequence[TailBatch]:
        """Durable batches that no segment holds yet, oldest first; at least one if there is any."""
        durable = self.durable_tail()
        if limit_bytes is None:
            return durable
        size = 0
        for count, item in enumerate(durable):
            size += len(item.data)
            if size > limit_bytes and count:
                return durable[:count]
        return durable

    def producers_after(self, flushed: Iterable[TailBatch], *, now_ms: int) -> ProducerTable:
        """The producers' state at the end of `flushed`, which follow the flushed end, and what is aborted in them. May
        be called in a thread."""
        table = self._stored_producers.copy()
        table.replay(((item.header, item.base, item.data) for item in flushed), now_ms=now_ms)
        return table

    def flushed(self, end: int, producers: ProducerTable) -> int:
        """A registered segment holds everything below `end`; returns the bytes that left the tail."""
        count = bisect_right(self._tail_ends, end)
        freed = sum(len(item.data) for item in self._tail[:count])
        del self._tail[:count]
        del self._tail_ends[:count]
        self._tail_bytes -= freed
        self.flushed_end = end
        self._stored_producers = producers
        self._stability.flushed(end)
        for waiting in [waiting for waiting, until in self._waiting_for_flush.items() if until <= end]:
            self._waiting_for_flush.pop(waiting)
            if not waiting.done():
                waiting.set_result(None)
        return freed

    def external_commit_applied(self, end: int) -> None:
        """Segments that others wrote were registered up to `end` while the gate was shut and everything was flushed."""
        assert self.gate.is_shut, f"appends may be under way; log={self!r}"
        assert self.flushed_end == self.next_offset, f"not flushed; log={self!r}"
        self.next_offset = self.flushed_end = end
        self.advance_high_watermark(end)

    def drop_tail(self) -> int:
        """Let the tail go, flushed or not; returns its bytes. The log is over, or never was acknowledged."""
        freed, self._tail_bytes = self._tail_bytes, 0
        self._tail.clear()
        self._tail_ends.clear()
        return freed

    def advance_log_start(self, offset: int) -> None:
        """Retention, or somebody who deleted records, moved the log start."""
        self.log_start = max(self.log_start, offset)
        self._stability.start_at(self.log_start)
