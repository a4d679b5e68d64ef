"""Offsets expire as Kafka's do."""

import uuid

import pytest

from streamhouse.broker.groups import LeaveRequest, MemberRef
from streamhouse.broker.groups.descriptions import subscriptions_of, topics_read
from streamhouse.broker.groups.offset_expiry import expired_offsets
from streamhouse.errors import CoordinatorUnavailable
from streamhouse.model.group import CommittedOffset, GroupOffset
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import OffsetStored
from tests.broker.groups.machine import DELAY_S, Machine
from tests.broker.groups.scene import Agent, Scene, at, caller, committed, open_scene

READS_ORDERS = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\x00\x00\x00\x00"
ORDERS, CLICKS = TopicId(uuid.UUID(int=1)), TopicId(uuid.UUID(int=2))
TOPICS = {
    topic_id: Topic(topic_id=topic_id, name=name, partitions=1, created_at_ms=0)
    for topic_id, name in ((ORDERS, "orders"), (CLICKS, "clicks"))
}
RETENTION_MS = 1000


def stored(topic_id: TopicId, at_ms: int, expires_at_ms: int | None = None) -> OffsetStored:
    value = CommittedOffset(offset=1, committed_at_ms=at_ms, expires_at_ms=expires_at_ms)
    return OffsetStored(GroupOffset("g", PartitionId(topic_id, 0)), value)


def over(machine: Machine, *offsets: OffsetStored, now_ms: int) -> list[OffsetStored]:
    names = topics_read("g", subscriptions_of(machine.group), {topic.name for topic in TOPICS.values()})
    read = {topic_id for topic_id, topic in TOPICS.items() if topic.name in names}
    return expired_offsets(machine.group, offsets, read, now_ms=now_ms, retention_ms=RETENTION_MS)


# --- the policy


def test_a_simple_groups_offsets_expire_by_their_commit() -> None:
    machine = Machine()
    old, new = stored(ORDERS, 100), stored(CLICKS, 101)
    assert over(machine, old, new, now_ms=1100) == [old]


def test_a_group_with_members_keeps_the_offsets_of_what_it_reads() -> None:
    machine = Machine()
    machine.settled(None, metadata=READS_ORDERS)
    assert over(machine, stored(ORDERS, 0), now_ms=10**9) == []


def test_a_group_with_members_forgets_topics_that_it_reads_no_more() -> None:
    machine = Machine()
    machine.settled(None, metadata=READS_ORDERS)
    old = stored(CLICKS, 100)
    assert over(machine, old, now_ms=1099) == []
    assert over(machine, old, now_ms=1100) == [old]


def test_members_that_do_not_say_what_they_read_keep_everything() -> None:
    consumers, workers = Machine(), Machine()
    consumers.settled(None, metadata=b"?")
    workers.settled(None, protocol_type="connect")
    assert over(consumers, stored(ORDERS, 0), now_ms=10**9) == []
    assert over(workers, stored(ORDERS, 0), now_ms=10**9) == []


def test_an_empty_groups_offsets_expire_by_when_the_last_member_left() -> None:
    machine = Machine()
    machine.leave(*machine.settled(None))
    machine.group.changed_at_ms = 5000
    old = stored(ORDERS, 100)
    assert over(machine, old, now_ms=5999) == []
    assert over(machine, old, now_ms=6000) == [old]


def test_a_group_in_a_rebalance_is_left_alone() -> None:
    machine = Machine()
    machine.join(metadata=READS_ORDERS)
    assert over(machine, stored(CLICKS, 0), now_ms=10**9) == []
    machine.pass_time(DELAY_S)
    assert over(machine, stored(CLICKS, 0), now_ms=10**9) == []


def test_a_retention_that_the_client_requested_counts() -> None:
    machine = Machine()
    timed = stored(ORDERS, 100, expires_at_ms=150)
    assert over(machine, timed, now_ms=149) == []
    assert over(machine, timed, now_ms=150) == [timed]
    assert over(machine, stored(ORDERS, 100, expires_at_ms=10**6), now_ms=5000) == []


# --- the loop


DAY_S = 86_400.0


async def test_a_group_nobody_has_used_for_a_week_is_forgotten_with_its_offsets(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    await agent.groups.commit("g", caller(member), at(5))
    await agent.groups.leave("g", [LeaveRequest(member_id=member.member_id)])
    await agent.groups.commit("simple", MemberRef(), at(7))
    scene.clock._now += 7 * DAY_S - 60
    assert await agent.groups.expiry.sweep() == 0
    scene.clock._now += 120
    assert await agent.groups.expiry.sweep() == 2
    assert await agent.groups.list() == []
    assert await committed(agent.groups) == []
    await agent.kill()
    assert await (await scene.successor(of=agent)).groups.list() == []


async def test_a_group_without_offsets_goes_at_the_next_look_and_one_with_members_stays(
    scene: Scene, agent: Agent
) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    await scene.group_of(agent.groups, 1, "busy")
    await agent.groups.leave("g", [LeaveRequest(member_id=member.member_id)])
    await agent.groups.expiry.sweep()
    assert [each.group_id for each in await agent.groups.list()] == ["busy"]


async def test_a_commit_on_its_way_saves_the_group(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", MemberRef(), at(1))
    scene.clock._now += 8 * DAY_S
    sweeping = scene.start(agent.groups.expiry.sweep())
    committing = scene.start(agent.groups.commit("g", MemberRef(), at(2)))
    await scene.clock.advance(0)
    await committing
    await sweeping
    assert await committed(agent.groups) == [2]
    assert [each.group_id for each in await agent.groups.list()] == ["g"]


async def test_the_loop_looks_every_ten_minutes_and_takes_shards_that_nobody_holds(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", MemberRef(), at(1), retention_ms=1000)
    await agent.kill()
    next_one = await scene.successor(of=agent)
    await scene.clock.advance(601)
    assert await committed(next_one.groups) == []
    assert await next_one.groups.list() == []


async def test_a_store_that_is_away_is_tried_again(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", MemberRef(), at(1), retention_ms=1000)
    agent.store.refused.add("groups_to_review")
    await scene.clock.advance(601)
    assert await committed(agent.groups) == [1]
    agent.store.refused.clear()
    await scene.clock.advance(11)
    assert await committed(agent.groups) == []


@pytest.mark.parametrize("fault", ["refused", "unanswered"])
async def test_a_look_whose_outcome_is_unknown_loses_no_group(scene: Scene, agent: Agent, fault: str) -> None:
    for name in ("a", "b", "c"):
        await agent.groups.commit(name, MemberRef(), at(1))
    scene.clock._now += 8 * DAY_S
    getattr(agent.store, fault).add("commit_groups")
    with pytest.raises(CoordinatorUnavailable):
        await agent.groups.expiry.sweep()
    getattr(agent.store, fault).clear()
    left = [each.group_id for each in await agent.groups.list()]
    assert left == ([] if fault == "unanswered" else ["a", "b", "c"])


@pytest.mark.parametrize("count", [250])
async def test_many_groups_are_looked_at_in_parts(count: int) -> None:
    async with open_scene() as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=4)
        for number in range(count):
            await agent.groups.commit(f"g{number}", MemberRef(), at(1, 2))
        scene.clock._now += 8 * DAY_S
        before = agent.store.calls["committed_offsets"]
        assert await agent.groups.expiry.sweep() == 2 * count
        assert agent.store.calls["committed_offsets"] - before == 3
        assert await agent.groups.list() == []
