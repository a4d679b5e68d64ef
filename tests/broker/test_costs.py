"""What serving costs: requests to the object store follow bytes, never partitions, fetches or the length of the log."""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import FetchSettings
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.support import ORDERS, World, batch, current, produce, values_of

FLUSHES = 6


async def written(world: World, partitions: int) -> Broker:
    """A record of each partition in every one of so many objects."""
    broker = await world.start()
    world.objects.calls.clear()  # stores that meet for the first time are looked at
    await broker.create_topic("orders", partitions=partitions, overrides={"retention.ms": "-1"})
    for _ in range(FLUSHES):
        for number in range(partitions):
            await produce(broker, batch(b"v"), TopicPartition("orders", number))
        await current(broker).flusher.flush_all()
    return broker


@pytest.mark.parametrize("partitions", [1, 40])
async def test_a_flush_is_one_object_however_many_partitions_it_is_of(world: World, partitions: int) -> None:
    await written(world, partitions)
    assert world.objects.count("put_new") == FLUSHES


async def test_nobody_lists_the_bucket_to_write_to_read_or_to_find_an_offset(world: World) -> None:
    broker = await written(world, 3)
    for number in range(3):
        name = TopicPartition("orders", number)
        for _ in range(2):
            assert len(await values_of(broker, name)) == FLUSHES
        await broker.at_time(name, 1)
        await broker.at_max_timestamp(name)
    await broker.retention.apply()
    await broker.compactor.run_once()
    assert (world.objects.count("list"), world.objects.count("head")) == (0, 0)


async def test_a_cold_read_asks_twice_for_each_run_and_the_next_one_not_at_all(world: World) -> None:
    broker = await written(world, 1)
    assert world.objects.count("get_range") == 0
    for _ in range(2):
        await values_of(broker)
        assert world.objects.count("get_range") <= 2 * FLUSHES


@pytest.mark.parametrize("is_read", [True, False])
async def test_what_was_flushed_of_a_partition_that_is_read_is_read_without_a_request(
    world: World, is_read: bool
) -> None:
    broker = await world.start_with(ORDERS)
    if is_read:
        await values_of(broker)
    for value in (b"a", b"b"):
        await produce(broker, batch(value))
        await current(broker).flusher.flush_all()
    world.objects.calls.clear()
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    assert world.objects.count("get_range") == (0 if is_read else 4)


async def test_nothing_is_kept_of_a_partition_whose_last_fetch_is_long_ago(make_world: MakeWorld) -> None:
    world = await make_world(fetch=FetchSettings(keep_flushed_s=1.0))
    broker = await world.start_with(ORDERS)
    await values_of(broker)
    world.clock.skip(1.0)
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    assert (len(broker.reader.blocks), len(broker.reader.indexes)) == (0, 0)
