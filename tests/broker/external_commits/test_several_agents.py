"""Placing over several agents: who coordinates, who leads, and who dies in between."""

import asyncio

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import FlushSettings, LeaseSettings, WalSettings
from streamhouse.errors import Retriable
from streamhouse.model.external_commit import StoredCommit
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.external_commits.support import BrokerCluster, written
from tests.broker.support import batch, idempotent, produce, values_of

PARTITIONS = 8
NAMES = [TopicPartition("orders", number) for number in range(PARTITIONS)]
VALUES = {name: [b"%d" % name.partition, b"x"] for name in NAMES}


@pytest.fixture
async def cluster(make_world: MakeWorld) -> BrokerCluster:
    """Three agents that lead a topic of eight partitions together."""
    cluster = BrokerCluster(
        await make_world(
            flush=FlushSettings(block_bytes=256, age_s=5.0),
            wal=WalSettings(window_ms=0),
            lease=LeaseSettings(ttl_s=12.0, takeover_s=4.0, renew_s=2.0, margin_s=1.0),
        )
    )
    for _ in range(3):
        await cluster.join()
    await cluster.agents[0].create_topic("orders", partitions=PARTITIONS, overrides={})
    assert len({await cluster.leader(name) for name in NAMES}) == 3
    return cluster


async def append(cluster: BrokerCluster, name: TopicPartition, data: memoryview) -> int:
    """As a client does it: to the current leader, until it succeeds."""
    for _ in range(300):
        leader = await cluster.leader(name)
        try:
            pending = await cluster.done(produce(leader, memoryview(bytearray(data)), name))
        except Retriable:
            await cluster.pass_time(0.1)
        else:
            return pending.base_offset
    raise AssertionError(f"{name} could not be written")


async def another_leader(cluster: BrokerCluster, than: Broker) -> Broker:
    leaders = [await cluster.leader(name) for name in NAMES]
    return next(each for each in leaders if each is not than)


async def read_all(cluster: BrokerCluster) -> dict[TopicPartition, dict[int, bytes | None]]:
    return {name: await cluster.done(values_of(await cluster.leader(name), name)) for name in NAMES}


async def until_committed(cluster: BrokerCluster, coordinator: Broker, epoch: int = 1) -> StoredCommit:
    """As a query does it: the same work again, with other objects, until it gets the result."""
    for _ in range(50):
        request = await written(coordinator, cluster.world.bucket, VALUES, epoch=epoch)
        try:
            return await cluster.done(coordinator.commits.commit(request), within_s=120)
        except Retriable:
            await cluster.pass_time(0.5)
    raise AssertionError("the commit never happened")


async def test_any_agent_places_in_the_partitions_of_all(cluster: BrokerCluster) -> None:
    for name in NAMES:
        assert await append(cluster, name, batch(b"before")) == 0
    for epoch, coordinator in enumerate(cluster.agents):
        done = await until_committed(cluster, coordinator, epoch)
        assert [(each.base, each.end) for each in done.placed] == [(1 + 2 * epoch, 3 + 2 * epoch)] * PARTITIONS
    for name, values in (await read_all(cluster)).items():
        assert values == {0: b"before", **{1 + n: VALUES[name][n % 2] for n in range(6)}}
        assert await append(cluster, name, batch(b"after")) == 7


@pytest.mark.parametrize("step", ["acquire", "commit_external_segments", "find_commit"])
async def test_a_coordinator_that_dies_before_a_step_leaves_nothing_half_done(
    cluster: BrokerCluster, step: str
) -> None:
    coordinator, other = cluster.agents[0], cluster.agents[1]
    for name in NAMES if step != "acquire" else ():
        await append(cluster, name, batch(b"before"))
    going_on = cluster.world.metadata.hold(step)
    request = await written(coordinator, cluster.world.bucket, VALUES)
    dying = asyncio.ensure_future(coordinator.commits.commit(request))
    await cluster.pass_time(0.3)
    dying.cancel()
    await cluster.kill(coordinator)
    going_on.set()
    await cluster.pass_time(15)
    done = await until_committed(cluster, other)
    before = 0 if step == "acquire" else 1
    assert [(each.base, each.end) for each in done.placed] == [(before, before + 2)] * PARTITIONS
    for name, values in (await read_all(cluster)).items():
        assert list(values.values())[before:] == VALUES[name]
        assert await append(cluster, name, batch(b"after")) == before + 2


async def test_a_coordinator_that_dies_behind_the_transaction_is_not_needed(cluster: BrokerCluster) -> None:
    """Leaders find the commit's row themselves, and go on under their epochs."""
    coordinator, other = cluster.agents[0], cluster.agents[1]
    for name in NAMES:
        await append(cluster, name, batch(b"before"))
    cluster.world.metadata.hold_answer("commit_external_segments")
    request = await written(coordinator, cluster.world.bucket, VALUES)
    dying = asyncio.ensure_future(coordinator.commits.commit(request))
    await cluster.pass_time(0.3)
    dying.cancel()
    cluster.world.metadata._held_answers.clear()
    epochs = {name: (await cluster.leader(name)).leader_epoch(name) for name in NAMES}
    await cluster.pass_time(2)
    for name in NAMES:
        leader = await cluster.leader(name)
        assert leader.leader_epoch(name) == epochs[name]
        assert await append(cluster, name, batch(b"after")) == 3
    done = await until_committed(cluster, other)
    assert done.is_replayed
    for name, values in (await read_all(cluster)).items():
        assert list(values.values()) == [b"before", *VALUES[name], b"after"]


async def test_a_repeated_commit_can_be_read_at_the_agent_that_responds(cluster: BrokerCluster) -> None:
    """Also if the agent that made it died before it notified any other, and no time has passed."""
    coordinator, *others = cluster.agents
    for name in NAMES:
        await append(cluster, name, batch(b"before"))
    led = {other: [name for name in NAMES if await cluster.leader(name) is other] for other in others}
    cluster.world.metadata.hold_answer("commit_external_segments")
    request = await written(coordinator, cluster.world.bucket, VALUES)
    dying = asyncio.ensure_future(coordinator.commits.commit(request))
    await cluster.pass_time(0.3)
    dying.cancel()
    cluster.world.metadata._held_answers.clear()
    for other, names in led.items():
        assert [list((await values_of(other, name)).values()) for name in names] == [[b"before"]] * len(names)
        assert (await other.commits.commit(request)).is_replayed
        for name in names:
            assert list((await values_of(other, name)).values()) == [b"before", *VALUES[name]]


async def test_a_leader_that_dies_while_it_holds_is_recovered_and_the_commit_goes_on(cluster: BrokerCluster) -> None:
    coordinator = cluster.agents[0]
    for name in NAMES:
        await append(cluster, name, idempotent(b"before", sequence=0))
    victim = await another_leader(cluster, coordinator)
    going_on = cluster.world.metadata.hold("commit_external_segments")
    request = await written(coordinator, cluster.world.bucket, VALUES)
    placing = asyncio.ensure_future(coordinator.commits.commit(request))
    await cluster.pass_time(0.3)
    await cluster.kill(victim)
    await cluster.pass_time(14)
    going_on.set()
    try:
        done = await cluster.done(placing, within_s=120)
    except Retriable:
        done = await until_committed(cluster, coordinator)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    for name, values in (await read_all(cluster)).items():
        assert list(values.values()) == [b"before", *VALUES[name]]
        assert await append(cluster, name, idempotent(b"before", sequence=0)) == 0
        assert await append(cluster, name, idempotent(b"after", sequence=1)) == 3


async def test_a_leader_that_dies_behind_the_transaction_loses_nothing(cluster: BrokerCluster) -> None:
    coordinator = cluster.agents[0]
    for name in NAMES:
        await append(cluster, name, idempotent(b"before", sequence=0))
    victim = await another_leader(cluster, coordinator)
    cluster.links.lose = {"end"}
    done = await until_committed(cluster, coordinator)
    await cluster.kill(victim)
    cluster.links.lose.clear()
    await cluster.pass_time(14)
    assert (await until_committed(cluster, coordinator)).placed == done.placed
    for name, values in (await read_all(cluster)).items():
        assert list(values.values()) == [b"before", *VALUES[name]]
        assert await append(cluster, name, idempotent(b"before", sequence=0)) == 0
        assert await append(cluster, name, idempotent(b"after", sequence=1)) == 3


async def test_partitions_that_move_meanwhile_are_placed_in_at_their_new_leader(cluster: BrokerCluster) -> None:
    coordinator = cluster.agents[0]
    for name in NAMES:
        await append(cluster, name, batch(b"before"))
    leaving = await another_leader(cluster, coordinator)
    going_on = cluster.world.metadata.hold("commit_external_segments")
    placing = asyncio.ensure_future(
        coordinator.commits.commit(await written(coordinator, cluster.world.bucket, VALUES))
    )
    await cluster.pass_time(0.3)
    leaving.stop()
    await cluster.pass_time(3)
    going_on.set()
    done = await cluster.done(placing, within_s=120)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    for name, values in (await read_all(cluster)).items():
        assert list(values.values()) == [b"before", *VALUES[name]]
        assert await append(cluster, name, batch(b"after")) == 3


@pytest.mark.parametrize("lost", ["hold", "hold answer", "end"])
async def test_messages_that_are_lost_cost_time_and_nothing_else(cluster: BrokerCluster, lost: str) -> None:
    coordinator = cluster.agents[0]
    for name in NAMES:
        await append(cluster, name, batch(b"before"))
    cluster.links.lose = {lost}
    placing = asyncio.ensure_future(
        coordinator.commits.commit(await written(coordinator, cluster.world.bucket, VALUES))
    )
    await cluster.pass_time(2)
    cluster.links.lose.clear()
    done = await cluster.done(placing, within_s=120)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    for name, values in (await read_all(cluster)).items():
        assert await append(cluster, name, batch(b"after")) == 3
        assert list(values.values()) in ([b"before", *VALUES[name]], [b"before"])  # its leader may not know yet
    for name, values in (await read_all(cluster)).items():
        assert list(values.values()) == [b"before", *VALUES[name], b"after"]


async def test_a_paused_coordinator_that_comes_back_places_nothing_late(cluster: BrokerCluster) -> None:
    """Its transaction waits for so long that its holds are over; producers have gone on."""
    coordinator, other = cluster.agents[0], cluster.agents[1]
    going_on = cluster.world.metadata.hold("commit_external_segments")
    request = await written(coordinator, cluster.world.bucket, VALUES)
    paused = asyncio.ensure_future(coordinator.commits.commit(request))
    await cluster.pass_time(12)
    for name in NAMES:
        assert await append(cluster, name, batch(b"meanwhile")) == 0
    del cluster.world.metadata._held["commit_external_segments"]
    done = await until_committed(cluster, other)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    going_on.set()
    assert (await cluster.done(paused, within_s=120)).placed == done.placed
    for name, values in (await read_all(cluster)).items():
        assert list(values.values()) == [b"meanwhile", *VALUES[name]]
