"""Group mutations: the coordinator with one guard taken out, to see whether the simulator notices.

Owns        how each guard of groups is taken out
Leaves      the other guards to `mutations`, running seeds until one fails to `test_mutations`
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

from streamhouse.broker.groups import groups, offset_expiry, offsets
from streamhouse.broker.groups.commit_queue import CommitQueue
from streamhouse.broker.groups.coordinator import GroupCoordinator, GroupDeadlines
from streamhouse.broker.groups.group_state import Group
from streamhouse.broker.groups.members import Member, MemberSet
from streamhouse.broker.groups.rebalance import Action, AssignmentWrite, RebalanceState, WriteGroup
from streamhouse.errors import FencedInstance, StreamhouseError
from streamhouse.model.group import DropGroup, DropOffset
from streamhouse.stores.metadata import commit_guard
from streamhouse.stores.metadata.procedures import groups as transactions

from .mutation import Mutation, Patch
from .options import GroupPlan


def generation_not_checked_on_commit(patch: Patch) -> None:
    def careless(self: Group, now: float, caller: Any) -> None:
        if caller.generation >= 0:
            self.roster.check(caller.member_id, caller.instance_id).touch(now)

    patch.setattr(Group, "check_commit", careless)


def members_not_checked_on_commit(patch: Patch) -> None:
    patch.setattr(Group, "check_commit", lambda self, now, caller: None)


def older_lives_not_fenced(patch: Patch) -> None:
    check = MemberSet.check

    def careless(self: MemberSet, member_id: str, instance_id: str | None) -> Member:
        try:
            return check(self, member_id, instance_id)
        except FencedInstance:
            member = self.by_instance(instance_id)
            assert member is not None
            return member

    patch.setattr(MemberSet, "check", careless)


def commits_not_numbered(patch: Patch) -> None:
    patch.setattr(commit_guard, "_is_next", lambda commit, last: True)


def shards_not_fenced(patch: Patch) -> None:
    patch.setattr(transactions, "decide_group_commits", lambda commits, **_: list(commits))


def answered_before_the_commit(patch: Patch) -> None:
    put = CommitQueue.put

    def early(self: CommitQueue, shard: Any, group_id: str, changes: Sequence[Any]) -> Any:
        waiting = put(self, shard, group_id, changes)
        if not waiting.done():
            waiting.set_result(None)
        return waiting

    patch.setattr(CommitQueue, "put", early)


def assignments_handed_out_before_they_are_durable(patch: Patch) -> None:
    perform = GroupCoordinator._perform

    def early(self: GroupCoordinator, shard: Any, group: Group, effects: Sequence[Action]) -> None:
        perform(self, shard, group, effects)
        for effect in effects:
            if isinstance(effect, WriteGroup) and isinstance(group._writes.get(effect.number), AssignmentWrite):
                perform(self, shard, group, group.stored(self._clock.monotonic(), effect.number, None))

    patch.setattr(GroupCoordinator, "_perform", early)


def assignments_not_written(patch: Patch) -> None:
    snapshot = RebalanceState.snapshot

    def blank(self: RebalanceState, assignments: Mapping[str, bytes] | None = None) -> Any:
        return snapshot(self, None if assignments is None else dict.fromkeys(assignments, b""))

    patch.setattr(RebalanceState, "snapshot", blank)


def generations_not_written(patch: Patch) -> None:
    load = Group.load.__func__  # type: ignore[attr-defined]

    def forgetful(cls: Any, stored: Any, settings: Any, *, now: float) -> Group:
        group: Group = load(cls, stored, settings, now=now)
        group.generation = 0
        return group

    patch.setattr(Group, "load", classmethod(forgetful))


def sessions_never_end(patch: Patch) -> None:
    patch.setattr(Member, "touch", lambda self, now: setattr(self, "expires_at", inf))


def rebalances_wait_for_nobody(patch: Patch) -> None:
    patch.setattr(RebalanceState, "_all_joined", property(lambda self: True))


def rebalances_wait_for_ever(patch: Patch) -> None:
    patch.setattr(RebalanceState, "_join_due", lambda self, now: setattr(self, "_join_at", inf))


def deadlines_do_not_wake_anybody(patch: Patch) -> None:
    patch.setattr(GroupDeadlines, "take_due", lambda self, now: [])


def pending_members_never_given_up(patch: Patch) -> None:
    expect = Group._assign_member_id

    def patient(self: Group, now: float, ask: Any, member_id: str) -> StreamhouseError:
        error = expect(self, now, ask, member_id)
        self._pending[member_id] = inf
        return error

    patch.setattr(Group, "_assign_member_id", patient)


def assignments_shared_by_two(patch: Patch) -> None:
    assign = Group._assign

    def generous(self: Group, assignments: Mapping[str, bytes]) -> None:
        assign(self, dict.fromkeys(assignments, b" ".join(assignments.values())))

    patch.setattr(Group, "_assign", generous)


def groups_deleted_under_their_members(patch: Patch) -> None:
    patch.setattr(groups, "check_delete", lambda group: None)


async def _nothing_is_read(*_: object) -> frozenset[str]:
    return frozenset()


def offsets_deleted_under_their_readers(patch: Patch) -> None:
    patch.setattr(offsets, "find_topics_read", _nothing_is_read)


def deletions_not_written(patch: Patch) -> None:
    put = CommitQueue.put

    def forgetful(self: CommitQueue, shard: Any, group_id: str, changes: Sequence[Any]) -> Any:
        return put(self, shard, group_id, [each for each in changes if not isinstance(each, DropOffset | DropGroup)])

    patch.setattr(CommitQueue, "put", forgetful)


def offsets_expire_under_their_readers(patch: Patch) -> None:
    patch.setattr(offset_expiry, "find_topics_read", _nothing_is_read)


def offsets_expire_too_early(patch: Patch) -> None:
    patch.setattr(offset_expiry.OffsetExpiry, "_retention_ms", property(lambda self: 500))


def nothing_expires(patch: Patch) -> None:
    patch.setattr(offset_expiry, "expired_offsets", lambda *args, **named: [])


def _plan(**changes: Any) -> GroupPlan:
    plan = {
        "group_id": "group-0",
        "members": 3,
        "statics": 0,
        "is_cooperative": False,
        "session_s": 0.5,
        "rebalance_s": 1.0,
        "heartbeat_s": 0.15,
        "commit_s": 0.05,
        "trouble": 0.06,
        "lifetime_s": 4.0,
        "echoes": 0.1,
        "learns_id": True,
        "may_skip_assignment": True,
    }
    return GroupPlan(**{**plan, **changes})


QUIET: Final = {"plain_producers": 1, "idempotent_producers": 1, "followers": 0, "readers": 0, "churns": False}
DYNAMIC: Final = {**QUIET, "groups": (_plan(),)}
STATIC: Final = {**QUIET, "groups": (_plan(statics=3, session_s=1.5, lifetime_s=1.5),)}
ECHOES: Final = {**QUIET, "groups": (_plan(echoes=0.5, lifetime_s=1.5),)}
PROMPT: Final = {**DYNAMIC, "starve": 0.0}
OUTSIDE: Final = {**QUIET, "groups": (_plan(members=0),)}
SILENT: Final = {**QUIET, "groups": (_plan(echoes=0.0),)}
DELETED: Final = {**QUIET, "groups": (_plan(lifetime_s=10.0, deletes_s=0.2),)}
DELETED_OUTSIDE: Final = {**QUIET, "groups": (_plan(members=0, deletes_s=0.2),)}

GROUP_MUTATIONS: Final = {
    "the generation of a commit is not checked": Mutation(
        breaks=("an old generation committed",), apply=generation_not_checked_on_commit, profile="kills", tweaks=DYNAMIC
    ),
    "the member of a commit is not checked": Mutation(
        breaks=("an old generation committed",), apply=members_not_checked_on_commit, profile="kills", tweaks=DYNAMIC
    ),
    "older lives of static members are not fenced": Mutation(
        breaks=("a fenced member committed",), apply=older_lives_not_fenced, profile="kills", tweaks=STATIC
    ),
    "commits of a shard are not numbered": Mutation(
        breaks=("a committed offset went back",), apply=commits_not_numbered, profile="stores", tweaks=OUTSIDE
    ),
    "shards are not fenced": Mutation(
        breaks=("a committed offset went back",), apply=shards_not_fenced, profile="stores", tweaks=OUTSIDE
    ),
    "offsets are acknowledged before they are durable": Mutation(
        breaks=("committed offsets are gone",), apply=answered_before_the_commit, profile="kills", tweaks=DYNAMIC
    ),
    "assignments are handed out before they are durable": Mutation(
        breaks=("an old generation committed",),
        apply=assignments_handed_out_before_they_are_durable,
        profile="kills",
        tweaks=DYNAMIC,
        seeds=400,
        is_rare=True,
    ),
    "assignments are not written": Mutation(
        breaks=("an assignment changed",), apply=assignments_not_written, profile="kills", tweaks=STATIC
    ),
    "generations begin anew with every agent": Mutation(
        breaks=(
            "a generation went back",
            "members got what no leader gave",
        ),
        apply=generations_not_written,
        profile="kills",
        tweaks=DYNAMIC,
    ),
    "sessions never end": Mutation(breaks=("stuck",), apply=sessions_never_end, profile="kills", tweaks=DYNAMIC),
    "a rebalance waits for nobody": Mutation(
        breaks=("stuck",), apply=rebalances_wait_for_nobody, profile="kills", tweaks=DYNAMIC
    ),
    "a rebalance waits for ever": Mutation(
        breaks=("a join waited too long",), apply=rebalances_wait_for_ever, profile="calm", tweaks=PROMPT
    ),
    "deadlines wake nobody": Mutation(
        breaks=("no end after so many steps",), apply=deadlines_do_not_wake_anybody, profile="kills", tweaks=DYNAMIC
    ),
    "new members are expected for ever": Mutation(
        breaks=("stuck",), apply=pending_members_never_given_up, profile="kills", tweaks=ECHOES
    ),
    "groups are deleted under their members": Mutation(
        breaks=("a group was deleted with members in it",),
        apply=groups_deleted_under_their_members,
        profile="calm",
        tweaks=DELETED,
    ),
    "offsets are deleted under their readers": Mutation(
        breaks=("deleted under a member",), apply=offsets_deleted_under_their_readers, profile="calm", tweaks=DELETED
    ),
    "deletions are not written": Mutation(
        breaks=("a committed offset went back",), apply=deletions_not_written, profile="calm", tweaks=DELETED_OUTSIDE
    ),
    "offsets expire under their readers": Mutation(
        breaks=("offsets expired under their readers",),
        apply=offsets_expire_under_their_readers,
        profile="calm",
        tweaks=SILENT,
    ),
    "offsets expire too early": Mutation(
        breaks=("committed offsets are gone",), apply=offsets_expire_too_early, profile="calm", tweaks=OUTSIDE
    ),
    "offsets never expire": Mutation(breaks=("stuck",), apply=nothing_expires, profile="calm", tweaks=DYNAMIC),
    "assignments are given to everybody": Mutation(
        breaks=("members got what no leader gave",), apply=assignments_shared_by_two, profile="calm", tweaks=DYNAMIC
    ),
}
