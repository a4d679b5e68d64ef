"""Metrics of placing: what became of commits, and how long partitions stood still for them."""

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.config import FlushSettings
from streamhouse.errors import StaleCommit
from tests.broker.conftest import MakeWorld
from tests.broker.external_commits.support import commit_of, until_done, write_segment, written
from tests.broker.external_commits.test_commit import commit, hold
from tests.broker.support import ORDERS, World, batch, produce, settle


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(flush=FlushSettings(block_bytes=256, age_s=3600.0))


@pytest.fixture
async def broker(world: World) -> Broker:
    broker = await world.start()
    await broker.create_topic("orders", partitions=2, overrides={})
    world.run(broker)
    await settle()
    return broker


def page(broker: Broker) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(BrokerMetrics(broker))
    prefix = "streamhouse_placing_"
    return {
        sample.name.removeprefix(prefix): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith(prefix) and not sample.name.endswith("_created")
    }


async def test_commits_are_counted_by_how_they_ended(world: World, broker: Broker) -> None:
    first = await written(broker, world.bucket, {ORDERS: [b"x"]})
    await commit(world, broker, first)
    await commit(world, broker, first)
    segment = await write_segment(broker, world.bucket, {ORDERS: [b"z"]}, epoch=0)
    with pytest.raises(StaleCommit):
        await commit(world, broker, commit_of(segment, epoch=0))
    result = page(broker)
    assert (result["commits_total"], result["replays_total"], result["refusals_total"]) == (1, 1, 1)
    assert (result["holds_total"], result["expired_holds_total"], result["holding"]) == (1, 0, 0)


async def test_a_hold_that_nobody_ends_is_seen_while_it_lasts_and_afterwards(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    await until_done(world, hold(broker))
    assert page(broker)["holding"] == 1
    await world.clock.advance(world.settings.placing.hold_s + 2)
    result = page(broker)
    assert (result["holding"], result["expired_holds_total"]) == (0, 1)
    assert result["held_seconds_total"] >= world.settings.placing.hold_s
