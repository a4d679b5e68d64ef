"""Assignments: they are handed out once they are durable, and only in their generation."""

import pytest

from streamhouse.errors import (
    CoordinatorUnavailable,
    GroupDataTooLarge,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from streamhouse.model.group import GroupState
from tests.broker.groups.machine import DELAY_S, REBALANCE_MS, SESSION_MS, Machine


def test_followers_wait_for_the_leader() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    waiting = machine.sync(follower)
    assert machine.waits(waiting)
    brought = machine.sync(leader, {leader: b"L", follower: b"F"})
    assert (machine.synced(brought).assignment, machine.synced(waiting).assignment) == (b"L", b"F")
    assert (machine.synced(brought).protocol, machine.synced(brought).protocol_type) == ("range", "consumer")
    assert machine.state() is GroupState.STABLE


def test_nobody_learns_an_assignment_before_it_is_durable() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    machine.holds_writes = True
    waiting = machine.sync(follower)
    brought = machine.sync(leader, {follower: b"F"})
    assert machine.waits(waiting)
    assert machine.waits(brought)
    assert machine.state() is GroupState.COMPLETING_REBALANCE
    machine.settle()
    assert machine.synced(waiting).assignment == b"F"
    assert [each.assignment for each in machine.stored[-1].members] == [b"", b"F"]
    assert machine.stored[-1].generation == 1


def test_an_assignment_that_may_not_be_durable_is_not_handed_out_and_the_group_begins_anew() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    machine.holds_writes = True
    tokens = [machine.sync(follower), machine.sync(leader, {follower: b"F"})]
    machine.settle(CoordinatorUnavailable("g", why="test"))
    assert all(isinstance(machine.refused(token), CoordinatorUnavailable) for token in tokens)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    machine.join(leader)
    assert machine.joined(machine.join(follower)).generation == 2


def test_a_rebalance_while_the_write_is_under_way_wins() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    machine.holds_writes = True
    token = machine.sync(leader, {follower: b"F"})
    machine.join()
    assert isinstance(machine.refused(token), RebalanceInProgress)
    machine.settle()
    assert machine.state() is GroupState.PREPARING_REBALANCE
    result = machine.group.roster.get(follower)
    assert result is not None
    assert result.assignment == b""


def test_an_old_write_that_comes_back_late_does_not_make_a_later_generation_stable() -> None:
    machine = Machine()
    [leader] = machine.gather(None)
    machine.holds_writes = True
    machine.sync(leader, {leader: b"old"})
    assert machine.joined(machine.join(leader, metadata=b"x")).generation == 2
    machine.settle()
    assert machine.state() is GroupState.COMPLETING_REBALANCE
    token = machine.sync(leader, {leader: b"new"})
    machine.settle()
    assert machine.synced(token).assignment == b"new"


def test_the_leader_asking_twice_writes_once() -> None:
    machine = Machine()
    [leader] = machine.gather(None)
    machine.holds_writes = True
    first = machine.sync(leader, {leader: b"one"})
    second = machine.sync(leader, {leader: b"two"})
    assert isinstance(machine.refused(first), RebalanceInProgress)
    assert len(machine.writes) == 1
    machine.settle()
    assert machine.synced(second).assignment == b"one"


def test_a_member_of_a_stable_group_gets_its_assignment_at_once() -> None:
    machine = Machine()
    _, follower = machine.settled(None, None)
    assert machine.synced(machine.sync(follower)).assignment == follower.encode()


def test_what_a_follower_brings_is_not_an_assignment() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    waiting = machine.sync(follower, {follower: b"mine", leader: b"nothing"})
    assert machine.waits(waiting)
    machine.sync(leader, {follower: b"given"})
    assert machine.synced(waiting).assignment == b"given"


def test_assignments_for_strangers_are_dropped() -> None:
    machine = Machine()
    [leader] = machine.gather(None)
    machine.sync(leader, {leader: b"L", "stranger": b"S"})
    assert [(each.member_id, each.assignment) for each in machine.stored[-1].members] == [(leader, b"L")]


def test_members_must_name_the_generation_and_what_they_know_of_the_protocol() -> None:
    machine = Machine()
    [member] = machine.gather(None)
    assert isinstance(machine.refused(machine.sync(member, generation=0)), IllegalGeneration)
    assert isinstance(machine.refused(machine.sync(member, generation=2)), IllegalGeneration)
    assert isinstance(machine.refused(machine.sync("stranger")), UnknownMember)
    assert isinstance(machine.refused(machine.sync(member, protocol_type="connect")), InconsistentProtocol)
    assert isinstance(machine.refused(machine.sync(member, protocol="sticky")), InconsistentProtocol)
    assert machine.synced(machine.sync(member, protocol_type="consumer", protocol="range")).assignment == b""


def test_an_empty_group_knows_nobody() -> None:
    machine = Machine()
    assert isinstance(machine.refused(machine.sync("m1")), UnknownMember)


def test_assignments_are_limited() -> None:
    machine = Machine(max_member_bytes=10, max_group_bytes=15)
    leader, follower = machine.gather(None, None)
    assert isinstance(machine.refused(machine.sync(leader, {leader: b"x" * 11})), GroupDataTooLarge)
    too_much = {leader: b"x" * 8, follower: b"x" * 8}
    assert isinstance(machine.refused(machine.sync(leader, too_much)), GroupDataTooLarge)
    assert machine.synced(machine.sync(leader, {leader: b"x" * 10})).assignment == b"x" * 10


# --- members that never sync


def test_members_that_never_ask_for_their_assignment_are_out_after_the_rebalance_timeout() -> None:
    machine = Machine()
    leader, silent = machine.gather(None, None)
    machine.sync(leader, {})
    machine.keep_alive(REBALANCE_MS / 1000, leader, silent)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    with pytest.raises(UnknownMember):
        machine.heartbeat(silent)
    assert machine.joined(machine.join(leader)).generation == 2


def test_a_rebalance_timeout_of_zero_leaves_time_to_sync() -> None:
    """kafkajs's broker calls send 0 when the caller names none."""
    machine = Machine()
    token = machine.join(rebalance_ms=0)
    machine.pass_time(3)
    member = machine.joined(token).member_id
    machine.pass_time(1)
    machine.sync(member, {member: b"mine"})
    assert machine.state() is GroupState.STABLE


def test_a_leader_that_brings_nothing_is_out_and_the_others_go_on() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    waiting = machine.sync(follower)
    machine.keep_alive(REBALANCE_MS / 1000, leader)
    assert isinstance(machine.refused(waiting), RebalanceInProgress)
    joined = machine.joined(machine.join(follower))
    assert (joined.generation, joined.leader) == (2, follower)


def test_once_all_have_synced_nobody_is_waited_for() -> None:
    machine = Machine()
    members = machine.settled(None, None)
    machine.keep_alive(2 * REBALANCE_MS / 1000, *members)
    assert machine.state() is GroupState.STABLE


# --- sessions meanwhile


def test_a_caller_that_waits_for_its_assignment_does_not_expire_and_gets_a_whole_session_with_it() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    waiting = machine.sync(follower)
    machine.keep_alive(3 * SESSION_MS / 1000, leader)
    assert machine.waits(waiting)
    machine.sync(leader, {})
    assert not machine.waits(waiting)
    machine.keep_alive(SESSION_MS / 1000 - 1, leader)
    machine.heartbeat(follower)
    machine.keep_alive(SESSION_MS / 1000, leader)
    assert machine.state() is GroupState.PREPARING_REBALANCE


def test_heartbeats_before_the_assignment_are_fine() -> None:
    machine = Machine()
    members = machine.gather(None, None)
    for _ in range(5):
        machine.pass_time(SESSION_MS / 2000)
        for member in members:
            machine.heartbeat(member)
    assert machine.state() is GroupState.COMPLETING_REBALANCE


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    waiting = machine.sync(follower)
    machine.leave(follower)
    assert isinstance(machine.refused(waiting), UnknownMember)
    machine.pass_time(DELAY_S)
    assert machine.joined(machine.join(leader)).generation == 2
