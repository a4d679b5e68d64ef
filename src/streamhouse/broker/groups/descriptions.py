"""Descriptions of groups, and whether a group or its offsets may be deleted.

Owns        describing and listing; checks before a deletion; which topics a group reads
Leaves      the deletion to `groups` and `offsets`
"""

from typing import Final

from streamhouse.broker.groups.group_state import Group
from streamhouse.errors import GroupNotFound, NonEmptyGroup
from streamhouse.format.consumer_protocol import subscribed_topics
from streamhouse.model.group import CONSUMER, GroupState
from streamhouse.model.group_requests import DescribedGroup, ListedGroup
from streamhouse.model.tenant import topic_of_member

CLASSIC: Final = "classic"


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


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether members read the topic; True also for consumers whose subscription can't be decoded."""
    if group.protocol_type != CONSUMER:
        return False
    topics = [subscribed_topics(member.metadata(group.protocol) or b"") for member in group.roster]
    return any(
        names is None or any(topic_of_member(group.group_id, name) == topic for name in names) for names in topics
    )
