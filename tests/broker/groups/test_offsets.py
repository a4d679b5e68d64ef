"""Committed offsets: who may commit, what is kept, and that it never goes back."""

import asyncio
import threading
from collections.abc import Sequence, Set
from typing import Any

import pytest

from streamhouse.broker.groups import LeaveRequest, MemberRef, OffsetToCommit, descriptions, offsets
from streamhouse.broker.groups.descriptions import find_topics_read
from streamhouse.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    GroupIdInvalid,
    GroupNotFound,
    GroupSubscribed,
    IllegalGeneration,
    NonEmptyGroup,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    Rejected,
    StreamhouseError,
    UnknownMember,
    UnknownTopic,
)
from streamhouse.format.consumer_protocol import subscribed_topics
from streamhouse.model.group import GroupState
from streamhouse.model.names import TopicPartition
from tests.broker.groups.scene import ORDERS, Agent, Scene, at, caller, committed, join, open_scene, settle

NOBODY = MemberRef()
READS_ORDERS = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\x00\x00\x00\x00"


# --- committing


async def test_a_member_commits_and_reads_back_what_it_committed(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    expected = {ORDERS[1]: OffsetToCommit(offset=7, leader_epoch=3, metadata="half way")}
    assert await agent.groups.commit("g", caller(member), expected) == {ORDERS[1]: None}
    result = (await agent.groups.fetch({"g": None}))["g"]
    assert not isinstance(result, Exception)
    [(name, offset)] = result.items()
    assert (name, offset.offset, offset.leader_epoch, offset.metadata) == (ORDERS[1], 7, 3, "half way")


async def test_members_of_other_generations_and_strangers_can_not_commit(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    for wrong, error in (
        (MemberRef(member_id=member.member_id, generation=0), IllegalGeneration),
        (MemberRef(member_id="stranger", generation=1), UnknownMember),
        (NOBODY, UnknownMember),
    ):
        with pytest.raises(error):
            await agent.groups.commit("g", wrong, at(1))
    assert await committed(agent.groups) == []


async def test_a_commit_that_is_under_way_when_the_agent_stops_is_answered(agent: Agent) -> None:
    agent.store.gates["commit_groups"] = asyncio.Event()
    committing = asyncio.ensure_future(agent.groups.commit("g", NOBODY, at(5)))
    await settle()
    assert not committing.done()
    await agent.kill()
    with pytest.raises(NotCoordinator, match="stopping"):
        await asyncio.wait_for(committing, 5)


async def test_a_generation_of_no_group_is_refused(agent: Agent) -> None:
    with pytest.raises(GroupNotFound):
        await agent.groups.commit("g", MemberRef(member_id="m", generation=3), at(1))
    assert await agent.groups.list() == []


async def test_someone_outside_group_management_begins_a_simple_group(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, at(5))
    [listed] = await agent.groups.list()
    assert (listed.group_id, listed.protocol_type, listed.state) == ("g", "", GroupState.EMPTY)
    await agent.kill()
    next_one = await scene.successor(of=agent)
    assert [each.group_id for each in await next_one.groups.list()] == ["g"]
    assert await committed(next_one.groups) == [5]


async def test_a_simple_group_may_gain_members_and_lose_them_again(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, at(5))
    [member] = await scene.group_of(agent.groups, 1)
    with pytest.raises(UnknownMember):
        await agent.groups.commit("g", NOBODY, at(6))
    await agent.groups.leave("g", [LeaveRequest(member_id=member.member_id)])
    await agent.groups.commit("g", NOBODY, at(6))
    assert await committed(agent.groups) == [6]


async def test_the_oldest_consumers_keep_offsets_under_an_empty_name(agent: Agent) -> None:
    await agent.groups.commit("", NOBODY, at(5))
    assert await committed(agent.groups, "") == [5]


async def test_one_partitions_mistake_is_not_its_neighbours(agent: Agent) -> None:
    wrong = {
        TopicPartition("nowhere", 0): OffsetToCommit(offset=1),
        TopicPartition("orders", 4): OffsetToCommit(offset=1),
        TopicPartition("orders", -1): OffsetToCommit(offset=1),
        ORDERS[1]: OffsetToCommit(offset=1, metadata="x" * 4097),
        ORDERS[2]: OffsetToCommit(offset=-3),
    }
    outcomes = await agent.groups.commit("g", NOBODY, {ORDERS[0]: OffsetToCommit(offset=9), **wrong})
    assert outcomes[ORDERS[0]] is None
    assert [type(outcomes[name]) for name in wrong] == [
        UnknownTopic,
        UnknownTopic,
        UnknownTopic,
        OffsetMetadataTooLarge,
        Rejected,
    ]
    assert await committed(agent.groups) == [9]


async def test_a_commit_of_mistakes_only_begins_no_group(agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, {TopicPartition("nowhere", 0): OffsetToCommit(offset=1)})
    await agent.groups.commit("g", NOBODY, {})
    assert await agent.groups.list() == []


async def test_metadata_is_measured_in_bytes(agent: Agent) -> None:
    offsets = {
        ORDERS[0]: OffsetToCommit(offset=1, metadata="ö" * 2048),
        ORDERS[1]: OffsetToCommit(offset=1, metadata="ö" * 2049),
    }
    outcomes = await agent.groups.commit("g", NOBODY, offsets)
    assert [type(each) for each in outcomes.values()] == [type(None), OffsetMetadataTooLarge]


async def test_a_commit_of_very_many_partitions_is_refused_before_anything_is_done() -> None:
    async with open_scene(max_waiting_changes=3) as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=4)
        with pytest.raises(Rejected):
            await agent.groups.commit("g", NOBODY, at(1, 1, 1, 1))


# --- one transaction for many


async def test_commits_that_arrive_during_a_transaction_share_the_next_one(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, at(0))
    await agent.groups.list()
    before = agent.store.calls["commit_groups"]
    resume = agent.store.gates["commit_groups"] = asyncio.Event()
    first = scene.start(agent.groups.commit("first", NOBODY, at(1)))
    await settle()
    calls = [scene.start(agent.groups.commit(f"g{number % 50}", NOBODY, at(number))) for number in range(500)]
    await settle()
    assert not any(call.done() for call in calls)
    resume.set()
    await asyncio.gather(first, *calls)
    assert agent.store.calls["commit_groups"] - before == 2
    assert await committed(agent.groups, "g7") == [457]


async def test_a_transaction_carries_no_more_than_it_may() -> None:
    async with open_scene(commit_changes=10) as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=4)
        await agent.groups.commit("g", NOBODY, at(0))
        before = agent.store.calls["commit_groups"]
        await asyncio.gather(*(agent.groups.commit("g", NOBODY, at(1, 2, 3)) for _ in range(9)))
        assert agent.store.calls["commit_groups"] - before == 3


async def test_when_too_much_waits_commits_are_refused() -> None:
    async with open_scene(max_waiting_changes=6) as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=4)
        await agent.groups.commit("g", NOBODY, at(0))
        resume = agent.store.gates["commit_groups"] = asyncio.Event()
        under_way = scene.start(agent.groups.commit("g", NOBODY, at(1)))
        await settle()
        calls = [scene.start(agent.groups.commit("g", NOBODY, at(1, 2, 3))) for _ in range(4)]
        await settle()
        refused = [call for call in calls if call.done()]
        assert len(refused) == 2
        assert all(isinstance(call.exception(), CoordinatorUnavailable) for call in refused)
        resume.set()
        await settle()
        assert sum(call.done() and call.exception() is None for call in [under_way, *calls]) == 3


async def test_a_client_that_goes_away_disturbs_nobody_in_its_transaction(scene: Scene, agent: Agent) -> None:
    resume = agent.store.gates["commit_groups"] = asyncio.Event()
    gone = scene.start(agent.groups.commit("a", NOBODY, at(1)))
    stays = scene.start(agent.groups.commit("b", NOBODY, at(2)))
    await settle()
    gone.cancel()
    await settle()
    resume.set()
    assert await stays == {ORDERS[0]: None}


# --- never back


@pytest.mark.parametrize("fault", ["refused", "unanswered"])
async def test_an_unknown_outcome_is_reported_and_the_next_commit_works(agent: Agent, fault: str) -> None:
    await agent.groups.commit("g", NOBODY, at(10))
    getattr(agent.store, fault).add("commit_groups")
    with pytest.raises(CoordinatorUnavailable):
        await agent.groups.commit("g", NOBODY, at(11))
    getattr(agent.store, fault).clear()
    assert await committed(agent.groups) == [11 if fault == "unanswered" else 10]
    await agent.groups.commit("g", NOBODY, at(12))
    assert await committed(agent.groups) == [12]


async def test_a_commit_whose_answer_was_given_up_can_not_land_after_a_later_one(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, at(10))
    given_up: list[object] = []
    inner = scene.database.commit_groups

    async def lose(*args: object) -> None:
        given_up.append(args)

    agent.store.unanswered.add("commit_groups")
    scene.database.commit_groups = lose  # type: ignore[method-assign, assignment]
    with pytest.raises(CoordinatorUnavailable):
        await agent.groups.commit("g", NOBODY, at(11))
    scene.database.commit_groups = inner  # type: ignore[method-assign]
    agent.store.unanswered.clear()
    await agent.groups.commit("g", NOBODY, at(12))
    [late] = given_up
    with pytest.raises(Exception, match="order of commits"):
        await inner(*late)  # type: ignore[misc]
    assert await committed(agent.groups) == [12]


async def test_a_simple_groups_first_commit_that_failed_leaves_no_group(agent: Agent) -> None:
    agent.store.refused.add("commit_groups")
    with pytest.raises(CoordinatorUnavailable):
        await agent.groups.commit("g", NOBODY, at(1))
    assert await agent.groups.list() == []


# --- reading


async def test_several_groups_are_read_at_once(agent: Agent) -> None:
    await agent.groups.commit("a", NOBODY, at(1, 2, 3))
    await agent.groups.commit("b", NOBODY, at(9))
    before = agent.store.calls["committed_offsets"]
    result = await agent.groups.fetch({"a": ORDERS[1:3], "b": None, "nobody": None, "c": []})
    assert agent.store.calls["committed_offsets"] == before + 1
    read = {
        group_id: {name.partition: each.offset for name, each in offsets.items()}
        for group_id, offsets in result.items()
        if not isinstance(offsets, Exception)
    }
    assert read == {"a": {1: 2, 2: 3}, "b": {0: 9}, "nobody": {}, "c": {}}


async def test_unknown_topics_have_no_offsets(agent: Agent) -> None:
    result = await agent.groups.fetch({"g": [TopicPartition("nowhere", 0), TopicPartition("orders", 99)]})
    assert result == {"g": {}}


@pytest.mark.parametrize("call", ["committed_offsets", "pending_offsets", "topics"])
async def test_while_the_store_is_away_reading_is_put_off(scene: Scene, agent: Agent, call: str) -> None:
    """With the one error on which every client retries."""
    await agent.groups.commit("g", NOBODY, at(1))
    await scene.clock.advance(1)
    agent.store.refused.add(call)
    unknown = [TopicPartition("created-meanwhile", 0)] if call == "topics" else None
    result = await agent.groups.fetch({"g": unknown}, stable=True)
    assert isinstance(result["g"], CoordinatorLoading)
    agent.store.refused.clear()
    assert not isinstance((await agent.groups.fetch({"g": unknown}, stable=True))["g"], StreamhouseError)


async def test_any_agent_shows_what_was_committed(scene: Scene, agent: Agent) -> None:
    """A member's coordinator may change between its assignment and its first look at its offsets."""
    await agent.groups.commit("g", NOBODY, at(1))
    other = await scene.agent()
    other.current_session.is_valid = False
    assert await committed(other.groups) == [1]


async def test_one_groups_bad_name_is_not_its_neighbours(agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, at(1))
    result = await agent.groups.fetch({"x" * 2000: None, "g": []})
    assert isinstance(result["x" * 2000], GroupIdInvalid)
    assert result["g"] == {}


async def test_a_deleted_topic_takes_its_offsets_along(agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, at(1, 2))
    await agent.catalog.delete(await agent.catalog.find("orders"))
    assert (await agent.groups.fetch({"g": None}))["g"] == {}
    await agent.catalog.create("orders", partitions=4)
    assert await committed(agent.groups) == []


# --- deleting


async def test_offsets_are_deleted_unless_the_topic_is_read(scene: Scene, agent: Agent) -> None:
    await agent.catalog.create("clicks", partitions=1)
    clicks = TopicPartition("clicks", 0)
    await agent.groups.commit("g", NOBODY, {**at(1), clicks: OffsetToCommit(offset=2)})
    waiting = scene.start(agent.groups.join("g", join(metadata=READS_ORDERS)))
    await scene.clock.advance(3)
    joined = await waiting
    outcomes = await agent.groups.delete_offsets("g", [ORDERS[0], clicks, TopicPartition("nowhere", 0)])
    assert [type(each) for each in outcomes.values()] == [GroupSubscribed, type(None), UnknownTopic]
    assert (await agent.groups.fetch({"g": [clicks]}))["g"] == {}
    await agent.groups.leave("g", [LeaveRequest(member_id=joined.member_id)])
    assert await agent.groups.delete_offsets("g", [ORDERS[0]]) == {ORDERS[0]: None}
    assert await committed(agent.groups) == []


async def test_subscriptions_are_decoded_once_however_many_topics_a_deletion_names(
    scene: Scene, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member may have a mebibyte of them, and a request a hundred thousand topics."""
    await scene.group_of(agent.groups, 2)
    on_loop = list[bool]()

    def decode(subscription: bytes, **options: Any) -> frozenset[str] | None:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return subscribed_topics(subscription, **options)

    monkeypatch.setattr(descriptions, "subscribed_topics", decode)
    names = [TopicPartition(f"unknown-{number}", 0) for number in range(50)]
    await agent.groups.delete_offsets("g", names)
    assert on_loop == [True]  # it can't be decoded, so the other one's doesn't matter
    monkeypatch.setattr(descriptions, "INLINE_BYTES", -1)
    await agent.groups.delete_offsets("g", names)
    assert on_loop == [True, False]


async def test_offsets_are_not_deleted_where_members_change_while_their_subscriptions_are_decoded(
    scene: Scene, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await agent.groups.commit("g", NOBODY, at(1))

    async def meanwhile(group_id: str, subscriptions: Sequence[bytes], among: Set[str]) -> Set[str]:
        result = await find_topics_read(group_id, subscriptions, among)
        waiting = scene.start(agent.groups.join("g", join(metadata=READS_ORDERS)))
        await scene.clock.advance(3)
        await waiting
        return result

    monkeypatch.setattr(offsets, "find_topics_read", meanwhile)
    with pytest.raises(RebalanceInProgress):
        await agent.groups.delete_offsets("g", [ORDERS[0]])
    assert await committed(agent.groups) == [1]


async def test_offsets_of_no_group_can_not_be_deleted(agent: Agent) -> None:
    with pytest.raises(GroupNotFound):
        await agent.groups.delete_offsets("g", [ORDERS[0]])


async def test_an_empty_group_is_deleted_with_its_offsets(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("g", NOBODY, at(1))
    [member] = await scene.group_of(agent.groups, 1, "busy")
    outcomes = await agent.groups.delete(["g", "busy", "nobody"])
    assert outcomes["g"] is None
    assert isinstance(outcomes["busy"], NonEmptyGroup)
    assert isinstance(outcomes["nobody"], GroupNotFound)
    assert await committed(agent.groups) == []
    assert [each.group_id for each in await agent.groups.list()] == ["busy"]
    await agent.groups.heartbeat("busy", caller(member))
    await agent.kill()
    next_one = await scene.successor(of=agent)
    assert [each.group_id for each in await next_one.groups.list()] == ["busy"]


async def test_a_member_that_joins_during_the_deletion_begins_anew(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    await agent.groups.leave("g", [LeaveRequest(member_id=member.member_id)])
    await agent.groups.commit("g", NOBODY, at(1))
    resume = agent.store.gates["commit_groups"] = asyncio.Event()
    deleting = scene.start(agent.groups.delete(["g"]))
    await settle()
    joining = scene.start(agent.groups.join("g", join()))
    resume.set()
    await scene.clock.advance(3)
    assert await deleting == {"g": None}
    joined = await joining
    assert joined.generation == 1
    await scene.assign(agent.groups, [joined])
    await agent.kill()
    next_one = await scene.successor(of=agent)
    await next_one.groups.heartbeat("g", caller(joined))
    assert await committed(next_one.groups) == []


@pytest.mark.parametrize(("fault", "left"), [("refused", ["g"]), ("unanswered", [])])
async def test_a_deletion_that_may_not_have_happened_is_looked_up(agent: Agent, fault: str, left: list[str]) -> None:
    await agent.groups.commit("g", NOBODY, at(1))
    getattr(agent.store, fault).add("commit_groups")
    outcomes = await agent.groups.delete(["g"])
    assert isinstance(outcomes["g"], CoordinatorUnavailable)
    getattr(agent.store, fault).clear()
    assert [each.group_id for each in await agent.groups.list()] == left


class Once(set[str]):
    """Names that are found in it one time."""

    def __contains__(self, name: object) -> bool:
        result = super().__contains__(name)
        self.discard(str(name))
        return result


async def test_nothing_is_written_over_a_group_whose_deletion_failed(scene: Scene, agent: Agent) -> None:
    [member] = await scene.group_of(agent.groups, 1)
    await agent.groups.leave("g", [LeaveRequest(member_id=member.member_id)])
    await agent.groups.commit("g", NOBODY, at(1))
    resume = agent.store.gates["commit_groups"] = asyncio.Event()
    deleting = scene.start(agent.groups.delete(["g"]))
    await settle()
    behind = scene.start(agent.groups.commit("g", NOBODY, at(7)))
    await settle()
    agent.store.refused = Once({"commit_groups"})
    resume.set()
    assert isinstance((await deleting)["g"], CoordinatorUnavailable)
    with pytest.raises(NotCoordinator):
        await behind
    assert await committed(agent.groups) == [1]
    described = (await agent.groups.describe(["g"]))["g"]
    assert not isinstance(described, Exception)
    assert described.generation == 2


async def test_a_deletion_for_which_there_is_no_room_leaves_everything_as_it_was() -> None:
    async with open_scene(max_waiting_changes=6) as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=4)
        await agent.groups.commit("g", NOBODY, at(0))
        resume = agent.store.gates["commit_groups"] = asyncio.Event()
        under_way = scene.start(agent.groups.commit("g", NOBODY, at(1)))
        await settle()
        waiting = [scene.start(agent.groups.commit("g", NOBODY, at(1, 2, 3))) for _ in range(2)]
        await settle()
        assert isinstance((await agent.groups.delete(["g"]))["g"], CoordinatorUnavailable)
        resume.set()
        await asyncio.gather(under_way, *waiting)
        assert await committed(agent.groups) == [1, 2, 3]


# --- listing


async def test_groups_are_listed_by_state_and_type_whatever_the_case(scene: Scene, agent: Agent) -> None:
    await agent.groups.commit("simple", NOBODY, at(1))
    await scene.group_of(agent.groups, 1, "busy")

    async def names(*, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[str]:
        return [each.group_id for each in await agent.groups.list(states=states, types=types)]

    assert await names() == ["busy", "simple"]
    assert await names(states=["STABLE"]) == ["busy"]
    assert await names(states=["Empty", "Dead"]) == ["simple"]
    assert await names(types=["Classic"]) == ["busy", "simple"]
    assert await names(types=["consumer"]) == []


async def test_groups_are_described_each_with_its_own_outcome(scene: Scene, agent: Agent) -> None:
    await scene.group_of(agent.groups, 2)
    result = await agent.groups.describe(["g", "nobody"])
    described = result["g"]
    assert not isinstance(described, Exception)
    assert (described.state, described.generation, len(described.members)) == (GroupState.STABLE, 1, 2)
    assert isinstance(result["nobody"], GroupNotFound)
