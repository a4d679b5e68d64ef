"""Segments: which runs of partitions are registered, and in which objects.

GET /v1/segments?topic=…&limit=…    at most `limit` runs of each partition
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.segment import Run
from streamhouse.wire.http.exchange import DEFAULT_LIMIT, MAX_LIMIT, json_answer
from streamhouse.wire.http.operations import Call, Operation


class SegmentView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a partition, as `streamhouse segments list` shows it."""

    topic: str
    partition: int
    base: int
    end: int
    records: int
    bytes: int
    max_timestamp_ms: int
    epoch: int
    object: str


class Segments(msgspec.Struct, frozen=True, kw_only=True):
    segments: list[SegmentView]


class SegmentsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(description="only of this topic")] = ""
    limit: Annotated[int, Meta(description="runs of each partition at most", ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def list_segments(call: Call[SegmentsQuery, None]) -> Response:
        name, limit = call.query.topic, call.query.limit
        topics = [await broker.topic(name)] if name else await broker.topics()
        found = [_view(topic.name, run) for topic in topics for run in await broker.runs(topic, limit=limit)]
        return json_answer(Segments(segments=found))

    return [
        Operation(
            method="GET",
            path="/v1/segments",
            handler=list_segments,
            summary="Which runs of partitions are registered, and in which objects",
            tag="topics",
            query=SegmentsQuery,
            answer=Segments,
            problems=(404,),
        )
    ]


def _view(topic: str, run: Run) -> SegmentView:
    return SegmentView(
        topic=topic,
        partition=run.partition.partition,
        base=run.base,
        end=run.end,
        records=run.records,
        bytes=run.length,
        max_timestamp_ms=run.max_timestamp_ms,
        epoch=run.epoch,
        object=run.object_key,
    )
