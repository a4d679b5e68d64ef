"""Commits: segments that others wrote become part of topics, all at once; what Spark's sink calls.

POST /v1/commits          {"query": UUID, "epoch": 12, "progress": …, "segments": [{"key": …, "runs": [{"topic": …}]}]}
                          "fence": {"pipeline": …, "epoch": 3}: refused once another supervisor runs the pipeline
GET  /v1/commits/{query}  the last one: {"epoch": 12, "progress": …, "placed": […]}

The same query and epoch again is answered as the first time, with `replayed`, and nothing is stored twice. Consumers
see a commit's records when it is answered, not before. With `covers`, what it is made of, an epoch that happened and
was made of something else is refused (409).
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.external_commits.commit_request import ExternalCommitRequest, RunRequest, SegmentRequest
from streamhouse.model.external_commit import CommittedRange, QueryId, StoredCommit
from streamhouse.model.names import TopicPartition
from streamhouse.model.pipeline import Fence, PipelineName
from streamhouse.model.replay import MAX_COVERS
from streamhouse.model.segment import SegmentObject
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

TAG: Final = "commits"

Number = Annotated[int, Meta(ge=0, le=MAX_LONG)]
Covers = Annotated[str, Meta(max_length=MAX_COVERS)]
Query = Annotated[str, Meta(pattern=QUERY_PATTERN, description="a UUID of the query's own")]


class RunToPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a partition's records stand in a segment, as its directory says; offsets [stored_base, stored_end)."""

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


class SegmentToPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object that is in the store, named `placed/QUERY/EPOCH/UNIQUE`."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]
    size_bytes: Number
    created_at_ms: Number
    runs: list[RunToPlace]


class FenceView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Under which ownership of a pipeline the segments were written."""

    pipeline: Annotated[str, Meta(pattern=PIPELINE_PATTERN)]
    epoch: Number


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`progress` is kept for the query, together with what is placed or not at all. With a `fence`, nothing is placed
    for a supervisor that no longer owns the pipeline. `covers`: what it is made of, such as the source's offsets; the
    same epoch with another one is refused."""

    query: Query
    epoch: Number
    progress: Any = None
    segments: list[SegmentToPlace]
    fence: FenceView | None = None
    covers: Covers | None = None


class PlacedView(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets [base, end) that a partition got."""

    topic: str
    partition: int
    base: int
    end: int


class CommitView(msgspec.Struct, frozen=True, kw_only=True):
    """`replayed`: it had happened before."""

    placed: list[PlacedView]
    replayed: bool


class LastCommit(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    progress: Any
    placed: list[PlacedView]
    covers: str | None = None


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def place_segments(call: Call[NoQuery, CommitRequest]) -> Response:
        done = await broker.commits.commit(_commit_request(call.body))
        return json_response(CommitView(placed=_placed(done), replayed=done.is_replayed))

    async def get_last_commit(call: Call[NoQuery, None]) -> Response:
        last = await broker.commits.last(QueryId(str(call.path["query"])))
        progress = None if last.progress is None else msgspec.json.decode(last.progress)
        return json_response(LastCommit(epoch=last.epoch, progress=progress, placed=_placed(last), covers=last.covers))

    return [
        Operation(
            method="POST",
            path="/v1/commits",
            handler=place_segments,
            summary="Place segments in topics, all or none",
            about="Epochs of a query only grow; one that happened is answered again. Any agent coordinates.",
            tag=TAG,
            query=NoQuery,
            body=CommitRequest,
            answer=CommitView,
            problems=(404, 409),
        ),
        Operation(
            method="GET",
            path="/v1/commits/{query}",
            handler=get_last_commit,
            summary="The last commit of a query",
            tag=TAG,
            query=NoQuery,
            answer=LastCommit,
            problems=(404,),
        ),
    ]


def _commit_request(asked: CommitRequest) -> ExternalCommitRequest:
    return ExternalCommitRequest(
        query=QueryId(asked.query),
        epoch=asked.epoch,
        progress=None if asked.progress is None else msgspec.json.encode(asked.progress).decode(),
        segments=tuple(map(_segment, asked.segments)),
        fence=None
        if asked.fence is None
        else Fence(pipeline=PipelineName(asked.fence.pipeline), epoch=asked.fence.epoch),
        covers=asked.covers,
    )


def _segment(asked: SegmentToPlace) -> SegmentRequest:
    segment = SegmentObject(key=asked.key, size_bytes=asked.size_bytes, created_at_ms=asked.created_at_ms)
    return SegmentRequest(segment=segment, runs=tuple(map(_run, asked.runs)))


def _run(asked: RunToPlace) -> RunRequest:
    return RunRequest(
        name=TopicPartition(asked.topic, asked.partition),
        records=asked.records,
        stored_base=asked.stored_base,
        stored_end=asked.stored_end,
        position=asked.position,
        length=asked.length,
        index_position=asked.index_position,
        index_length=asked.index_length,
        max_timestamp_ms=asked.max_timestamp_ms,
    )


def _placed(done: StoredCommit) -> list[PlacedView]:
    return [_view(each) for each in done.placed]


def _view(placed: CommittedRange) -> PlacedView:
    return PlacedView(topic=placed.topic, partition=placed.partition.partition, base=placed.base, end=placed.end)
