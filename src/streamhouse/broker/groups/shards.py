"""Shards: the groups that this agent coordinates, by the leases that it holds.

Data path   coordinator and offsets -> **shards** (does this agent hold it?) -> groups in memory
Owns        taking the lease of a shard, loading its groups, dropping it when the session is no longer valid
Leaves      leases to the metadata store, the session to `agent_session`, the groups' state to `group_state`

A dropped shard is never resumed: its lease is acquired again, under a higher epoch, so that a write that was still in
flight can't mix with what is loaded.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.cluster.cluster import Leader
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.groups.group_state import Group
from streamhouse.config import GroupSettings
from streamhouse.errors import (
    CoordinatorLoading,
    NotCoordinator,
    SessionLost,
    StreamhouseError,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from streamhouse.model.cluster import PartitionState, Session
from streamhouse.model.group import OFFSETS_TOPIC, shard_of
from streamhouse.model.names import Epoch, PartitionId, SessionId
from streamhouse.model.topic import Topic

log = logging.getLogger(__name__)

_OVERRIDES: Final = {"cleanup.policy": "compact"}


class SessionView(Protocol):
    """The current session, as far as groups depend on it; `AgentSession` is one."""

    @property
    def session(self) -> Session: ...

    @property
    def is_valid(self) -> bool: ...

    @property
    def end_reason(self) -> StreamhouseError | None: ...


class LeaderView(Protocol):
    """Which agent should coordinate which shard; `Cluster` is one."""

    async def owners(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, Session | None]: ...

    async def leader_of(self, partition: PartitionId) -> Leader: ...


class Shard:
    """The groups under one lease. `lost` is the reason why it must not be used any more."""

    def __init__(self, index: int, state: PartitionState, session_id: SessionId) -> None:
        self.index = index
        self.partition: PartitionId = state.partition
        self.epoch: Epoch = state.epoch
        self.session_id = session_id
        self.groups: dict[str, Group] = {}
        self.unwritten: Counter[str] = Counter()
        self.lost: str | None = None
        self._sequence = 0

    def __repr__(self) -> str:
        return f"<Shard {self.index} epoch={self.epoch} groups={len(self.groups)} lost={self.lost or 'no'}>"

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def written(self, group_id: str) -> None:
        """A change of the group has ended, with or without an error."""
        self.unwritten[group_id] -= 1
        if not self.unwritten[group_id]:
            del self.unwritten[group_id]


class Shards:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        current_session: Callable[[], SessionView],
        placement: LeaderView,
        loaded: Callable[[Shard], None],
        dropped: Callable[[Shard, str], None],
    ) -> None:
        self._settings = dependencies.settings.groups
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        self._catalog = catalog
        self._current_session = current_session
        self._placement = placement
        self._alone = dependencies.single_agent
        self._loaded = loaded
        self._dropped = dropped
        self._topic: Topic | None = None
        self._held: dict[int, Shard] = {}
        self._epochs: dict[PartitionId, Epoch] = {}
        self._leased: dict[PartitionId, SessionId] = {}
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Shards held={len(self._held)} groups={self.groups}>"

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._held.values()))

    @property
    def groups(self) -> int:
        return sum(len(shard.groups) for shard in self._held.values())

    def session(self, group_id: str | None) -> Session:
        """The valid session; raises `NotCoordinator` if there is none."""
        try:
            current_session = self._current_session()
        except Unavailable as error:
            raise NotCoordinator(group_id, why=str(error)) from None
        if (why := _unusable(current_session)) is not None:
            raise NotCoordinator(group_id, why=why)
        return current_session.session

    def configure(self, settings: GroupSettings) -> None:
        self._settings = settings
        for shard in self._held.values():
            for group in shard.groups.values():
                group.settings = settings

    # --- the hot path

    def find(self, group_id: str) -> Shard | None:
        """The group's shard, if it is held under a valid session. No suspension."""
        if self._topic is None:
            return None
        shard = self._held.get(shard_of(group_id, self._topic.partitions))
        return shard if shard is not None and self._is_ours(shard) else None

    async def hold(self, group_id: str) -> Shard:
        """The group's shard, acquired and loaded if necessary; raises if another agent coordinates it."""
        if (shard := self.find(group_id)) is not None:
            return shard
        try:
            topic = await self._find_or_create_topic()
            await self._take(group_id, topic, await self._ours(topic, [shard_of(group_id, topic.partitions)]))
        except Unavailable as error:
            raise CoordinatorLoading(group_id, why=str(error)) from None
        except SessionLost as error:
            raise NotCoordinator(group_id, why=str(error)) from None
        if (shard := self.find(group_id)) is None:
            raise NotCoordinator(group_id, why="another agent coordinates it")
        return shard

    async def hold_all(self, *, often: bool = False) -> None:
        """Acquire and load every free shard that this agent should hold; none if there was never a group. With `often`,
        the topic of the shards is read from the cache only."""
        try:
            topic = await (self._catalog.find_cached if often else self._catalog.find)(OFFSETS_TOPIC)
            await self._take(None, topic, await self._ours(topic, range(topic.partitions)))
        except UnknownTopic:
            return
        except Unavailable as error:
            raise CoordinatorLoading(None, why=str(error)) from None
        except SessionLost as error:
            raise NotCoordinator(None, why=str(error)) from None

    async def coordinator(self, group_id: str) -> Session:
        """The session that coordinates the group, or should; raises if it is unknown."""
        own = self.session(group_id)
        if self._alone:
            return own
        try:
            topic = await self._find_or_create_topic()
        except Unavailable as error:
            raise CoordinatorLoading(group_id, why=str(error)) from None
        leader = await self._placement.leader_of(PartitionId(topic.topic_id, shard_of(group_id, topic.partitions)))
        if leader.session is None:
            raise NotCoordinator(group_id, why="no agent takes groups now")
        return leader.session

    async def _ours(self, topic: Topic, indexes: Iterable[int]) -> Sequence[int]:
        """The shards that this agent should hold."""
        if self._alone:
            return list(indexes)
        own = self.session(None).session_id
        owners = await self._placement.owners([PartitionId(topic.topic_id, index) for index in indexes])
        return [at.partition for at, owner in owners.items() if owner is not None and owner.session_id == own]

    # --- dropping

    async def balance(self) -> None:
        """Release the shards that other agents should hold, and acquire those that this agent should."""
        held = list(self)
        owners = await self._placement.owners([shard.partition for shard in held])
        leaving = [
            shard
            for shard in held
            if (owner := owners[shard.partition]) is not None and owner.session_id != shard.session_id
        ]
        for shard in leaving:
            self.drop(shard, "another agent coordinates it now")
        async with self._opening:  # no call is between acquiring a lease and keeping its shard
            await self._release_unheld()
        await self.hold_all(often=True)

    async def _release_unheld(self) -> None:
        """Release leases of shards that were dropped or could not be loaded: they last as long as the session, so other
        agents could never acquire them."""
        session_id, held = self.session(None).session_id, {shard.partition for shard in self}
        # Leases of earlier sessions ended with them.
        self._leased = {partition: by for partition, by in self._leased.items() if by == session_id}
        unheld = [partition for partition in self._leased if partition not in held]
        owners = await self._placement.owners(unheld)
        leaving = [each for each in unheld if (owner := owners[each]) is not None and owner.session_id != session_id]
        if leaving:
            await self._metadata.release(session_id, leaving)
            for partition in leaving:
                del self._leased[partition]

    def watch(self) -> None:
        """Drop the shards that this session may no longer use."""
        for shard in self:
            self._is_ours(shard)

    def drop(self, shard: Shard, why: str) -> None:
        """Drop a shard: waiting calls of its groups get NotCoordinator."""
        if shard.lost is not None:
            return
        shard.lost = why
        if self._held.get(shard.index) is shard:
            del self._held[shard.index]
        log.info("group shard dropped", extra={"shard": shard.index, "groups": len(shard.groups), "why": why})
        self._dropped(shard, why)

    def drop_all(self, why: str) -> None:
        for shard in self:
            self.drop(shard, why)

    def _is_ours(self, shard: Shard) -> bool:
        try:
            current_session = self._current_session()
            why = _unusable(current_session)
            if why is None and current_session.session.session_id != shard.session_id:
                why = "another session began"
        except Unavailable as error:
            why = str(error)
        if why is not None:
            self.drop(shard, why)
        return why is None

    # --- taking

    async def _find_or_create_topic(self) -> Topic:
        try:
            return await self._catalog.find(OFFSETS_TOPIC)
        except UnknownTopic:
            pass
        async with self._opening:
            try:
                return await self._catalog.find(OFFSETS_TOPIC)
            except UnknownTopic:
                return await self._create_topic()

    async def _create_topic(self) -> Topic:
        try:
            return await self._catalog.create(OFFSETS_TOPIC, partitions=self._settings.shards, overrides=_OVERRIDES)
        except TopicExists:
            raise Unavailable("another agent has just created the shards of groups") from None

    async def _take(self, group_id: str | None, topic: Topic, indexes: Sequence[int]) -> None:
        async with self._opening:
            self._topic = topic
            missing = [index for index in indexes if not self._holds(index, topic)]
            if not missing:
                return
            session_id = self.session(group_id).session_id
            states = await self._acquire(session_id, [PartitionId(topic.topic_id, index) for index in missing])
            shards = {state.partition: Shard(state.partition.partition, state, session_id) for state in states}
            now = self._clock.monotonic()
            for partition, stored in await self._metadata.load_groups(list(shards)):
                shards[partition].groups[stored.group_id] = Group.load(stored, self._settings, now=now)
            for shard in shards.values():
                self._keep(shard)

    def _holds(self, index: int, topic: Topic) -> bool:
        shard = self._held.get(index)
        if shard is not None and shard.partition.topic_id != topic.topic_id:
            self.drop(shard, "the topic was created anew")
        return index in self._held

    async def _acquire(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> Sequence[PartitionState]:
        """Acquire the free shards, each under an epoch that this agent never used."""
        self._leased.update(dict.fromkeys(partitions, session_id))  # also if the response is lost
        states = await self._metadata.acquire(session_id, partitions)
        used = [state.partition for state in states if state.epoch <= self._epochs.get(state.partition, -1)]
        if used:
            await self._metadata.release(session_id, used)
            states = await self._metadata.acquire(session_id, partitions)
        self._epochs.update((state.partition, state.epoch) for state in states)
        return states

    def _keep(self, shard: Shard) -> None:
        self._held[shard.index] = shard
        log.info("group shard held", extra={"shard": shard.index, "epoch": shard.epoch, "groups": len(shard.groups)})
        self._loaded(shard)


def _unusable(current_session: SessionView) -> str | None:
    """Why the session is not valid; None if it is."""
    if current_session.end_reason is not None:
        return f"the session is ending: {current_session.end_reason}"
    return None if current_session.is_valid else "the heartbeat is late"
