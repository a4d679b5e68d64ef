"""GroupCoordinator: performs the actions that the state machines of groups return, and wakes them at their deadlines.

Data path   groups -> **coordinator** -> group_state (decides) -> responses, and commit_queue -> metadata store
Owns        the calls that wait for a response, the loop that watches deadlines, writing groups
Leaves      every decision to `group_state`; which shards this agent holds to `shards`; transactions to `commit_queue`

A call that waits is a future, and the group's token for it. When its connection closes, the future is cancelled and
the response is dropped; the group notices by the member's timeouts.

`GroupDeadlines` keeps the earliest deadline per group. A deadline that moves later is not updated: the group is
checked once too early and returns the next one, so a heartbeat costs nothing here.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.groups.commit_queue import CommitQueue
from streamhouse.broker.groups.group_state import Group
from streamhouse.broker.groups.rebalance import Action, Reply, WriteGroup
from streamhouse.broker.groups.shards import Shard, Shards
from streamhouse.clock import wait_first
from streamhouse.config import GroupSettings
from streamhouse.errors import GroupFull, NotCoordinator, StreamhouseError, UnknownMember
from streamhouse.model.group import GroupChange, PutGroup
from streamhouse.model.group_requests import (
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResults,
    MemberRef,
    SyncRequest,
    SyncResult,
)

SLACK: Final = 64
"""Superseded entries that the heap may hold besides one per group."""


class GroupDeadlines:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._times: dict[str, float] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<GroupDeadlines groups={len(self._times)} next={self.next():.3f}>"

    def next(self) -> float:
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def set(self, group_id: str, at: float) -> None:
        """Set the group's deadline, unless it has an earlier one."""
        if at < self._times.get(group_id, inf):
            self._times[group_id] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, group_id))
            if len(self._heap) > 2 * len(self._times) + SLACK:
                self._compact()

    def _compact(self) -> None:
        """Drop superseded entries."""
        self._heap = [entry for entry in self._heap if self._times.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def forget(self, group_id: str) -> None:
        self._times.pop(group_id, None)

    def take_due(self, now: float) -> list[str]:
        """Remove and return the groups whose deadline has passed, earliest first."""
        due: list[str] = []
        while self.next() <= now:
            _, _, group_id = heapq.heappop(self._heap)
            del self._times[group_id]
            due.append(group_id)
        return due


class GroupCoordinator:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.groups
        self._clock = dependencies.clock
        self._ids = dependencies.ids
        self._deadlines = GroupDeadlines()
        self._earlier = asyncio.Event()
        self.commits = CommitQueue(self._settings, metadata=dependencies.metadata, lost=self._lost)
        self._shards: Shards | None = None

    def __repr__(self) -> str:
        return f"<GroupCoordinator {self._shards!r} {self.commits!r} {self._deadlines!r}>"

    @property
    def shards(self) -> Shards:
        assert self._shards is not None
        return self._shards

    def attach(self, shards: Shards) -> None:
        self._shards = shards

    def configure(self, settings: GroupSettings) -> None:
        self._settings = settings
        self.shards.configure(settings)

    # --- calls

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        shard = await self.shards.hold(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            if request.member_id:
                raise UnknownMember(group_id, member_id=request.member_id)
            group = self.create(shard, group_id)
        response: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        new_member_id = "" if request.member_id else f"{request.instance_id or request.client_id}-{self._ids.uuid()}"
        now = self._clock.monotonic()
        self._perform(shard, group, group.join(now, request, response, new_member_id=new_member_id))
        return await response

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        shard = await self.shards.hold(group_id)
        group = _member_group(shard, group_id, request.member_id)
        response: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        self._perform(shard, group, group.sync(self._clock.monotonic(), request, response))
        return await response

    async def heartbeat(self, group_id: str, caller: MemberRef) -> None:
        """The most frequent call: memory only, and no suspension while the shard is held."""
        shard = self.shards.find(group_id) or await self.shards.hold(group_id)
        _member_group(shard, group_id, caller.member_id).heartbeat(self._clock.monotonic(), caller)

    async def leave(self, group_id: str, leavers: Sequence[LeaveRequest]) -> LeaveResults:
        shard = await self.shards.hold(group_id)
        group = _member_group(shard, group_id, leavers[0].member_id if leavers else "")
        outcomes, actions = group.leave(self._clock.monotonic(), leavers)
        self._perform(shard, group, actions)
        return outcomes

    def create(self, shard: Shard, group_id: str) -> Group:
        """Create an empty group in memory; it is forgotten again if it stays blank."""
        if self.shards.groups >= self._settings.max_groups:
            raise GroupFull("too many groups", limit=self._settings.max_groups, setting="groups.max_groups")
        group = shard.groups[group_id] = Group(group_id, self._settings)
        return group

    def forget(self, shard: Shard, group: Group) -> None:
        """Remove a group from memory; waiting calls get NotCoordinator and retry."""
        if shard.groups.get(group.group_id) is group:
            del shard.groups[group.group_id]
            self._deadlines.forget(group.group_id)
        self._perform(shard, group, group.drop(NotCoordinator(group.group_id, why="the group was deleted")))

    def delete(self, shard: Shard, group: Group, changes: Sequence[GroupChange]) -> Awaitable[None]:
        """Queue the changes that delete a group. It leaves memory at once: a new member creates a new group after
        them."""
        deleted = self.commits.put(shard, group.group_id, changes)
        if not deleted.done():  # otherwise the queue was full
            self.forget(shard, group)
        return deleted

    def forget_if_blank(self, shard: Shard, group: Group) -> None:
        if group.is_blank and not shard.unwritten[group.group_id]:
            self.forget(shard, group)

    # --- actions

    def _perform(self, shard: Shard, group: Group, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Reply(token, response):
                    _respond(token, response)
                case WriteGroup():
                    self._write(shard, group, action)
        if shard.groups.get(group.group_id) is group:
            self._schedule(group)
            if group.is_blank:
                self.forget_if_blank(shard, group)

    def _write(self, shard: Shard, group: Group, action: WriteGroup) -> None:
        group.changed_at_ms = self._dependencies.agreed_time().later_ms
        record = replace(action.group, changed_at_ms=group.changed_at_ms)
        written = self.commits.put(shard, group.group_id, [PutGroup(group=record)])
        written.add_done_callback(partial(self._written, shard, group, action.number))

    def _written(self, shard: Shard, group: Group, number: int, written: "asyncio.Future[None]") -> None:
        error = written.exception()
        assert error is None or isinstance(error, StreamhouseError)
        group.is_stored = group.is_stored or error is None
        self._perform(shard, group, group.stored(self._clock.monotonic(), number, error))

    # --- time

    async def run(self) -> None:
        """Watch deadlines and the session, until cancelled."""
        while True:
            self.shards.watch()
            self._tick(self._clock.monotonic())
            await self._rest()

    def _tick(self, now: float) -> None:
        for group_id in self._deadlines.take_due(now):
            shard = self.shards.find(group_id)
            group = shard.groups.get(group_id) if shard is not None else None
            if shard is not None and group is not None:
                self._perform(shard, group, group.tick(now))

    async def _rest(self) -> None:
        """Sleep until the next deadline, an earlier one that is set meanwhile, or `groups.watch_s` to check the
        session."""
        left = self._deadlines.next() - self._clock.monotonic()
        await wait_first(self._clock.sleep(min(max(left, 0.0), self._settings.watch_s)), self._earlier.wait())
        self._earlier.clear()

    def _schedule(self, group: Group) -> None:
        at = group.next_deadline()
        if at < self._deadlines.next():
            self._earlier.set()
        self._deadlines.set(group.group_id, at)

    # --- shards come and go

    def loaded(self, shard: Shard) -> None:
        for group in shard.groups.values():
            self._schedule(group)

    def dropped(self, shard: Shard, why: str) -> None:
        for group in list(shard.groups.values()):
            self._deadlines.forget(group.group_id)
            for action in group.drop(NotCoordinator(group.group_id, why=why)):
                assert isinstance(action, Reply)
                _respond(action.token, action.response)

    def _lost(self, shard: Shard, why: str) -> None:
        self.shards.drop(shard, why)


def _member_group(shard: Shard, group_id: str, member_id: str) -> Group:
    if (group := shard.groups.get(group_id)) is None:
        raise UnknownMember(group_id, member_id=member_id)
    return group


def _respond(token: object, response: object) -> None:
    assert isinstance(token, asyncio.Future)
    if token.done():
        return  # the caller has gone
    if isinstance(response, StreamhouseError):
        token.set_exception(response)
    else:
        token.set_result(response)
