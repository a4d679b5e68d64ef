"""Where a log begins and ends, and which offset belongs to a time or an epoch."""

import asyncio

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.model.fetch import OffsetResult
from tests.broker.support import NOW_MS, ORDERS, World, batch, current, produce, settle

T = NOW_MS - 10_000_000


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with()


async def add(broker: Broker, *times: int, flush: bool = False, codec: int = 0) -> None:
    await produce(broker, batch(*[b"v"] * len(times), timestamps_ms=[T + time for time in times], codec=codec))
    if flush:
        await current(broker).flusher.flush_all()


async def at(broker: Broker, time: int) -> tuple[int, int] | None:
    result = await broker.at_time(ORDERS, T + time)
    return (result.offset, result.timestamp_ms - T) if result is not None else None


async def test_an_empty_log_begins_and_ends_at_zero_and_knows_no_times(broker: Broker) -> None:
    assert (await broker.earliest(ORDERS)).offset == 0
    assert (await broker.latest(ORDERS)).offset == 0
    assert await broker.at_time(ORDERS, 0) is None
    assert await broker.at_max_timestamp(ORDERS) is None


async def test_the_latest_offset_is_the_high_watermark(broker: Broker) -> None:
    await add(broker, 1, 2)
    await broker.append(ORDERS, batch(b"not durable yet"))
    assert await broker.latest(ORDERS) == OffsetResult(2, leader_epoch=broker.leader_epoch(ORDERS))


@pytest.mark.parametrize("flushed", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_a_time_is_found_in_tail_and_segments_and_inside_a_compressed_batch(
    broker: Broker, flushed: tuple[bool, bool], codec: int
) -> None:
    await add(broker, 10, 20, 30, flush=flushed[0], codec=codec)
    await add(broker, 40, 50, flush=flushed[1], codec=codec)
    requests = [0, 10, 11, 30, 31, 50, 51]
    assert [await at(broker, time) for time in requests] == [(0, 10), (0, 10), (1, 20), (2, 30), (3, 40), (4, 50), None]


@pytest.mark.parametrize("flushed", [0, 1, 2, 3])
async def test_times_out_of_order_give_the_first_offset_that_is_late_enough(broker: Broker, flushed: int) -> None:
    for number, times in enumerate([(50, 10), (5, 70), (60, 90)]):
        await add(broker, *times, flush=number < flushed)
    requests = [1, 50, 51, 70, 71, 91]
    assert [await at(broker, time) for time in requests] == [(0, 50), (0, 50), (3, 70), (3, 70), (5, 90), None]


@pytest.mark.parametrize("flushed", [0, 1, 2, 3])
async def test_the_largest_timestamp_is_found_wherever_it_is_and_its_first_record(broker: Broker, flushed: int) -> None:
    for number, times in enumerate([(1, 2), (9, 90, 90), (3, 90)]):
        await add(broker, *times, flush=number < flushed)
    result = await broker.at_max_timestamp(ORDERS)
    assert result is not None
    assert (result.offset, result.timestamp_ms - T) == (3, 90)


async def test_times_below_the_log_start_do_not_count(broker: Broker, world: World) -> None:
    await add(broker, 10, 99, flush=True)
    await add(broker, 20, flush=True)
    await add(broker, 30, flush=False)
    log = await broker.open_log(ORDERS)
    await world.sqlite.advance_log_start({log.partition: 2})
    log.advance_log_start(2)
    assert (await broker.earliest(ORDERS)).offset == 2
    assert await at(broker, 0) == (2, 20)
    assert await at(broker, 99) is None
    result = await broker.at_max_timestamp(ORDERS)
    assert result is not None
    assert result.offset == 3


async def test_a_flush_in_the_middle_of_a_search_hides_nothing(broker: Broker, world: World) -> None:
    await add(broker, 10, flush=True)
    await add(broker, 20)
    resume = world.metadata.hold_answer("run_at_time")
    searching = asyncio.ensure_future(broker.at_time(ORDERS, T + 20))
    await settle()  # the answer, that no run is so late, is on its way
    await current(broker).flusher.flush_all()
    resume.set()
    result = await searching
    assert result is not None
    assert result.offset == 1


async def test_log_append_time_is_what_is_searched_for(world: World) -> None:
    broker = await world.start_with(**{"message.timestamp.type": "LogAppendTime"})
    await add(broker, 5, 6)
    await world.clock.advance(10)
    await add(broker, 7, flush=True)
    result = await broker.at_time(ORDERS, NOW_MS + 1)
    assert result is not None
    assert (result.offset, result.timestamp_ms) == (2, NOW_MS + 10_000)


async def test_the_current_epoch_ends_at_the_high_watermark_and_a_later_one_is_unknown(broker: Broker) -> None:
    await add(broker, 1, 2)
    epoch = broker.leader_epoch(ORDERS)
    assert await broker.epoch_end(ORDERS, epoch) == OffsetResult(2, leader_epoch=epoch)
    assert await broker.epoch_end(ORDERS, epoch + 1) is None


async def test_an_older_epoch_ends_where_the_next_one_began(world: World) -> None:
    broker = await world.start_with()
    await add(broker, 1, 2)
    old = broker.leader_epoch(ORDERS)
    world.kill()
    broker = await world.start()
    await add(broker, 3)
    new = broker.leader_epoch(ORDERS)
    assert new > old
    assert await broker.epoch_end(ORDERS, old) == OffsetResult(2, leader_epoch=old)
    assert await broker.epoch_end(ORDERS, new) == OffsetResult(3, leader_epoch=new)
    assert await broker.epoch_end(ORDERS, old - 1) is None
    result = await broker.at_time(ORDERS, T)
    assert result is not None
    assert result.leader_epoch == old
