"""OffsetExpiry: deletes committed offsets after their retention, and groups without any offsets.

Data path   off; a loop that runs every few minutes
Owns        the policy, which is Kafka's, and the loop
Leaves      which groups may have expired offsets to the metadata store; deleting to `commit_queue`
"""

import asyncio
import logging
from collections.abc import Awaitable, Container, Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import Final

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.groups.coordinator import GroupCoordinator
from streamhouse.broker.groups.descriptions import find_topics_read, subscriptions_of
from streamhouse.broker.groups.group_state import Group
from streamhouse.broker.groups.shards import Shard
from streamhouse.config import GroupSettings
from streamhouse.errors import StreamhouseError
from streamhouse.model.group import CONSUMER, DropGroup, DropOffset, GroupChange, GroupState
from streamhouse.model.names import TopicId
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import OffsetStored
from streamhouse.stores.metadata.transaction_store import OffsetsRequest

log = logging.getLogger(__name__)

GROUPS_PER_READ: Final = 100
RETRY_S: Final = 10.0


def expired_offsets(
    group: Group, offsets: Iterable[OffsetStored], read: Container[TopicId], *, now_ms: int, retention_ms: int
) -> list[OffsetStored]:
    """Which of the offsets of a group whose members read these topics have expired; a pure function.

    In an empty group the retention starts when the last member left. In a simple group, and for topics that a stable
    group of consumers does not read any more, it starts at the commit. Nothing expires in a group that rebalances, or
    whose protocol does not show which topics it reads.
    """
    empty = group.state is GroupState.EMPTY
    if not empty and (group.state is not GroupState.STABLE or group.protocol_type != CONSUMER):
        return []
    emptied_at_ms = group.changed_at_ms if empty and group.protocol_type is not None else None

    def is_over(stored: OffsetStored) -> bool:
        if not empty and stored.at.partition.topic_id in read:
            return False
        if stored.committed.expires_at_ms is not None:
            return now_ms >= stored.committed.expires_at_ms
        since_ms = emptied_at_ms if emptied_at_ms is not None else stored.committed.committed_at_ms
        return now_ms - since_ms >= retention_ms

    return [stored for stored in offsets if is_over(stored)]


class OffsetExpiry:
    def __init__(self, dependencies: Dependencies, *, coordinator: GroupCoordinator, catalog: TopicCatalog) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.groups
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        self._coordinator = coordinator
        self._catalog = catalog

    def configure(self, settings: GroupSettings) -> None:
        self._settings = settings

    async def run(self) -> None:
        """Take shards without a coordinator and delete expired offsets, until cancelled."""
        while True:
            try:
                await self._coordinator.shards.hold_all()
                await self.sweep()
                wait = self._settings.offsets_check_s
            except StreamhouseError as error:
                log.warning("offset expiry failed, will retry", extra={"why": str(error)})
                wait = min(self._settings.offsets_check_s, RETRY_S)
            await self._clock.sleep(wait)

    async def sweep(self) -> int:
        """Check every group held; returns the number of deleted offsets."""
        now_ms = await self._dependencies.agreed_now_ms()
        shards = list(self._coordinator.shards)
        due = await self._metadata.groups_to_review(
            [shard.partition for shard in shards], before_ms=now_ms - self._retention_ms, now_ms=now_ms
        )
        deleted = 0
        for group_ids in _chunks(due):
            deleted += await self._expire(shards, group_ids, now_ms)
        if deleted:
            log.info("committed offsets expired", extra={"offsets": deleted})
        return deleted

    @property
    def _retention_ms(self) -> int:
        return round(self._settings.offsets_retention_s * 1000)

    async def _expire(self, shards: Sequence[Shard], group_ids: Sequence[str], now_ms: int) -> int:
        """Read, then decide without a suspension. Groups with a commit or other members
        meanwhile are left for the next sweep."""
        held = [
            (shard, group, group.commits, subscriptions_of(group)) for shard, group in _held_groups(shards, group_ids)
        ]
        topics = {topic.topic_id: topic for topic in await self._catalog.all()}
        offsets = await self._offsets([group.group_id for _, group, _, _ in held])
        reads = [
            await _find_read(group.group_id, subscriptions, offsets.get(group.group_id, ()), topics)
            for _, group, _, subscriptions in held
        ]
        deleted, drops = 0, list[Awaitable[None]]()
        for (shard, group, commits, subscriptions), read in zip(held, reads, strict=True):
            has_changed = group.commits != commits or subscriptions_of(group) != subscriptions
            if shard.lost is not None or has_changed or shard.unwritten[group.group_id]:
                continue
            stored = offsets.get(group.group_id, [])
            expired = expired_offsets(group, stored, read, now_ms=now_ms, retention_ms=self._retention_ms)
            deleted += len(expired)
            drops += self._drop(shard, group, expired, is_all=len(expired) == len(stored))
        await asyncio.gather(*drops)
        return deleted

    async def _offsets(self, group_ids: Sequence[str]) -> dict[str, list[OffsetStored]]:
        rows = await self._metadata.committed_offsets([OffsetsRequest(group_id, None) for group_id in group_ids])
        return {group_id: list(each) for group_id, each in groupby(rows, key=lambda stored: stored.at.group_id)}

    def _drop(
        self, shard: Shard, group: Group, expired: Sequence[OffsetStored], *, is_all: bool
    ) -> list[Awaitable[None]]:
        """Delete offsets, and the group with its last one."""
        changes: list[GroupChange] = [
            DropOffset(at=stored.at, committed_at_ms=stored.committed.committed_at_ms) for stored in expired
        ]
        if is_all and group.state is GroupState.EMPTY and not group.expects_members:
            changes.append(DropGroup(group_id=group.group_id, unless_offsets=True))
            return [self._coordinator.delete(shard, group, changes)]
        return [self._coordinator.commits.put(shard, group.group_id, changes)] if changes else []


def _held_groups(shards: Sequence[Shard], group_ids: Sequence[str]) -> Iterator[tuple[Shard, Group]]:
    for group_id in group_ids:
        for shard in shards:
            if shard.lost is None and (group := shard.groups.get(group_id)) is not None:
                yield shard, group


async def _find_read(
    group_id: str, subscriptions: Sequence[bytes], offsets: Iterable[OffsetStored], topics: Mapping[TopicId, Topic]
) -> Set[TopicId]:
    """Those of the topics with these offsets that members read."""
    names = {
        topics[topic_id].name: topic_id for topic_id in {each.at.partition.topic_id for each in offsets} & topics.keys()
    }
    return {names[name] for name in await find_topics_read(group_id, subscriptions, names.keys())}


def _chunks(group_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(group_ids), GROUPS_PER_READ):
        yield group_ids[start : start + GROUPS_PER_READ]
