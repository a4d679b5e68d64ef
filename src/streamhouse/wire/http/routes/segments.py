"""Segments: the registered runs of partitions, and their objects.

GET /v1/segments?topic=…&limit=…&cursor=…    at most `limit` runs, by topic, partition and offset, page by page
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import needs
from streamhouse.model.segment import Run
from streamhouse.wire.http.operations import DEFAULT_LIMIT, MAX_LIMIT, Call, Operation, json_response
from streamhouse.wire.http.routes.read_plans import Cursor, read_run_cursor, write_run_cursor


class SegmentView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a partition."""

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
    """`cursor` is for the next page, null at the end; a page may have fewer entries than the limit, even none."""

    segments: list[SegmentView]
    cursor: str | None


class SegmentsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(description="only of this topic")] = ""
    limit: Annotated[int, Meta(description="runs in the answer, at most", ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    cursor: Cursor | None = None


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def list_segments(call: Call[SegmentsQuery, None]) -> Response:
        query = call.query
        topics = [await broker.topic(query.topic)] if query.topic else await broker.topics()
        page = await broker.run_listing.page(topics, limit=query.limit, begin=read_run_cursor(query.cursor))
        segments = [_view(name.topic, run) for name, run in page.runs]
        return json_response(Segments(segments=segments, cursor=write_run_cursor(page.next)))

    return [
        Operation(
            method="GET",
            path="/v1/segments",
            handler=list_segments,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="Which runs of partitions are registered, and in which objects",
            about="By topic, partition and offset. The agent's setting `plans.max_runs` limits a page, too.",
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
