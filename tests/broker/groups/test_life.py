"""Signs of life, leaving, commits, and what is kept of a group."""

import pytest

from streamhouse.broker.groups.descriptions import (
    check_delete,
    check_delete_offsets,
    describe,
    list_entry,
    subscriptions_of,
    topics_read,
)
from streamhouse.broker.groups.group_state import Group
from streamhouse.errors import (
    GroupNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from streamhouse.model.group import GroupState
from streamhouse.model.group_requests import LeaveRequest
from tests.broker.groups.machine import DELAY_S, SESSION_MS, Machine

SESSION_S = SESSION_MS / 1000
BOTH = {"orders", "clicks"}
READS_ORDERS = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\x00\x00\x00\x00" + b"more"


# --- heartbeats and sessions


def test_a_member_that_heartbeats_stays() -> None:
    machine = Machine()
    [member] = machine.settled(None)
    for _ in range(10):
        machine.pass_time(SESSION_S - 0.1)
        machine.heartbeat(member)
    assert machine.state() is GroupState.STABLE


def test_a_silent_member_is_out_when_its_session_ends_and_the_others_rebalance() -> None:
    machine = Machine()
    silent, other = machine.settled(None, None)
    machine.keep_alive(SESSION_S - 1, other)
    assert machine.state() is GroupState.STABLE
    machine.keep_alive(1, other)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    with pytest.raises(UnknownMember):
        machine.heartbeat(silent)
    assert machine.joined(machine.join(other)).generation == 2


def test_the_last_member_to_expire_leaves_an_empty_group_that_is_written_down() -> None:
    machine = Machine()
    machine.settled(None)
    machine.pass_time(SESSION_S)
    assert machine.state() is GroupState.EMPTY
    assert (machine.stored[-1].generation, machine.stored[-1].members, machine.stored[-1].leader) == (2, (), None)
    assert machine.stored[-1].protocol_type == "consumer"


def test_a_member_that_waits_in_a_join_does_not_expire() -> None:
    machine = Machine()
    slow, quick = machine.settled(None, None)
    waiting = machine.join(quick, metadata=b"x")
    machine.keep_alive(3 * SESSION_S, slow)
    assert machine.waits(waiting)
    machine.join(slow)
    assert machine.joined(waiting).generation == 2
    machine.keep_alive(SESSION_S - 1, slow)
    machine.heartbeat(quick)


def test_a_member_that_waited_long_and_then_falls_silent_expires_a_session_after_its_response() -> None:
    machine = Machine()
    slow, quick = machine.settled(None, None)
    waiting = machine.join(quick, metadata=b"x")
    machine.keep_alive(3 * SESSION_S, slow)
    machine.join(slow)
    assert machine.joined(waiting).generation == 2
    machine.keep_alive(SESSION_S - 0.5, slow)
    assert quick in machine.group.roster
    machine.keep_alive(1, slow)
    assert quick not in machine.group.roster


def test_a_new_member_that_waits_too_long_is_forgotten() -> None:
    machine = Machine(new_member_timeout_s=20.0)
    [slow] = machine.settled(None, rebalance_ms=300_000)
    waiting = machine.join()
    machine.keep_alive(20, slow)
    assert isinstance(machine.refused(waiting), UnknownMember)
    assert machine.joined(machine.join(slow)).members[0].member_id == slow


def test_a_caller_that_expires_is_not_waited_for() -> None:
    machine = Machine()
    silent, other = machine.settled(None, None)
    machine.pass_time(SESSION_S / 2)
    machine.heartbeat(other)
    waiting = machine.join(other, metadata=b"x")
    assert machine.waits(waiting)
    machine.pass_time(SESSION_S / 2)
    assert machine.joined(waiting).generation == 2
    assert silent not in machine.group.roster


def test_heartbeats_of_other_generations_and_strangers_are_refused() -> None:
    machine = Machine()
    [member] = machine.settled(None)
    with pytest.raises(IllegalGeneration):
        machine.heartbeat(member, generation=0)
    with pytest.raises(UnknownMember):
        machine.heartbeat("stranger")
    with pytest.raises(UnknownMember):
        machine.heartbeat(member, instance_id="none")
    with pytest.raises(UnknownMember):
        Machine().heartbeat("m1")


def test_a_heartbeat_during_a_rebalance_counts_as_a_sign_of_life() -> None:
    machine = Machine()
    slow, other = machine.settled(None, None)
    machine.join(other, metadata=b"x")
    for _ in range(4):
        machine.pass_time(SESSION_S - 1)
        with pytest.raises(RebalanceInProgress):
            machine.heartbeat(slow)
    assert slow in machine.group.roster


def test_a_heartbeat_never_brings_a_deadline_nearer() -> None:
    machine = Machine()
    [member] = machine.settled(None)
    before = machine.group.next_deadline()
    machine.pass_time(1)
    machine.heartbeat(member)
    assert machine.group.next_deadline() > before


# --- leaving


def test_a_member_that_leaves_makes_the_others_rebalance_at_once() -> None:
    machine = Machine()
    leader, follower = machine.settled(None, None)
    assert machine.leave(leader) == [None]
    assert machine.state() is GroupState.PREPARING_REBALANCE
    assert machine.joined(machine.join(follower)).leader == follower


def test_several_leave_at_once_and_each_has_its_own_outcome() -> None:
    machine = Machine()
    first, second, third = machine.settled(None, None, None)
    outcomes = machine.leave(first, "stranger", LeaveRequest(), second)
    assert [type(outcome) for outcome in outcomes] == [type(None), UnknownMember, UnknownMember, type(None)]
    assert machine.joined(machine.join(third)).generation == 2


def test_strangers_that_leave_disturb_nobody() -> None:
    machine = Machine()
    machine.settled(None)
    machine.leave("stranger")
    assert machine.state() is GroupState.STABLE


def test_when_the_last_one_leaves_the_group_is_empty_at_once() -> None:
    machine = Machine()
    [member] = machine.settled(None)
    machine.leave(member)
    assert (machine.group.state, machine.group.generation) == (GroupState.EMPTY, 2)
    assert machine.group.next_deadline() == float("inf")


def test_the_barrier_does_not_wait_for_a_member_that_leaves() -> None:
    machine = Machine()
    leader, follower = machine.settled(None, None)
    waiting = machine.join(follower, metadata=b"x")
    machine.leave(leader)
    assert machine.joined(waiting).generation == 2


# --- commits


def test_members_of_the_generation_may_commit() -> None:
    machine = Machine()
    [member] = machine.settled(None)
    machine.check_commit(member)
    with pytest.raises(IllegalGeneration):
        machine.check_commit(member, generation=0)
    with pytest.raises(UnknownMember):
        machine.check_commit("stranger")


def test_nobody_from_outside_may_commit_while_there_are_members() -> None:
    machine = Machine()
    machine.settled(None)
    with pytest.raises(UnknownMember):
        machine.check_commit("", generation=-1)


def test_anybody_may_commit_in_an_empty_group_without_naming_a_generation() -> None:
    machine = Machine()
    machine.check_commit("", generation=-1)
    machine.check_commit("anybody", generation=-1)
    with pytest.raises(UnknownMember):
        machine.check_commit("anybody", generation=0)


def test_a_commit_counts_as_a_sign_of_life() -> None:
    machine = Machine()
    [member] = machine.settled(None)
    for _ in range(3):
        machine.pass_time(SESSION_S - 1)
        machine.check_commit(member)
    assert machine.state() is GroupState.STABLE


def test_the_last_generations_members_may_commit_until_the_next_one_begins() -> None:
    machine = Machine()
    old, other = machine.settled(None, None)
    machine.join(other, metadata=b"x")
    machine.check_commit(old)
    machine.join(old)
    with pytest.raises(IllegalGeneration):
        machine.check_commit(old, generation=1)
    with pytest.raises(RebalanceInProgress):
        machine.check_commit(old)


# --- what is kept


def test_a_group_comes_back_as_it_was_and_its_members_get_a_whole_session() -> None:
    machine = Machine()
    leader, follower = machine.settled("a", None, metadata=b"topics")
    loaded = Machine()
    loaded.now = 5000.0
    loaded.group = Group.load(machine.stored[-1], loaded.settings, now=loaded.now)
    assert describe(loaded.group) == describe(machine.group)
    loaded.pass_time(SESSION_S - 1)
    loaded.heartbeat(leader, instance_id="a")
    loaded.heartbeat(follower)
    assert loaded.synced(loaded.sync(follower)).assignment == follower.encode()
    assert loaded.joined(loaded.join(follower, metadata=b"topics")).generation == 1
    loaded.pass_time(SESSION_S)
    assert loaded.state() is GroupState.EMPTY
    assert loaded.group.generation == 2


def test_an_empty_group_comes_back_empty_and_its_generation_goes_on() -> None:
    machine = Machine()
    machine.leave(*machine.settled(None))
    loaded = Machine()
    loaded.group = Group.load(machine.stored[-1], loaded.settings, now=loaded.now)
    assert loaded.state() is GroupState.EMPTY
    token = loaded.join()
    loaded.pass_time(DELAY_S)
    assert loaded.joined(token).generation == 3


# --- views


def test_a_stable_group_is_described_with_metadata_and_assignments_and_others_without() -> None:
    machine = Machine()
    [member] = machine.settled(None, metadata=b"topics", client_id="app", client_host="/10.0.0.1")
    described = describe(machine.group)
    assert (described.state, described.protocol, described.protocol_type) == (GroupState.STABLE, "range", "consumer")
    [shown] = described.members
    assert (shown.client_id, shown.client_host) == ("app", "/10.0.0.1")
    assert (shown.metadata, shown.assignment) == (b"topics", member.encode())
    machine.join()
    described = describe(machine.group)
    assert (described.state, described.protocol) == (GroupState.PREPARING_REBALANCE, "")
    assert {(each.metadata, each.assignment) for each in described.members} == {(b"", b"")}


def test_a_listed_group_names_its_state_and_kind() -> None:
    machine = Machine()
    assert (list_entry(machine.group).state, list_entry(machine.group).protocol_type) == ("Empty", "")
    machine.settled(None)
    assert (list_entry(machine.group).state, list_entry(machine.group).protocol_type) == ("Stable", "consumer")


def test_only_an_empty_group_may_be_deleted() -> None:
    machine = Machine()
    check_delete(machine.group)
    [member] = machine.settled(None)
    with pytest.raises(NonEmptyGroup):
        check_delete(machine.group)
    machine.leave(member)
    check_delete(machine.group)
    machine.group.drop(NotCoordinator("g", why="test"))
    with pytest.raises(GroupNotFound):
        check_delete(machine.group)


def test_offsets_may_be_deleted_under_consumers_but_not_under_other_members() -> None:
    consumers, workers = Machine(), Machine()
    consumers.settled(None)
    check_delete_offsets(consumers.group)
    workers.settled(None, protocol_type="connect")
    with pytest.raises(NonEmptyGroup):
        check_delete_offsets(workers.group)
    workers.pass_time(SESSION_S)
    check_delete_offsets(workers.group)


def test_a_group_reads_what_its_members_subscribe_to() -> None:
    machine = Machine()
    [member] = machine.settled(None, metadata=READS_ORDERS)
    assert topics_read("g", subscriptions_of(machine.group), BOTH) == {"orders"}
    machine.leave(member)
    assert topics_read("g", subscriptions_of(machine.group), BOTH) == set()


def test_a_tenants_members_name_topics_as_they_know_them() -> None:
    machine = Machine()
    machine.settled(None, metadata=READS_ORDERS)
    machine.group.group_id = "acme~g"
    topics = {"acme~orders", "acme~clicks", "orders", "beta~orders"}
    assert topics_read("acme~g", subscriptions_of(machine.group), topics) == {"acme~orders"}


def test_consumers_that_do_not_say_what_they_read_may_read_anything() -> None:
    machine = Machine()
    machine.settled(None, metadata=b"?")
    assert topics_read("g", subscriptions_of(machine.group), BOTH) == BOTH
    other = Machine()
    other.settled(None, metadata=b"?", protocol_type="connect")
    assert topics_read("g", subscriptions_of(other.group), BOTH) == set()
