"""An agent that alone is cut off from a store: clients are sent to those who can serve them."""

import asyncio
import logging
from typing import Literal

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.failover.store_isolation import IsolationRule, isolation_limit_s
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config import FlushSettings, Settings, WalSettings
from streamhouse.config.fields import Address
from streamhouse.errors import LeaseLost, Retriable
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.stores.objects.watched import PutWatch, WatchedStore
from tests.broker.cluster.test_cluster import BrokerCluster
from tests.broker.conftest import MakeWorld
from tests.broker.support import ORDERS, Faulty, World, batch, current, fetch, produce, settle, values_of

LONG_S = 60.0


@pytest.fixture
async def cluster(make_world: MakeWorld) -> BrokerCluster:
    return BrokerCluster(
        await make_world(flush=FlushSettings(block_bytes=256, age_s=5.0), wal=WalSettings(window_ms=0))
    )


def long_poll(broker: Broker, name: TopicPartition, offset: int) -> "asyncio.Future[list[FetchResult]]":
    return asyncio.ensure_future(
        broker.fetch([PartitionFetch(name, offset, 1 << 20)], max_bytes=1 << 20, min_bytes=1, max_wait_s=LONG_S)
    )


async def node_named(broker: Broker, name: TopicPartition) -> int:
    topic = await broker.topic(name.topic)
    return (await broker.leaders([topic]))[PartitionId(topic.topic_id, name.partition)].node_id


# --- from the metadata store


async def test_a_leader_whose_heartbeat_is_late_ends_long_polls_and_does_not_name_itself(
    cluster: BrokerCluster,
) -> None:
    broker = await cluster.join()
    await cluster.topic()
    name = TopicPartition("orders", 0)
    await produce(broker, batch(b"a"), name)
    waiting = long_poll(broker, name, 1)
    await settle()
    cluster.world.metadata.refuse("renew_session", times=1000)
    await cluster.pass_time(cluster.world.settings.lease.usable_s + 0.2)
    (result,) = await asyncio.wait_for(waiting, timeout=5)
    assert isinstance(result.error, LeaseLost)
    assert isinstance((await fetch(broker, 1, name)).error, LeaseLost)
    assert await node_named(broker, name) == -1
    assert (await fetch(broker, 0, name)).records  # what it has is what was stored, whoever leads now


async def test_a_leader_whose_heartbeat_was_late_names_itself_again_when_it_is_made_up_for(
    cluster: BrokerCluster,
) -> None:
    broker = await cluster.join()
    await cluster.topic()
    name = TopicPartition("orders", 0)
    await produce(broker, batch(b"a"), name)
    cluster.world.metadata.refuse("renew_session", times=1000)
    await cluster.pass_time(cluster.world.settings.lease.usable_s + 0.2)
    cluster.world.metadata.heal()
    await cluster.pass_time(2)
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


# --- from the object store: the rule


LIMIT_S = 30.0


def test_an_agent_is_cut_off_when_for_the_whole_limit_others_wrote_and_it_could_not() -> None:
    rule = IsolationRule(LIMIT_S)
    for second in range(29):
        assert not rule.is_isolated(100.0 + second, failing_since=100.0, others_age_s=2.0)
    assert rule.is_isolated(130.0, failing_since=100.0, others_age_s=2.0)


def test_nobody_is_cut_off_when_nobody_writes() -> None:
    rule = IsolationRule(LIMIT_S)
    for second in range(600):  # the last write of another went through when the store went away
        assert not rule.is_isolated(100.0 + second, failing_since=100.0, others_age_s=float(second))
        assert not IsolationRule(LIMIT_S).is_isolated(100.0 + second, failing_since=100.0, others_age_s=None)


def test_time_counts_from_when_others_began_to_write_again_after_the_store_was_away_for_all() -> None:
    rule = IsolationRule(LIMIT_S)
    assert not rule.is_isolated(1000.0, failing_since=100.0, others_age_s=900.0)
    assert not rule.is_isolated(1001.0, failing_since=100.0, others_age_s=0.5)
    assert not rule.is_isolated(1020.0, failing_since=100.0, others_age_s=0.5)
    assert rule.is_isolated(1031.0, failing_since=100.0, others_age_s=0.5)


def test_an_agent_that_writes_or_has_nothing_to_write_is_not_cut_off() -> None:
    rule = IsolationRule(LIMIT_S)
    assert not rule.is_isolated(1000.0, failing_since=None, others_age_s=0.5)
    assert not rule.is_isolated(1100.0, failing_since=1099.0, others_age_s=0.5)


def test_the_limit_is_never_so_short_that_reports_of_others_come_too_late() -> None:
    settings = Settings()
    assert isolation_limit_s(settings) == settings.cluster.cut_off_s
    assert settings.cluster.cut_off_s >= 4 * settings.lease.renew_s


def test_writes_fail_since_the_first_that_did_not_get_there_and_one_that_does_ends_it() -> None:
    puts = PutWatch()
    puts.began(1.0)
    puts.began(2.0)
    puts.ended(3.0, reached=False)
    assert (puts.failing_since, puts.last_at) == (1.0, None)
    puts.ended(4.0, reached=True)
    assert (puts.failing_since, puts.last_at) == (None, 4.0)


# --- from the object store: agents


class Buckets(BrokerCluster):
    """Agents that reach the same bucket on ways of their own."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ways: dict[Broker, Faulty] = {}

    async def join(self, *, at: Address | None = None) -> Broker:
        world, way = self.world, Faulty(self.world.bucket)
        objects = WatchedStore(way, world.clock)
        wals = ObjectWalFactory(objects, world.settings.wal, clock=world.clock, ids=world.ids)
        address = at or Address("127.0.0.1", 9001 + len(self.agents))
        dependencies = world.dependencies(
            single_agent=False, objects=objects, wal_factory=wals, kafka=address, puts=objects.puts
        )
        broker = Broker(dependencies)
        await broker.start()
        self.agents.append(broker)
        self.ways[broker] = way
        self.tasks[broker] = world.run(broker)
        await self.pass_time(0.1)
        return broker


@pytest.fixture
async def buckets(make_world: MakeWorld) -> Buckets:
    return Buckets(await make_world(flush=FlushSettings(block_bytes=256, age_s=5.0), wal=WalSettings(window_ms=0)))


@pytest.mark.parametrize("how", ["refuse", "swallow"])
async def test_an_agent_that_alone_is_cut_off_from_the_bucket_gives_up_and_comes_back_when_it_can_write(
    buckets: Buckets, how: Literal["refuse", "swallow"]
) -> None:
    first, second = await buckets.join(), await buckets.join()
    await buckets.topic()
    (name, *_) = await buckets.led_by(first)
    assert await buckets.produce(name, b"acked") == 0
    buckets.ways[first].cut(how)
    pending = asyncio.ensure_future(produce(first, batch(b"pending"), name))
    limit_s = isolation_limit_s(buckets.world.settings)
    await buckets.pass_time(2 * limit_s + 10, step=0.5)
    assert pending.done()
    with pytest.raises(Retriable):
        await pending
    assert first.not_ready() is not None
    assert await node_named(first, name) != first.node_id
    assert await node_named(second, name) == second.node_id
    await produce(second, batch(b"after"), name)
    stored = list((await values_of(second, name)).values())
    assert (stored[0], stored[-1]) == (b"acked", b"after")
    buckets.ways[first].heal()
    await buckets.pass_time(60, step=0.5)
    assert first.not_ready() is None


@pytest.mark.parametrize("how", ["refuse", "swallow"])
async def test_an_agent_that_is_cut_off_while_it_stops_leaves_its_log_to_the_others_at_once(
    buckets: Buckets, how: Literal["refuse", "swallow"], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = await buckets.join(), await buckets.join()
    await buckets.topic()
    (name, *_) = await buckets.led_by(first)
    assert await buckets.produce(name, b"acked") == 0
    buckets.ways[first].cut(how)
    pending = asyncio.ensure_future(produce(first, batch(b"pending"), name))
    await buckets.pass_time(1, step=0.5)
    first.stop()
    settings = buckets.world.settings
    longest_s = max(isolation_limit_s(settings), settings.agent.stop_timeout_s) + settings.agent.close_timeout_s
    await buckets.pass_time(longest_s + 10, step=0.5)
    assert await node_named(second, name) == second.node_id
    assert (await values_of(second, name))[0] == b"acked"
    with pytest.raises(Retriable):
        await pending
    assert buckets.tasks[first].done()
    assert "partitions transferred" not in caplog.text


async def test_when_the_bucket_is_away_for_all_nobody_gives_anything_up(buckets: Buckets) -> None:
    first, second = await buckets.join(), await buckets.join()
    await buckets.topic()
    sessions = [current(each).session.session_id for each in (first, second)]
    waiting = []
    for broker in (first, second):
        (name, *_) = await buckets.led_by(broker)
        await produce(broker, batch(b"acked"), name)
        buckets.ways[broker].cut("refuse")
        waiting.append(asyncio.ensure_future(produce(broker, batch(b"pending"), name)))
    await buckets.pass_time(10 * isolation_limit_s(buckets.world.settings), step=1.0)
    assert [current(each).session.session_id for each in (first, second)] == sessions
    assert not any(each.done() for each in waiting)
    for broker in (first, second):
        buckets.ways[broker].heal()
    await buckets.pass_time(10)
    await asyncio.gather(*waiting)
    assert [current(each).session.session_id for each in (first, second)] == sessions
