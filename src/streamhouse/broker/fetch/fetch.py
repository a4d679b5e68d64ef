"""Fetcher: fetches many partitions in one response, and waits for records (long poll).

Data path   wire -> **fetch** -> log's tail, or reader -> batches back to `wire`
Owns        the limits of a response, the long poll
Leaves      reading bytes to `log` and `reader`; aborted transactions to `segments.transaction_isolation`

With read_committed, a response ends at the last stable offset and lists the aborted transactions in it; the client
filters their records, as in Kafka.
"""

import asyncio
from collections.abc import Sequence

from streamhouse.broker.context import BrokerContext
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.segments.transaction_isolation import AbortedLookup
from streamhouse.config import FetchSettings
from streamhouse.errors import (
    DamagedRecords,
    FencedLeaderEpoch,
    LeaseLost,
    OffsetOutOfRange,
    StreamhouseError,
    Unavailable,
    UnknownLeaderEpoch,
)
from streamhouse.format.batch import Buffer, empty_batch, iter_batches
from streamhouse.limits import iterate_fairly
from streamhouse.model.fetch import FetchResult, PartitionFetch


class LongPoll:
    """Wakes when any of the logs it watches changes."""

    def __init__(self) -> None:
        self._advanced = asyncio.Event()
        self._logs: set[PartitionLog] = set()

    def __enter__(self) -> "LongPoll":
        return self

    def __exit__(self, *_: object) -> None:
        for item in self._logs:
            item.unwatch(self)

    def watch(self, item: PartitionLog) -> None:
        if item not in self._logs:
            self._logs.add(item)
            item.watch(self)

    def wake(self) -> None:
        self._advanced.set()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._advanced.wait()
        except TimeoutError:
            return

    def rearm(self) -> None:
        self._advanced.clear()


class Fetcher:
    def __init__(self, context: BrokerContext) -> None:
        dependencies = context.dependencies
        self._settings = dependencies.settings.fetch
        self._reader = context.reader
        self._aborted_transactions = AbortedLookup(
            dependencies.metadata, page=dependencies.settings.transactions.aborted_kept
        )
        self._open_log = context.open_partitions.open_log
        self._may_acknowledge = context.session_manager.may_acknowledge
        self._alone = dependencies.single_agent
        self._clock = dependencies.clock
        self._traces = dependencies.traces

    def configure(self, settings: FetchSettings) -> None:
        """Apply new limits from the next request on."""
        self._settings = settings

    async def fetch(
        self, fetches: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        """One result per fetch, in order; waits for `min_bytes`, the first error, or the end of the time.

        If all results are damage errors, it waits a moment, or until there are records, to slow down clients that retry
        without a pause. It doesn't wait if there are more records than fit: the client fetches them next.
        """
        limit = min(max_bytes, self._settings.max_bytes)
        deadline = self._clock.monotonic() + min(max_wait_s, self._settings.max_wait_s)
        has_paused = False
        with LongPoll() as poll:
            while True:
                poll.rearm()
                results, is_cut = await self._pass(fetches, limit, poll)
                size = sum(item.size_bytes for item in results)
                left = deadline - self._clock.monotonic()
                is_enough = size >= min(min_bytes, limit) or not fetches or (is_cut and size > 0)
                if left > 0 and not has_paused and size == 0 and is_damage_alone(results):
                    has_paused = True
                    await poll.wait(min(left, self._settings.damage_pause_s))
                    continue
                if is_enough or left <= 0 or any(item.error is not None or stops_short(item) for item in results):
                    return results
                await poll.wait(left)

    async def _pass(
        self, fetches: Sequence[PartitionFetch], limit: int, poll: LongPoll
    ) -> tuple[list[FetchResult], bool]:
        """Fetch without waiting; also returns whether the memory limit of all responses together has cut it."""
        results: list[FetchResult] = []
        responses = self._reader.response_budget
        size = held = 0
        is_cut = False
        try:
            async for item in iterate_fairly(fetches):
                most, available = min(item.max_bytes, limit - size), responses.room_bytes(own_bytes=size)
                allowed = max(min(most, available), 0)
                held = responses.resize(
                    held, size + allowed
                )  # reserved before the read: other fetches run at the same time
                result = await self._fetch_one(item, allowed, poll, at_least_one=size == 0)
                results.append(result)
                size += result.size_bytes
                held = responses.resize(held, size)
                is_cut = is_cut or available < most
        finally:
            responses.resize(held, 0)
        return results, is_cut

    async def _fetch_one(
        self, item: PartitionFetch, max_bytes: int, poll: LongPoll, *, at_least_one: bool
    ) -> FetchResult:
        began_ns = 0 if self._traces is None else self._traces.tracer.now_ns()
        try:
            log = await self._open_log(item.name)
            poll.watch(log)
            log.fetched_at = self._clock.monotonic()
            check_leader_epoch(log, item.leader_epoch)
            self._check_range(log, item.offset)
            # Taken before the read: a transaction that ends later may have been read as open.
            until = log.last_stable_offset if item.committed else None
            records = await self._read(log, item.offset, max_bytes, at_least_one=at_least_one, until=until)
            aborted = (
                await self._aborted_transactions.of(log, item.offset, records) if item.committed and records else ()
            )
            if not records and log.closed is not None:
                # This log gets no more records; the client finds the next leader by a retry.
                raise log.closed.with_traceback(None)
            if not records and not self._alone and not self._may_acknowledge(log):
                # Another agent may lead by now: a long poll here would never end early.
                raise LeaseLost([log.name], why="the heartbeat is late, another agent may lead it now")
        except StreamhouseError as error:
            return FetchResult(name=item.name, error=error)
        if records and self._traces is not None:
            end = iter_batches(records[-1])[-1].end
            self._traces.fetched(item.name, log.partition, item.offset, end, start_ns=began_ns)
        return FetchResult(
            name=item.name,
            high_watermark=log.high_watermark,
            last_stable=log.last_stable_offset if until is None else until,
            log_start=log.log_start,
            records=records,
            aborted=aborted,
            committed=item.committed,
        )

    async def _read(
        self, log: PartitionLog, offset: int, max_bytes: int, *, at_least_one: bool, until: int | None
    ) -> Sequence[Buffer]:
        if (max_bytes <= 0 and not at_least_one) or (until is not None and offset >= until):
            return ()
        if offset >= (end := log.flushed_end):
            return log.read_tail(offset, max_bytes=max_bytes, at_least_one=at_least_one, until=until)
        try:
            records = await self._reader.read(
                log.partition, offset, max_bytes=max_bytes, at_least_one=at_least_one, end=end, until=until
            )
        except Unavailable:
            self._check_range(log, offset)  # retention may have passed by in the meantime
            raise
        if records or not at_least_one:
            return records
        return await self._behind_gap(log, offset, max_bytes, flushed_end=end, until=until)

    async def _behind_gap(
        self, log: PartitionLog, offset: int, max_bytes: int, *, flushed_end: int, until: int | None
    ) -> Sequence[Buffer]:
        """The records after a gap in the flushed offsets. If there are none, a batch without records takes readers to
        the gap's end: a reader that reads up to the end would otherwise wait forever."""
        if until is not None and until <= flushed_end:
            # A transaction starts with a batch, so none starts below that: compaction removed the records.
            return await self._gap(log, offset, until)
        is_gap = await self._reader.is_gap(log.partition, offset, end=flushed_end)
        self._check_range(log, offset)  # as above: what retention deleted is no gap
        # A flush that ended meanwhile took the first records behind the gap out of the tail.
        is_tail_whole = log.flushed_end == flushed_end
        if is_tail_whole and (records := log.read_tail(offset, max_bytes=max_bytes, at_least_one=True, until=until)):
            return records
        return await self._gap(log, offset, flushed_end) if is_gap else ()

    async def _gap(self, log: PartitionLog, offset: int, end: int) -> Sequence[Buffer]:
        """An empty batch over the gap. Offsets that retention deleted are no gap, also if another agent deleted
        them."""
        await self._aborted_transactions.learn_start(log)
        self._check_range(log, offset)
        return [empty_batch(offset, end, leader_epoch=log.epoch)]

    def _check_range(self, log: PartitionLog, offset: int) -> None:
        """Raise if the offset is out of range. A stale leader raises `LeaseLost` for offsets beyond its end, because
        the next leader may have them, and `OffsetOutOfRange` would make a consumer reset its position."""
        if offset > log.next_offset and not self._may_acknowledge(log):
            raise LeaseLost([log.name], why=f"offset {offset} is beyond what this agent knows")
        if not log.log_start <= offset <= log.next_offset:
            raise OffsetOutOfRange(log.name, offset=offset, start=log.log_start, end=log.high_watermark)


def is_damage_alone(results: Sequence[FetchResult]) -> bool:
    """Whether there are errors, and all of them are missing or damaged records."""
    errors = [item.error for item in results if item.error is not None]
    return bool(errors) and all(isinstance(error, DamagedRecords) for error in errors)


def stops_short(result: FetchResult) -> bool:
    """Whether more durable records follow the result: in the next block, in the tail, or above a limit."""
    return bool(result.records) and iter_batches(result.records[-1])[-1].end < result.readable_end


def check_leader_epoch(log: PartitionLog, epoch: int) -> None:
    """Raise when the client's leader epoch differs; -1 means that the client sent none."""
    if epoch < 0 or epoch == log.epoch:
        return
    text = f"partition={log.name} client_epoch={epoch} epoch={log.epoch}"
    if epoch < log.epoch:
        raise FencedLeaderEpoch(f"leader epoch is stale; {text}")
    raise UnknownLeaderEpoch(f"leader epoch is unknown; {text}")
