"""Assignments: what the members of a consumer group read, decoded from bytes that only clients understand.

Data path   none; the lag of a group, its description over HTTP
Owns        which of the named topics and partitions there are, and that many bytes are decoded in a thread
Leaves      the bytes to `format.consumer_protocol`

Members may have a mebibyte each, and name partitions that don't exist by the million: those are left out.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from streamhouse.broker.groups.descriptions import INLINE_BYTES, MemberTopics
from streamhouse.errors import Rejected
from streamhouse.format.consumer_protocol import assigned_numbers, subscribed_topics
from streamhouse.model.group import CONSUMER
from streamhouse.model.group_requests import DescribedGroup, DescribedMember
from streamhouse.model.names import TopicPartition
from streamhouse.model.tenant import topic_of_member
from streamhouse.model.topic import Topic

T = TypeVar("T")

MAX_SHOWN: Final = 100_000
"""Assigned partitions of all members that a description has."""


class GroupReads(NamedTuple):
    """The topics that members subscribe to or are assigned partitions of, and the member of each assigned partition."""

    topics: frozenset[str]
    members: Mapping[TopicPartition, str]


async def find_reads(group: DescribedGroup, topics: Mapping[str, Topic]) -> GroupReads:
    """The partitions of these topics that members of a consumer group read; none for groups of other protocols."""
    return await _decoded(partial(_reads, group, topics), group)


async def find_assigned(group: DescribedGroup, topics: Mapping[str, Topic]) -> Mapping[str, Sequence[TopicPartition]]:
    """The partitions of each member, in order; raises `Rejected` above `MAX_SHOWN`."""
    return await _decoded(partial(_assigned, group, topics), group)


async def _decoded(work: Callable[[], T], group: DescribedGroup) -> T:
    if sum(len(member.assignment) + len(member.metadata) for member in group.members) <= INLINE_BYTES:
        return work()
    return await asyncio.to_thread(work)


def _reads(group: DescribedGroup, topics: Mapping[str, Topic]) -> GroupReads:
    if group.protocol_type != CONSUMER:
        return GroupReads(frozenset(), {})
    readers = {name: each.member_id for each in group.members for name in _existing(group.group_id, each, topics)}
    among = MemberTopics(group.group_id, topics)
    subscribed = chain.from_iterable(subscribed_topics(each.metadata, among=among) or () for each in group.members)
    named = (topic_of_member(group.group_id, name) for name in subscribed)
    return GroupReads(frozenset(chain((name.topic for name in readers), named)), readers)


def _assigned(group: DescribedGroup, topics: Mapping[str, Topic]) -> Mapping[str, Sequence[TopicPartition]]:
    assigned: dict[str, list[TopicPartition]] = {}
    left = MAX_SHOWN
    for member in group.members:
        names = list(islice(_existing(group.group_id, member, topics), left + 1))
        left -= len(names)
        if left < 0:
            raise Rejected(f"members are assigned too many partitions to be shown; limit={MAX_SHOWN}")
        assigned[member.member_id] = sorted(names)
    return assigned


def _existing(group_id: str, member: DescribedMember, topics: Mapping[str, Topic]) -> Iterator[TopicPartition]:
    """The assigned partitions that there are."""
    for name, numbers in (assigned_numbers(member.assignment) or {}).items():
        topic = topics.get(topic_of_member(group_id, name))
        if topic is not None:
            yield from (TopicPartition(topic.name, number) for number in numbers if 0 <= number < topic.partitions)
