"""Joining a group: the barrier, the first gathering, new members, protocols and limits."""

import pytest

from streamhouse.errors import (
    CoordinatorUnavailable,
    GroupDataTooLarge,
    GroupFull,
    InconsistentProtocol,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from streamhouse.model.group import GroupState
from tests.broker.groups.machine import DELAY_S, REBALANCE_MS, SESSION_MS, Machine

# --- the first gathering of an empty group


def test_the_first_member_waits_for_others_to_come() -> None:
    machine = Machine()
    token = machine.join()
    machine.pass_time(DELAY_S - 0.1)
    assert machine.waits(token)
    machine.pass_time(0.1)
    joined = machine.joined(token)
    assert (joined.generation, joined.leader, joined.protocol, joined.protocol_type) == (1, "m1", "range", "consumer")
    assert [member.member_id for member in joined.members] == ["m1"]
    assert machine.state() is GroupState.COMPLETING_REBALANCE


def test_the_gathering_goes_on_while_members_arrive() -> None:
    machine = Machine()
    first = machine.join()
    machine.pass_time(DELAY_S - 1)
    machine.join()
    machine.pass_time(1.5)
    assert machine.waits(first)
    machine.pass_time(DELAY_S)
    assert len(machine.joined(first).members) == 2


def test_the_gathering_ends_with_the_rebalance_timeout_however_many_arrive() -> None:
    machine = Machine()
    tokens = [machine.join(rebalance_ms=10_000)]
    for _ in range(6):
        machine.pass_time(2)
        tokens.append(machine.join(rebalance_ms=10_000))
    assert not machine.waits(tokens[0])
    assert machine.now - 100 <= 12


def test_without_a_delay_the_first_member_is_answered_at_the_next_tick() -> None:
    machine = Machine(initial_rebalance_delay_s=0.0)
    token = machine.join()
    assert machine.group.next_deadline() == machine.now
    machine.pass_time(0)
    assert machine.joined(token).generation == 1


def test_only_the_leader_learns_who_the_members_are() -> None:
    machine = Machine()
    first, second = machine.join(metadata=b"one"), machine.join(metadata=b"two")
    machine.pass_time(2 * DELAY_S)
    assert [(each.member_id, each.metadata) for each in machine.joined(first).members] == [
        ("m1", b"one"),
        ("m2", b"two"),
    ]
    assert machine.joined(second).members == ()
    assert machine.joined(second).leader == "m1"


def test_a_gathering_that_everybody_left_ends_in_an_empty_group() -> None:
    machine = Machine()
    token = machine.join()
    assert machine.leave("m1") == [None]
    assert isinstance(machine.refused(token), UnknownMember)
    assert machine.state() is GroupState.PREPARING_REBALANCE
    machine.pass_time(DELAY_S)
    assert machine.state() is GroupState.EMPTY
    assert machine.stored[-1].members == ()


# --- the barrier of later generations


def test_a_newcomer_makes_everybody_join_again_and_waits_for_them() -> None:
    machine = Machine()
    [old] = machine.settled(None)
    newcomer = machine.join()
    assert machine.state() is GroupState.PREPARING_REBALANCE
    with pytest.raises(RebalanceInProgress):
        machine.heartbeat(old)
    machine.keep_alive(30, old)
    assert machine.waits(newcomer)
    again = machine.join(old)
    assert machine.joined(again).generation == machine.joined(newcomer).generation == 2
    assert len(machine.joined(again).members) == 2


def test_members_that_do_not_come_back_within_the_rebalance_timeout_are_out() -> None:
    machine = Machine()
    [late] = machine.settled(None)
    newcomer = machine.join()
    machine.keep_alive(REBALANCE_MS / 1000, late)
    joined = machine.joined(newcomer)
    assert joined.leader == joined.member_id
    assert [each.member_id for each in joined.members] == [joined.member_id]
    with pytest.raises(UnknownMember):
        machine.heartbeat(late)


def test_the_largest_rebalance_timeout_of_all_members_counts() -> None:
    machine = Machine()
    patient, hasty = machine.settled(None, None, rebalance_ms=20_000)
    result = machine.group.roster.get(patient)
    assert result is not None
    result.rebalance_timeout_ms = 50_000
    newcomer = machine.join(rebalance_ms=5_000)
    machine.keep_alive(48, patient, hasty)
    assert machine.waits(newcomer)
    machine.keep_alive(3, patient, hasty)
    assert not machine.waits(newcomer)


def test_a_leader_that_does_not_come_back_is_replaced_by_one_that_waits() -> None:
    machine = Machine()
    leader, follower = machine.settled(None, None)
    assert machine.group.roster.leader == leader
    again = machine.join(follower, metadata=b"changed")
    machine.keep_alive(REBALANCE_MS / 1000, leader)
    assert machine.joined(again).leader == follower


def test_a_member_that_waits_again_takes_its_own_place() -> None:
    machine = Machine()
    old, other = machine.settled(None, None)
    first = machine.join(old, metadata=b"x")
    second = machine.join(old, metadata=b"y")
    assert isinstance(machine.refused(first), RebalanceInProgress)
    machine.join(other)
    assert machine.joined(second).members[0].metadata == b"y"


def test_a_newcomer_while_assignments_are_awaited_sends_those_who_sync_back_to_join() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    waiting = machine.sync(follower)
    machine.join()
    assert isinstance(machine.refused(waiting), RebalanceInProgress)
    assert isinstance(machine.refused(machine.sync(leader)), RebalanceInProgress)
    assert machine.state() is GroupState.PREPARING_REBALANCE


# --- members that come back without need


def test_a_follower_that_joins_again_unchanged_is_told_the_generation_at_once() -> None:
    machine = Machine()
    _, follower = machine.settled(None, None)
    joined = machine.joined(machine.join(follower))
    assert (joined.generation, joined.members) == (1, ())
    assert machine.state() is GroupState.STABLE


def test_a_follower_with_new_metadata_starts_a_rebalance() -> None:
    machine = Machine()
    _, follower = machine.settled(None, None)
    assert machine.waits(machine.join(follower, metadata=b"other topics"))
    assert machine.state() is GroupState.PREPARING_REBALANCE


def test_the_leader_of_a_stable_group_starts_a_rebalance_by_joining_unchanged() -> None:
    machine = Machine()
    leader, _ = machine.settled(None, None)
    assert machine.waits(machine.join(leader))
    assert machine.state() is GroupState.PREPARING_REBALANCE


def test_a_member_that_missed_its_response_gets_the_same_generation_again() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    assert machine.joined(machine.join(leader)).generation == 1
    assert len(machine.joined(machine.join(leader)).members) == 2
    assert machine.joined(machine.join(follower)).members == ()
    assert machine.state() is GroupState.COMPLETING_REBALANCE


def test_new_metadata_while_assignments_are_awaited_starts_over() -> None:
    machine = Machine()
    leader, follower = machine.gather(None, None)
    token = machine.join(follower, metadata=b"changed")
    assert machine.waits(token)
    assert machine.joined(machine.join(leader)).generation == 2


@pytest.mark.parametrize("state", ["empty", "stable"])
def test_an_unknown_member_id_is_refused(state: str) -> None:
    machine = Machine()
    if state == "stable":
        machine.settled(None)
    assert isinstance(machine.refused(machine.join("stranger")), UnknownMember)


# --- ids first (KIP-394)


def test_a_new_dynamic_member_is_told_its_id_and_must_come_again() -> None:
    machine = Machine()
    refusal = machine.refused(machine.join(learns_id=True))
    assert isinstance(refusal, MemberIdRequired)
    assert refusal.member_id == "m1"
    assert machine.state() is GroupState.EMPTY
    token = machine.join("m1", learns_id=True)
    machine.pass_time(DELAY_S)
    assert machine.joined(token).member_id == "m1"


def test_the_barrier_waits_for_a_member_that_was_given_an_id() -> None:
    machine = Machine()
    [old] = machine.settled(None)
    machine.join(learns_id=True)
    again = machine.join(old)
    machine.pass_time(1)
    assert machine.waits(again)
    pending = machine.join("m2", learns_id=True)
    assert machine.joined(again).generation == machine.joined(pending).generation == 2


def test_a_member_that_never_comes_back_with_its_id_is_not_waited_for_longer_than_a_session() -> None:
    machine = Machine()
    [old] = machine.settled(None)
    machine.join(learns_id=True)
    again = machine.join(old)
    machine.pass_time(SESSION_MS / 1000)
    assert machine.joined(again).generation == 2
    assert isinstance(machine.refused(machine.join("m2")), UnknownMember)


def test_a_pending_member_may_leave() -> None:
    machine = Machine()
    [old] = machine.settled(None)
    machine.join(learns_id=True)
    again = machine.join(old)
    assert machine.leave("m2") == [None]
    assert machine.joined(again).generation == 2


def test_a_pending_member_can_not_turn_static() -> None:
    machine = Machine()
    machine.join(learns_id=True)
    assert isinstance(machine.refused(machine.join("m1", instance_id="i")), UnknownMember)


def test_pending_members_are_limited() -> None:
    machine = Machine(max_pending_members=2)
    machine.join(learns_id=True)
    machine.join(learns_id=True)
    assert isinstance(machine.refused(machine.join(learns_id=True)), CoordinatorUnavailable)
    machine.pass_time(SESSION_MS / 1000)
    assert isinstance(machine.refused(machine.join(learns_id=True)), MemberIdRequired)


def test_a_group_that_only_had_pending_members_leaves_nothing_behind() -> None:
    machine = Machine()
    machine.join(learns_id=True)
    assert not machine.group.is_blank
    machine.pass_time(SESSION_MS / 1000)
    assert machine.group.is_blank


# --- protocols


def test_the_protocol_that_most_members_prefer_among_the_common_ones_is_chosen() -> None:
    machine = Machine()
    first = machine.join(protocols=("sticky", "range", "roundrobin"))
    machine.join(protocols=("roundrobin", "range"))
    machine.join(protocols=("range", "roundrobin"))
    machine.pass_time(2 * DELAY_S)
    assert machine.joined(first).protocol == "range"


def test_a_protocol_that_one_member_lacks_can_not_be_chosen() -> None:
    machine = Machine()
    first = machine.join(protocols=("sticky", "range"))
    machine.join(protocols=("sticky", "range"))
    machine.join(protocols=("range",))
    machine.pass_time(2 * DELAY_S)
    assert machine.joined(first).protocol == "range"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    machine = Machine()
    machine.settled(None, protocols=("range",))
    assert isinstance(machine.refused(machine.join(protocols=("sticky",))), InconsistentProtocol)
    assert machine.state() is GroupState.STABLE


def test_a_member_of_another_kind_of_group_is_refused_until_the_group_is_empty() -> None:
    machine = Machine()
    [member] = machine.settled(None)
    assert isinstance(machine.refused(machine.join(protocol_type="connect")), InconsistentProtocol)
    machine.leave(member)
    token = machine.join(protocol_type="connect")
    machine.pass_time(DELAY_S)
    assert machine.joined(token).protocol_type == "connect"


@pytest.mark.parametrize(("kind", "protocols"), [("", ("range",)), ("consumer", ())])
def test_a_member_without_any_protocol_is_refused(kind: str, protocols: tuple[str, ...]) -> None:
    machine = Machine()
    refusal = machine.refused(machine.join(protocol_type=kind, protocols=protocols))
    assert isinstance(refusal, InconsistentProtocol)
    assert machine.group.is_blank


def test_each_members_metadata_is_that_of_the_chosen_protocol() -> None:
    machine = Machine()
    machine.settled(None, protocols=("range", "range", "sticky"))
    stored = machine.stored[-1].members[0]
    assert [offered.name for offered in stored.protocols] == ["range", "sticky"]


# --- limits


def test_a_full_group_refuses_new_members_and_keeps_its_own() -> None:
    machine = Machine(max_members=2)
    leader, follower = machine.settled(None, None)
    assert isinstance(machine.refused(machine.join()), GroupFull)
    assert machine.joined(machine.join(follower)).generation == 1
    assert machine.waits(machine.join(leader))


def test_while_gathering_those_who_wait_fill_the_group() -> None:
    machine = Machine(max_members=2)
    tokens = [machine.join() for _ in range(3)]
    assert isinstance(machine.refused(tokens[2]), GroupFull)
    machine.pass_time(2 * DELAY_S)
    assert len(machine.joined(tokens[0]).members) == 2


def test_a_group_loaded_above_its_limit_turns_the_last_ones_away() -> None:
    machine = Machine()
    members = machine.settled(None, None, None)
    small = Machine(max_members=2)
    small.group = small.group.load(machine.stored[-1], small.settings, now=small.now)
    assert small.state() is GroupState.PREPARING_REBALANCE
    tokens = [small.join(member) for member in members]
    assert isinstance(small.refused(tokens[2]), GroupFull)
    assert [each.member_id for each in small.joined(tokens[0]).members] == members[:2]


def test_metadata_is_limited_per_member_and_per_group() -> None:
    machine = Machine(max_member_bytes=100, max_group_bytes=150)
    assert isinstance(machine.refused(machine.join(metadata=b"x" * 100)), GroupDataTooLarge)
    [member] = machine.settled(None, metadata=b"x" * 95)
    assert isinstance(machine.refused(machine.join(metadata=b"x" * 60)), GroupDataTooLarge)
    assert machine.joined(machine.join(member, metadata=b"y" * 95)).generation == 2


def test_a_dropped_group_sends_everybody_elsewhere() -> None:
    machine = Machine()
    waiting = machine.join()
    machine.perform(machine.group.drop(NotCoordinator("g", why="test")))
    assert isinstance(machine.refused(waiting), NotCoordinator)
    assert isinstance(machine.refused(machine.join()), NotCoordinator)
    assert isinstance(machine.refused(machine.sync("m1")), NotCoordinator)
    with pytest.raises(NotCoordinator):
        machine.heartbeat("m1")
    with pytest.raises(NotCoordinator):
        machine.check_commit("m1")
    with pytest.raises(NotCoordinator):
        machine.leave("m1")
    assert machine.group.next_deadline() == float("inf")
