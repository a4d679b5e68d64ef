"""Committed offsets of groups: which commits are accepted, how they are read and deleted.

Data path   groups -> **offsets** -> commit queue -> metadata store; reads go straight to the store

Nothing is cached. The metadata store decides, so the next coordinator sees every commit, and a stale one has no old
offsets to return.

Offsets of a transaction are kept in a table of their own until the transaction ends. They don't share a metadata
transaction with other changes of groups: the store rejects one whose transaction is over, and the others must not be
rejected with it.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.groups.coordinator import GroupCoordinator
from streamhouse.broker.groups.descriptions import check_delete_offsets, find_topics_read, subscriptions_of
from streamhouse.broker.groups.group_state import Group
from streamhouse.broker.groups.shards import Shard
from streamhouse.config import GroupSettings
from streamhouse.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    GroupNotFound,
    GroupSubscribed,
    IllegalGeneration,
    LeaseLost,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    Rejected,
    SessionLost,
    StreamhouseError,
    Unavailable,
    UnknownTopicId,
    UnstableOffsets,
)
from streamhouse.limits import iterate_fairly
from streamhouse.model.group import (
    CommittedOffset,
    DropOffset,
    GroupChange,
    GroupOffset,
    GroupState,
    PutGroup,
    PutOffset,
)
from streamhouse.model.group_requests import MemberRef, OffsetToCommit, Outcomes, Stable
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import PendingOffset, TransactionCall
from streamhouse.stores.metadata.transaction_store import OffsetsRequest

LEAST_OFFSET: Final = -2
"""Clients commit -1 for the end and -2 for the beginning; lower offsets are rejected."""


class GroupOffsets:
    def __init__(self, dependencies: Dependencies, *, coordinator: GroupCoordinator, catalog: TopicCatalog) -> None:
        self._settings = dependencies.settings.groups
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        self._dependencies = dependencies
        self._coordinator = coordinator
        self._catalog = catalog

    def configure(self, settings: GroupSettings) -> None:
        self._settings = settings

    # --- committing

    async def commit(
        self,
        group_id: str,
        caller: MemberRef,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        retention_ms: int | None,
    ) -> Outcomes:
        """Commit the valid offsets; raises if the caller may not commit in the group."""
        partitions = await self.find(group_id, offsets)
        shard = await self._coordinator.shards.hold(group_id)
        group = self._admit(shard, group_id, caller)
        outcomes = {name: self.error_of(name, partitions[name], offset) for name, offset in offsets.items()}
        now_ms = self._dependencies.agreed_time().later_ms
        expires_at_ms = now_ms + retention_ms if retention_ms is not None else None
        changes: list[GroupChange] = [
            PutOffset(
                at=GroupOffset(group_id, partition),
                committed=CommittedOffset(
                    offset=offsets[name].offset,
                    leader_epoch=offsets[name].leader_epoch,
                    metadata=offsets[name].metadata,
                    committed_at_ms=now_ms,
                    expires_at_ms=expires_at_ms,
                ),
            )
            for name, partition in partitions.items()
            if outcomes[name] is None and isinstance(partition, PartitionId)
        ]
        if changes:
            await self._write(shard, group, changes)
        else:
            self._coordinator.forget_if_blank(shard, group)
        return outcomes

    def _admit(self, shard: Shard, group_id: str, caller: MemberRef) -> Group:
        """The group, if the caller may commit in it. A caller without a generation may create a simple group."""
        group = shard.groups.get(group_id)
        if group is None:
            if caller.generation >= 0:
                raise GroupNotFound(group_id)
            group = self._coordinator.create(shard, group_id)
        group.check_commit(self._clock.monotonic(), caller)
        return group

    def error_of(
        self, name: TopicPartition, partition: PartitionId | StreamhouseError, offset: OffsetToCommit
    ) -> StreamhouseError | None:
        if isinstance(partition, StreamhouseError):
            return partition
        size = len(offset.metadata.encode())
        if size > self._settings.offset_metadata_bytes:
            return OffsetMetadataTooLarge(name, size_bytes=size, limit_bytes=self._settings.offset_metadata_bytes)
        if offset.offset < LEAST_OFFSET:
            return Rejected(f"offset is negative; partition={name} offset={offset.offset}")
        return None

    async def _write(self, shard: Shard, group: Group, changes: list[GroupChange]) -> None:
        """Queue the changes, preceded by the group's own row if the store has none yet."""
        if not group.is_stored and group.state is GroupState.EMPTY:
            group.changed_at_ms = self._dependencies.agreed_time().later_ms
            changes.insert(0, PutGroup(group=replace(group.snapshot(), changed_at_ms=group.changed_at_ms)))
        if not changes:
            return
        group.commits += 1
        try:
            await self._coordinator.commits.put(shard, group.group_id, changes)
        except StreamhouseError:
            self._coordinator.forget_if_blank(shard, group)
            raise
        group.is_stored = True

    async def write_group(self, shard: Shard, group: Group) -> None:
        """Store the row of an empty group, before its first pending offsets."""
        await self._write(shard, group, [])

    # --- reading

    async def fetch(
        self, names_by_group: Mapping[str, Sequence[TopicPartition] | None], *, stable: bool
    ) -> Mapping[str, Stable | StreamhouseError]:
        """Committed offsets by group, of some partitions or of all, whichever agent coordinates the group. With
        `stable`, an offset that an open transaction may change is an error.

        While the store is unavailable the error is `CoordinatorLoading`, after which clients ask again. After others
        librdkafka gives up for good: the member stays in its group and reads nothing.
        """
        results: dict[str, Stable | StreamhouseError] = {}
        requests: list[OffsetsRequest] = []
        async for group_id, names in iterate_fairly(names_by_group.items()):
            try:
                requests.append(OffsetsRequest(group_id, await self._partitions(names)))
            except Unavailable as error:
                results[group_id] = CoordinatorLoading(group_id, why=str(error))
            except StreamhouseError as error:
                results[group_id] = error
        try:
            # Pending offsets first: those of transactions that end before this read are among the committed ones.
            pending = await self._metadata.pending_offsets(requests) if stable and requests else frozenset()
            committed = await self._read(requests, pending)
        except Unavailable as error:
            down = {each.group_id: CoordinatorLoading(each.group_id, why=str(error)) for each in requests}
            return results | down
        return results | committed

    async def _partitions(self, names: Sequence[TopicPartition] | None) -> list[PartitionId] | None:
        if names is None:
            return None
        partitions = (await self._find(names)).values()
        return [each for each in partitions if isinstance(each, PartitionId)]

    async def _read(
        self, requests: Sequence[OffsetsRequest], pending: Set[GroupOffset]
    ) -> dict[str, Stable | StreamhouseError]:
        by_group: dict[str, dict[TopicPartition, CommittedOffset | UnstableOffsets]] = {
            each.group_id: {} for each in requests
        }
        async for at, committed in iterate_fairly(await self._metadata.committed_offsets(requests) if requests else ()):
            if (name := await self._name(at.partition)) is not None:
                by_group[at.group_id][name] = committed
        for at in pending:
            if (name := await self._name(at.partition)) is not None:
                by_group[at.group_id][name] = UnstableOffsets(
                    f"a transaction isn't decided; group={at.group_id!r} partition={name}"
                )
        return dict(by_group)

    async def _name(self, partition: PartitionId) -> TopicPartition | None:
        try:
            topic = await self._catalog.find_by_id(partition.topic_id)
        except UnknownTopicId:
            return None  # deleted a moment ago
        return TopicPartition(topic.name, partition.partition)

    async def find(
        self, group_id: str, names: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionId | StreamhouseError]:
        """The partition of each name, or its error."""
        try:
            return await self._find(names)
        except Unavailable as error:
            raise CoordinatorUnavailable(group_id, why=str(error)) from None

    async def _find(self, names: Collection[TopicPartition]) -> dict[TopicPartition, PartitionId | StreamhouseError]:
        if len(names) > self._settings.max_waiting_changes:
            raise Rejected(f"too many partitions in one request; limit={self._settings.max_waiting_changes}")
        return {name: await self._catalog.find_partition(name) async for name in iterate_fairly(names)}

    # --- deleting

    async def delete(self, group_id: str, names: Sequence[TopicPartition]) -> Outcomes:
        """Delete committed offsets, unless members read the topic."""
        partitions = await self.find(group_id, names)
        shard = await self._coordinator.shards.hold(group_id)
        if (group := shard.groups.get(group_id)) is None:
            raise GroupNotFound(group_id)
        subscriptions = subscriptions_of(group)
        read = await find_topics_read(group_id, subscriptions, {name.topic for name in partitions})
        check_delete_offsets(group)
        if subscriptions_of(group) != subscriptions:
            raise RebalanceInProgress(group_id)
        outcomes: dict[TopicPartition, StreamhouseError | None] = {}
        changes: list[GroupChange] = []
        for name, partition in partitions.items():
            outcomes[name] = None
            if isinstance(partition, StreamhouseError):
                outcomes[name] = partition
            elif name.topic in read:
                outcomes[name] = GroupSubscribed(group_id, topic=name.topic)
            else:
                changes.append(DropOffset(at=GroupOffset(group_id, partition)))
        if changes:
            await self._coordinator.commits.put(shard, group_id, changes)
        return outcomes


class PendingOffsets:
    def __init__(self, dependencies: Dependencies, *, coordinator: GroupCoordinator, offsets: GroupOffsets) -> None:
        self._metadata = dependencies.metadata
        self._dependencies = dependencies
        self._coordinator = coordinator
        self._offsets = offsets

    async def commit(
        self,
        group_id: str,
        caller: MemberRef,
        call: TransactionCall,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        begins: bool,
    ) -> Outcomes:
        """Store the valid offsets as pending until the transaction ends; raises if the group or the transaction rejects
        the caller."""
        partitions = await self._offsets.find(group_id, offsets)
        shard = await self._coordinator.shards.hold(group_id)
        group = self._admit(shard, group_id, caller)
        outcomes = {name: self._offsets.error_of(name, partitions[name], offset) for name, offset in offsets.items()}
        now_ms = self._dependencies.agreed_time().later_ms
        pending = [
            PendingOffset(partition, _committed(offsets[name], now_ms=now_ms))
            for name, partition in partitions.items()
            if outcomes[name] is None and isinstance(partition, PartitionId)
        ]
        if pending:
            await self._write(shard, group, call, pending, begins=begins)
        else:
            self._coordinator.forget_if_blank(shard, group)
        return outcomes

    def _admit(self, shard: Shard, group_id: str, caller: MemberRef) -> Group:
        group = shard.groups.get(group_id)
        if group is None:
            if caller.generation >= 0:
                raise IllegalGeneration(group_id, generation=caller.generation, current=-1)
            group = self._coordinator.create(shard, group_id)
        group.check_commit_in_transaction(caller)
        return group

    async def _write(
        self, shard: Shard, group: Group, call: TransactionCall, pending: Sequence[PendingOffset], *, begins: bool
    ) -> None:
        """The group's own row goes first: the offsets must belong to a stored group when the transaction ends."""
        group_id = group.group_id
        if not group.is_stored:
            if group.state is not GroupState.EMPTY:
                raise CoordinatorLoading(group_id, why="the group's first generation is not written yet")
            await self._offsets.write_group(shard, group)
        # Makes offset expiry skip the group: it would delete a group without committed offsets.
        group.commits += 1
        shard.unwritten[group_id] += 1
        try:
            await self._metadata.put_pending_offsets(
                shard.session_id, shard.partition, shard.epoch, call, group_id, pending, begins=begins
            )
        except (LeaseLost, SessionLost) as error:
            self._coordinator.shards.drop(shard, str(error))
            raise NotCoordinator(group_id, why=str(error)) from None
        except Unavailable as error:
            raise CoordinatorUnavailable(group_id, why=str(error)) from None
        finally:
            shard.written(group_id)


def _committed(offset: OffsetToCommit, *, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=offset.offset, leader_epoch=offset.leader_epoch, metadata=offset.metadata, committed_at_ms=now_ms
    )
