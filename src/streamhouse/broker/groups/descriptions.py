"""Descriptions of groups, and whether a group or its offsets may be deleted.

Owns        describing and listing; checks before a deletion; which topics a group reads
Leaves      the deletion to `groups` and `offsets`
"""

import asyncio
from collections.abc import Container, Sequence, Set
from dataclasses import dataclass
from typing import Final

from streamhouse.broker.groups.group_state import Group
from streamhouse.errors import GroupNotFound, NonEmptyGroup
from streamhouse.format.consumer_protocol import subscribed_topics
from streamhouse.model.group import CONSUMER, GroupState
from streamhouse.model.group_requests import DescribedGroup, ListedGroup
from streamhouse.model.tenant import topic_of_member

CLASSIC: Final = "classic"

INLINE_BYTES: Final = 64 * 1024
"""Subscriptions and assignments of a group that are decoded on the event loop; more of them in a thread."""


def describe(group: Group) -> DescribedGroup:
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol=protocol or "",
        generation=group.generation,
        members=tuple(member.described(protocol) for member in group.roster),
    )


def list_entry(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id, protocol_type=group.protocol_type or "", state=group.state, group_type=CLASSIC
    )


def check_delete(group: Group) -> None:
    """Raise unless the group may be deleted with its offsets."""
    if group.state is GroupState.DEAD:
        raise GroupNotFound(group.group_id)
    if group.state is not GroupState.EMPTY:
        raise NonEmptyGroup(group.group_id)


def check_delete_offsets(group: Group) -> None:
    """Raise unless offsets may be deleted: of groups with members, only the consumer protocol shows which topics they
    read."""
    if group.state is GroupState.DEAD or group.protocol_type != CONSUMER:
        check_delete(group)


def subscriptions_of(group: Group) -> tuple[bytes, ...]:
    """The encoded subscriptions of consumers; none for members of other protocols."""
    if group.protocol_type != CONSUMER:
        return ()
    return tuple(member.metadata(group.protocol) or b"" for member in group.roster)


@dataclass(frozen=True, slots=True)
class MemberTopics(Container[str]):
    """Topics as members of a group name them."""

    group_id: str
    topics: Container[str]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and topic_of_member(self.group_id, name) in self.topics


def topics_read(group_id: str, subscriptions: Sequence[bytes], among: Set[str]) -> Set[str]:
    """Those of the topics that members read; all of them if a subscription can't be decoded."""
    read: set[str] = set()
    for subscription in subscriptions:
        names = subscribed_topics(subscription, among=MemberTopics(group_id, among))
        if names is None:
            return among
        read.update(topic_of_member(group_id, name) for name in names)
    return read


async def find_topics_read(group_id: str, subscriptions: Sequence[bytes], among: Set[str]) -> Set[str]:
    """Like `topics_read`, in a thread if there is much to decode: members have a mebibyte each."""
    if sum(map(len, subscriptions)) <= INLINE_BYTES:
        return topics_read(group_id, subscriptions, among)
    return await asyncio.to_thread(topics_read, group_id, subscriptions, among)
