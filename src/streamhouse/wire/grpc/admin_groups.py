"""Groups over gRPC: listed, described, how far behind they are, sent somewhere else, forgotten."""

import asyncio
from typing import Final

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups.calls import OffsetToCommit, Outcomes
from streamhouse.errors import StreamhouseError
from streamhouse.model.group import CommittedOffset
from streamhouse.model.names import TopicPartition

from .admin_topics import offset_message
from .calls import Call
from .errors import as_message
from .generated import streamhouse_pb2 as pb
from .positions import AT_ONCE, find_starts
from .requests import named

UNKNOWN: Final = -1


def _name(item: tuple[TopicPartition, CommittedOffset]) -> TopicPartition:
    return item[0]


def _raise_first(outcomes: Outcomes) -> None:
    for error in outcomes.values():
        if error is not None:
            raise error


class GroupAdmin:
    def __init__(self, broker: Broker, *, limit: int) -> None:
        self._broker = broker
        self._limit = limit

    async def list_all(self, request: pb.ListGroupsRequest, _: Call) -> pb.ListGroupsResponse:
        found = sorted(await self._broker.records.groups(), key=lambda each: each.group_id)
        return pb.ListGroupsResponse(
            groups=[
                pb.Group(group_id=each.group_id, state=each.state, protocol_type=each.protocol_type) for each in found
            ]
        )

    async def describe(self, request: pb.DescribeGroupRequest, _: Call) -> pb.DescribeGroupResponse:
        group = await self._broker.records.describe_group(named(request.group_id, "group_id"))
        return pb.DescribeGroupResponse(
            group=pb.Group(group_id=group.group_id, state=group.state, protocol_type=group.protocol_type),
            protocol=group.protocol,
            members=[
                pb.GroupMember(
                    member_id=each.member_id,
                    instance_id=each.instance_id or "",
                    client_id=each.client_id,
                    client_host=each.client_host,
                )
                for each in group.members
            ],
        )

    async def lag(self, request: pb.GetGroupLagRequest, _: Call) -> pb.GetGroupLagResponse:
        committed = await self._broker.records.committed(named(request.group_id, "group_id"))
        turns = asyncio.Semaphore(AT_ONCE)

        async def lag_of(name: TopicPartition, offset: int, metadata: str) -> pb.PartitionLag:
            part = pb.PartitionLag(
                topic=name.topic, partition=name.partition, committed_offset=offset, metadata=metadata
            )
            try:
                async with turns:
                    part.end_offset = (await self._broker.records.latest(name)).offset
            except StreamhouseError as error:
                part.end_offset = part.lag = UNKNOWN
                part.error.CopyFrom(as_message(error))
            else:
                part.lag = max(0, part.end_offset - offset)
            return part

        parts = await asyncio.gather(
            *(lag_of(name, each.offset, each.metadata) for name, each in sorted(committed.items(), key=_name))
        )
        return pb.GetGroupLagResponse(partitions=parts, total_lag=sum(max(0, each.lag) for each in parts))

    async def reset(self, request: pb.ResetGroupRequest, _: Call) -> pb.ResetGroupResponse:
        """All of it or nothing: a position that can't be found fails the call before anything is committed."""
        group_id = named(request.group_id, "group_id")
        starts = await find_starts(self._broker, request.positions, limit=self._limit)
        offsets: dict[TopicPartition, OffsetToCommit] = {}
        for name, found in starts:
            if isinstance(found, StreamhouseError):
                raise found
            offsets[name] = OffsetToCommit(offset=found.offset)
        if not request.dry_run:
            _raise_first(await self._broker.records.commit(group_id, offsets))
        return pb.ResetGroupResponse(offsets=map(offset_message, starts))

    async def delete(self, request: pb.DeleteGroupRequest, _: Call) -> pb.DeleteGroupResponse:
        await self._broker.records.delete_group(named(request.group_id, "group_id"))
        return pb.DeleteGroupResponse()
