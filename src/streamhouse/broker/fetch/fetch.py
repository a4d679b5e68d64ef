"""Fetch: many partitions in one answer, and waiting for records that aren't there yet.

Data path   wire -> **fetch** -> log's tail, or reader -> batches back to the wire
Owns        the limits of an answer, the long poll
Leaves      finding bytes to `log` and `reader`, which transactions are void to `aborted_transactions`

Who wants committed records gets nothing at or above the last stable offset, and is told which transactions of what it
gets are void: leaving their records out is the reader's own business, as in Kafka.
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
    """Wakes when any of the logs it watches moves."""

    def __init__(self) -> None:
        self._moved = asyncio.Event()
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
        self._moved.set()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return

    def rearm(self) -> None:
        self._moved.clear()


class Fetcher:
    def __init__(self, context: BrokerContext) -> None:
        dependencies = context.dependencies
        self._settings = dependencies.settings.fetch
        self._reader = context.reader
        self._aborted_transactions = AbortedLookup(
            dependencies.metadata, page=dependencies.settings.transactions.aborted_kept
        )
        self._open_log = context.open_partitions.open_log
        self._vouches_for = context.session_manager.may_acknowledge
        self._alone = dependencies.alone
        self._clock = dependencies.clock

    def configure(self, settings: FetchSettings) -> None:
        """Other limits hold from the next request on."""
        self._settings = settings

    async def fetch(
        self, wanted: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        """What there is, in the order asked for; waits for `min_bytes`, the first error, or the end of the time.

        Where all there is to tell is damage it waits for a moment, and for records meanwhile: clients that try again
        without a pause would otherwise do nothing else. It doesn't wait when there is more already that this answer
        has no place for: the client gets it by asking.
        """
        limit = min(max_bytes, self._settings.max_bytes)
        deadline = self._clock.monotonic() + min(max_wait_s, self._settings.max_wait_s)
        has_paused = False
        with LongPoll() as poll:
            while True:
                poll.rearm()
                found, is_cut = await self._pass(wanted, limit, poll)
                size = sum(item.size_bytes for item in found)
                left = deadline - self._clock.monotonic()
                is_enough = size >= min(min_bytes, limit) or not wanted or (is_cut and size > 0)
                if left > 0 and not has_paused and size == 0 and is_damage_alone(found):
                    has_paused = True
                    await poll.wait(min(left, self._settings.damage_pause_s))
                    continue
                if is_enough or left <= 0 or any(item.error is not None or stops_short(item) for item in found):
                    return found
                await poll.wait(left)

    async def _pass(
        self, wanted: Sequence[PartitionFetch], limit: int, poll: LongPoll
    ) -> tuple[list[FetchResult], bool]:
        """What there is now, and whether it was cut because all answers together have no more room."""
        found: list[FetchResult] = []
        answers = self._reader.answers
        size = held = 0
        is_cut = False
        try:
            async for item in iterate_fairly(wanted):
                most, room = min(item.max_bytes, limit - size), answers.room_bytes(own_bytes=size)
                allowed = max(min(most, room), 0)
                held = answers.resize(held, size + allowed)  # before it is read: others read at the same time
                got = await self._fetch_one(item, allowed, poll, at_least_one=size == 0)
                found.append(got)
                size += got.size_bytes
                held = answers.resize(held, size)
                is_cut = is_cut or room < most
        finally:
            answers.resize(held, 0)
        return found, is_cut

    async def _fetch_one(
        self, item: PartitionFetch, max_bytes: int, poll: LongPoll, *, at_least_one: bool
    ) -> FetchResult:
        try:
            log = await self._open_log(item.name)
            poll.watch(log)
            check_leader_epoch(log, item.leader_epoch)
            self._check_range(log, item.offset)
            # Before anything is read: what is decided later may have been read as if it were.
            until = log.last_stable_offset if item.committed else None
            records = await self._read(log, item.offset, max_bytes, at_least_one=at_least_one, until=until)
            aborted = (
                await self._aborted_transactions.of(log, item.offset, records) if item.committed and records else ()
            )
            if not records and log.closed is not None:
                # It will never have more; whoever leads next is found by asking again.
                raise log.closed.with_traceback(None)
            if not records and not self._alone and not self._vouches_for(log):
                # Another agent may lead by now: who waits here for more would wait in vain.
                raise LeaseLost([log.name], why="the heartbeat is late, another agent may lead it now")
        except StreamhouseError as error:
            return FetchResult(name=item.name, error=error)
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
            found = await self._reader.read(
                log.partition, offset, max_bytes=max_bytes, at_least_one=at_least_one, end=end, until=until
            )
        except Unavailable:
            self._check_range(log, offset)  # retention may have passed by in the meantime
            raise
        if found or not at_least_one:
            return found
        return await self._behind_gap(log, offset, max_bytes, flushed_end=end, until=until)

    async def _behind_gap(
        self, log: PartitionLog, offset: int, max_bytes: int, *, flushed_end: int, until: int | None
    ) -> Sequence[Buffer]:
        """What follows where nothing is flushed from here on. That may be nothing: then a batch without records takes
        readers to the gap's end, because who wants to read as far as the end would wait for it for ever."""
        if until is not None and until <= flushed_end:
            # Transactions begin with a batch, so there was none as far as that: compaction took them.
            return await self._gap(log, offset, until)
        is_gap = await self._reader.is_gap(log.partition, offset, end=flushed_end)
        self._check_range(log, offset)  # as above: what retention took is no gap
        if found := log.read_tail(offset, max_bytes=max_bytes, at_least_one=True, until=until):
            return found
        return await self._gap(log, offset, flushed_end) if is_gap else ()

    async def _gap(self, log: PartitionLog, offset: int, end: int) -> Sequence[Buffer]:
        """What retention took is no gap, also where it was another agent's, and this one hasn't heard of it yet."""
        await self._aborted_transactions.learn_start(log)
        self._check_range(log, offset)
        return [empty_batch(offset, end, leader_epoch=log.epoch)]

    def _check_range(self, log: PartitionLog, offset: int) -> None:
        """A leader whose time is over may have been succeeded: what lies beyond its end, the next one may have. Told
        that it is out of range, a consumer would begin somewhere else."""
        if offset > log.next_offset and not self._vouches_for(log):
            raise LeaseLost([log.name], why=f"offset {offset} is beyond what this agent knows")
        if not log.log_start <= offset <= log.next_offset:
            raise OffsetOutOfRange(log.name, offset=offset, start=log.log_start, end=log.high_watermark)


def is_damage_alone(found: Sequence[FetchResult]) -> bool:
    """Whether all there is to tell is that ranges are missing or damaged."""
    errors = [item.error for item in found if item.error is not None]
    return bool(errors) and all(isinstance(error, DamagedRecords) for error in errors)


def stops_short(got: FetchResult) -> bool:
    """Whether there are durable records behind those found: in the next block, in the tail, or above a limit."""
    return bool(got.records) and iter_batches(got.records[-1])[-1].end < got.readable_end


def check_leader_epoch(log: PartitionLog, epoch: int) -> None:
    """Raise when client and agent disagree about who leads; -1 means that the client doesn't say."""
    if epoch < 0 or epoch == log.epoch:
        return
    text = f"partition={log.name} client_epoch={epoch} epoch={log.epoch}"
    if epoch < log.epoch:
        raise FencedLeaderEpoch(f"leader epoch is stale; {text}")
    raise UnknownLeaderEpoch(f"leader epoch is unknown; {text}")
