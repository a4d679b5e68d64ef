"""Group state: Kafka's classic group protocol as a machine without I/O and without a clock.

Data path   coordinator -> **state** (event in, effects out) -> coordinator performs them
Owns        what every event means in each of the five states: joining, syncing, signs of life, leaving, time
Leaves      the way to the next generation to `rebalance`, the members to `roster`, sizes to `limits`, performing
            effects and time to `coordinator`, looks from outside to `views`

`now` is monotonic seconds. A token is the caller's handle for one answer: the machine gives each exactly one `Reply`,
at once or later. A `Persist` must be made durable and then reported through `stored`; what depends on it waits.

Invariants  a member learns its assignment only after the generation is durable, and only in the generation it joined
            the generation grows with every rebalance, and never otherwise
            whoever waits is answered: by the generation, by its successor in the same member, or by a refusal
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
        """A group as it was last written; its members get a whole session to show up."""
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
            group._prepare(now)  # members are turned away as they come back
        return group

    # --- joining

    def join(self, now: float, ask: JoinRequest, token: object, *, new_member_id: str) -> list[Action]:
        """The answer is a generation, or why the member can't be in one. `new_member_id` is for one that has none."""
        refusal = self._refusal(ask)
        if refusal is not None:
            self._reply(token, refusal)
            if isinstance(refusal, GroupFull):
                self._turn_away(now, ask.member_id)
        elif not ask.member_id:
            self._join_new(now, ask, token, new_member_id)
        elif ask.member_id in self._pending and ask.instance_id is None:
            self._add(now, ask, token, ask.member_id)
        else:
            self._rejoin(now, ask, token)
        return self._drain()

    def _refusal(self, ask: JoinRequest) -> StreamhouseError | None:
        if self.state is DEAD:
            return NotCoordinator(self.group_id, why="the group was dropped")
        if not self._has_room(ask):
            return GroupFull("the group is full", limit=self.settings.max_members, setting="groups.max_members")
        names = [offered.name for offered in ask.protocols]
        if self.state is EMPTY:
            supported = bool(ask.protocol_type and names)
        else:
            supported = ask.protocol_type == self.protocol_type and self.roster.supports(names)
        if not supported:
            return InconsistentProtocol(self.group_id, why="no protocol in common with the group")
        try:
            own = self.roster.get(ask.member_id) or self.roster.by_instance(ask.instance_id)
            others_bytes = self.roster.size_bytes - (own.size_bytes if own is not None else 0)
            check_metadata(ask, self.settings, others_bytes=others_bytes)
        except GroupDataTooLarge as error:
            return error
        return None

    def _has_room(self, ask: JoinRequest) -> bool:
        """While a rebalance gathers members, those who wait count, so that the last to come back are turned away.

        A static member that comes back without its id takes no room: it replaces itself.
        """
        limit = self.settings.max_members
        if self.state is EMPTY or len(self.roster) < limit:
            return True
        if not ask.member_id and self.roster.by_instance(ask.instance_id) is not None:
            return True
        member = self.roster.get(ask.member_id)
        if self.state is PREPARING:
            return (member is not None and member.join_token is not None) or self.roster.waiting < limit
        return member is not None

    def _turn_away(self, now: float, member_id: str) -> None:
        self._pending.pop(member_id, None)
        if member_id in self.roster:
            self._remove(member_id)
        self._complete_if_all_wait(now)

    def _join_new(self, now: float, ask: JoinRequest, token: object, member_id: str) -> None:
        known = self.roster.by_instance(ask.instance_id)
        if known is not None:
            self._replace(now, ask, token, known, member_id)
        elif ask.instance_id is None and ask.learns_id:
            self._reply(token, self._expect(now, ask, member_id))
        else:
            self._add(now, ask, token, member_id)

    def _expect(self, now: float, ask: JoinRequest, member_id: str) -> StreamhouseError:
        """Tell a new member its id, and wait for it for the length of a session."""
        if len(self._pending) >= self.settings.max_pending_members:
            return CoordinatorUnavailable(self.group_id, why="too many new members at once")
        self._pending[member_id] = now + ask.session_timeout_ms / 1000
        return MemberIdRequired(self.group_id, member_id=member_id)

    def _add(self, now: float, ask: JoinRequest, token: object, member_id: str) -> None:
        """A new member can't heartbeat before it knows the generation, so it has a longer time of its own."""
        member = Member(member_id, ask)
        member.is_new = True
        member.join_token = token
        member.expires_at = now + self.settings.new_member_timeout_s
        self._grew = self.state is PREPARING and self._was_empty
        if not self.roster:
            self.protocol_type = ask.protocol_type
        self.roster.add(member)
        self._pending.pop(member_id, None)
        self._rebalance_or_complete(now)

    def _rejoin(self, now: float, ask: JoinRequest, token: object) -> None:
        try:
            member = self.roster.check(ask.member_id, ask.instance_id)
        except StreamhouseError as error:
            self._reply(token, error)
            return
        leads = self.roster.leader == member.member_id
        same = member.offers(ask.protocols)
        if same and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            self._reply(token, self._joined(member))  # it missed the answer, or wants to sync again
            return
        self._update(member, ask, token)
        self._rebalance_or_complete(now)

    def _update(self, member: Member, ask: JoinRequest, token: object) -> None:
        self.roster.update(member, ask)
        if member.join_token is not None:
            self._reply(member.join_token, RebalanceInProgress(self.group_id))  # a later join took its place
        member.join_token = token

    def _replace(self, now: float, ask: JoinRequest, token: object, old: Member, member_id: str) -> None:
        """A static member came back without its id: it takes the old one's place, which is fenced."""
        leader = self.roster.leader
        new = Member(member_id, ask)
        new.assignment = old.assignment
        new.touch(now)
        self.roster.replace(old, new)
        self._fence(old)
        self._inherit_sync(old, new)
        new.join_token = token
        if self.state is STABLE and self.roster.select_protocol() == self.protocol:
            self._persist(ReplacementWrite(old, new, token, self._joined_again(new, ask, leader)))
        elif self.state is PREPARING:
            self._complete_if_all_wait(now)
        else:
            self._prepare(now)  # the leader may be assigning for the old member id: begin anew

    def _inherit_sync(self, old: Member, new: Member) -> None:
        if old.member_id in self._unsynced:
            del self._unsynced[old.member_id]
            self._unsynced[new.member_id] = None

    def _joined_again(self, member: Member, ask: JoinRequest, leader: str | None) -> JoinResult:
        """For a static member that came back to a stable group.

        A leader that understands it gets the members to watch, and is told not to assign. An older one is shown its own
        old id as the leader, so that it believes itself a follower.
        """
        if ask.may_skip_assignment:
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

    def sync(self, now: float, ask: SyncRequest, token: object) -> list[Action]:
        """The answer is the member's assignment, once the leader has brought it and it is durable."""
        try:
            member = self._check_sync(ask)
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
            self._reply(member.sync_token, RebalanceInProgress(self.group_id))  # a later sync took its place
        member.sync_token = token
        if self.roster.leader == member.member_id and not self._is_assigning:
            self._assign(ask.assignments)
        return self._drain()

    def _check_sync(self, ask: SyncRequest) -> Member:
        if self.state is DEAD:
            raise NotCoordinator(self.group_id, why="the group was dropped")
        member = self.roster.check(ask.member_id, ask.instance_id)
        self._check_generation(ask.generation)
        for asked, current in ((ask.protocol_type, self.protocol_type), (ask.protocol, self.protocol)):
            if asked is not None and current is not None and asked != current:
                raise InconsistentProtocol(self.group_id, why=f"the group uses {current}")
        if self.state is PREPARING:
            raise RebalanceInProgress(self.group_id)
        if self.state is COMPLETING and self.roster.leader == member.member_id:
            check_assignments(ask.assignments, self.settings)
        return member

    @property
    def _is_assigning(self) -> bool:
        return any(
            isinstance(write, AssignmentWrite) and write.generation == self.generation
            for write in self._writes.values()
        )

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """Members that the leader forgot get nothing; what it brings for others is dropped."""
        known = {member.member_id: bytes(assignments.get(member.member_id, b"")) for member in self.roster}
        self._persist(AssignmentWrite(self.generation, known))

    # --- durability

    def stored(self, now: float, number: int, error: StreamhouseError | None) -> list[Action]:
        """A `Persist` is durable, or may not be. If the group has moved on since, there is nothing left to do."""
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
        self._reply(write.token, error or write.answer)
        if error is not None:
            self.roster.replace(write.new, write.old)
            self._inherit_sync(write.new, write.old)
            write.old.touch(now)

    # --- signs of life

    def heartbeat(self, now: float, caller: MemberRef) -> None:
        """Raises what the member should do instead of going on."""
        if self.state is DEAD:
            raise NotCoordinator(self.group_id, why="the group was dropped")
        member = self.roster.check(caller.member_id, caller.instance_id)
        self._check_generation(caller.generation)
        member.touch(now)
        if self.state is PREPARING:
            raise RebalanceInProgress(self.group_id)

    def check_commit(self, now: float, caller: MemberRef) -> None:
        """Raises unless offsets may be committed: by a member of the generation, or by anybody while it is empty."""
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
        """As `check_commit`, but anybody may who doesn't say to be a member: the transaction has a fence of its own.
        So may members that don't know yet what they are assigned."""
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
        """What became of each of them, and what follows for the others."""
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
        """When `tick` must be called; heartbeats only ever move it further away."""
        pending = min(self._pending.values(), default=inf)
        return min(self.roster.earliest_expiry, self._join_at, self._sync_at, pending)

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        for member_id, expires_at in list(self._pending.items()):
            if expires_at <= now:
                del self._pending[member_id]
                self._somebody_gone(now)
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
            member.expires_at = inf  # it gets a whole session with its answer
            return
        self._remove(member.member_id)
        if self.state is PREPARING:
            self._somebody_gone(now)
        else:
            self._prepare(now)

    def _somebody_gone(self, now: float) -> None:
        """Nobody waits for them any more, not even a group's first gathering."""
        if self.state is PREPARING and self._all_joined:
            self._complete(now)

    def _sync_due(self, now: float) -> None:
        """Members that never asked for their assignment are gone, or of no use."""
        self._sync_at = inf
        for member_id in list(self._unsynced):
            self._remove(member_id)
        self._prepare(now)

    # --- the end

    def drop(self, why: StreamhouseError) -> list[Action]:
        """The group is no longer here: everybody who waits is told why."""
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
        """Whether somebody was given an id and may come back with it."""
        return bool(self._pending)

    @property
    def is_blank(self) -> bool:
        """Whether nothing would be lost with it: nobody is here or expected, and the store knows nothing of it."""
        return self.state is EMPTY and not (self.is_stored or self._pending or self._writes or self.generation)
