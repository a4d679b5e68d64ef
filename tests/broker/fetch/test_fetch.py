"""Fetching: limits and order of a response, and long polls that end in time."""

import asyncio

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch.fetch import LongPoll
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.errors import (
    FencedLeaderEpoch,
    LeaseLost,
    OffsetOutOfRange,
    Stopping,
    UnknownLeaderEpoch,
    UnknownTopic,
)
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition
from tests.broker.support import CLICKS, MANY_BYTES, ORDERS, World, batch, current, fetch, produce, records_of, settle

LONG_S = 60.0


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with(ORDERS, CLICKS)


def poll(
    broker: Broker, *wanted: PartitionFetch, min_bytes: int = 1, max_bytes: int = MANY_BYTES, wait_s: float = LONG_S
) -> "asyncio.Future[list[FetchResult]]":
    return asyncio.ensure_future(broker.fetch(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=wait_s))


def at(offset: int, name: TopicPartition = ORDERS, max_bytes: int = MANY_BYTES) -> PartitionFetch:
    return PartitionFetch(name, offset, max_bytes)


def offsets(found: FetchResult) -> list[int]:
    return [record.offset for record in records_of(found.records)]


async def test_a_response_has_the_partitions_in_the_order_requested_with_their_ends(broker: Broker) -> None:
    await produce(broker, batch(b"a", b"b"), ORDERS)
    result = await poll(broker, at(0, CLICKS), at(1, ORDERS), at(0, ORDERS))
    assert [item.name for item in result] == [CLICKS, ORDERS, ORDERS]
    assert [offsets(item) for item in result] == [[], [0, 1], [0, 1]]
    assert [(item.log_start, item.high_watermark) for item in result] == [(0, 0), (0, 2), (0, 2)]


async def test_the_limit_of_a_partition_and_of_the_response_both_hold(broker: Broker) -> None:
    size = len(batch(b"a"))
    for name in (ORDERS, CLICKS):
        for _ in range(3):
            await produce(broker, batch(b"a"), name)
    result = await poll(broker, at(0, ORDERS, 2 * size), at(0, CLICKS))
    assert [offsets(item) for item in result] == [[0, 1], [0, 1, 2]]
    result = await poll(broker, at(0, ORDERS), at(0, CLICKS), max_bytes=4 * size)
    assert [offsets(item) for item in result] == [[0, 1, 2], [0]]


async def test_the_first_batch_comes_whole_however_large_and_only_the_first(broker: Broker) -> None:
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"x" * 1000), name)
    result = await poll(broker, at(0, ORDERS, 1), at(0, CLICKS, 1), max_bytes=10)
    assert [offsets(item) for item in result] == [[0], []]
    result = await poll(broker, at(1, ORDERS, 1), at(0, CLICKS, 1), max_bytes=10)
    assert [offsets(item) for item in result] == [[], [0]]


async def test_one_partition_in_trouble_does_not_spoil_the_others(broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    result = await poll(broker, at(0, TopicPartition("nobody", 0)), at(7), at(0), at(0, TopicPartition("orders", 5)))
    assert [type(item.error) for item in result] == [UnknownTopic, OffsetOutOfRange, type(None), UnknownTopic]
    assert offsets(result[2]) == [0]


async def test_offsets_outside_the_log_are_refused_on_both_sides(broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    assert (await fetch(broker, 1)).error is None
    for offset in (-1, 2):
        assert isinstance((await fetch(broker, offset)).error, OffsetOutOfRange)


async def test_leader_epochs_are_compared_where_the_client_knows_one(broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    epoch = broker.leader_epoch(ORDERS)
    assert (await fetch(broker, 0, epoch=epoch)).error is None
    assert isinstance((await fetch(broker, 0, epoch=epoch - 1)).error, FencedLeaderEpoch)
    assert isinstance((await fetch(broker, 0, epoch=epoch + 1)).error, UnknownLeaderEpoch)


async def test_a_long_poll_wakes_when_the_high_watermark_moves_and_not_when_a_batch_is_only_queued(
    broker: Broker,
) -> None:
    waiting = poll(broker, at(0, CLICKS), at(0, ORDERS))
    await settle()
    pending = await broker.append(ORDERS, batch(b"a"))
    log = pending.log
    assert (log.high_watermark, log.next_offset) == (0, 1)
    assert not waiting.done()
    await broker.acknowledge(pending)
    result = await waiting
    assert [offsets(item) for item in result] == [[], [0]]


async def test_a_long_poll_waits_until_there_is_as_much_as_it_wants(broker: Broker) -> None:
    size = len(batch(b"a"))
    waiting = poll(broker, at(0), min_bytes=2 * size)
    await produce(broker, batch(b"a"))
    await settle()
    assert not waiting.done()
    await produce(broker, batch(b"a"))
    assert [offsets(item) for item in await waiting] == [[0, 1]]


async def test_a_long_poll_that_wants_more_than_it_may_have_ends_with_what_it_may(broker: Broker) -> None:
    size = len(batch(b"a"))
    waiting = poll(broker, at(0), min_bytes=100 * size, max_bytes=size)
    await produce(broker, batch(b"a"))
    assert [offsets(item) for item in await waiting] == [[0]]


async def test_the_first_error_ends_a_long_poll(broker: Broker) -> None:
    (result, wrong) = await poll(broker, at(0), at(99, CLICKS))
    assert result.error is None
    assert isinstance(wrong.error, OffsetOutOfRange)


async def test_a_deleted_topic_ends_a_long_poll(broker: Broker) -> None:
    waiting = poll(broker, at(0))
    await settle()
    await broker.delete_topic(await broker.topic("orders"))
    (result,) = await waiting
    assert isinstance(result.error, UnknownTopic)


async def test_a_closed_log_ends_a_long_poll_though_what_it_has_is_still_served(broker: Broker) -> None:
    """The next session's log is another one; a poll that went on watching this one would never hear of it."""
    await produce(broker, batch(b"a"))
    waiting = poll(broker, at(1))
    await settle()
    (await broker.open_log(ORDERS)).close(Stopping("bye"))
    (result,) = await waiting
    assert isinstance(result.error, Stopping)
    assert offsets(await fetch(broker, 0)) == [0]


async def test_a_log_whose_tail_was_let_go_says_so_instead_of_nothing(broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    log = await broker.open_log(ORDERS)
    log.close(LeaseLost([ORDERS], why="gone"))
    log.drop_tail()
    assert isinstance((await fetch(broker, 0)).error, LeaseLost)


@pytest.mark.parametrize(("requested_s", "given_s"), [(5.0, 5.0), (10_000.0, 300.0)])
async def test_a_long_poll_ends_at_its_time_or_at_the_setting_with_nothing(
    broker: Broker, world: World, requested_s: float, given_s: float
) -> None:
    waiting = poll(broker, at(0), wait_s=requested_s)
    log = await broker.open_log(ORDERS)
    await settle()
    world.clock.skip(given_s - 0.1)
    wake(log)
    await settle()
    assert not waiting.done()
    world.clock.skip(0.1)
    wake(log)
    (result,) = await waiting
    assert (result.error, offsets(result)) == (None, [])


async def test_waiting_itself_ends_with_the_time() -> None:
    await LongPoll().wait(0.001)


def wake(log: PartitionLog) -> None:
    for watcher in tuple(log._watchers):
        watcher.wake()


async def test_a_fetch_of_nothing_is_answered_at_once(broker: Broker) -> None:
    assert await poll(broker) == []


async def test_watchers_are_gone_after_the_fetch_however_it_ended(broker: Broker) -> None:
    log = await broker.open_log(ORDERS)
    cancelled = poll(broker, at(0))
    await settle()
    assert len(log._watchers) == 1
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert not log._watchers
    waiting = poll(broker, at(0), at(0))
    await settle()
    await produce(broker, batch(b"a"))
    await waiting
    assert not log._watchers


async def test_a_fetch_goes_from_segments_into_the_tail(broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    await produce(broker, batch(b"b"))
    assert offsets(await fetch(broker, 0)) == [0]
    assert offsets(await fetch(broker, 1)) == [1]


async def test_a_long_poll_does_not_wait_for_what_the_tail_has_behind_a_segment(broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    await produce(broker, batch(b"b" * 1000))
    (result,) = await asyncio.wait_for(poll(broker, at(0), min_bytes=500), timeout=LONG_S / 4)
    assert (offsets(result), result.high_watermark) == ([0], 2)


async def test_a_long_poll_does_not_wait_for_more_than_its_partitions_may_have(broker: Broker) -> None:
    size = len(batch(b"a"))
    for _ in range(3):
        await produce(broker, batch(b"a"))
    (result,) = await asyncio.wait_for(poll(broker, at(0, max_bytes=2 * size), min_bytes=3 * size), timeout=LONG_S / 4)
    assert offsets(result) == [0, 1]


async def test_a_reader_with_tiny_limits_gets_every_partition_to_its_end(broker: Broker) -> None:
    """From segments, over their end, and from the tail; always asking in the same order."""
    names = [ORDERS, CLICKS]
    for number in range(6):
        for name in names:
            await produce(broker, batch(b"x" * 200, b"y"), name)
        if number == 2:
            await current(broker).flusher.flush_all()
    read = {name: list[int]() for name in names}
    for _ in range(12):
        result = await poll(broker, *(at(len(read[name]), name, max_bytes=50) for name in names), max_bytes=300)
        for item in result:
            read[item.name] += offsets(item)
    assert read == {name: list(range(12)) for name in names}
