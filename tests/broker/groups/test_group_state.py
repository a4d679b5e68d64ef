"""Any sequence of events: what must always hold of a group."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamhouse.broker.groups.group_state import Group
from streamhouse.errors import CoordinatorUnavailable, MemberIdRequired, NotCoordinator, StreamhouseError
from streamhouse.model.group import GroupState
from streamhouse.model.group_requests import JoinResult, LeaveRequest, SyncResult
from tests.broker.groups.machine import Machine
from tests.support.depth import examples

PARTITIONS = range(6)
INSTANCES = st.none() | st.sampled_from(["i1", "i2"])
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])


class GroupMachine(RuleBasedStateMachine):
    """A leader that assigns every partition to one member of the generation it was told of.

    Members are known by the ids that the group gave them; some are alive, some never speak again. The store answers
    late, and now and then not at all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(max_members=4, max_pending_members=3, new_member_timeout_s=30.0)
        self.requested: set[int] = set()
        self.ids: list[tuple[str, str | None]] = []
        self.highest = 0
        self.owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> the member that it was assigned to; restarts of a static member count as one."""
        self.rosters: dict[int, tuple[str, ...]] = {}
        """generation -> the members that its leader got."""
        self.syncs: dict[int, tuple[str, str | None, int]] = {}
        self.seen = 0

    @initialize(holds=st.booleans(), delay=st.sampled_from([0.0, 3.0]))
    def begin(self, holds: bool, delay: float) -> None:
        self.machine = Machine(
            max_members=4, max_pending_members=3, new_member_timeout_s=30.0, initial_rebalance_delay_s=delay
        )
        self.machine.holds_writes = holds

    # --- events

    def join(self, member_id: str, instance_id: str | None, **more: Any) -> None:
        self.requested.add(self.machine.join(member_id, instance_id=instance_id, **more))

    @rule(instance=INSTANCES, learns=st.booleans(), protocols=PROTOCOLS, skips=st.booleans())
    def somebody_new_joins(self, instance: str | None, learns: bool, protocols: tuple[str, ...], skips: bool) -> None:
        self.join("", instance, learns_id=learns, protocols=protocols, may_skip_assignment=skips)

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), metadata=st.sampled_from([b"m", b"n"]), protocols=PROTOCOLS)
    def somebody_known_joins(self, data: st.DataObject, metadata: bytes, protocols: tuple[str, ...]) -> None:
        member_id, instance_id = data.draw(st.sampled_from(self.ids))
        self.join(member_id, instance_id, metadata=metadata, protocols=protocols)

    @rule()
    def everybody_known_joins(self) -> None:
        for member_id, instance_id in list(self.ids):
            self.join(member_id, instance_id)

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), lag=st.sampled_from([0, 0, 0, 1]))
    def somebody_syncs(self, data: st.DataObject, lag: int) -> None:
        member_id, instance_id = data.draw(st.sampled_from(self.ids))
        self.sync(member_id, instance_id, self.machine.group.generation - lag)

    @rule()
    def everybody_syncs(self) -> None:
        for member_id, instance_id in list(self.ids):
            self.sync(member_id, instance_id, self.machine.group.generation)

    def sync(self, member_id: str, instance_id: str | None, generation: int) -> None:
        response = self.rosters.get(generation, ())
        assignments = {
            member: b",".join(b"%d" % each for each in PARTITIONS if each % len(response) == position)
            for position, member in enumerate(response)
        }
        token = self.machine.sync(member_id, assignments, instance_id=instance_id, generation=generation)
        self.requested.add(token)
        self.syncs[token] = (member_id, instance_id, generation)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def somebody_heartbeats(self, data: st.DataObject) -> None:
        member_id, instance_id = data.draw(st.sampled_from(self.ids))
        try:
            self.machine.heartbeat(member_id, instance_id=instance_id)
        except StreamhouseError:
            return
        assert self.machine.state() in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        member_id, instance_id = data.draw(st.sampled_from(self.ids))
        self.machine.leave(LeaveRequest(member_id=member_id, instance_id=instance_id))

    @rule(instance=st.sampled_from(["i1", "i2"]))
    def a_static_member_is_removed(self, instance: str) -> None:
        self.machine.leave(LeaveRequest(instance_id=instance))

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 9.0, 31.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.machine.pass_time(seconds)

    @precondition(lambda self: self.machine.writes)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def a_write_settles(self, fails: bool) -> None:
        self.machine.settle(CoordinatorUnavailable("g", why="test") if fails else None)

    @precondition(lambda self: self.machine.stored)
    @rule()
    def the_coordinator_dies_and_another_loads_what_is_durable(self) -> None:
        old = self.machine
        old.writes.clear()
        old.perform(old.group.drop(NotCoordinator("g", why="killed")))
        self.look_at_answers()
        last = old.stored[-1]
        assert last.generation >= max((generation for generation, _ in self.owners), default=0)
        old.group = Group.load(last, old.settings, now=old.now)
        self.highest = last.generation
        self.rosters = {key: each for key, each in self.rosters.items() if key <= last.generation}

    # --- what must hold

    @invariant()
    def look_at_answers(self) -> None:
        """Check every response once."""
        responses = list(self.machine.responses.items())
        for token, response in responses[self.seen :]:
            assert token in self.requested or token == max(self.machine.responses)
            match response:
                case JoinResult():
                    self.joined(response)
                case SyncResult():
                    self.synced(*self.syncs[token], response.assignment)
                case MemberIdRequired():
                    self.ids.append((response.member_id, None))
        self.seen = len(responses)
        del self.ids[:-8]

    def joined(self, response: JoinResult) -> None:
        instance = next((each.instance_id for each in response.members if each.member_id == response.member_id), None)
        member = self.machine.group.roster.get(response.member_id)
        instance = member.instance_id if member is not None else instance
        if (response.member_id, instance) not in self.ids:
            self.ids.append((response.member_id, instance))
        if response.members and not response.skip_assignment:
            self.rosters[response.generation] = tuple(each.member_id for each in response.members)

    def synced(self, member_id: str, instance_id: str | None, generation: int, assignment: bytes) -> None:
        """A member's assignment was durable before, and no other member of the generation got the same."""
        durable = [stored for stored in self.machine.stored if stored.generation == generation]
        assert durable, "a generation was handed out before it was durable"
        assert assignment in [each.assignment for each in durable[-1].members if each.member_id == member_id]
        for partition in filter(None, assignment.split(b",")):
            name = f"static {instance_id}" if instance_id is not None else member_id
            owner = self.owners.setdefault((generation, int(partition)), name)
            assert owner == name, f"two owners of partition {int(partition)} in generation {generation}"

    @invariant()
    def the_generation_only_grows(self) -> None:
        assert self.machine.group.generation >= self.highest
        self.highest = self.machine.group.generation

    @invariant()
    def a_stable_generation_is_durable(self) -> None:
        group = self.machine.group
        if group.state is GroupState.STABLE:
            assert self.machine.stored[-1].generation == group.generation

    @invariant()
    def the_state_fits_the_members(self) -> None:
        group = self.machine.group
        waiting = [member for member in group.roster if member.join_token is not None]
        syncing = [member for member in group.roster if member.sync_token is not None]
        if group.state is GroupState.EMPTY:
            assert not group.roster
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert group.roster
            assert group.roster.leader in [member.member_id for member in group.roster]
        assert not syncing or group.state is GroupState.COMPLETING_REBALANCE
        assert not waiting or group.state in (GroupState.PREPARING_REBALANCE, GroupState.STABLE)
        assert len(group.roster) <= 4 or group.state is GroupState.PREPARING_REBALANCE

    def teardown(self) -> None:
        """All members stop: in the end each has got its response, and the group is empty."""
        machine = self.machine
        machine.holds_writes = False
        machine.perform([])
        machine.pass_time(1000)
        assert machine.state() is GroupState.EMPTY
        assert machine.group.next_deadline() == float("inf")
        unanswered = self.requested - set(machine.responses)
        assert not unanswered


GroupMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)
TestGroupMachine = GroupMachine.TestCase
