"""Maintenance: what jobs outside the agents need to rewrite the runs of a topic.

POST /v1/maintenance/plan  {"topic": "orders"}: every run of every partition, and the settings in force
POST /v1/replacements      {"topic", "topic_id", "partition", "expected": [{"key", "base", "end", "epoch"}], "segment":
                           {"key", "size_bytes", "created_at_ms", "runs": […]}, "cleaned_to", "spent"}

`next` of a plan is given back as `cursor` for what one answer had no room for. A replacement names the runs that go, as
the plan had them, and the object that comes; 409 says that others stand there by now, and nothing happened.
"""

from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.maintenance.jobs import PartitionMaintenance
from streamhouse.broker.maintenance.run_replacement import ExpectedRun, RunReplacementRequest
from streamhouse.model.names import Epoch, PartitionId, TopicId, TopicPartition
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic import topic_values
from streamhouse.wire.http.operations import MAX_INT, MAX_LONG, QUERY_PATTERN, Call, NoQuery, Operation, json_response
from streamhouse.wire.http.routes.read_plans import (
    AbortedView,
    Cursor,
    RunView,
    aborted_views,
    read_run_cursor,
    run_view,
    write_run_cursor,
)

TAG: Final = "maintenance"
MAX_SPENT: Final = 10_000
"""Of one request."""

Number = Annotated[int, Meta(ge=0, le=MAX_LONG)]
EpochNumber = Annotated[int, Meta(ge=0, le=MAX_INT)]
Partition = Annotated[int, Meta(ge=0, le=MAX_INT)]
TopicName = Annotated[str, Meta(min_length=1, max_length=249)]
Key = Annotated[str, Meta(min_length=1, max_length=200)]


class MaintenanceQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: TopicName
    cursor: Cursor | None = None


class PartitionUpkeepView(msgspec.Struct, frozen=True, kw_only=True):
    """Below `cleaned_to` the partition was compacted; runs reach up to `flushed_end`. From `settled_end` on there may
    be open transactions; of those that ended below, these were `aborted`."""

    partition: int
    log_start: int
    flushed_end: int
    settled_end: int
    cleaned_to: int
    runs: list[RunView]
    aborted: list[AbortedView]


class MaintenancePlanView(msgspec.Struct, frozen=True, kw_only=True):
    """`store` names the object store, without credentials. Objects stay for `grace_s` at least, whatever happens.
    `now_ms` is the time by the metadata store's clock and the agent's, whichever is earlier: what is old by a job's own
    clock alone must stay."""

    store: str
    grace_s: float
    now_ms: int
    topic: str
    topic_id: str
    effective_settings: dict[str, str]
    partitions: list[PartitionUpkeepView]
    next: str | None


class RunToReplace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that goes, as the plan had it."""

    key: Key
    base: Number
    end: Number
    epoch: EpochNumber


class ReplacingRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that comes, as its segment's directory says; its offsets are those that it has in the partition."""

    base: Number
    end: Number
    epoch: EpochNumber
    position: Number
    length: Number
    index_position: Number
    index_length: Number
    records: Number
    max_timestamp_ms: Annotated[int, Meta(ge=-MAX_LONG, le=MAX_LONG)]


class ReplacingSegment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object that is in the store, named `placed/UUID/NUMBER/UNIQUE`, with one run for each epoch."""

    key: Key
    size_bytes: Number
    created_at_ms: Number
    runs: list[ReplacingRun]


class ReplacementRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `cleaned_to` the partition counts as compacted up to there; a `segment` isn't needed for that alone. At the
    offsets `spent` stand markers of aborted transactions of which nothing else is left: nobody is told of them any
    more."""

    topic: TopicName
    topic_id: Annotated[str, Meta(pattern=QUERY_PATTERN, description="as the plan has it")]
    partition: Partition
    expected: list[RunToReplace] = []
    segment: ReplacingSegment | None = None
    cleaned_to: Number | None = None
    spent: Annotated[list[Number], Meta(max_length=MAX_SPENT)] = []


class ReplacementView(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs went."""

    replaced: int


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def plan_maintenance(call: Call[NoQuery, MaintenanceQuestion]) -> Response:
        plan = await broker.maintenance.plans.plan(call.body.topic, begin=read_run_cursor(call.body.cursor))
        return json_response(
            MaintenancePlanView(
                store=broker.plans.store_url,
                grace_s=broker.plans.grace_s,
                now_ms=plan.now_ms,
                topic=plan.topic.name,
                topic_id=str(plan.topic.topic_id),
                effective_settings=dict(topic_values(plan.topic.overrides, broker.catalog.dynamic.topic_defaults)),
                partitions=[_view(each) for each in plan.partitions],
                next=write_run_cursor(plan.next),
            )
        )

    async def replace_runs(call: Call[NoQuery, ReplacementRequest]) -> Response:
        return json_response(
            ReplacementView(replaced=await broker.maintenance.replacements.replace(_replacement_request(call.body)))
        )

    return [
        Operation(
            method="POST",
            path="/v1/maintenance/plan",
            handler=plan_maintenance,
            summary="Every run of a topic, for jobs that rewrite them",
            about="Any agent answers, from rows alone.",
            tag=TAG,
            query=NoQuery,
            body=MaintenanceQuestion,
            answer=MaintenancePlanView,
            problems=(404,),
        ),
        Operation(
            method="POST",
            path="/v1/replacements",
            handler=replace_runs,
            summary="Put a rewritten segment in the place of runs",
            about="It covers the same offsets, each under its epoch. Asked for again it is answered the same; 409: the"
            " runs are others by now, and nothing happened. Any agent does it.",
            tag=TAG,
            query=NoQuery,
            body=ReplacementRequest,
            answer=ReplacementView,
            problems=(404, 409),
        ),
    ]


def _view(maintenance: PartitionMaintenance) -> PartitionUpkeepView:
    plan = maintenance.plan
    return PartitionUpkeepView(
        partition=plan.name.partition,
        log_start=plan.log_start,
        flushed_end=plan.flushed_end,
        settled_end=plan.settled_end,
        cleaned_to=maintenance.cleaned_to,
        runs=[run_view(run) for run in plan.runs],
        aborted=aborted_views(plan.aborted),
    )


def _replacement_request(asked: ReplacementRequest) -> RunReplacementRequest:
    topic_id = TopicId(UUID(asked.topic_id))
    partition = PartitionId(topic_id, asked.partition)
    return RunReplacementRequest(
        name=TopicPartition(asked.topic, asked.partition),
        topic_id=topic_id,
        expected=[
            ExpectedRun(object_key=run.key, base=run.base, end=run.end, epoch=run.epoch) for run in asked.expected
        ],
        commit=None if asked.segment is None else _commit(asked.segment, partition),
        cleaned_to=asked.cleaned_to,
        spent=asked.spent,
    )


def _commit(asked: ReplacingSegment, partition: PartitionId) -> SegmentCommit:
    segment = SegmentObject(key=asked.key, size_bytes=asked.size_bytes, created_at_ms=asked.created_at_ms)
    return SegmentCommit(segment=segment, runs=tuple(_run(run, partition, asked.key) for run in asked.runs))


def _run(asked: ReplacingRun, partition: PartitionId, key: str) -> Run:
    return Run(
        partition=partition,
        base=asked.base,
        end=asked.end,
        stored_base=asked.base,
        epoch=Epoch(asked.epoch),
        object_key=key,
        position=asked.position,
        length=asked.length,
        index_position=asked.index_position,
        index_length=asked.index_length,
        records=asked.records,
        max_timestamp_ms=asked.max_timestamp_ms,
    )
