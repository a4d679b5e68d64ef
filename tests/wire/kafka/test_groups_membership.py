"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: generations, static members, time, lost connections."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.clock import SystemClock
from streamhouse.config import Settings
from streamhouse.model.group import GroupState
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from streamhouse.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from streamhouse.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from streamhouse.wire.kafka.messages.sync_group import SyncGroupResponse
from tests.wire.kafka.members import (
    LEAVE,
    SESSION_MS,
    LeapingClock,
    Member,
    a_group,
    a_member,
    group_settings,
    join_all,
    reach,
    rebalance,
    state_of,
    sync_all,
)
from tests.wire.kafka.talk import Served, a_broker, a_server, create_topic, until


@pytest.fixture
def settings() -> Settings:
    return group_settings()


@pytest.fixture
def clock() -> LeapingClock:
    return LeapingClock()


@pytest.fixture
async def broker(tmp_path: Path, settings: Settings, clock: LeapingClock) -> AsyncIterator[Broker]:
    async with a_broker(tmp_path, settings, clock) as broker:
        yield broker


# --- one member, every version


@pytest.mark.parametrize("version", range(10))
async def test_a_lonely_member_leads_itself(served: Served, version: int) -> None:
    member = await a_member(served, protocols=("range", "roundrobin"))
    joined = await member.join(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id != ""
    assert [(each.member_id, bytes(each.metadata)) for each in joined.members] == [(member.member_id, b"what I read")]
    assert joined.member_id.startswith("test-")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(10))
async def test_from_v4_on_a_new_member_is_first_told_its_id(served: Served, version: int) -> None:
    member = await a_member(served)
    response = await member.client.call(member.join_request(), JoinGroupResponse, version)
    assert response.error_code == (ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else 0)
    assert response.member_id
    if version >= 4:
        assert (response.generation_id, response.leader, response.protocol_name) == (
            -1,
            "",
            None if version >= 7 else "",
        )


@pytest.mark.parametrize("version", range(6))
async def test_the_leader_gets_what_it_assigned_to_itself(served: Served, version: int) -> None:
    member = await a_member(served)
    await member.join()
    synced = await member.sync(version)
    assert (synced.error_code, bytes(synced.assignment)) == (0, f"for {member.member_id}".encode())
    assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))


@pytest.mark.parametrize("version", range(5))
async def test_a_heartbeat_says_whether_one_is_still_in(served: Served, version: int) -> None:
    (member,) = await a_group(served, 1)
    assert await member.heartbeat(version) is ErrorCode.NONE
    member.generation += 1
    assert await member.heartbeat(version) is ErrorCode.ILLEGAL_GENERATION
    member.member_id = "nobody"
    assert await member.heartbeat(version) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
async def test_the_last_member_to_leave_leaves_an_empty_group(served: Served, version: int) -> None:
    (member,) = await a_group(served, 1)
    assert await member.leave(version) is ErrorCode.NONE
    assert await state_of(served) is GroupState.EMPTY
    assert await member.leave(version) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
async def test_nobody_leaves_a_group_that_is_not_there(served: Served, version: int) -> None:
    member = await a_member(served, "never", member_id="m")
    response = await member.client.call(member.leave_request(version), LeaveGroupResponse, version)
    if version < 3:
        assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert response.error_code == ErrorCode.NONE
        assert [each.error_code for each in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


# --- what is refused


async def test_an_empty_group_id_is_invalid(served: Served) -> None:
    member = await a_member(served, "")
    assert (await member.client.call(member.join_request(), JoinGroupResponse, 9)).error_code == (
        ErrorCode.INVALID_GROUP_ID
    )
    assert await member.heartbeat() is ErrorCode.INVALID_GROUP_ID
    assert await member.leave() is ErrorCode.INVALID_GROUP_ID
    assert (await member.sync(4)).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("timeout_ms", [0, -1, 5_999, 1_800_001, 2**31 - 1])
async def test_a_session_must_be_neither_too_short_nor_too_long(served: Served, timeout_ms: int) -> None:
    member = await a_member(served)
    request = member.join_request(session_timeout_ms=timeout_ms)
    response = await member.client.call(request, JoinGroupResponse, 9)
    assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


async def test_a_member_needs_a_protocol_in_common_with_the_others(served: Served) -> None:
    await a_group(served, 1)
    stranger = await a_member(served, protocols=("of my own",))
    response = await stranger.client.call(stranger.join_request(), JoinGroupResponse, 9)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    nothing = JoinGroupRequest(group_id="h", session_timeout_ms=SESSION_MS, protocol_type="consumer")
    response = await stranger.client.call(nothing, JoinGroupResponse, 9)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_metadata_has_a_limit(served: Served, settings: Settings) -> None:
    member = await a_member(served)
    request = member.join_request()
    request.protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(settings.groups.max_member_bytes))]
    response = await member.client.call(request, JoinGroupResponse, 9)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert (await member.join()).error_code == ErrorCode.NONE


async def test_from_v5_on_a_sync_must_name_the_protocol(served: Served) -> None:
    member = await a_member(served)
    await member.join()
    member.protocol = None
    assert (await member.sync(5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member.protocol = "roundrobin"
    assert (await member.sync(5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await member.sync(4)).error_code == ErrorCode.NONE


async def test_a_sync_of_another_generation_is_refused(served: Served) -> None:
    (member,) = await a_group(served, 1)
    member.generation += 1
    assert (await member.sync()).error_code == ErrorCode.ILLEGAL_GENERATION
    member.member_id = "nobody"
    assert (await member.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    member.group_id = "never"
    assert (await member.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- several members


async def test_members_of_a_generation_get_what_its_leader_assigned(served: Served) -> None:
    members = await a_group(served, 4)
    assert {member.generation for member in members} == {4}
    (leader,) = [member for member in members if member.leads]
    assert set(leader.others) == {member.member_id for member in members}
    assert [list(member.others) for member in members if not member.leads] == [[], [], []]
    assigned = [bytes(response.assignment) for response in await sync_all(*members)]
    assert assigned == [f"for {member.member_id}".encode() for member in members]


async def test_the_others_wait_for_the_leader(served: Served) -> None:
    first, second = await a_group(served, 2)
    await join_all(served, first, second)
    leader, follower = (first, second) if first.leads else (second, first)
    await follower.client.send(follower.sync_request(), 5)
    assert await leader.heartbeat() is ErrorCode.NONE
    assert await state_of(served) is GroupState.COMPLETING_REBALANCE
    await leader.sync()
    response = await follower.client.receive(SyncGroupResponse, 5)
    assert bytes(response.assignment) == f"for {follower.member_id}".encode()


async def test_a_new_member_makes_the_others_join_again(served: Served) -> None:
    (old,) = await a_group(served, 1)
    new = await a_member(served)
    await new.learn_id()
    await new.begin_join()
    await reach(served, GroupState.PREPARING_REBALANCE)
    assert await old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert (await old.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    await old.join()
    await new.end_join()
    assert (old.generation, new.generation) == (2, 2)
    assert {bytes(response.assignment) for response in await sync_all(old, new)} == {
        f"for {member.member_id}".encode() for member in (old, new)
    }


async def test_a_member_that_leaves_makes_the_others_share(served: Served) -> None:
    first, second, third = await a_group(served, 3)
    assert await second.leave() is ErrorCode.NONE
    assert await first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await rebalance(served, first, third)
    assert (first.generation, third.generation) == (4, 4)
    assert await second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_protocol_that_all_understand_and_most_prefer_is_chosen(served: Served) -> None:
    first = await a_member(served, protocols=("range", "cooperative-sticky"))
    await rebalance(served, first)
    second = await a_member(served, protocols=("cooperative-sticky", "range"))
    third = await a_member(served, protocols=("cooperative-sticky",))
    await rebalance(served, first, second)
    assert first.protocol == "range"
    await rebalance(served, first, second, third)
    assert {member.protocol for member in (first, second, third)} == {"cooperative-sticky"}


async def test_cooperative_members_join_again_and_again_without_waiting(served: Served) -> None:
    """The second round of a cooperative rebalance: whoever gave partitions away joins at once, with other metadata."""
    members = await a_group(served, 2)
    for turn in range(3):
        members[turn % 2].metadata = f"owned in round {turn}".encode()
        await rebalance(served, *members)
    assert {member.generation for member in members} == {5}


async def test_a_follower_that_missed_its_response_gets_it_again(served: Served) -> None:
    first, second = await a_group(served, 2)
    follower = second if first.leads else first
    again = await follower.join()
    assert (again.error_code, again.generation_id) == (0, 2)
    assert bytes((await follower.sync()).assignment) == f"for {follower.member_id}".encode()


async def test_a_group_has_so_many_members_and_no_more(tmp_path: Path) -> None:
    settings = group_settings(max_members=2)
    async with a_broker(tmp_path, settings) as broker, a_server(broker, settings) as served:
        await a_group(served, 2)
        third = await a_member(served)
        response = await third.client.call(third.join_request(), JoinGroupResponse, 9)
        assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_several_members_leave_with_one_request(served: Served) -> None:
    first, second, third = await a_group(served, 3)
    leavers = [MemberIdentity(member_id=each) for each in (first.member_id, "nobody", third.member_id)]
    response = await first.client.call(LeaveGroupRequest(group_id="g", members=leavers), LeaveGroupResponse, LEAVE)
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (first.member_id, 0),
        ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (third.member_id, 0),
    ]
    await rebalance(served, second)


# --- static members


async def a_static_group(served: Served, *names: str) -> list[Member]:
    members: list[Member] = []
    for name in names:
        members.append(await a_member(served, instance_id=name))
        await rebalance(served, *members)
    return members


async def test_a_static_member_comes_back_without_a_rebalance(served: Served) -> None:
    first, second = await a_static_group(served, "a", "b")
    follower = second if first.leads else first
    again = await a_member(served, instance_id=follower.instance_id)
    joined = await again.join()
    assert (joined.error_code, joined.generation_id, joined.skip_assignment) == (0, 2, False)
    assert joined.member_id != follower.member_id
    assert bytes((await again.sync()).assignment) == f"for {follower.member_id}".encode()
    assert await state_of(served) is GroupState.STABLE
    assert await first.heartbeat() is (ErrorCode.NONE if first.leads else ErrorCode.FENCED_INSTANCE_ID)


async def test_the_older_life_of_a_static_member_is_fenced(served: Served) -> None:
    await create_topic(await served.client(), "orders")
    (old,) = await a_static_group(served, "a")
    new = await a_member(served, instance_id="a")
    await new.join()
    assert await old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert (await old.sync()).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert await old.commit("orders", {0: 1}) == [ErrorCode.FENCED_INSTANCE_ID]
    assert await old.leave() is ErrorCode.FENCED_INSTANCE_ID
    assert (await old.join()).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert await new.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 8, 9])
async def test_a_static_leader_that_comes_back_assigns_nothing(served: Served, version: int) -> None:
    (old,) = await a_static_group(served, "a")
    new = await a_member(served, instance_id="a")
    joined = await new.join(version)
    if version >= 9:
        assert (joined.leader, joined.skip_assignment) == (new.member_id, True)
        assert [each.group_instance_id for each in joined.members] == ["a"]
    else:
        assert (joined.leader, joined.members) == (old.member_id, [])
    assert bytes((await new.sync()).assignment) == f"for {old.member_id}".encode()


async def test_a_tool_removes_a_static_member_by_its_name(served: Served) -> None:
    first, second = await a_static_group(served, "a", "b")
    tool = await served.client()
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(group_instance_id="b")])
    response = await tool.call(request, LeaveGroupResponse, LEAVE)
    assert [each.error_code for each in response.members] == [0]
    assert await second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    await rebalance(served, first)


# --- time


async def test_a_member_that_falls_silent_is_removed(served: Served, clock: LeapingClock) -> None:
    first, second = await a_group(served, 2)
    clock.leap(SESSION_MS / 1000 - 2)
    assert await first.heartbeat() is ErrorCode.NONE
    clock.leap(3)
    await reach(served, GroupState.PREPARING_REBALANCE)
    assert await first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert await second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    await rebalance(served, first)


async def test_a_rebalance_does_not_wait_forever_for_who_does_not_join(served: Served, clock: LeapingClock) -> None:
    first, second = await a_group(served, 2)
    new = await a_member(served)
    await new.learn_id()
    await asyncio.gather(new.begin_join(), first.begin_join())
    await reach(served, GroupState.PREPARING_REBALANCE)
    for _ in range(7):  # the second one lives, and does not come
        assert await second.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        clock.leap(9)
    assert {(await first.end_join()).error_code, (await new.end_join()).error_code} == {0}
    assert await second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_first_gathering_waits_for_more_members(tmp_path: Path, clock: LeapingClock) -> None:
    settings = group_settings(initial_rebalance_delay_s=3.0)
    async with a_broker(tmp_path, settings, clock) as broker, a_server(broker, settings) as served:
        members = [await a_member(served) for _ in range(3)]
        for member in members:
            await member.learn_id()
            await member.begin_join()
        clock.leap(3.5)
        clock.leap(3.5)
        assert [(await member.end_join()).generation_id for member in members] == [1, 1, 1]


async def test_a_leader_that_brings_nothing_is_removed(served: Served, clock: LeapingClock) -> None:
    first, second = await a_group(served, 2)
    await join_all(served, first, second)
    leader, follower = (first, second) if first.leads else (second, first)
    await follower.client.send(follower.sync_request(), 5)
    for _ in range(7):
        await reach(served, GroupState.COMPLETING_REBALANCE)
        assert await leader.heartbeat() is ErrorCode.NONE
        clock.leap(9)
    response = await follower.client.receive(SyncGroupResponse, 5)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    await rebalance(served, follower)
    assert await leader.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


# --- connections


async def test_a_member_may_come_from_another_connection_each_time(served: Served) -> None:
    (member,) = await a_group(served, 1)
    await member.client.close()
    member.client = await served.client()
    assert await member.heartbeat() is ErrorCode.NONE
    await rebalance(served, member)
    assert member.generation == 2


async def test_a_client_that_goes_while_it_joins_breaks_nothing(served: Served, clock: LeapingClock) -> None:
    (first,) = await a_group(served, 1)
    gone = await a_member(served)
    await gone.learn_id()
    await gone.begin_join()
    await reach(served, GroupState.PREPARING_REBALANCE)
    await gone.client.close()
    await until(lambda: len(served.server.connections) == 1)
    await first.join()
    assert len(first.others) == 2  # nobody knows yet that it has gone
    await first.sync()
    clock.leap(SESSION_MS / 1000 - 1)
    assert await first.heartbeat() is ErrorCode.NONE
    clock.leap(2)
    await reach(served, GroupState.PREPARING_REBALANCE)
    await rebalance(served, first)
    assert list(first.others) == [first.member_id]


async def test_a_join_that_is_sent_again_on_another_connection_takes_the_place_of_the_first(served: Served) -> None:
    (first,) = await a_group(served, 1)
    new = await a_member(served)
    await new.learn_id()
    await new.begin_join()
    await reach(served, GroupState.PREPARING_REBALANCE)
    await new.client.close()
    new.client = await served.client()
    await asyncio.gather(new.join(), first.join())
    assert (first.generation, new.generation) == (2, 2)
    assert {response.error_code for response in await sync_all(first, new)} == {0}


async def test_a_member_that_leaves_without_waiting_for_the_response_has_left(served: Served) -> None:
    first, second = await a_group(served, 2)
    await second.client.send(second.leave_request(), LEAVE)
    await second.client.close()
    await reach(served, GroupState.PREPARING_REBALANCE)
    await rebalance(served, first)
    assert list(first.others) == [first.member_id]


async def test_requests_behind_a_join_are_answered_after_it_and_in_order(served: Served) -> None:
    (first,) = await a_group(served, 1)
    second = await a_member(served)
    await second.learn_id()
    await second.begin_join()
    await second.client.send(MetadataRequest(topics=[]), 9)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=0, member_id=second.member_id)
    await second.client.send(heartbeat, 4)
    await reach(served, GroupState.PREPARING_REBALANCE)
    await first.join()
    assert (await second.end_join()).error_code == ErrorCode.NONE
    await second.client.receive(MetadataResponse, 9)
    await second.client.receive(HeartbeatResponse, 4)


# --- the agent's own life


async def test_an_agent_that_stops_sends_members_to_look_for_another(served: Served) -> None:
    first, second = await a_group(served, 2)
    await first.begin_join() if first.leads else await second.begin_join()
    await reach(served, GroupState.PREPARING_REBALANCE)
    waiting, other = (first, second) if first.leads else (second, first)
    served.broker.stop()
    assert (await waiting.end_join()).error_code == ErrorCode.NOT_COORDINATOR
    assert await other.heartbeat() is ErrorCode.NOT_COORDINATOR


async def test_a_group_goes_on_in_the_same_generation_after_a_restart(tmp_path: Path, settings: Settings) -> None:
    stores: Any = {"metadata_url": f"sqlite:///{tmp_path / 'metadata.db'}", "objects": MemoryObjectStore(SystemClock())}
    async with a_broker(tmp_path, settings, **stores) as broker, a_server(broker, settings) as served:
        members = await a_group(served, 3)
    async with a_broker(tmp_path, settings, **stores) as broker, a_server(broker, settings) as served:
        for member in members:
            member.client = await served.client()
            assert await member.heartbeat() is ErrorCode.NONE
            assert bytes((await member.sync()).assignment) == f"for {member.member_id}".encode()
        await rebalance(served, *members)
        assert {member.generation for member in members} == {4}


async def test_groups_go_on_under_the_next_session_of_the_same_agent(served: Served, clock: LeapingClock) -> None:
    members = await a_group(served, 2)
    waiting = next(member for member in members if member.leads)
    await waiting.begin_join()
    await reach(served, GroupState.PREPARING_REBALANCE)
    agent_session = served.broker.agent_session
    assert agent_session is not None
    await served.broker._dependencies.metadata.end_session(agent_session.session.session_id)
    clock.leap(6)  # to the next heartbeat of the session, which learns that it is over
    assert (await waiting.end_join()).error_code == ErrorCode.NOT_COORDINATOR
    await until(lambda: served.broker.agent_session is not agent_session and served.broker.not_ready() is None)
    assert [await member.heartbeat() for member in members] == [ErrorCode.NONE] * 2
    await rebalance(served, *members)
    assert {member.generation for member in members} == {3}
