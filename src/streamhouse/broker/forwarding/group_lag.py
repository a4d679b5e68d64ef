"""GroupLagReader: how far a consumer group is behind, in every partition that it reads, in records and in time.

Data path   HTTP, gRPC, metrics -> **group_lag** -> groups (committed offsets, assignments), leaders (ends, records)
Owns        which partitions count, what lag means where nothing was committed, the age of the first unread record
Leaves      finding leaders and coordinators to `offsets` and `groups`; what the lag says to `model.group_lag`

All partitions of a topic count in which the group has committed anything, to which a member has subscribed, or of which
a member was assigned something. Where nothing was committed the lag counts from the log's start: all of it is unread,
as for a consumer with `auto.offset.reset=earliest`.

The age of a record is read from the header of its batch and cached by partition and offset (LRU). Records that an open
transaction holds back count, too: they are part of the lag in records.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.forwarding.groups import GroupService
from streamhouse.broker.forwarding.leader_lookup import LocalBroker, OffsetLookup
from streamhouse.broker.groups.assignments import find_reads
from streamhouse.errors import StreamhouseError
from streamhouse.format.batch import BatchHeader, read_header
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_lag import GroupLag, LagHistory, PartitionLag, WaitingPartition, since_ms
from streamhouse.model.names import PartitionId, TopicPartition

AT_ONCE: Final = 16
"""Requests to leaders in flight at the same time."""

MAX_KNOWN_TIMES: Final = 10_000

Read = Callable[[Sequence[PartitionFetch]], Awaitable[Sequence[FetchResult]]]


class _Partition(NamedTuple):
    """A partition that a group reads, and the group's committed position in it."""

    name: TopicPartition
    id: PartitionId
    committed: CommittedOffset | None
    member_id: str | None
    waiting: WaitingPartition | None


class GroupLagReader:
    def __init__(
        self, dependencies: Dependencies, here: LocalBroker, *, groups: GroupService, offsets: OffsetLookup, read: Read
    ) -> None:
        self._dependencies = dependencies
        self._catalog = here.catalog
        self._groups = groups
        self._offsets = offsets
        self._read = read
        self._limiter = asyncio.Semaphore(AT_ONCE)
        self._times: OrderedDict[tuple[PartitionId, int], int | None] = OrderedDict()

    async def lag(self, group_id: str) -> GroupLag:
        """The group's lag; raises `GroupNotFound`."""
        group = await self._groups.describe(group_id)
        committed = await self._groups.committed(group_id)
        [history] = await self._dependencies.metadata.group_lags([group_id]) or [LagHistory(group_id)]
        waiting = {each.name: each for each in history.waiting}
        reads = await find_reads(group, await self._catalog.by_name())
        now_ms = self._dependencies.clock.now_ms()
        partitions = [
            _Partition(name, partition_id, committed.get(name), reads.members.get(name), waiting.get(name))
            for name, partition_id in sorted((await self._partitions_of(reads.topics, committed)).items())
        ]
        return GroupLag(
            group_id=group_id,
            at_ms=now_ms,
            has_members=bool(group.members),
            partitions=await asyncio.gather(*(self._partition_lag(each, now_ms) for each in partitions)),
            samples=history.samples,
        )

    async def _partitions_of(
        self, topics: Iterable[str], committed: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, PartitionId]:
        partitions: dict[TopicPartition, PartitionId] = {}
        for topic in {*(name.topic for name in committed), *topics}:
            if (row := await self._catalog.find_if_any(topic)) is not None:
                for number in range(row.partitions):
                    partitions[TopicPartition(topic, number)] = PartitionId(row.topic_id, number)
        return partitions

    async def _partition_lag(self, each: _Partition, now_ms: int) -> PartitionLag:
        try:
            async with self._limiter:
                end = (await self._offsets.latest(each.name)).offset
                start = each.committed.offset if each.committed is not None else -1
                if start < 0:
                    start = (await self._offsets.earliest(each.name)).offset
                written_ms = now_ms if start >= end else await self._written_ms(each, start)
        except StreamhouseError as error:
            return PartitionLag(name=each.name, committed=each.committed, member_id=each.member_id, error=error)
        lag = max(end - start, 0)
        return PartitionLag(
            name=each.name,
            committed=each.committed,
            end=end,
            lag=lag,
            lag_ms=None if written_ms is None else max(now_ms - written_ms, 0),
            since_ms=since_ms(lag, each.committed, each.waiting, now_ms=now_ms),
            member_id=each.member_id,
        )

    async def _written_ms(self, partition: _Partition, offset: int) -> int | None:
        """The timestamp of the first record from `offset` on; None if there is none, or if it has none."""
        key = (partition.id, offset)
        if key in self._times:
            self._times.move_to_end(key)
            return self._times[key]
        [result] = await self._read([PartitionFetch(partition.name, offset, 1)])
        if not result.records:
            return None
        self._times[key] = written_ms = _first_timestamp_ms(read_header(result.records[0]))
        if len(self._times) > MAX_KNOWN_TIMES:
            self._times.popitem(last=False)
        return written_ms


def _first_timestamp_ms(header: BatchHeader) -> int | None:
    is_first = not (header.is_log_append_time or header.has_delete_horizon) and header.base_timestamp_ms >= 0
    timestamp_ms = header.base_timestamp_ms if is_first else header.max_timestamp_ms
    return timestamp_ms if timestamp_ms >= 0 else None
