"""Partitions: their leaders and offsets, and moving them.

GET  /v1/partitions?topic=…&local=1    all partitions, of one topic or of all; with `local` those that are open here
POST /v1/partitions/move               {"topic": "orders", "partition": 3, "node": 2}; node null: the default leader

High watermark and last stable offset are null for partitions led by other agents, which return them with `local=1`, and
for partitions without a leader.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.admin.cluster_admin import PartitionStatus
from streamhouse.broker.broker import Broker
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.cluster import Session
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import lists, needs
from streamhouse.wire.http.operations import MAX_BODY_BYTES, MAX_INT, Call, NoQuery, Operation, json_response

TAG: Final = "partitions"


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition. `leader` holds the lease, `owner` is the preferred leader; `local`: this agent leads it and knows
    its offsets. An open transaction holds back `last_stable_offset`, and with it readers with read_committed."""

    topic: str
    partition: int
    leader: int | None
    owner: int | None
    pinned_to: int | None
    epoch: int
    lease_expires_in_ms: int | None
    log_start: int
    flushed_end: int
    high_watermark: int | None
    last_stable_offset: int | None
    bytes: int
    local: bool


class Partitions(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[PartitionView]


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The preferred leader of a partition; node null: chosen by the cluster."""

    topic: str
    partition: Annotated[int, Meta(ge=0, le=MAX_INT)]
    node: Annotated[int, Meta(ge=0, le=MAX_INT)] | None


class PartitionsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(description="only of this topic")] = ""
    local: Annotated[bool, Meta(description="only partitions that this agent leads")] = False


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def list_partitions(call: Call[PartitionsQuery, None]) -> Response:
        name = call.query.topic
        if name:
            call.access.require_topic(AclOperation.DESCRIBE, name)
        topics = [await broker.topic(name)] if name else await broker.topics()
        topics = [each for each in topics if call.access.allows_topic(AclOperation.DESCRIBE, each.name)]
        partitions = await broker.cluster_admin.partitions(topics, local=call.query.local)
        return json_response(Partitions(partitions=[view(each) for each in partitions]))

    async def move_partition(call: Call[NoQuery, Move]) -> Response:
        body = call.body
        name = TopicPartition(body.topic, body.partition)
        await broker.cluster_admin.move(name, body.node)
        return json_response(Partitions(partitions=[view(await broker.cluster_admin.partition(name))]))

    return [
        Operation(
            method="GET",
            path="/v1/partitions",
            handler=list_partitions,
            needs=lists(AclOperation.DESCRIBE, ResourceType.TOPIC),
            summary="Partitions of one topic or of all, with leaders and offsets",
            about="The high watermark and the last stable offset are null where another agent leads.",
            tag=TAG,
            query=PartitionsQuery,
            response=Partitions,
            problems=(404,),
        ),
        Operation(
            method="POST",
            path="/v1/partitions/move",
            handler=move_partition,
            needs=needs(AclOperation.ALTER, ResourceType.CLUSTER),
            summary="Move a partition to an agent",
            tag=TAG,
            query=NoQuery,
            body=Move,
            max_body_bytes=MAX_BODY_BYTES,
            response=Partitions,
            problems=(404,),
        ),
    ]


def view(status: PartitionStatus) -> PartitionView:
    return PartitionView(
        topic=status.name.topic,
        partition=status.name.partition,
        leader=_node(status.leader),
        owner=_node(status.owner),
        pinned_to=status.state.pinned_to,
        epoch=status.state.epoch,
        lease_expires_in_ms=status.expires_in_ms,
        log_start=status.log_start,
        flushed_end=status.flushed_end,
        high_watermark=status.high_watermark,
        last_stable_offset=status.last_stable,
        bytes=status.size_bytes,
        local=status.is_local,
    )


def _node(session: Session | None) -> int | None:
    return session.node_id if session is not None else None
