"""Placing over several agents: who coordinates, who leads, and who dies in between."""

import asyncio

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import FlushSettings, LeaseSettings, WalSettings
from streamhouse.errors import Retriable
from streamhouse.model.external_commit import StoredCommit
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.external_commits.support import Team, written
from tests.broker.support import batch, idempotent, produce, values_of

PARTITIONS = 8
NAMES = [TopicPartition("orders", number) for number in range(PARTITIONS)]
VALUES = {name: [b"%d" % name.partition, b"x"] for name in NAMES}


@pytest.fixture
async def team(make_world: MakeWorld) -> Team:
    """Three agents that lead a topic of eight partitions together."""
    team = Team(
        await make_world(
            flush=FlushSettings(block_bytes=256, age_s=5.0),
            wal=WalSettings(window_ms=0),
            lease=LeaseSettings(ttl_s=12.0, takeover_s=4.0, renew_s=2.0, margin_s=1.0),
        )
    )
    for _ in range(3):
        await team.join()
    await team.agents[0].create_topic("orders", partitions=PARTITIONS, overrides={})
    assert len({await team.leader(name) for name in NAMES}) == 3
    return team


async def append(team: Team, name: TopicPartition, data: memoryview) -> int:
    """As a client does it: to the current leader, until it succeeds."""
    for _ in range(300):
        leader = await team.leader(name)
        try:
            pending = await team.done(produce(leader, memoryview(bytearray(data)), name))
        except Retriable:
            await team.pass_time(0.1)
        else:
            return pending.base_offset
    raise AssertionError(f"{name} could not be written")


async def another_leader(team: Team, than: Broker) -> Broker:
    leaders = [await team.leader(name) for name in NAMES]
    return next(each for each in leaders if each is not than)


async def read_all(team: Team) -> dict[TopicPartition, dict[int, bytes | None]]:
    return {name: await team.done(values_of(await team.leader(name), name)) for name in NAMES}


async def until_committed(team: Team, coordinator: Broker, epoch: int = 1) -> StoredCommit:
    """As a query does it: the same work again, with other objects, until it gets the result."""
    for _ in range(50):
        request = await written(coordinator, team.world.bucket, VALUES, epoch=epoch)
        try:
            return await team.done(coordinator.commits.commit(request), within_s=120)
        except Retriable:
            await team.pass_time(0.5)
    raise AssertionError("the commit never happened")


async def test_any_agent_places_in_the_partitions_of_all(team: Team) -> None:
    for name in NAMES:
        assert await append(team, name, batch(b"before")) == 0
    for epoch, coordinator in enumerate(team.agents):
        done = await until_committed(team, coordinator, epoch)
        assert [(each.base, each.end) for each in done.placed] == [(1 + 2 * epoch, 3 + 2 * epoch)] * PARTITIONS
    for name, values in (await read_all(team)).items():
        assert values == {0: b"before", **{1 + n: VALUES[name][n % 2] for n in range(6)}}
        assert await append(team, name, batch(b"after")) == 7


@pytest.mark.parametrize("step", ["acquire", "commit_external_segments", "find_commit"])
async def test_a_coordinator_that_dies_before_a_step_leaves_nothing_half_done(team: Team, step: str) -> None:
    coordinator, other = team.agents[0], team.agents[1]
    for name in NAMES if step != "acquire" else ():
        await append(team, name, batch(b"before"))
    going_on = team.world.metadata.hold(step)
    request = await written(coordinator, team.world.bucket, VALUES)
    dying = asyncio.ensure_future(coordinator.commits.commit(request))
    await team.pass_time(0.3)
    dying.cancel()
    await team.kill(coordinator)
    going_on.set()
    await team.pass_time(15)
    done = await until_committed(team, other)
    before = 0 if step == "acquire" else 1
    assert [(each.base, each.end) for each in done.placed] == [(before, before + 2)] * PARTITIONS
    for name, values in (await read_all(team)).items():
        assert list(values.values())[before:] == VALUES[name]
        assert await append(team, name, batch(b"after")) == before + 2


async def test_a_coordinator_that_dies_behind_the_transaction_is_not_needed(team: Team) -> None:
    """Leaders find the commit's row themselves, and go on under their epochs."""
    coordinator, other = team.agents[0], team.agents[1]
    for name in NAMES:
        await append(team, name, batch(b"before"))
    team.world.metadata.hold_answer("commit_external_segments")
    request = await written(coordinator, team.world.bucket, VALUES)
    dying = asyncio.ensure_future(coordinator.commits.commit(request))
    await team.pass_time(0.3)
    dying.cancel()
    team.world.metadata._held_answers.clear()
    epochs = {name: (await team.leader(name)).leader_epoch(name) for name in NAMES}
    await team.pass_time(2)
    for name in NAMES:
        leader = await team.leader(name)
        assert leader.leader_epoch(name) == epochs[name]
        assert await append(team, name, batch(b"after")) == 3
    done = await until_committed(team, other)
    assert done.is_replayed
    for name, values in (await read_all(team)).items():
        assert list(values.values()) == [b"before", *VALUES[name], b"after"]


async def test_a_repeated_commit_can_be_read_at_the_agent_that_responds(team: Team) -> None:
    """Also if the agent that made it died before it notified any other, and no time has passed."""
    coordinator, *others = team.agents
    for name in NAMES:
        await append(team, name, batch(b"before"))
    led = {other: [name for name in NAMES if await team.leader(name) is other] for other in others}
    team.world.metadata.hold_answer("commit_external_segments")
    request = await written(coordinator, team.world.bucket, VALUES)
    dying = asyncio.ensure_future(coordinator.commits.commit(request))
    await team.pass_time(0.3)
    dying.cancel()
    team.world.metadata._held_answers.clear()
    for other, names in led.items():
        assert [list((await values_of(other, name)).values()) for name in names] == [[b"before"]] * len(names)
        assert (await other.commits.commit(request)).is_replayed
        for name in names:
            assert list((await values_of(other, name)).values()) == [b"before", *VALUES[name]]


async def test_a_leader_that_dies_while_it_holds_is_recovered_and_the_commit_goes_on(team: Team) -> None:
    coordinator = team.agents[0]
    for name in NAMES:
        await append(team, name, idempotent(b"before", sequence=0))
    victim = await another_leader(team, coordinator)
    going_on = team.world.metadata.hold("commit_external_segments")
    request = await written(coordinator, team.world.bucket, VALUES)
    placing = asyncio.ensure_future(coordinator.commits.commit(request))
    await team.pass_time(0.3)
    await team.kill(victim)
    await team.pass_time(14)
    going_on.set()
    try:
        done = await team.done(placing, within_s=120)
    except Retriable:
        done = await until_committed(team, coordinator)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    for name, values in (await read_all(team)).items():
        assert list(values.values()) == [b"before", *VALUES[name]]
        assert await append(team, name, idempotent(b"before", sequence=0)) == 0
        assert await append(team, name, idempotent(b"after", sequence=1)) == 3


async def test_a_leader_that_dies_behind_the_transaction_loses_nothing(team: Team) -> None:
    coordinator = team.agents[0]
    for name in NAMES:
        await append(team, name, idempotent(b"before", sequence=0))
    victim = await another_leader(team, coordinator)
    team.links.lose = {"end"}
    done = await until_committed(team, coordinator)
    await team.kill(victim)
    team.links.lose.clear()
    await team.pass_time(14)
    assert (await until_committed(team, coordinator)).placed == done.placed
    for name, values in (await read_all(team)).items():
        assert list(values.values()) == [b"before", *VALUES[name]]
        assert await append(team, name, idempotent(b"before", sequence=0)) == 0
        assert await append(team, name, idempotent(b"after", sequence=1)) == 3


async def test_partitions_that_move_meanwhile_are_placed_in_at_their_new_leader(team: Team) -> None:
    coordinator = team.agents[0]
    for name in NAMES:
        await append(team, name, batch(b"before"))
    leaving = await another_leader(team, coordinator)
    going_on = team.world.metadata.hold("commit_external_segments")
    placing = asyncio.ensure_future(coordinator.commits.commit(await written(coordinator, team.world.bucket, VALUES)))
    await team.pass_time(0.3)
    leaving.stop()
    await team.pass_time(3)
    going_on.set()
    done = await team.done(placing, within_s=120)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    for name, values in (await read_all(team)).items():
        assert list(values.values()) == [b"before", *VALUES[name]]
        assert await append(team, name, batch(b"after")) == 3


@pytest.mark.parametrize("lost", ["hold", "hold answer", "end"])
async def test_messages_that_are_lost_cost_time_and_nothing_else(team: Team, lost: str) -> None:
    coordinator = team.agents[0]
    for name in NAMES:
        await append(team, name, batch(b"before"))
    team.links.lose = {lost}
    placing = asyncio.ensure_future(coordinator.commits.commit(await written(coordinator, team.world.bucket, VALUES)))
    await team.pass_time(2)
    team.links.lose.clear()
    done = await team.done(placing, within_s=120)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    for name, values in (await read_all(team)).items():
        assert await append(team, name, batch(b"after")) == 3
        assert list(values.values()) in ([b"before", *VALUES[name]], [b"before"])  # its leader may not know yet
    for name, values in (await read_all(team)).items():
        assert list(values.values()) == [b"before", *VALUES[name], b"after"]


async def test_a_paused_coordinator_that_comes_back_places_nothing_late(team: Team) -> None:
    """Its transaction waits for so long that its holds are over; producers have gone on."""
    coordinator, other = team.agents[0], team.agents[1]
    going_on = team.world.metadata.hold("commit_external_segments")
    request = await written(coordinator, team.world.bucket, VALUES)
    paused = asyncio.ensure_future(coordinator.commits.commit(request))
    await team.pass_time(12)
    for name in NAMES:
        assert await append(team, name, batch(b"meanwhile")) == 0
    del team.world.metadata._held["commit_external_segments"]
    done = await until_committed(team, other)
    assert [(each.base, each.end) for each in done.placed] == [(1, 3)] * PARTITIONS
    going_on.set()
    assert (await team.done(paused, within_s=120)).placed == done.placed
    for name, values in (await read_all(team)).items():
        assert list(values.values()) == [b"meanwhile", *VALUES[name]]
