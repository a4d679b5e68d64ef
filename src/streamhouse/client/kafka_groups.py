"""Kafka groups: list, describe and delete consumer groups, read and reset offsets, at the coordinator."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka.errors import UnknownMemberIdError
from aiokafka.protocol.admin import DeleteGroupsRequest, ListGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from streamhouse.client.kafka_admin import Admin
from streamhouse.client.kafka_errors import from_code
from streamhouse.client.kafka_messages import GroupDescriptions
from streamhouse.client.types import Group, GroupMember
from streamhouse.errors import GroupNotFound, NonEmptyGroup
from streamhouse.format.consumer_protocol import assigned_partitions
from streamhouse.model.names import TopicPartition

_NOT_THERE: Final = "Dead"
_NO_GENERATION: Final = -1
_DEFAULT_RETENTION: Final = -1


class Groups:
    """Uses an `Admin` that is open."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def __repr__(self) -> str:
        return f"<Groups {self._admin!r}>"

    async def all(self) -> list[Group]:
        """All groups by name."""
        groups: list[Group] = []
        for node in (await self._admin.cluster()).agents:
            response = await self._admin.send(ListGroupsRequest(), subject="groups", node=node)
            if response.error_code:
                raise from_code(response.error_code, subject="groups")
            if names := [entry[0] for entry in response.groups]:
                groups += await self._describe(names, node)
        return sorted(groups, key=lambda group: group.name)

    async def describe(self, name: str) -> Group:
        """One group; raises `GroupNotFound`."""
        (group,) = await self._describe([name], await self._admin.coordinator(name))
        if group.state == _NOT_THERE:
            raise GroupNotFound(name)
        return group

    async def _describe(self, names: Iterable[str], node: int) -> list[Group]:
        response = await self._admin.send(GroupDescriptions([*names]), subject="groups", node=node)
        return [_group(description) for description in response.groups]

    async def committed(self, name: str) -> dict[TopicPartition, int]:
        """Every offset that the group has committed."""
        response = await self._admin.send(
            OffsetFetchRequest(name, None), subject=name, node=await self._admin.coordinator(name)
        )
        if response.error_code:
            raise from_code(response.error_code, subject=name)
        offsets: dict[TopicPartition, int] = {}
        for topic, partitions in response.topics:
            for partition, offset, _, code in partitions:
                if code:
                    raise from_code(code, subject=f"{topic}-{partition}")
                if offset >= 0:  # some clients commit -1 or -2, which is not an offset
                    offsets[TopicPartition(topic, partition)] = offset
        return dict(sorted(offsets.items()))

    async def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set a group's offsets without being a member; raises `NonEmptyGroup` while it has members."""
        topics: dict[str, Any] = defaultdict(list)
        for tp, offset in offsets.items():
            topics[tp.topic].append((tp.partition, offset, ""))
        request = OffsetCommitRequest(name, _NO_GENERATION, "", _DEFAULT_RETENTION, [*topics.items()])
        response = await self._admin.send(request, subject=name, node=await self._admin.coordinator(name))
        for topic, partitions in response.topics:
            for partition, code in partitions:
                if code == UnknownMemberIdError.errno:  # only members may commit now
                    raise NonEmptyGroup(name)
                if code:
                    raise from_code(code, subject=f"{topic}-{partition}")

    async def delete(self, name: str) -> None:
        """Delete a group that has no members, with its committed offsets."""
        request = DeleteGroupsRequest([name])
        response = await self._admin.send(request, subject=name, node=await self._admin.coordinator(name))
        for group, code in response.results:
            if code:
                raise from_code(code, subject=group)


def _group(description: Any) -> Group:
    code, name, state, _, protocol, members = description[:6]
    if code:
        raise from_code(code, subject=name)
    return Group(name=name, state=state, protocol=protocol, members=tuple(_member(member) for member in members))


def _member(member: Any) -> GroupMember:
    member_id, client_id, host, _, assignment = member[:5]
    return GroupMember(
        member_id=member_id, client_id=client_id, host=host.removeprefix("/"), assigned=_assigned(assignment)
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The assigned partitions of a consumer; empty for other kinds of members, whose format is not known."""
    return tuple(TopicPartition(topic, partition) for topic, partition in assigned_partitions(assignment) or ())
