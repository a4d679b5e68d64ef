"""Segments: the registered runs of partitions, and their objects.

GET /v1/segments?topic=…&limit=…&cursor=…    at most `limit` runs, by topic, partition and offset, page by page
GET /v1/segments?topic=…&blocks=true         with the compression of each, from its block index in the object store
"""

from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch.read_plans import RunBlocks
from streamhouse.format.object_keys import SegmentOrigin, segment_origin
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import needs
from streamhouse.model.segment import Run
from streamhouse.wire.http.operations import DEFAULT_LIMIT, MAX_LIMIT, Call, Operation, json_response
from streamhouse.wire.http.routes.read_plans import Cursor, read_run_cursor, write_run_cursor


class BlocksView(msgspec.Struct, frozen=True, kw_only=True):
    """`raw_bytes` is the size of the batches as they were produced; agents compress a block of them with LZ4 where that
    pays, which is seldom if the producer compressed them."""

    blocks: int
    lz4_blocks: int
    raw_bytes: int


class SegmentView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a partition. `blocks` null: not requested, or its index can't be read."""

    topic: str
    partition: int
    base: int
    end: int
    records: int
    bytes: int
    max_timestamp_ms: int
    epoch: int
    object: str
    origin: SegmentOrigin
    blocks: BlocksView | None = None


class Segments(msgspec.Struct, frozen=True, kw_only=True):
    """`cursor` is for the next page, null at the end; a page may have fewer entries than the limit, even none."""

    segments: list[SegmentView]
    cursor: str | None


class SegmentsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(description="only of this topic")] = ""
    limit: Annotated[int, Meta(description="runs in the answer, at most", ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    cursor: Cursor | None = None
    blocks: Annotated[bool, Meta(description="also the compression of each run, by one read of each object")] = False


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    max_block_indexes = broker.settings.plans.max_block_indexes

    async def list_segments(call: Call[SegmentsQuery, None]) -> Response:
        query = call.query
        topics = [await broker.topic(query.topic)] if query.topic else await broker.topics()
        limit = min(query.limit, max_block_indexes) if query.blocks else query.limit
        page = await broker.run_listing.page(topics, limit=limit, begin=read_run_cursor(query.cursor))
        runs = [run for _, run in page.runs]
        blocks = await broker.run_listing.blocks(runs) if query.blocks else [None] * len(runs)
        segments = [_view(name.topic, run, each) for (name, run), each in zip(page.runs, blocks, strict=True)]
        return json_response(Segments(segments=segments, cursor=write_run_cursor(page.next)))

    return [
        Operation(
            method="GET",
            path="/v1/segments",
            handler=list_segments,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="List registered runs of partitions and their objects",
            about="By topic, partition and offset. The agent's setting `plans.max_runs` limits a page, too; with"
            " `blocks` it is `plans.max_block_indexes`.",
            tag="topics",
            query=SegmentsQuery,
            response=Segments,
            problems=(404,),
        )
    ]


def _view(topic: str, run: Run, blocks: RunBlocks | None) -> SegmentView:
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
        origin=segment_origin(run.object_key),
        blocks=None if blocks is None else BlocksView(**asdict(blocks)),
    )
