"""An agent that alone is cut off from a store: clients are sent to those who can serve them."""

import asyncio

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.reading.fetch import Fetched, Wanted
from streamhouse.config import FlushSettings, WalSettings
from streamhouse.errors import LeaseLost
from streamhouse.model.names import PartitionId, TopicPartition
from tests.broker.cluster.test_cluster import Team
from tests.broker.conftest import MakeWorld
from tests.broker.support import ORDERS, World, batch, current, fetch, produce, settle, values_of

LONG_S = 60.0


@pytest.fixture
async def team(make_world: MakeWorld) -> Team:
    return Team(await make_world(flush=FlushSettings(block_bytes=256, age_s=5.0), wal=WalSettings(window_ms=0)))


def long_poll(broker: Broker, name: TopicPartition, offset: int) -> "asyncio.Future[list[Fetched]]":
    return asyncio.ensure_future(
        broker.fetch([Wanted(name, offset, 1 << 20)], max_bytes=1 << 20, min_bytes=1, max_wait_s=LONG_S)
    )


async def node_named(broker: Broker, name: TopicPartition) -> int:
    topic = await broker.topic(name.topic)
    return (await broker.leaders([topic]))[PartitionId(topic.topic_id, name.partition)].node_id


# --- from the metadata store


async def test_a_leader_whose_heartbeat_is_late_ends_long_polls_and_does_not_name_itself(team: Team) -> None:
    broker = await team.join()
    await team.topic()
    name = TopicPartition("orders", 0)
    await produce(broker, batch(b"a"), name)
    waiting = long_poll(broker, name, 1)
    await settle()
    team.world.metadata.refuse("renew_session", times=1000)
    await team.pass_time(team.world.settings.lease.usable_s + 0.2)
    (found,) = await asyncio.wait_for(waiting, timeout=5)
    assert isinstance(found.error, LeaseLost)
    assert isinstance((await fetch(broker, 1, name)).error, LeaseLost)
    assert await node_named(broker, name) == -1
    assert (await fetch(broker, 0, name)).records  # what it has is what was stored, whoever leads now


async def test_a_leader_whose_heartbeat_was_late_names_itself_again_when_it_is_made_up_for(team: Team) -> None:
    broker = await team.join()
    await team.topic()
    name = TopicPartition("orders", 0)
    await produce(broker, batch(b"a"), name)
    team.world.metadata.refuse("renew_session", times=1000)
    await team.pass_time(team.world.settings.lease.usable_s + 0.2)
    team.world.metadata.heal()
    await team.pass_time(2)
    assert await node_named(broker, name) == broker.node_id
    assert (await fetch(broker, 1, name)).error is None


async def test_an_agent_that_is_alone_goes_on_naming_itself_because_nobody_else_could_lead(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    world.metadata.refuse("renew_session", times=1000)
    await world.clock.advance(world.settings.lease.ttl_s)
    assert not current(broker).is_valid
    assert await node_named(broker, ORDERS) == broker.node_id
    assert await values_of(broker) == {0: b"a"}
    world.metadata.heal()
    await world.stop(broker, task)
