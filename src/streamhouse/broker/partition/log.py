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
from math import inf
from typing import Final, NamedTuple, Protocol

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

JOIN_BELOW_BYTES: Final = 16 * 1024
"""Mean size of batches from which a read returns them as they are, without a copy."""


class TailBatch(NamedTuple):
    header: BatchHeader
    base: int
    end: int
    data: Buffer
    appended_at: float


class HighWatermarkListener(Protocol):
    """A listener for changes of a partition, such as a long poll."""

    def wake(self) -> None: ...


class PendingAppend(NamedTuple):
    """An append with assigned offsets that is being written to the WAL, or a duplicate of one."""

    log: "PartitionLog"
    base_offset: int
    end: int
    append_time_ms: int
    commit: "asyncio.Future[None] | None"

    @property
    def is_flushed(self) -> bool:
        """Whether a registered segment contains the batch: then it may be acknowledged under any leader."""
        return self.end <= self.log.flushed_end

    @property
    def is_durable(self) -> bool:
        """Whether the append is known to be durable: then `wait_durable` returns without waiting."""
        commit = self.commit
        return commit is not None and commit.done() and not commit.cancelled() and commit.exception() is None

    async def wait_durable(self) -> None:
        """Return once the append is durable; raises `AppendFailed` if it never will be."""
        if self.commit is not None:
            if self.commit.done():
                self.commit.result()
            else:  # cancelling one waiter must not cancel the commit of the whole group
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
        """Appended batches that were never acknowledged; set when the log is sealed."""
        self.flushing = False
        self.fetched_at = -inf
        """Monotonic time of the last fetch."""
        self.barrier = AppendBarrier()
        """Blocks appends during an external commit."""
        self.reserve = reserve
        self._wal = wal
        self._producers = producers
        self._stored_producers = producers.copy()
        self._stability = LastStableOffset(producers.open_transactions(), aborted or AbortedIndex(), kept=aborted_kept)
        self._tail: list[TailBatch] = []
        self._tail_ends: list[int] = []
        self._tail_positions: list[int] = []
        """Where each batch of the tail ends in the bytes of all batches appended so far."""
        self._appended_bytes = 0
        self._watchers: dict[HighWatermarkListener, None] = {}  # woken in order of arrival
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._waiting_for_flush: dict[asyncio.Future[None], int] = {}
        self._hurried_end = 0

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.name} epoch={self.epoch} start={self.log_start} flushed={self.flushed_end} "
            f"high_watermark={self.high_watermark} next={self.next_offset} tail={self.tail_bytes >> 10}KiB"
            f"{' closed' if self.closed else ''}>"
        )

    @property
    def tail_bytes(self) -> int:
        return self._bytes_between(0, len(self._tail))

    def _bytes_between(self, first: int, last: int) -> int:
        """The bytes of the tail's batches [first, last)."""
        if first >= last:
            return 0
        return self._tail_positions[last - 1] - self._tail_positions[first] + len(self._tail[first].data)

    def _extend_tail(self, item: TailBatch) -> None:
        self._appended_bytes += len(item.data)
        self._tail.append(item)
        self._tail_ends.append(item.end)
        self._tail_positions.append(self._appended_bytes)

    @property
    def unflushed_bytes(self) -> int:
        """Durable bytes of the tail; usually all of it, because the WAL is milliseconds behind."""
        return self._bytes_between(0, bisect_right(self._tail_ends, self.high_watermark))

    @property
    def oldest_at(self) -> float | None:
        """Monotonic time of the append of the oldest batch in the tail."""
        return self._tail[0].appended_at if self._tail else None

    # --- appending

    def append(self, header: BatchHeader, data: memoryview, *, now: float, now_ms: int) -> PendingAppend:
        """Check the sequence, assign offsets and queue one checked batch. Without a suspension, so no other append
        comes in between."""
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
        header = header.appended_at(base, self.epoch)
        commit = self._wal.append((WalEntry(self.partition, self.epoch, base, end, data),))
        self.next_offset = end
        self._extend_tail(TailBatch(header, base, end, data, now))
        if idempotent:
            self._producers.record(header, base, now_ms=now_ms)
            if header.is_transactional:
                self._stability.started(header.producer_id, base)
        commit.add_done_callback(lambda done: self._committed(done, end))
        return PendingAppend(self, base, end, append_time_ms, commit)

    def append_marker(self, marker: Marker, *, now: float, now_ms: int) -> PendingAppend:
        """End the producer's transaction in this partition. A repeated number changes nothing; the result then waits
        until everything appended so far is durable, including the first marker. Raises `MarkerFenced`."""
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
        self._extend_tail(TailBatch(batches.read_header(data), base, end, data, now))
        aborted = self._producers.end(marker, base, now_ms=now_ms)
        self._stability.ended(marker.producer.producer_id, end, aborted)
        commit.add_done_callback(lambda done: self._committed(done, end))
        return PendingAppend(self, base, end, -1, commit)

    def may_be_stale(self, marker: Marker) -> bool:
        """Whether only the producer's row shows that the marker isn't one of an earlier transaction."""
        return self._producers.may_be_stale(marker)

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether a batch may be the first of a transaction in this partition and must be verified first; not for
        duplicates."""
        return (
            header.is_transactional
            and not self._producers.has_open(header)
            and not self._producers.is_duplicate(header)
        )

    def transaction_token(self, producer_id: int) -> int:
        """The token for `verify`; take it before checking that the transaction is open."""
        return self._producers.marker_number(producer_id)

    def verify(self, header: BatchHeader, token: int) -> bool:
        """Whether the check is still valid: no marker of the producer was appended since. Call it without a suspension
        before the append."""
        return self._producers.marker_number(header.producer_id) == token

    def _committed(self, commit: "asyncio.Future[None]", end: int) -> None:
        """Runs even if the producer has disconnected, so that the high watermark always advances."""
        error = commit.exception() if not commit.cancelled() else AppendFailed("write-ahead log was stopped")
        if error is not None:
            self.close(error if isinstance(error, Retriable) else AppendFailed(str(error)))
        elif not self.sealed:
            self.advance_high_watermark(end)

    def advance_high_watermark(self, end: int) -> None:
        """Everything below `end` is durable: the WAL commits in the order of the appends."""
        if end <= self.high_watermark:
            return
        if self.sealed:
            raise AppendFailed(f"log was sealed before the append was committed; partition={self.name} end={end}")
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
        """Return once a registered segment contains everything below `end`; the flusher sees the waiter."""
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
        """Whether a request waits for a flush, here or at another agent."""
        return bool(self._waiting_for_flush) or self.flushed_end < self._hurried_end

    def request_flush(self, end: int) -> None:
        """Request a flush up to `end` for a waiter at another agent."""
        self._hurried_end = max(self._hurried_end, end)

    def _require_open(self) -> None:
        if self.closed is not None:
            # The same error is raised many times; its old traceback would keep the frames, and so the batches, of all
            # rejected appends.
            raise self.closed.with_traceback(None)

    def close(self, why: Retriable) -> None:
        """Reject further appends. Durable records stay readable; others may be found by recovery."""
        if self.closed is not None:
            return
        self.closed = why
        self.barrier.close(why)
        for waiting in (*self._waiting, *self._waiting_for_flush):
            if not waiting.done():
                waiting.set_exception(why)
        self._waiting.clear()
        self._waiting_for_flush.clear()
        self.wake_watchers()

    def seal(self) -> None:
        """Seal a closed log: the high watermark no longer advances, and nothing above it is acknowledged."""
        assert self.closed is not None, "only a closed log is sealed"
        self.sealed = True
        self.refused = [item.header for item in self._tail if item.end > self.high_watermark]

    def knows_producer(self, header: BatchHeader) -> bool:
        return self._producers.knows(header)

    def sequence_gap_before(self, header: BatchHeader) -> int | None:
        """The first sequence number that an idempotent producer's batch skips, if any."""
        return self._producers.sequence_gap(header) if header.producer_id >= 0 else None

    def open_entries(self) -> Sequence[ProducerEntry]:
        """The producers with open transactions."""
        entries = map(self._producers.get, self._stability.open_producers)
        return [each for each in entries if each is not None]

    def producers(self, *, now_ms: int) -> Sequence[ProducerEntry]:
        """The known idempotent producers with their last batches; without idempotency keys."""
        return [each for each in self._producers.entries(now_ms=now_ms) if each.producer_id < FIRST_KEY_ID]

    # --- reading

    @property
    def open_transactions(self) -> int:
        """The number of open transactions."""
        return len(self._stability.open_producers)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: every transaction below it has ended durably."""
        if self._stability.is_stable:
            return self.high_watermark
        return max(self.log_start, min(self._stability.first_open_offset(), self.high_watermark))

    def aborted_between(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Aborted transactions that overlap [start, end); the metadata store has those with markers below
        `aborted_complete_from`."""
        return self._stability.aborted_between(start, end)

    @property
    def has_aborted(self) -> bool:
        """Whether the log has any aborted transaction."""
        return self._stability.has_aborted

    @property
    def aborted_complete_from(self) -> int:
        return self._stability.complete_from

    def forget_aborted(self, last_offsets: Collection[int]) -> None:
        """Drop these transactions: compaction has removed their records, and removes their markers."""
        self._stability.forget(last_offsets)

    def read_tail(self, offset: int, *, max_bytes: int, at_least_one: bool, until: int | None = None) -> list[Buffer]:
        """Durable whole batches from the one that contains `offset`, up to `max_bytes`, or with `at_least_one` a single
        larger one; none that extends beyond `until`. Small batches are joined: a copy costs less than many buffers."""
        ends, positions = self._tail_ends, self._tail_positions
        first = bisect_right(ends, offset)
        last = bisect_right(ends, self.high_watermark if until is None else min(until, self.high_watermark), first)
        if first >= last:
            return []
        start = positions[first] - len(self._tail[first].data)
        last = max(bisect_right(positions, start + max_bytes, first, last), first + at_least_one)
        buffers = [item.data for item in self._tail[first:last]]
        if len(buffers) > 1 and positions[last - 1] - start < len(buffers) * JOIN_BELOW_BYTES:
            return [b"".join(buffers)]
        return buffers

    def durable_tail(self) -> Sequence[TailBatch]:
        """The durable part of the tail."""
        return self._tail[: bisect_right(self._tail_ends, self.high_watermark)]

    def require_tail(self) -> None:
        """Raise if the log is closed and has dropped records that are in no segment: the next leader has them."""
        if self.closed is not None and not self._tail and self.flushed_end < self.high_watermark:
            self._require_open()

    def watch(self, watcher: HighWatermarkListener) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: HighWatermarkListener) -> None:
        self._watchers.pop(watcher, None)

    def wake_watchers(self) -> None:
        """Wake all listeners of this log."""
        for watcher in tuple(self._watchers):
            watcher.wake()

    # --- flushing

    def unflushed(self, *, limit_bytes: int | None = None) -> Sequence[TailBatch]:
        """Durable batches that are in no segment yet, oldest first; at least one if there is any."""
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
        """The producer state at the end of the batches `flushed`, which begin at the flushed end, and the transactions
        aborted in them. May run in a thread."""
        table = self._stored_producers.copy()
        table.replay(((item.header, item.base, item.data) for item in flushed), now_ms=now_ms)
        return table

    def flushed(self, end: int, producers: ProducerTable) -> int:
        """A registered segment contains everything below `end`; returns the bytes removed from the tail."""
        count = bisect_right(self._tail_ends, end)
        freed = self._bytes_between(0, count)
        del self._tail[:count]
        del self._tail_ends[:count]
        del self._tail_positions[:count]
        self.flushed_end = end
        self._stored_producers = producers
        self._stability.flushed(end)
        for waiting in [waiting for waiting, until in self._waiting_for_flush.items() if until <= end]:
            self._waiting_for_flush.pop(waiting)
            if not waiting.done():
                waiting.set_result(None)
        return freed

    def external_commit_applied(self, end: int) -> None:
        """An external commit has assigned the offsets up to `end` while the partition was frozen and flushed."""
        assert self.barrier.is_shut, f"appends may be under way; log={self!r}"
        assert self.flushed_end == self.next_offset, f"not flushed; log={self!r}"
        self.next_offset = self.flushed_end = end
        self.advance_high_watermark(end)

    def drop_tail(self) -> int:
        """Drop the tail of a closed log, flushed or not; returns its bytes."""
        freed = self.tail_bytes
        self._tail.clear()
        self._tail_ends.clear()
        self._tail_positions.clear()
        return freed

    def advance_log_start(self, offset: int) -> None:
        """Retention or DeleteRecords has moved the log start."""
        self.log_start = max(self.log_start, offset)
        self._stability.start_at(self.log_start)
