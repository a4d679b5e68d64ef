"""RebalanceState: the transition of a group to its next generation, as actions for the coordinator.

Data path   group_state (an event needs a rebalance) -> **rebalance** -> actions -> coordinator
Owns        gathering the members, starting a generation, handing out assignments, what is stored of it
Leaves      which event starts a rebalance to `group_state`, the members to `members`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from streamhouse.broker.groups.members import Member, MemberSet
from streamhouse.config import GroupSettings
from streamhouse.errors import RebalanceInProgress, StreamhouseError, UnknownMember
from streamhouse.model.group import GroupState, StoredGroup
from streamhouse.model.group_requests import JoinResult, SyncResult


@dataclass(frozen=True, slots=True)
class Reply:
    """Complete the call that has this token."""

    token: object
    response: JoinResult | SyncResult | StreamhouseError


@dataclass(frozen=True, slots=True)
class WriteGroup:
    """Make this durable, then call `stored` with the number. Its `changed_at_ms` is for the coordinator to fill in."""

    number: int
    group: StoredGroup


Action = Reply | WriteGroup


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """A generation that becomes stable once its assignments are durable."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ReplacementWrite:
    """A static member that rejoined a stable group, and gets its response once its new id is durable."""

    old: Member
    new: Member
    token: object
    response: JoinResult


@dataclass(frozen=True, slots=True)
class EmptyGroupWrite:
    """The last member has left; no call waits for this write."""


Write = AssignmentWrite | ReplacementWrite | EmptyGroupWrite

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

NO_WAITERS_S: Final = 1.0
"""Minimum time between two attempts to complete a rebalance in which no member waits, whatever its timeout."""


class RebalanceState:
    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = EMPTY
        self._was_empty = False
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.changed_at_ms = 0
        self.is_stored = False
        self.commits = 0
        self.roster = MemberSet(group_id)
        self._pending: dict[str, float] = {}
        self._unsynced: dict[str, None] = {}
        self._join_at = inf
        self._sync_at = inf
        self._delay_s = self._remaining_s = 0.0
        self._grew = False
        self._writes: dict[int, Write] = {}
        self._written = 0
        self._actions: list[Action] = []

    def __repr__(self) -> str:
        return f"<Group {self.group_id} {self.state} generation={self.generation} {self.roster!r}>"

    # --- gathering members

    def _rebalance_or_complete(self, now: float) -> None:
        if self.state is PREPARING:
            self._complete_if_all_wait(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        """Start to gather members. An empty group waits a little for new ones, others for all known members."""
        if self.state is COMPLETING:
            self._hand_out(now, {}, RebalanceInProgress(self.group_id))
        self._unsynced.clear()
        self._sync_at = inf
        self._was_empty = self.state is EMPTY
        self.state = PREPARING
        if self._was_empty:
            self._grew = False
            self._delay_s = self.settings.initial_rebalance_delay_s
            self._remaining_s = max(self.roster.rebalance_timeout_s - self._delay_s, 0.0)
            self._join_at = now + self._delay_s
        elif self._all_joined:
            self._complete(now)
        else:
            self._join_at = now + self.roster.rebalance_timeout_s

    @property
    def _all_joined(self) -> bool:
        return not self._pending and self.roster.all_wait

    def _complete_if_all_wait(self, now: float) -> None:
        if self.state is PREPARING and not self._was_empty and self._all_joined:
            self._complete(now)

    def _join_due(self, now: float) -> None:
        """The join timeout has passed; for an empty group it is extended while members arrive."""
        if self._was_empty and self._grew and self._remaining_s > 0:
            self._grew = False
            delay = min(self.settings.initial_rebalance_delay_s, self._remaining_s)
            self._remaining_s = max(self._remaining_s - self._delay_s, 0.0)
            self._delay_s = delay
            self._join_at = now + delay
        else:
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Start the next generation with the waiting members, and with static members, which may be restarting."""
        self._join_at = inf
        for member in self.roster:
            if member.join_token is None and member.instance_id is None:
                self._remove(member.member_id)
        if self.roster and not self.roster.elect_waiting():
            # Only static members are left, and none of them waits: their session timeouts decide which are gone.
            self._join_at = now + max(self.roster.rebalance_timeout_s, NO_WAITERS_S)
            return
        self.generation += 1
        if self.roster:
            self._begin_generation(now)
        else:
            self.protocol = None
            self.state = EMPTY
            self._persist(EmptyGroupWrite())

    def _begin_generation(self, now: float) -> None:
        self.protocol = self.roster.select_protocol()
        self.state = COMPLETING
        for member in self.roster:
            if member.join_token is not None:
                self._reply(member.join_token, self._joined(member))
                member.join_token = None
            member.is_new = False
            member.touch(now)
        self._unsynced = dict.fromkeys(member.member_id for member in self.roster)
        # Some clients leave the rebalance timeout at 0, so that no member could sync in time.
        self._sync_at = now + max(self.roster.rebalance_timeout_s, self.settings.min_session_timeout_s)

    def _remove(self, member_id: str) -> None:
        """Remove a member; if it waits, it gets UnknownMember and joins again."""
        member = self.roster.get(member_id)
        assert member is not None
        for token in (member.join_token, member.sync_token):
            if token is not None:
                self._reply(token, UnknownMember(self.group_id, member_id=member_id))
        member.join_token = member.sync_token = None
        self.roster.remove(member_id)
        self._unsynced.pop(member_id, None)

    # --- responses

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> JoinResult:
        leads = self.roster.leader == member.member_id
        return JoinResult(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader or "",
            member_id=member.member_id,
            members=tuple(each.joined(self.protocol) for each in self.roster) if leads else (),
            skip_assignment=skip_assignment,
        )

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    def _hand_out(self, now: float, assignments: Mapping[str, bytes], error: StreamhouseError | None) -> None:
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_token is not None:
                self._reply(member.sync_token, error or self._synced(member))
                member.sync_token = None
                member.touch(now)

    # --- writes

    def _persist(self, then: Write) -> None:
        self._written += 1
        self._writes[self._written] = then
        assignments = then.assignments if isinstance(then, AssignmentWrite) else None
        self._actions.append(WriteGroup(self._written, self.snapshot(assignments)))

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> StoredGroup:
        """The group as it is stored; with assignments, as it will be once they are handed out."""
        return StoredGroup(
            group_id=self.group_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader,
            members=tuple(
                member.stored(member.assignment if assignments is None else assignments[member.member_id])
                for member in self.roster
            ),
            changed_at_ms=self.changed_at_ms,
        )

    # --- actions

    def _reply(self, token: object, response: JoinResult | SyncResult | StreamhouseError) -> None:
        self._actions.append(Reply(token, response))

    def _drain(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions
