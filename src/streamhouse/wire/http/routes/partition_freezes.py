"""Partition freezes: requests between agents during an external commit; not part of the OpenAPI document.

POST /v1/holds               freeze partitions for a commit; responds when everything in them is flushed
POST /v1/holds/{hold}/end    {"outcome": "committed" | "unused" | "unsure"}
"""

import asyncio
import uuid
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.external_commit import FreezeRequest, FreezeTarget, FrozenPartition, Outcome, QueryId
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.model.needs import processes_only
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.operations import (
    HOLD_PATTERN,
    MAX_BODY_BYTES,
    MAX_INT,
    MAX_LONG,
    QUERY_PATTERN,
    Call,
    NoQuery,
    Operation,
    json_response,
)

TAG: Final = "agents"
Number = Annotated[int, Meta(ge=0, le=MAX_LONG)]
UuidText = Annotated[str, Meta(pattern=QUERY_PATTERN)]


class PartitionToHold(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`offsets` is the number of offsets that the commit assigns."""

    topic: Annotated[str, Meta(min_length=1, max_length=249)]
    topic_id: UuidText
    partition: Annotated[int, Meta(ge=0, le=MAX_INT)]
    offsets: Number


class HoldRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hold: Annotated[str, Meta(pattern=HOLD_PATTERN)]
    query: UuidText
    epoch: Number
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_INT)]
    partitions: list[PartitionToHold]


class HeldView(msgspec.Struct, frozen=True, kw_only=True):
    """The log ends at `end` and is flushed, under the lease of this session and epoch."""

    topic_id: str
    partition: int
    session: str
    epoch: int
    end: int


class HoldAnswer(msgspec.Struct, frozen=True, kw_only=True):
    held: list[HeldView]


class HoldEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    outcome: Outcome


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def hold_partitions(call: Call[NoQuery, HoldRequest]) -> Response:
        request = await asyncio.to_thread(_freeze_request, call.body)
        if not request.partitions:
            raise Unprocessable("no partition is named")
        if len({each.partition for each in request.partitions}) < len(request.partitions):
            raise Unprocessable("a partition is named twice")
        timeout_s = min(call.body.wait_ms / 1000, broker.settings.placing.hold_s)
        held = await broker.freezes.hold(request, timeout_s=timeout_s)
        return json_response(HoldAnswer(held=[_view(each) for each in held]))

    async def end_hold(call: Call[NoQuery, HoldEnd]) -> Response:
        await broker.freezes.end(str(call.path["hold"]), call.body.outcome)
        return Response(status_code=204)

    return [
        Operation(
            method="POST",
            path="/v1/holds",
            handler=hold_partitions,
            needs=processes_only(),
            summary="Freeze partitions for a commit (between agents)",
            tag=TAG,
            query=NoQuery,
            body=HoldRequest,
            response=HoldAnswer,
            problems=(404, 422),
        ),
        Operation(
            method="POST",
            path="/v1/holds/{hold}/end",
            handler=end_hold,
            needs=processes_only(),
            summary="Report the outcome of a commit (between agents)",
            tag=TAG,
            query=NoQuery,
            body=HoldEnd,
            max_body_bytes=MAX_BODY_BYTES,
            status=204,
        ),
    ]


def _freeze_request(request: HoldRequest) -> FreezeRequest:
    return FreezeRequest(
        hold_id=request.hold,
        query=QueryId(request.query),
        epoch=request.epoch,
        partitions=tuple(
            FreezeTarget(
                name=TopicPartition(each.topic, each.partition),
                partition=PartitionId(TopicId(uuid.UUID(each.topic_id)), each.partition),
                offsets=each.offsets,
            )
            for each in request.partitions
        ),
    )


def _view(held: FrozenPartition) -> HeldView:
    return HeldView(
        topic_id=str(held.partition.topic_id),
        partition=held.partition.partition,
        session=held.holder,
        epoch=held.epoch,
        end=held.end,
    )
