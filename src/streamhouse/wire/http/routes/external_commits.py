"""External commits: segments written outside of agents are added to topics atomically; used by the Spark sink.

POST /v1/commits          {"query": UUID, "epoch": 12, "progress": …, "segments": [{"key": …, "runs": [{"topic": …}]}]}
                          "fence": {"pipeline": …, "epoch": 3}: rejected once another supervisor runs the pipeline
GET  /v1/commits/{query}  the last commit: {"epoch": 12, "progress": …, "placed": […]}

Commits are idempotent: the same query and epoch gets the first response again, with `replayed`. Consumers see the
records of a commit when it is acknowledged, not before. `covers` describes the input of the commit; an epoch that was
committed with another input is rejected (409).
"""

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.external_commits.commit_request import ExternalCommitRequest, RunRequest, SegmentRequest
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.external_commit import CommittedRange, QueryId, StoredCommit, query_of
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.pipeline import Fence, PipelineName
from streamhouse.model.replay import MAX_COVERS
from streamhouse.model.segment import SegmentObject
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.operations import (
    MAX_INT,
    MAX_LONG,
    PIPELINE_PATTERN,
    QUERY_PATTERN,
    Call,
    NoQuery,
    Operation,
    json_response,
)
from streamhouse.wire.http.routes.pipeline_access import require_pipeline

TAG: Final = "commits"
FENCE_ABOUT: Final = "alter on a pipeline that the commit names, or being its owner"

Number = Annotated[int, Meta(ge=0, le=MAX_LONG)]
Covers = Annotated[str, Meta(max_length=MAX_COVERS)]
Query = Annotated[str, Meta(pattern=QUERY_PATTERN, description="a UUID of the query's own")]


class RunToPlace(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The position of a partition's records in a segment, as in the segment's directory; offsets [stored_base,
    stored_end)."""

    topic: Annotated[str, Meta(min_length=1, max_length=249)]
    partition: Annotated[int, Meta(ge=0, le=MAX_INT)]
    records: Number
    stored_base: Number = 0
    stored_end: Number
    position: Number
    length: Number
    index_position: Number
    index_length: Number
    max_timestamp_ms: Annotated[int, Meta(ge=-MAX_LONG, le=MAX_LONG)]


class SegmentToPlace(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object in the object store, with the key `placed/QUERY/EPOCH/UNIQUE`."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]
    size_bytes: Number
    created_at_ms: Number
    runs: list[RunToPlace]


class FenceView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pipeline epoch under which the segments were written."""

    pipeline: Annotated[str, Meta(pattern=PIPELINE_PATTERN)]
    epoch: Number


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`progress` is stored for the query in the same transaction. With a `fence`, the commit is rejected if the
    supervisor no longer owns the pipeline. `covers`: the input of the commit, such as the source's offsets; the same
    epoch with another input is rejected."""

    query: Query
    epoch: Number
    progress: Raw = msgspec.field(default_factory=Raw)
    segments: list[SegmentToPlace]
    fence: FenceView | None = None
    covers: Covers | None = None


class PlacedView(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets [base, end) assigned in a partition."""

    topic: str
    partition: int
    base: int
    end: int


class CommitView(msgspec.Struct, frozen=True, kw_only=True):
    """`replayed`: the commit was applied by an earlier request."""

    placed: list[PlacedView]
    replayed: bool


class LastCommit(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    progress: Any
    placed: list[PlacedView]
    covers: str | None = None


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def place_segments(call: Call[NoQuery, CommitRequest]) -> Response:
        topics = dict.fromkeys(run.topic for segment in call.body.segments for run in segment.runs)
        call.access.require_each(AclOperation.WRITE, ResourceType.TOPIC, topics)
        if call.body.fence is not None:
            await require_pipeline(broker, call.access, call.body.fence.pipeline)
        request = await asyncio.to_thread(_commit_request, call.body, call.caller.tenant)
        done = await broker.commits.commit(request)
        return json_response(CommitView(placed=_placed_views(done), replayed=done.is_replayed))

    async def get_last_commit(call: Call[NoQuery, None]) -> Response:
        call.access.require_each(AclOperation.WRITE, ResourceType.TOPIC, ())
        last = await broker.commits.last(query_of(call.caller.tenant, str(call.path["query"])))
        call.access.require_each(AclOperation.WRITE, ResourceType.TOPIC, (each.topic for each in last.placed))
        progress = None if last.progress is None else Raw(last.progress.encode())
        return json_response(
            LastCommit(epoch=last.epoch, progress=progress, placed=_placed_views(last), covers=last.covers)
        )

    return [
        Operation(
            method="POST",
            path="/v1/commits",
            handler=place_segments,
            needs=needs(AclOperation.WRITE, ResourceType.TOPIC, about=FENCE_ABOUT),
            summary="Commit external segments to topics, atomically",
            about="Epochs of a query increase; a repeated commit returns its first result. Any agent coordinates.",
            tag=TAG,
            query=NoQuery,
            body=CommitRequest,
            response=CommitView,
            problems=(404, 409),
        ),
        Operation(
            method="GET",
            path="/v1/commits/{query}",
            handler=get_last_commit,
            needs=needs(AclOperation.WRITE, ResourceType.TOPIC),
            summary="The last commit of a query",
            tag=TAG,
            query=NoQuery,
            response=LastCommit,
            problems=(404,),
        ),
    ]


def _commit_request(request: CommitRequest, tenant: str) -> ExternalCommitRequest:
    return ExternalCommitRequest(
        query=query_of(tenant, request.query),
        written_by=QueryId(request.query),
        epoch=request.epoch,
        progress=None if bytes(request.progress) in (b"", b"null") else bytes(request.progress).decode(),
        segments=tuple(map(_segment, request.segments)),
        fence=None
        if request.fence is None
        else Fence(pipeline=PipelineName(request.fence.pipeline), epoch=request.fence.epoch),
        covers=request.covers,
    )


def _segment(request: SegmentToPlace) -> SegmentRequest:
    segment = SegmentObject(key=request.key, size_bytes=request.size_bytes, created_at_ms=request.created_at_ms)
    return SegmentRequest(segment=segment, runs=tuple(map(_run, request.runs)))


def _run(request: RunToPlace) -> RunRequest:
    return RunRequest(
        name=TopicPartition(request.topic, request.partition),
        records=request.records,
        stored_base=request.stored_base,
        stored_end=request.stored_end,
        position=request.position,
        length=request.length,
        index_position=request.index_position,
        index_length=request.index_length,
        max_timestamp_ms=request.max_timestamp_ms,
    )


def _placed_views(done: StoredCommit) -> list[PlacedView]:
    return [_view(each) for each in done.placed]


def _view(committed: CommittedRange) -> PlacedView:
    return PlacedView(
        topic=committed.topic, partition=committed.partition.partition, base=committed.base, end=committed.end
    )
