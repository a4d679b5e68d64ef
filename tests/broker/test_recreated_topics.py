"""A topic that is deleted and created again: requests for the old one don't affect the new one."""

import pytest

from streamhouse.errors import LeaseLost, StreamhouseError
from tests.broker.support import ORDERS, World, batch, current, produce, values_of


async def test_a_request_that_means_the_deleted_topic_leaves_the_log_of_its_namesake_alone(world: World) -> None:
    broker = await world.start_with(ORDERS)
    old = await broker.topic(ORDERS.topic)
    await produce(broker, batch(b"old"))
    await broker.delete_topic(old)
    await broker.create_topic(ORDERS.topic, partitions=old.partitions, overrides={})
    assert (await produce(broker, batch(b"new"))).base_offset == 0
    with pytest.raises(StreamhouseError):
        await current(broker).logs.open(old, ORDERS.partition)
    assert (await produce(broker, batch(b"newer"))).base_offset == 1
    assert await values_of(broker) == {0: b"new", 1: b"newer"}


async def test_a_log_that_is_dropped_late_takes_no_other_log_of_its_name_with_it(world: World) -> None:
    broker = await world.start_with(ORDERS)
    topic, old = await broker.topic(ORDERS.topic), await broker.open_log(ORDERS)
    await broker.delete_topic(topic)
    await broker.create_topic(ORDERS.topic, partitions=topic.partitions, overrides={})
    new = await broker.open_log(ORDERS)
    await current(broker).logs.drop([old], LeaseLost([ORDERS], why="a segment was refused"))
    assert current(broker).logs.find(ORDERS) is new
    assert (await produce(broker, batch(b"new"))).base_offset == 0
