"""A log: one synchronous step from judging to queueing, a high watermark that follows the WAL, a tail that is read."""

import asyncio
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.broker.partition.log import PartitionLog, PendingAppend
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.errors import AppendFailed, OutOfOrderSequence, Overloaded, StaleProducerEpoch, Stopping
from streamhouse.format.batch import check_batch, read_header
from streamhouse.format.records import first_record_at
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.model.topic import parse_topic_config
from tests.broker.support import MANY_BYTES, NOW_MS, ORDERS, ManualWal, batch, idempotent, settle
from tests.support.depth import examples

PARTITION = PartitionId(TopicId(uuid.UUID(int=1)), 0)


def open_log(wal: ManualWal, *, start: int = 0, flushed_end: int = 0, timestamps: str = "CreateTime") -> PartitionLog:
    state = PartitionState(
        partition=PARTITION, epoch=Epoch(3), holder=SessionId("s-1"), log_start=start, flushed_end=flushed_end
    )
    producers = ProducerTable(limit=100, expire_ms=1000)
    config = parse_topic_config({"message.timestamp.type": timestamps})
    return PartitionLog(ORDERS, state, config, producers=producers, wal=wal)


def append(log: PartitionLog, data: memoryview, *, now_ms: int = NOW_MS) -> PendingAppend:
    return log.append(check_batch(data), data, now=1.0, now_ms=now_ms)


def state_of(log: PartitionLog) -> tuple[int, int, int, int]:
    return log.log_start, log.flushed_end, log.high_watermark, log.next_offset


async def test_a_batch_gets_the_next_offsets_and_carries_offset_and_epoch() -> None:
    log = open_log(ManualWal(), flushed_end=100)
    first, second = append(log, batch(b"a", b"b")), append(log, batch(b"c"))
    assert (first.base_offset, first.end, second.base_offset, second.end) == (100, 102, 102, 103)
    assert state_of(log) == (0, 100, 100, 103)


async def test_what_goes_into_the_wal_is_the_placed_batch_itself() -> None:
    wal, data = ManualWal(), batch(b"a", b"b")
    append(open_log(wal, flushed_end=100), data)
    (entry,) = wal.entries
    assert (entry.partition, entry.epoch, entry.base, entry.end) == (PARTITION, 3, 100, 102)
    assert entry.batch is data
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (100, 3)


async def test_the_high_watermark_moves_when_the_wal_has_the_batch_whether_or_not_the_producer_waits() -> None:
    wal = ManualWal()
    log = open_log(wal)
    append(log, batch(b"a"))
    await settle()
    assert log.high_watermark == 0
    await wal.commit(0)
    assert log.high_watermark == 1


async def test_an_ack_waits_for_the_wal() -> None:
    wal = ManualWal()
    log = open_log(wal)
    waiting = asyncio.ensure_future(append(log, batch(b"a")).wait_durable())
    await settle()
    assert not waiting.done()
    await wal.commit(0)
    assert waiting.done()
    waiting.result()


async def test_a_producer_who_leaves_does_not_hold_the_others_back() -> None:
    wal = ManualWal()
    log = open_log(wal)
    waiting = asyncio.ensure_future(append(log, batch(b"a")).wait_durable())
    await settle()
    waiting.cancel()
    await settle()
    await wal.commit(0)
    assert log.high_watermark == 1


async def test_a_duplicate_in_flight_waits_for_the_original_and_gets_its_offset() -> None:
    wal = ManualWal()
    log = open_log(wal, flushed_end=100)
    append(log, idempotent(b"a", b"b", sequence=0))
    duplicate = append(log, idempotent(b"a", b"b", sequence=0))
    assert (duplicate.base_offset, duplicate.end, duplicate.commit) == (100, 102, None)
    assert len(wal.entries) == 1
    waiting = asyncio.ensure_future(duplicate.wait_durable())
    await settle()
    assert not waiting.done()
    await wal.commit(0)
    assert waiting.done()
    waiting.result()


async def test_a_duplicate_of_a_durable_batch_is_answered_at_once() -> None:
    wal = ManualWal()
    log = open_log(wal)
    append(log, idempotent(b"a", sequence=0))
    await wal.commit(0)
    await append(log, idempotent(b"a", sequence=0)).wait_durable()
    assert log.next_offset == 1


async def test_a_duplicate_whose_original_fails_fails_too() -> None:
    wal = ManualWal()
    log = open_log(wal)
    append(log, idempotent(b"a", sequence=0))
    waiting = asyncio.ensure_future(append(log, idempotent(b"a", sequence=0)).wait_durable())
    await settle()
    await wal.fail(0, AppendFailed("disk full"))
    with pytest.raises(AppendFailed, match="disk full"):
        await waiting


async def test_a_refused_batch_leaves_no_trace() -> None:
    wal = ManualWal()
    log = open_log(wal)
    append(log, idempotent(b"a", sequence=0, epoch=1))
    with pytest.raises(OutOfOrderSequence):
        append(log, idempotent(b"c", sequence=2, epoch=1))
    with pytest.raises(StaleProducerEpoch):
        append(log, idempotent(b"b", sequence=1, epoch=0))
    assert (len(wal.entries), log.next_offset) == (1, 1)
    assert append(log, idempotent(b"b", sequence=1, epoch=1)).base_offset == 1


async def test_a_wal_that_is_overloaded_leaves_the_log_as_it_was() -> None:
    class Full(ManualWal):
        def append(self, entries: object) -> asyncio.Future[None]:
            raise Overloaded("write-ahead log", limit_bytes=1, retry_after_s=1)

    log = open_log(Full())
    for _ in range(2):
        with pytest.raises(Overloaded):
            append(log, idempotent(b"a", sequence=0))
    assert state_of(log) == (0, 0, 0, 0)
    assert log.tail_bytes == 0


async def test_a_failed_group_closes_the_log_and_nothing_is_acknowledged_any_more() -> None:
    wal = ManualWal()
    log = open_log(wal)
    first, second = append(log, batch(b"a")), append(log, batch(b"b"))
    await wal.commit(0)
    await wal.fail(1, OSError("bad sector"))
    await first.wait_durable()
    with pytest.raises(OSError, match="bad sector"):
        await second.wait_durable()
    assert isinstance(log.closed, AppendFailed)
    with pytest.raises(AppendFailed, match="bad sector"):
        append(log, batch(b"c"))
    assert log.high_watermark == 1
    assert len(log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=True)) == 1


async def test_refusals_of_a_closed_log_do_not_keep_the_refused_batches() -> None:
    """One error object is raised for all; with a growing traceback it would hold every refused frame."""
    log = open_log(ManualWal())
    log.close(Stopping("bye"))
    for _ in range(5):
        with pytest.raises(Stopping):
            append(log, batch(b"a"))
    frames, traceback = 0, log.closed.__traceback__ if log.closed else None
    while traceback is not None:
        frames, traceback = frames + 1, traceback.tb_next
    assert frames <= 4


async def test_a_closed_log_still_acknowledges_what_the_wal_takes_until_it_is_sealed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wal = ManualWal()
    log = open_log(wal)
    first, second = append(log, batch(b"a")), append(log, batch(b"b"))
    log.close(Stopping("bye"))
    await wal.commit(0)
    await first.wait_durable()
    log.seal()
    await wal.commit(1)
    with pytest.raises(AppendFailed, match="sealed"):
        await second.wait_durable()
    assert log.high_watermark == 1
    assert not caplog.records  # the loop would report an error that nobody waits for


async def test_nothing_above_the_frozen_high_watermark_of_a_sealed_log_is_read_or_flushed() -> None:
    wal = ManualWal()
    log = open_log(wal)
    append(log, batch(b"a"))
    append(log, batch(b"b"))
    await wal.commit(0)
    log.close(Stopping("bye"))
    log.seal()
    await wal.commit(1)
    assert len(log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=True)) == 1
    assert [item.end for item in log.unflushed()] == [1]


async def test_a_duplicate_that_comes_to_a_closed_log_is_refused() -> None:
    wal = ManualWal()
    log = open_log(wal)
    duplicate = append(log, idempotent(b"a", sequence=0))
    log.close(Stopping("bye"))
    with pytest.raises(Stopping):
        append(log, idempotent(b"a", sequence=0))
    with pytest.raises(Stopping):
        await duplicate._replace(commit=None).wait_durable()


async def test_log_append_time_is_written_into_the_batch_and_reported() -> None:
    wal, data = ManualWal(), batch(b"a", b"b", timestamps_ms=[5, 9])
    log = open_log(wal, timestamps="LogAppendTime")
    pending = append(log, data, now_ms=1234)
    assert pending.append_time_ms == 1234
    header = read_header(data)
    assert header.is_log_append_time
    assert header.max_timestamp_ms == 1234
    assert first_record_at(data, 1000, limit_bytes=MANY_BYTES) == (0, 1234)


async def test_create_time_stays_what_the_producer_said() -> None:
    data = batch(b"a", timestamp_ms=5)
    assert append(open_log(ManualWal()), data, now_ms=1234).append_time_ms == -1
    assert read_header(data).max_timestamp_ms == 5


async def durable_log(*sizes: int) -> tuple[PartitionLog, list[memoryview]]:
    """A log from offset 0 with batches of so many records, all durable."""
    wal = ManualWal()
    log, data = open_log(wal), [batch(*[b"v"] * size) for size in sizes]
    for number, each in enumerate(data):
        append(log, each)
        await wal.commit(number)
    return log, data


def tail_of(log: PartitionLog, offset: int, *, max_bytes: int = MANY_BYTES, at_least_one: bool = False) -> bytes:
    return b"".join(log.read_tail(offset, max_bytes=max_bytes, at_least_one=at_least_one))


async def test_the_tail_is_read_from_the_batch_that_holds_the_offset() -> None:
    log, data = await durable_log(2, 3, 1)
    assert tail_of(log, 0) == b"".join(data)
    assert tail_of(log, 3) == b"".join(data[1:])
    assert tail_of(log, 5) == data[2]
    assert tail_of(log, 6, at_least_one=True) == b""


async def test_small_batches_of_the_tail_are_one_buffer_and_large_ones_are_not_copied() -> None:
    log, _ = await durable_log(1, 1, 1)
    assert len(log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=False)) == 1
    wal, large = ManualWal(), [batch(bytes(20_000)), batch(bytes(20_000))]
    log = open_log(wal)
    for number, each in enumerate(large):
        append(log, each)
        await wal.commit(number)
    assert all(a is b for a, b in zip(log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=False), large, strict=True))


async def test_the_tail_is_read_in_whole_batches_and_one_more_than_fits_only_when_requested() -> None:
    log, data = await durable_log(1, 1, 1)
    size = len(data[0])
    assert tail_of(log, 0, max_bytes=2 * size) == b"".join(data[:2])
    assert tail_of(log, 0, max_bytes=2 * size - 1, at_least_one=True) == data[0]
    assert tail_of(log, 0, max_bytes=size - 1) == b""
    assert tail_of(log, 0, max_bytes=0, at_least_one=True) == data[0]


async def test_the_tail_is_never_read_above_the_high_watermark() -> None:
    wal = ManualWal()
    log = open_log(wal)
    append(log, batch(b"a"))
    append(log, batch(b"b"))
    assert log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=True) == []
    await wal.commit(0)
    assert len(log.read_tail(0, max_bytes=MANY_BYTES, at_least_one=True)) == 1
    assert log.read_tail(1, max_bytes=MANY_BYTES, at_least_one=True) == []


async def test_flushed_batches_leave_the_tail_and_their_bytes_are_reported() -> None:
    log, data = await durable_log(1, 1, 1)
    taken = log.unflushed(limit_bytes=2 * len(data[0]))
    assert [item.end for item in taken] == [1, 2]
    freed = log.flushed(2, log.producers_after(taken, now_ms=0))
    assert freed == 2 * len(data[0])
    assert state_of(log) == (0, 2, 3, 3)
    assert log.read_tail(2, max_bytes=MANY_BYTES, at_least_one=True) == data[2:]
    assert log.tail_bytes == len(data[2])


async def test_at_least_one_batch_is_flushed_however_large() -> None:
    log, _ = await durable_log(1, 1)
    assert [item.end for item in log.unflushed(limit_bytes=1)] == [1]


async def test_only_durable_batches_are_flushed() -> None:
    wal = ManualWal()
    log = open_log(wal)
    first, second = batch(b"a"), batch(b"b")
    append(log, first)
    append(log, second)
    assert (log.unflushed_bytes, list(log.unflushed())) == (0, [])
    await wal.commit(0)
    assert log.unflushed_bytes == len(first)
    assert [item.end for item in log.unflushed()] == [1]
    await wal.commit(1)
    assert log.unflushed_bytes == len(first) + len(second)


async def test_the_snapshot_of_a_flush_is_the_state_at_its_end_not_at_the_logs() -> None:
    wal = ManualWal()
    log = open_log(wal)
    for sequence in range(3):
        append(log, idempotent(b"v", sequence=sequence))
        await wal.commit(sequence)
    (entry,) = log.producers_after(list(log.unflushed())[:2], now_ms=0).entries(now_ms=0)
    assert [span.last_sequence for span in entry.batches] == [0, 1]
    log.flushed(2, log.producers_after(list(log.unflushed())[:2], now_ms=0))
    (entry,) = log.producers_after(log.unflushed(), now_ms=0).entries(now_ms=0)
    assert [span.last_sequence for span in entry.batches] == [0, 1, 2]


async def test_the_log_start_never_goes_back() -> None:
    log = open_log(ManualWal(), start=5, flushed_end=10)
    log.advance_log_start(8)
    log.advance_log_start(3)
    assert log.log_start == 8


async def test_a_discarded_tail_gives_its_bytes_back_once() -> None:
    log, data = await durable_log(1, 1)
    taken = list(log.unflushed())
    assert log.drop_tail() == sum(map(len, data))
    assert log.drop_tail() == 0
    # A flush that was under way may still end.
    assert log.flushed(2, log.producers_after(taken, now_ms=0)) == 0


class Woken:
    def __init__(self) -> None:
        self.times = 0

    def wake(self) -> None:
        self.times += 1


async def test_watchers_wake_on_the_high_watermark_and_on_the_end_and_not_on_an_append() -> None:
    wal, watcher = ManualWal(), Woken()
    log = open_log(wal)
    log.watch(watcher)
    append(log, batch(b"a"))
    await settle()
    assert watcher.times == 0
    await wal.commit(0)
    assert watcher.times == 1
    log.close(Stopping("bye"))
    assert watcher.times == 2
    log.unwatch(watcher)
    log.close(Stopping("again"))
    assert watcher.times == 2


STEPS = st.lists(st.sampled_from(["append", "commit", "flush", "retain", "fail"]), max_size=40)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_start_flushed_end_high_watermark_and_next_offset_keep_their_order_and_never_go_back(steps: list[str]) -> None:
    asyncio.run(_walk(steps))


async def _walk(steps: list[str]) -> None:
    wal = ManualWal()
    log = open_log(wal)
    committed = 0
    before = state_of(log)
    for step in steps:
        if step == "append" and log.closed is None:
            append(log, batch(b"a", b"b"))
        elif step == "commit" and committed < len(wal.commits):
            wal.commits[committed].set_result(None)
            committed += 1
        elif step == "flush" and (taken := log.unflushed(limit_bytes=200)):
            log.flushed(taken[-1].end, log.producers_after(taken, now_ms=0))
        elif step == "retain":
            log.advance_log_start(log.flushed_end)
        elif step == "fail" and committed < len(wal.commits):
            for commit in wal.commits[committed:]:
                commit.set_exception(AppendFailed("over"))
            committed = len(wal.commits)
        for _ in range(3):
            await asyncio.sleep(0)
        after = state_of(log)
        assert after[0] <= after[1] <= after[2] <= after[3]
        assert all(new >= old for new, old in zip(after, before, strict=True))
        before = after
