"""Groups over gRPC: listed, described, how far behind they are, sent somewhere else, forgotten."""

from typing import Final

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups.calls import OffsetToCommit, Outcomes
from streamhouse.broker.records.lag import Standing
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import TopicPartition

from .admin_topics import offset_message
from .calls import Call
from .errors import as_message
from .generated import streamhouse_pb2 as pb
from .positions import find_starts
from .requests import named

UNKNOWN: Final = -1


def _part(found: Standing) -> pb.PartitionLag:
    committed = found.committed
    part = pb.PartitionLag(
        topic=found.name.topic,
        partition=found.name.partition,
        committed_offset=UNKNOWN if committed is None else committed.offset,
        metadata="" if committed is None else committed.metadata,
        end_offset=UNKNOWN if found.end is None else found.end,
        lag=UNKNOWN if found.lag is None else found.lag,
    )
    if found.error is not None:
        part.error.CopyFrom(as_message(found.error))
    return part


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
        found = await self._broker.records.lag(named(request.group_id, "group_id"))
        parts = list(map(_part, found))
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
