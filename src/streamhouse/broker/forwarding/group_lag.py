"""Lag of consumer groups: how far a group is behind, in every partition that it reads.

Data path   HTTP, gRPC -> **group_lag** -> groups (committed offsets, assignments), offsets (ends of partitions)
Owns        which partitions count, and what lag means where nothing was committed
Leaves      finding leaders and coordinators to `offsets` and `groups`

All partitions of a topic count in which the group has committed anything, to which a member has subscribed, or of which
a member was assigned something. Where nothing was committed the lag counts from the log's start: all of it is unread,
as for a consumer with `auto.offset.reset=earliest`.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from streamhouse.broker.groups import DescribedGroup
from streamhouse.errors import StreamhouseError
from streamhouse.format.consumer_protocol import assigned_partitions, subscribed_topics
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.group import CONSUMER, CommittedOffset
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import Topic

AT_ONCE: Final = 16
"""Offset requests in flight at the same time."""


class PartitionLag(NamedTuple):
    """The position of a group in a partition; `error` is why the end of the partition is unknown."""

    name: TopicPartition
    committed: CommittedOffset | None
    end: int | None = None
    lag: int | None = None
    error: StreamhouseError | None = None


class EndOffsets(Protocol):
    async def earliest(self, name: TopicPartition) -> OffsetResult: ...

    async def latest(self, name: TopicPartition) -> OffsetResult: ...


class TopicFinder(Protocol):
    async def find_if_any(self, name: str) -> Topic | None: ...


async def group_lag(
    group: DescribedGroup,
    committed: Mapping[TopicPartition, CommittedOffset],
    *,
    catalog: TopicFinder,
    offsets: EndOffsets,
) -> Sequence[PartitionLag]:
    """The lag in every partition that the group reads, by name."""
    limiter = asyncio.Semaphore(AT_ONCE)

    async def one(name: TopicPartition) -> PartitionLag:
        async with limiter:
            return await _partition_lag(name, committed.get(name), offsets)

    names = set(committed)
    for topic in {*(name.topic for name in committed), *_assigned_partitions(group)}:
        if (row := await catalog.find_if_any(topic)) is not None:
            names.update(TopicPartition(topic, number) for number in range(row.partitions))
    return await asyncio.gather(*map(one, sorted(names)))


def _assigned_partitions(group: DescribedGroup) -> Iterator[str]:
    if group.protocol_type != CONSUMER:
        return
    for member in group.members:
        yield from subscribed_topics(member.metadata) or ()
        yield from (topic for topic, _ in assigned_partitions(member.assignment) or ())


async def _partition_lag(name: TopicPartition, committed: CommittedOffset | None, offsets: EndOffsets) -> PartitionLag:
    try:
        end = (await offsets.latest(name)).offset
        if committed is not None and committed.offset >= 0:
            return PartitionLag(name, committed, end, max(end - committed.offset, 0))
        return PartitionLag(name, committed, end, end - (await offsets.earliest(name)).offset)
    except StreamhouseError as error:
        return PartitionLag(name, committed, error=error)
