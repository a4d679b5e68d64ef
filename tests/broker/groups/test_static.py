"""Static members (KIP-345): they come back under a new id and keep their place."""

import pytest

from streamhouse.errors import CoordinatorUnavailable, FencedInstance, RebalanceInProgress, UnknownMember
from streamhouse.model.group import GroupState
from streamhouse.model.group_requests import LeaveRequest
from tests.broker.groups.machine import DELAY_S, REBALANCE_MS, SESSION_MS, Machine


def test_a_new_static_member_needs_no_id_of_its_own_first() -> None:
    machine = Machine()
    token = machine.join(instance_id="a", learns_id=True)
    machine.pass_time(DELAY_S)
    joined = machine.joined(token)
    assert joined.members[0].instance_id == "a"


def test_a_static_follower_comes_back_to_a_stable_group_without_a_rebalance() -> None:
    machine = Machine()
    leader, old = machine.settled("a", "b")
    joined = machine.joined(machine.join(instance_id="b"))
    assert machine.state() is GroupState.STABLE
    assert joined.member_id != old
    assert (joined.generation, joined.leader, joined.members, joined.skip_assignment) == (1, leader, (), False)
    assert machine.synced(machine.sync(joined.member_id, instance_id="b")).assignment == old.encode()
    assert joined.member_id in [each.member_id for each in machine.stored[-1].members]


def test_a_static_leader_comes_back_as_the_leader_and_has_nothing_to_assign() -> None:
    machine = Machine()
    machine.settled("a", "b")
    joined = machine.joined(machine.join(instance_id="a"))
    assert joined.leader == joined.member_id
    assert joined.skip_assignment
    assert len(joined.members) == 2
    assert machine.group.roster.leader == joined.member_id


def test_an_older_static_leader_is_shown_its_old_id_as_the_leader() -> None:
    machine = Machine()
    old, _ = machine.settled("a", "b")
    joined = machine.joined(machine.join(instance_id="a", may_skip_assignment=False))
    assert (joined.leader, joined.members, joined.skip_assignment) == (old, (), False)
    assert machine.group.roster.leader == joined.member_id


def test_the_old_life_of_a_static_member_is_fenced() -> None:
    machine = Machine()
    _, old = machine.settled("a", "b")
    machine.join(instance_id="b")
    with pytest.raises(FencedInstance):
        machine.heartbeat(old, instance_id="b")
    with pytest.raises(FencedInstance):
        machine.check_commit(old, instance_id="b")
    assert isinstance(machine.refused(machine.sync(old, instance_id="b")), FencedInstance)
    assert isinstance(machine.refused(machine.join(old, instance_id="b")), FencedInstance)
    assert isinstance(machine.leave(LeaveRequest(member_id=old, instance_id="b"))[0], FencedInstance)
    with pytest.raises(UnknownMember):
        machine.heartbeat(old)


def test_a_fenced_member_that_waits_is_told_at_once() -> None:
    machine = Machine()
    leader, old = machine.gather("a", "b")
    waiting = machine.sync(old, instance_id="b")
    machine.join(instance_id="b")
    assert isinstance(machine.refused(waiting), FencedInstance)
    joining = machine.join(leader, instance_id="a", metadata=b"x")
    assert machine.joined(joining).generation == 2


def test_a_static_member_that_comes_back_while_the_group_gathers_takes_its_old_place() -> None:
    machine = Machine()
    leader, follower = machine.settled("a", "b")
    waiting = machine.join(leader, instance_id="a")
    assert machine.waits(waiting)
    again = machine.join(instance_id="a")
    assert isinstance(machine.refused(waiting), FencedInstance)
    machine.join(follower, instance_id="b")
    assert machine.joined(again).generation == 2


def test_a_static_member_that_comes_back_while_assignments_are_awaited_starts_over() -> None:
    machine = Machine()
    leader, _ = machine.gather("a", "b")
    again = machine.join(instance_id="b")
    assert machine.waits(again)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    assert isinstance(machine.refused(machine.sync(leader, instance_id="a")), RebalanceInProgress)


def test_a_static_member_that_would_change_the_protocol_starts_a_rebalance() -> None:
    machine = Machine()
    leader, _ = machine.settled("a", "b", protocols=("range", "sticky"))
    again = machine.join(instance_id="b", protocols=("sticky",))
    assert machine.waits(again)
    machine.join(leader, instance_id="a", protocols=("range", "sticky"))
    assert machine.joined(again).protocol == "sticky"


def test_a_static_member_goes_on_only_once_its_new_id_is_durable() -> None:
    machine = Machine()
    machine.settled("a", "b")
    machine.holds_writes = True
    token = machine.join(instance_id="b")
    assert machine.waits(token)
    machine.settle()
    assert machine.joined(token).generation == 1


def test_if_the_new_id_may_not_be_durable_the_old_one_stays() -> None:
    machine = Machine()
    leader, old = machine.settled("a", "b")
    machine.holds_writes = True
    token = machine.join(instance_id="b", metadata=b"new")
    machine.settle(CoordinatorUnavailable("g", why="test"))
    assert isinstance(machine.refused(token), CoordinatorUnavailable)
    machine.heartbeat(old, instance_id="b")
    assert machine.synced(machine.sync(old, instance_id="b")).assignment == old.encode()
    assert machine.group.roster.leader == leader


def test_a_rebalance_while_the_new_id_is_written_includes_the_static_member() -> None:
    machine = Machine()
    leader, _ = machine.settled("a", "b")
    machine.holds_writes = True
    token = machine.join(instance_id="b")
    open_partitions = machine.join(leader, instance_id="a")
    assert machine.joined(token).generation == machine.joined(open_partitions).generation == 2
    machine.settle()
    assert machine.state() is GroupState.COMPLETING_REBALANCE


def test_two_lives_of_a_static_member_at_once_leave_the_later_one() -> None:
    machine = Machine()
    machine.settled("a", "b")
    machine.holds_writes = True
    first, second = machine.join(instance_id="b"), machine.join(instance_id="b")
    assert isinstance(machine.refused(first), FencedInstance)
    machine.settle()
    machine.settle()
    assert machine.joined(second).generation == 1


def test_a_static_member_that_is_away_stays_in_the_next_generation_until_its_session_ends() -> None:
    machine = Machine()
    away, here = machine.settled("a", None, session_ms=50_000, rebalance_ms=20_000)
    joining = machine.join(here, metadata=b"changed", rebalance_ms=20_000)
    machine.pass_time(20)
    joined = machine.joined(joining)
    assert joined.leader == here
    assert {each.member_id for each in joined.members} == {away, here}


def test_a_group_of_static_members_that_are_all_away_waits_for_their_sessions() -> None:
    machine = Machine()
    _, gone = machine.settled("a", None, rebalance_ms=2000, session_ms=30_000)
    machine.leave(gone)
    machine.pass_time(20)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    assert machine.group.generation == 1
    machine.pass_time(15)
    assert machine.state() is GroupState.EMPTY


def test_members_without_a_rebalance_timeout_do_not_make_a_busy_loop() -> None:
    machine = Machine()
    _, gone = machine.settled("a", None, session_ms=30_000)
    for member in machine.group.roster:
        member.rebalance_timeout_ms = 0
    machine.leave(gone)
    machine.perform(machine.group.tick(machine.now))
    assert machine.group.next_deadline() >= machine.now + 1


def test_a_static_member_expires_like_any_other() -> None:
    machine = Machine()
    machine.settled("a")
    machine.pass_time(SESSION_MS / 1000)
    assert machine.state() is GroupState.EMPTY


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    machine = Machine()
    _, other = machine.settled("a", "b")
    unknown, done = machine.leave(LeaveRequest(instance_id="zzz"), LeaveRequest(instance_id="a"))
    assert isinstance(unknown, UnknownMember)
    assert done is None
    assert machine.joined(machine.join(other, instance_id="b")).generation == 2


def test_a_full_group_takes_a_static_member_back() -> None:
    machine = Machine(max_members=2)
    machine.settled("a", "b")
    assert machine.joined(machine.join(instance_id="b")).generation == 1


def test_a_replaced_member_that_never_synced_is_still_waited_for() -> None:
    machine = Machine()
    leader, silent = machine.gather("a", "b")
    machine.sync(leader, {}, instance_id="a")
    again = machine.joined(machine.join(instance_id="b")).member_id
    machine.keep_alive(REBALANCE_MS / 1000, leader, again)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    assert again not in machine.group.roster
    assert silent not in machine.group.roster


def test_static_members_of_whom_nobody_came_back_in_time_are_waited_for_once_more_and_not_for_their_sessions() -> None:
    machine = Machine()
    first, _ = machine.settled("a", "b", session_ms=100_000, rebalance_ms=10_000)
    machine.join(rebalance_ms=10_000)
    machine.leave("m3")
    machine.pass_time(12)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    back = machine.join(first, instance_id="a", session_ms=100_000, rebalance_ms=10_000)
    assert machine.waits(back)
    machine.pass_time(8)
    assert machine.joined(back).generation == 2
