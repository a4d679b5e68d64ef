"""Group: Kafka's classic group protocol as a state machine without I/O and without a clock.

Data path   coordinator -> **group_state** (event in, actions out) -> coordinator performs them
Owns        what every event does in each of the five states: join, sync, heartbeat, commit, leave, timeouts
Leaves      the transition to the next generation to `rebalance`; the members and their limits to `members`; performing
            actions and the time to `coordinator`; descriptions to `descriptions`

`now` is monotonic seconds. A token is the caller's handle for one response: the machine gives each exactly one `Reply`,
at once or later. A `WriteGroup` must be made durable and then reported through `stored`; what depends on it waits.

Invariants  a member gets its assignment only after the generation is durable, and only in the generation it joined
            the generation grows with every rebalance, and never otherwise
            every waiting call gets a reply: the generation, an error, or an error because the member called again
"""

from collections.abc import Mapping, Sequence
from math import inf

from streamhouse.broker.groups.members import Member, MemberSet, check_assignments, check_metadata
from streamhouse.broker.groups.rebalance import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    Action,
    AssignmentWrite,
    RebalanceState,
    ReplacementWrite,
)
from streamhouse.config import GroupSettings
from streamhouse.errors import (
    CoordinatorUnavailable,
    FencedInstance,
    GroupDataTooLarge,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    StreamhouseError,
)
from streamhouse.model.group import StoredGroup
from streamhouse.model.group_requests import JoinRequest, JoinResult, LeaveRequest, MemberRef, SyncRequest


class Group(RebalanceState):
    @classmethod
    def load(cls, stored: StoredGroup, settings: GroupSettings, *, now: float) -> "Group":
        """Load a group from the store; its members get a whole session timeout to send a heartbeat."""
        group = cls(stored.group_id, settings)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type
        group.protocol = stored.protocol
        group.changed_at_ms = stored.changed_at_ms
        group.is_stored = True
        for each in stored.members:
            member = Member.load(each)
            member.touch(now)
            group.roster.add(member)
        if group.roster:
            group.roster.leader = stored.leader
            group.state = STABLE
        if len(group.roster) > settings.max_members:
            group._prepare(now)  # surplus members are rejected when they rejoin
        return group

    # --- joining

    def join(self, now: float, request: JoinRequest, token: object, *, new_member_id: str) -> list[Action]:
        """The reply is a generation, or an error. `new_member_id` is for a member without an id."""
        rejection = self._join_error(request)
        if rejection is not None:
            self._reply(token, rejection)
            if isinstance(rejection, GroupFull):
                self._reject_member(now, request.member_id)
        elif not request.member_id:
            self._join_new(now, request, token, new_member_id)
        elif request.member_id in self._pending and request.instance_id is None:
            self._add(now, request, token, request.member_id)
        else:
            self._rejoin(now, request, token)
        return self._drain()

    def _join_error(self, request: JoinRequest) -> StreamhouseError | None:
        if self.state is DEAD:
            return NotCoordinator(self.group_id, why="the group was dropped")
        if not self._has_capacity(request):
            return GroupFull("the group is full", limit=self.settings.max_members, setting="groups.max_members")
        names = [offered.name for offered in request.protocols]
        if self.state is EMPTY:
            supported = bool(request.protocol_type and names)
        else:
            supported = request.protocol_type == self.protocol_type and self.roster.supports(names)
        if not supported:
            return InconsistentProtocol(self.group_id, why="no protocol in common with the group")
        try:
            own = self.roster.get(request.member_id) or self.roster.by_instance(request.instance_id)
            others_bytes = self.roster.size_bytes - (own.size_bytes if own is not None else 0)
            check_metadata(request, self.settings, others_bytes=others_bytes)
        except GroupDataTooLarge as error:
            return error
        return None

    def _has_capacity(self, request: JoinRequest) -> bool:
        """While a rebalance gathers members, only waiting ones count, so that the last to rejoin are rejected.

        A static member that rejoins without its id always fits: it replaces itself.
        """
        limit = self.settings.max_members
        if self.state is EMPTY or len(self.roster) < limit:
            return True
        if not request.member_id and self.roster.by_instance(request.instance_id) is not None:
            return True
        member = self.roster.get(request.member_id)
        if self.state is PREPARING:
            return (member is not None and member.join_token is not None) or self.roster.waiting < limit
        return member is not None

    def _reject_member(self, now: float, member_id: str) -> None:
        self._pending.pop(member_id, None)
        if member_id in self.roster:
            self._remove(member_id)
        self._complete_if_all_wait(now)

    def _join_new(self, now: float, request: JoinRequest, token: object, member_id: str) -> None:
        known = self.roster.by_instance(request.instance_id)
        if known is not None:
            self._replace(now, request, token, known, member_id)
        elif request.instance_id is None and request.learns_id:
            self._reply(token, self._assign_member_id(now, request, member_id))
        else:
            self._add(now, request, token, member_id)

    def _assign_member_id(self, now: float, request: JoinRequest, member_id: str) -> StreamhouseError:
        """Send a new member its id (KIP-394), and expect it to rejoin within its session timeout."""
        if len(self._pending) >= self.settings.max_pending_members:
            return CoordinatorUnavailable(self.group_id, why="too many new members at once")
        self._pending[member_id] = now + request.session_timeout_ms / 1000
        return MemberIdRequired(self.group_id, member_id=member_id)

    def _add(self, now: float, request: JoinRequest, token: object, member_id: str) -> None:
        """Add a new member. It can't send heartbeats before it knows the generation, so it gets a longer timeout."""
        member = Member(member_id, request)
        member.is_new = True
        member.join_token = token
        member.expires_at = now + self.settings.new_member_timeout_s
        self._grew = self.state is PREPARING and self._was_empty
        if not self.roster:
            self.protocol_type = request.protocol_type
        self.roster.add(member)
        self._pending.pop(member_id, None)
        self._rebalance_or_complete(now)

    def _rejoin(self, now: float, request: JoinRequest, token: object) -> None:
        try:
            member = self.roster.check(request.member_id, request.instance_id)
        except StreamhouseError as error:
            self._reply(token, error)
            return
        leads = self.roster.leader == member.member_id
        same = member.offers(request.protocols)
        if same and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            self._reply(token, self._joined(member))  # it missed the response, or syncs again
            return
        self._update(member, request, token)
        self._rebalance_or_complete(now)

    def _update(self, member: Member, request: JoinRequest, token: object) -> None:
        self.roster.update(member, request)
        if member.join_token is not None:
            self._reply(member.join_token, RebalanceInProgress(self.group_id))  # the member joined again
        member.join_token = token

    def _replace(self, now: float, request: JoinRequest, token: object, old: Member, member_id: str) -> None:
        """A static member rejoined without its id: the new id replaces the old one, which is fenced."""
        leader = self.roster.leader
        new = Member(member_id, request)
        new.assignment = old.assignment
        new.touch(now)
        self.roster.replace(old, new)
        self._fence(old)
        self._inherit_sync(old, new)
        new.join_token = token
        if self.state is STABLE and self.roster.select_protocol() == self.protocol:
            self._persist(ReplacementWrite(old, new, token, self._joined_again(new, request, leader)))
        elif self.state is PREPARING:
            self._complete_if_all_wait(now)
        else:
            self._prepare(now)  # the leader may be assigning for the old member id: rebalance again

    def _inherit_sync(self, old: Member, new: Member) -> None:
        if old.member_id in self._unsynced:
            del self._unsynced[old.member_id]
            self._unsynced[new.member_id] = None

    def _joined_again(self, member: Member, request: JoinRequest, leader: str | None) -> JoinResult:
        """The response to a static member that rejoined a stable group.

        A leader whose client supports `skip_assignment` (KIP-814) gets the member list and does not assign. An older
        client gets its own old id as the leader, so that it acts as a follower.
        """
        if request.may_skip_assignment:
            return self._joined(member, skip_assignment=self.roster.leader == member.member_id)
        return JoinResult(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or "",
            member_id=member.member_id,
        )

    def _fence(self, old: Member) -> None:
        for token in (old.join_token, old.sync_token):
            if token is not None:
                fenced = FencedInstance(self.group_id, instance_id=old.instance_id or "", member_id=old.member_id)
                self._reply(token, fenced)
        old.join_token = old.sync_token = None

    # --- assignments

    def sync(self, now: float, request: SyncRequest, token: object) -> list[Action]:
        """The reply is the member's assignment, once the leader has sent it and it is durable."""
        try:
            member = self._check_sync(request)
        except StreamhouseError as error:
            self._reply(token, error)
            return self._drain()
        self._unsynced.pop(member.member_id, None)
        if not self._unsynced:
            self._sync_at = inf
        if self.state is STABLE:
            self._reply(token, self._synced(member))
            return self._drain()
        if member.sync_token is not None:
            self._reply(member.sync_token, RebalanceInProgress(self.group_id))  # the member synced again
        member.sync_token = token
        if self.roster.leader == member.member_id and not self._is_assigning:
            self._assign(request.assignments)
        return self._drain()

    def _check_sync(self, request: SyncRequest) -> Member:
        if self.state is DEAD:
            raise NotCoordinator(self.group_id, why="the group was dropped")
        member = self.roster.check(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        for requested, current in ((request.protocol_type, self.protocol_type), (request.protocol, self.protocol)):
            if requested is not None and current is not None and requested != current:
                raise InconsistentProtocol(self.group_id, why=f"the group uses {current}")
        if self.state is PREPARING:
            raise RebalanceInProgress(self.group_id)
        if self.state is COMPLETING and self.roster.leader == member.member_id:
            check_assignments(request.assignments, self.settings)
        return member

    @property
    def _is_assigning(self) -> bool:
        return any(
            isinstance(write, AssignmentWrite) and write.generation == self.generation
            for write in self._writes.values()
        )

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """Members that the leader left out get an empty assignment; assignments for unknown members are dropped."""
        known = {member.member_id: bytes(assignments.get(member.member_id, b"")) for member in self.roster}
        self._persist(AssignmentWrite(self.generation, known))

    # --- durability

    def stored(self, now: float, number: int, error: StreamhouseError | None) -> list[Action]:
        """A `WriteGroup` is durable, or failed with `error`. Does nothing if the group has changed since."""
        match self._writes.pop(number, None):
            case AssignmentWrite() as write if self.state is COMPLETING and write.generation == self.generation:
                self._hand_out(now, write.assignments if error is None else {}, error)
                if error is None:
                    self.state = STABLE
                else:
                    self._prepare(now)
            case ReplacementWrite() as write if self.state is STABLE and write.new.join_token is write.token:
                self._replaced(now, write, error)
        return self._drain()

    def _replaced(self, now: float, write: ReplacementWrite, error: StreamhouseError | None) -> None:
        write.new.join_token = None
        write.new.touch(now)
        self._reply(write.token, error or write.response)
        if error is not None:
            self.roster.replace(write.new, write.old)
            self._inherit_sync(write.new, write.old)
            write.old.touch(now)

    # --- heartbeats and commits

    def heartbeat(self, now: float, caller: MemberRef) -> None:
        """Record a heartbeat; raises the error that makes the member rejoin."""
        if self.state is DEAD:
            raise NotCoordinator(self.group_id, why="the group was dropped")
        member = self.roster.check(caller.member_id, caller.instance_id)
        self._check_generation(caller.generation)
        member.touch(now)
        if self.state is PREPARING:
            raise RebalanceInProgress(self.group_id)

    def check_commit(self, now: float, caller: MemberRef) -> None:
        """Raise unless the caller may commit offsets: a member of the generation, or any client while the group is
        empty."""
        if self.state is DEAD:
            raise NotCoordinator(self.group_id, why="the group was dropped")
        if caller.generation < 0 and self.state is EMPTY:
            return
        member = self.roster.check(caller.member_id, caller.instance_id)
        self._check_generation(caller.generation)
        if self.state is COMPLETING:
            raise RebalanceInProgress(self.group_id)
        member.touch(now)

    def check_commit_in_transaction(self, caller: MemberRef) -> None:
        """As `check_commit`, but callers without a member id may commit, because the transaction is fenced by itself.
        So may members that have no assignment yet."""
        if self.state is DEAD:
            raise NotCoordinator(self.group_id, why="the group was dropped")
        is_outsider = not caller.member_id and caller.instance_id is None
        if caller.generation < 0 and (is_outsider or self.state is EMPTY):
            return
        self.roster.check(caller.member_id, caller.instance_id)
        self._check_generation(caller.generation)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(self.group_id, generation=generation, current=self.generation)

    # --- leaving

    def leave(self, now: float, leavers: Sequence[LeaveRequest]) -> tuple[list[StreamhouseError | None], list[Action]]:
        """The outcome for each leaving member, and the actions that follow."""
        if self.state is DEAD:
            raise NotCoordinator(self.group_id, why="the group was dropped")
        outcomes = [self._leave(leaver) for leaver in leavers]
        if any(outcome is None for outcome in outcomes) and self.state is not EMPTY:
            self._rebalance_or_complete(now)
        return outcomes, self._drain()

    def _leave(self, leaver: LeaveRequest) -> StreamhouseError | None:
        if leaver.member_id in self._pending:
            del self._pending[leaver.member_id]
            return None
        named = self.roster.by_instance(leaver.instance_id) if not leaver.member_id else None
        try:
            member = named or self.roster.check(leaver.member_id, leaver.instance_id)
        except StreamhouseError as error:
            return error
        self._remove(member.member_id)
        return None

    # --- time

    def next_deadline(self) -> float:
        """When `tick` must be called next; heartbeats only move it later."""
        pending = min(self._pending.values(), default=inf)
        return min(self.roster.earliest_expiry, self._join_at, self._sync_at, pending)

    def tick(self, now: float) -> list[Action]:
        """Apply the timeouts that have passed."""
        for member_id, expires_at in list(self._pending.items()):
            if expires_at <= now:
                del self._pending[member_id]
                self._complete_without_gone(now)
        for member in self.roster:
            if member.expires_at <= now and self.roster.get(member.member_id) is member:
                self._expire(now, member)
        if self._join_at <= now:
            self._join_due(now)
        if self._sync_at <= now:
            self._sync_due(now)
        return self._drain()

    def _expire(self, now: float, member: Member) -> None:
        if member.is_excused:
            member.expires_at = inf  # its session starts again with the response
            return
        self._remove(member.member_id)
        if self.state is PREPARING:
            self._complete_without_gone(now)
        else:
            self._prepare(now)

    def _complete_without_gone(self, now: float) -> None:
        """Complete the rebalance if it waited only for a member that is gone, even an empty group's first one."""
        if self.state is PREPARING and self._all_joined:
            self._complete(now)

    def _sync_due(self, now: float) -> None:
        """Remove the members that have not synced in time, and rebalance."""
        self._sync_at = inf
        for member_id in list(self._unsynced):
            self._remove(member_id)
        self._prepare(now)

    # --- the end

    def drop(self, why: StreamhouseError) -> list[Action]:
        """End the group in memory: every waiting call gets `why`."""
        for member in self.roster:
            for token in (member.join_token, member.sync_token):
                if token is not None:
                    self._reply(token, why)
            member.join_token = member.sync_token = None
        self.state = DEAD
        self.roster = MemberSet(self.group_id)
        self._pending.clear()
        self._unsynced.clear()
        self._join_at = self._sync_at = inf
        return self._drain()

    @property
    def expects_members(self) -> bool:
        """Whether a new member got an id and may rejoin with it."""
        return bool(self._pending)

    @property
    def is_blank(self) -> bool:
        """Whether the group can be forgotten: no members, none expected, and nothing in the store."""
        return self.state is EMPTY and not (self.is_stored or self._pending or self._writes or self.generation)
