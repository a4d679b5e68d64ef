"""The coordinator: waiting calls, deadlines, durable generations, and sessions that end."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from streamhouse.broker.groups import JoinResult, LeaveRequest, MemberRef
from streamhouse.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    GroupDataTooLarge,
    GroupFull,
    GroupIdInvalid,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    Stopping,
    UnknownMember,
)
from streamhouse.model.cluster import Session
from streamhouse.model.group import OFFSETS_TOPIC, GroupState, shard_of
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.metadata.base import NewSession
from tests.broker.groups.scene import (
    ADDRESS,
    ORDERS,
    SESSION_S,
    Agent,
    Everywhere,
    Scene,
    at,
    caller,
    committed,
    join,
    open_scene,
    settle,
    sync,
)


async def state_of(agent: Agent, group_id: str = "g") -> GroupState:
    described = (await agent.groups.describe([group_id]))[group_id]
    assert not isinstance(described, Exception), described
    return described.state


# --- membership


async def test_members_gather_sync_and_go_on(scene: Scene, agent: Agent) -> None:
    joined = await scene.group_of(agent.groups, 3)
    assert {each.generation for each in joined} == {1}
    assert [len(each.members) for each in joined] == [3, 0, 0]
    assert all(each.member_id.startswith("app-") for each in joined)
    synced = await scene.assign(agent.groups, joined)
    assert [each.assignment for each in synced] == [each.member_id.encode() for each in joined]
    for each in joined:
        await agent.groups.heartbeat("g", caller(each))


async def test_heartbeats_never_reach_the_store(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    before = agent.store.calls.total()
    for _ in range(100):
        await agent.groups.heartbeat("g", caller(member))
    assert agent.store.calls.total() == before


async def test_a_silent_member_is_noticed_when_its_session_ends(scene: Scene, agent: Agent) -> None:
    alive, _ = await scene.group_of(agent.groups, 2)
    for _ in range(4):
        await scene.clock.advance(SESSION_S / 4)
        if await state_of(agent) is GroupState.STABLE:
            await agent.groups.heartbeat("g", caller(alive))
    with pytest.raises(RebalanceInProgress):
        await agent.groups.heartbeat("g", caller(alive))
    again = await agent.groups.join("g", join(alive.member_id))
    assert (again.generation, len(again.members)) == (2, 1)


async def test_a_deadline_that_is_nearer_than_the_sleep_is_met(scene: Scene, agent: Agent) -> None:
    await scene.clock.advance(0.3)
    waiting = scene.start(agent.groups.join("g", join()))
    await scene.clock.advance(2.99)
    assert not waiting.done()
    await scene.clock.advance(0.01)
    assert (await waiting).generation == 1


async def test_a_lost_connection_takes_no_other_member_along(scene: Scene, agent: Agent) -> None:
    gone = scene.start(agent.groups.join("g", join()))
    stays = scene.start(agent.groups.join("g", join()))
    await settle()
    gone.cancel()
    await scene.clock.advance(6)
    joined = await stays
    assert joined.generation == 1
    syncing = scene.start(agent.groups.sync("g", sync(joined)))
    await settle()
    syncing.cancel()
    for _ in range(8):
        await scene.clock.advance(SESSION_S - 1)
        try:
            await agent.groups.heartbeat("g", caller(joined))
        except RebalanceInProgress:
            break
    again = await agent.groups.join("g", join(joined.member_id))
    assert [each.member_id for each in again.members] == [joined.member_id]


async def test_leaving_is_felt_at_once(scene: Scene, agent: Agent) -> None:
    first, second = await scene.group_of(agent.groups, 2)
    assert await agent.groups.leave("g", [LeaveRequest(member_id=first.member_id)]) == [None]
    with pytest.raises(RebalanceInProgress):
        await agent.groups.heartbeat("g", caller(second))


async def test_a_group_that_does_not_exist_knows_nobody(agent: Agent) -> None:
    with pytest.raises(UnknownMember):
        await agent.groups.join("g", join("somebody"))
    with pytest.raises(UnknownMember):
        await agent.groups.leave("g", [LeaveRequest(member_id="somebody")])
    stranger = JoinResult(generation=1, protocol_type=None, protocol=None, leader="", member_id="somebody")
    with pytest.raises(UnknownMember):
        await agent.groups.heartbeat("g", caller(stranger))
    with pytest.raises(UnknownMember):
        await agent.groups.sync("g", sync(stranger))


async def test_a_group_of_which_nothing_came_is_forgotten(scene: Scene, agent: Agent) -> None:
    with pytest.raises(MemberIdRequired):
        await agent.groups.join("g", join(learns_id=True))
    assert len(await agent.groups.list()) == 1
    await scene.clock.advance(SESSION_S)
    assert await agent.groups.list() == []


async def test_a_hundred_members_join_and_all_of_them_learn_one_generation(scene: Scene, agent: Agent) -> None:
    joined = await scene.group_of(agent.groups, 100)
    assert {each.generation for each in joined} == {1}
    assert len({each.member_id for each in joined}) == 100
    assert agent.store.calls["commit_groups"] == 1


# --- what is accepted


async def test_names_and_timeouts_are_checked(agent: Agent) -> None:
    with pytest.raises(GroupIdInvalid):
        await agent.groups.join("", join())
    for name in ("x" * 1001, "\N{EURO SIGN}" * 334, "a\0b"):
        with pytest.raises(GroupIdInvalid):
            await agent.groups.join(name, join())
    for session_ms in (5999, 1_800_001, -1):
        with pytest.raises(InvalidSessionTimeout):
            await agent.groups.join("g", join(session_ms=session_ms))
    with pytest.raises(GroupDataTooLarge):
        await agent.groups.join("g", join(instance_id="i" * 1001))
    with pytest.raises(GroupDataTooLarge):
        await agent.groups.join("g", join(metadata=b"x" * (2**20 + 1)))
    assert await agent.groups.list() == []


async def test_groups_are_limited() -> None:
    async with open_scene(max_groups=2) as scene:
        agent = await scene.agent()
        scene.start(agent.groups.join("a", join()))
        scene.start(agent.groups.join("b", join()))
        await settle()
        with pytest.raises(GroupFull):
            await agent.groups.join("c", join())


# --- durability


async def test_a_new_coordinator_goes_on_where_the_old_one_died(scene: Scene, agent: Agent) -> None:
    first, second = await scene.group_of(agent.groups, 2)
    await agent.groups.commit("g", caller(first), at(10, 20))
    await agent.kill()
    next_one = await scene.successor(of=agent)
    await next_one.groups.heartbeat("g", caller(first))
    assert (await next_one.groups.sync("g", sync(second))).assignment == second.member_id.encode()
    await next_one.groups.commit("g", caller(second), at(11))
    assert await committed(next_one.groups) == [11, 20]
    again = scene.start(next_one.groups.join("g", join(first.member_id)))
    other = scene.start(next_one.groups.join("g", join(second.member_id)))
    assert (await again).generation == (await other).generation == 2


async def test_members_that_died_with_the_coordinator_expire_after_a_whole_session(scene: Scene, agent: Agent) -> None:
    await scene.group_of(agent.groups, 2)
    await scene.clock.advance(SESSION_S - 1)
    await agent.kill()
    next_one = await scene.successor(of=agent)
    await scene.clock.advance(SESSION_S - 1)
    assert await state_of(next_one) is GroupState.STABLE
    await scene.clock.advance(SESSION_S + 1)
    assert await state_of(next_one) is GroupState.EMPTY


async def test_an_assignment_waits_for_the_store(scene: Scene, agent: Agent) -> None:
    waiting = scene.start(agent.groups.join("g", join()))
    await scene.clock.advance(3)
    joined = await waiting
    resume = agent.store.gates["commit_groups"] = asyncio.Event()
    syncing = scene.start(agent.groups.sync("g", sync(joined)))
    await settle()
    assert not syncing.done()
    resume.set()
    assert (await syncing).assignment == joined.member_id.encode()


@pytest.mark.parametrize("fault", ["refused", "unanswered"])
async def test_an_assignment_that_may_not_be_durable_is_not_handed_out(scene: Scene, agent: Agent, fault: str) -> None:
    waiting = scene.start(agent.groups.join("g", join()))
    await scene.clock.advance(3)
    joined = await waiting
    getattr(agent.store, fault).add("commit_groups")
    with pytest.raises(CoordinatorUnavailable):
        await agent.groups.sync("g", sync(joined))
    getattr(agent.store, fault).clear()
    again = await agent.groups.join("g", join(joined.member_id))
    assert again.generation == 2
    assert (await agent.groups.sync("g", sync(again))).assignment == joined.member_id.encode()


async def test_while_the_store_is_away_a_group_can_not_be_loaded_and_then_it_can(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    await agent.kill()
    next_one = await scene.successor(of=agent)
    next_one.store.refused.add("load_groups")
    with pytest.raises(CoordinatorLoading):
        await next_one.groups.heartbeat("g", caller(member))
    next_one.store.refused.clear()
    await next_one.groups.heartbeat("g", caller(member))


# --- sessions and leases


async def test_a_caller_that_waits_is_sent_elsewhere_when_the_session_ends(scene: Scene, agent: Agent) -> None:
    waiting = scene.start(agent.groups.join("g", join()))
    await settle()
    agent.current_session.end_reason = Stopping("the agent is stopping")
    await scene.clock.advance(1)
    with pytest.raises(NotCoordinator):
        await waiting
    with pytest.raises(NotCoordinator):
        await agent.groups.join("g", join())


async def test_releasing_lets_go_at_once(scene: Scene, agent: Agent) -> None:
    waiting = scene.start(agent.groups.join("g", join()))
    await settle()
    agent.groups.release("handing over")
    with pytest.raises(NotCoordinator):
        await waiting


async def test_a_late_heartbeat_to_the_store_stops_everything_until_it_is_made_up_for(
    scene: Scene, agent: Agent
) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    agent.current_session.is_valid = False
    with pytest.raises(NotCoordinator):
        await agent.groups.heartbeat("g", caller(member))
    with pytest.raises(NotCoordinator):
        await agent.groups.commit("g", caller(member), at(1))
    agent.current_session.is_valid = True
    await agent.groups.heartbeat("g", caller(member))
    await agent.groups.commit("g", caller(member), at(2))
    assert await committed(agent.groups) == [2]


async def test_a_shard_that_was_let_go_is_taken_under_a_higher_epoch(scene: Scene, agent: Agent) -> None:
    await scene.group_of(agent.groups, 1)

    async def epoch() -> int:
        topic = await agent.catalog.find(OFFSETS_TOPIC)
        states = await scene.database.partitions([topic.topic_id])
        return states[shard_of("g", topic.partitions)].epoch

    before = await epoch()
    agent.groups.release("test")
    await agent.groups.describe(["g"])
    assert await epoch() > before


async def test_another_agents_groups_are_not_ours(scene: Scene, agent: Agent) -> None:
    await scene.group_of(agent.groups, 1)
    other = await scene.agent()
    with pytest.raises(NotCoordinator):
        await other.groups.join("g", join())
    assert await other.groups.list() == []
    session = await other.groups.coordinator_of("g")
    assert session == other.current_session.session


async def test_a_stale_coordinator_finds_out_by_its_first_write_and_changes_nothing(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    await agent.groups.commit("g", caller(member), at(10))
    next_one = await scene.successor(of=agent)
    await next_one.groups.commit("g", caller(member), at(20))
    with pytest.raises(NotCoordinator):
        await agent.groups.commit("g", caller(member), at(11))
    assert await committed(next_one.groups) == [20]
    with pytest.raises(NotCoordinator):
        await agent.groups.heartbeat("g", caller(member))


async def test_a_stale_coordinator_can_not_make_a_generation(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    again = await agent.groups.join("g", join(member.member_id))
    next_one = await scene.successor(of=agent)
    await next_one.groups.heartbeat("g", caller(member))
    with pytest.raises(NotCoordinator):
        await agent.groups.sync("g", sync(again))
    assert again.generation == 2
    described = (await next_one.groups.describe(["g"]))["g"]
    assert not isinstance(described, Exception)
    assert (described.generation, described.state) == (1, GroupState.STABLE)


async def test_without_a_session_nobody_coordinates(agent: Agent) -> None:
    agent.current_session.is_valid = False
    with pytest.raises(CoordinatorUnavailable):
        await agent.groups.coordinator_of("g")


async def test_the_internal_topic_appears_with_the_first_group_and_keeps_its_shards(scene: Scene, agent: Agent) -> None:
    assert await agent.groups.list() == []
    assert [topic.name for topic in await scene.database.topics()] == ["orders"]
    await asyncio.gather(*(agent.groups.commit(f"g{number}", MemberRef(), at(1)) for number in range(20)))
    [internal] = [topic for topic in await scene.database.topics() if topic.name == OFFSETS_TOPIC]
    assert internal.partitions == 16
    assert len(await agent.groups.list()) == 20


async def test_a_shard_of_an_earlier_session_is_taken_again_under_the_next(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", MemberRef(), at(1))
    before = agent.current_session.session.session_id
    another = NewSession(session_id=SessionId("s-next"), kafka=ADDRESS, http=ADDRESS, ttl_ms=10**9)
    agent.current_session.session = await scene.database.open_session(another)
    await scene.database.end_session(before)
    assert await agent.groups.commit("g", MemberRef(), at(2)) == {ORDERS[0]: None}
    assert await committed(agent.groups) == [2]


async def test_shards_of_a_deleted_topic_give_way_to_those_of_its_namesake(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", MemberRef(), at(1))
    topic = await agent.catalog.find(OFFSETS_TOPIC)
    await scene.database.delete_topic(topic.topic_id)
    await agent.catalog.reload()
    await agent.catalog.create(OFFSETS_TOPIC, partitions=topic.partitions, overrides={})
    await agent.groups.list()
    assert await agent.groups.commit("g", MemberRef(), at(2)) == {ORDERS[0]: None}
    assert await committed(agent.groups) == [2]


async def test_a_shard_that_is_being_taken_when_it_should_move_is_not_given_up_below_its_caller(
    scene: Scene, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = agent.store.gates["load_groups"] = asyncio.Event()
    committing = scene.start(agent.groups.commit("g", MemberRef(), at(1)))
    await settle()
    assert agent.store.calls["load_groups"] == 1
    another = (await scene.agent()).current_session.session

    async def elsewhere(_: Everywhere, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, Session | None]:
        return dict.fromkeys(partitions, another)

    monkeypatch.setattr(Everywhere, "owners", elsewhere)
    balancing = scene.start(agent.groups.balance())
    await settle()
    gate.set()
    assert await committing == {ORDERS[0]: None}
    await balancing


async def test_losing_one_shard_leaves_the_others_alone(scene: Scene, agent: Agent) -> None:
    names = [f"g{number}" for number in range(20)]
    for name in names:
        await agent.groups.commit(name, MemberRef(), at(1))
    topic = await agent.catalog.find(OFFSETS_TOPIC)
    lost = shard_of(names[0], topic.partitions)
    states = await scene.database.partitions([topic.topic_id])
    await scene.database.release(agent.current_session.session.session_id, [states[lost].partition])
    other = await scene.agent()
    await scene.database.acquire(other.current_session.session.session_id, [states[lost].partition])
    resume = agent.store.gates["commit_groups"] = asyncio.Event()
    calls = {name: scene.start(agent.groups.commit(name, MemberRef(), at(2))) for name in names}
    await settle()
    resume.set()
    await asyncio.gather(*calls.values(), return_exceptions=True)
    for name, call in calls.items():
        if shard_of(name, topic.partitions) == lost:
            assert isinstance(call.exception(), NotCoordinator)
            assert await committed(other.groups, name) == [1]
        else:
            assert call.exception() is None
            assert await committed(agent.groups, name) == [2]
