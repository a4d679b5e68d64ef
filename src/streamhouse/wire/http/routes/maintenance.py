"""Maintenance: requests of jobs outside of agents that rewrite the runs of a topic.

POST /v1/maintenance/plan  {"topic": "orders"}: all runs of all partitions, and the effective settings
POST /v1/replacements      {"topic", "topic_id", "partition", "expected": [{"key", "base", "end", "epoch"}], "segment":
                           {"key", "size_bytes", "created_at_ms", "runs": […]}, "cleaned_to", "spent"}

If a plan has `next`, send it as `cursor` to get the rest. A replacement names the runs to remove, as in the plan, and
the new object; 409 means that the runs have changed since, and nothing was replaced.
"""

import asyncio
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.maintenance.jobs import PartitionMaintenance
from streamhouse.broker.maintenance.run_replacement import ExpectedRun, RunReplacementRequest
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.names import Epoch, PartitionId, TopicId, TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic import topic_values
from streamhouse.wire.http.elements import Element
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
"""Maximum runs of one request."""

Number = Annotated[int, Meta(ge=0, le=MAX_LONG)]
EpochNumber = Annotated[int, Meta(ge=0, le=MAX_INT)]
Partition = Annotated[int, Meta(ge=0, le=MAX_INT)]
TopicName = Annotated[str, Meta(min_length=1, max_length=249)]
Key = Annotated[str, Meta(min_length=1, max_length=200)]


class MaintenanceQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: TopicName
    cursor: Cursor | None = None


class PartitionUpkeepView(msgspec.Struct, frozen=True, kw_only=True):
    """The partition is compacted below `cleaned_to` and flushed below `flushed_end`. From `settled_end` on there may be
    open transactions; `aborted` are the aborted ones below."""

    partition: int
    log_start: int
    flushed_end: int
    settled_end: int
    cleaned_to: int
    runs: list[RunView]
    aborted: list[AbortedView]


class MaintenancePlanView(msgspec.Struct, frozen=True, kw_only=True):
    """`store` is the URL of the object store, without credentials. Objects are kept for at least `grace_s`. `now_ms` is
    the earlier of the metadata store's clock and the agent's; jobs must use it, not their own clock, to decide what is
    old."""

    store: str
    grace_s: float
    now_ms: int
    topic: str
    topic_id: str
    effective_settings: dict[str, str]
    partitions: list[PartitionUpkeepView]
    next: str | None


class RunToReplace(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to remove, as in the plan."""

    key: Key
    base: Number
    end: Number
    epoch: EpochNumber


class ReplacingRun(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new run, as in the directory of its segment; offsets are those of the partition."""

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
    """An object in the object store with the key `placed/UUID/NUMBER/UNIQUE` and one run for each epoch."""

    key: Key
    size_bytes: Number
    created_at_ms: Number
    runs: list[ReplacingRun]


class ReplacementRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `cleaned_to` the partition counts as compacted up to that offset; this needs no `segment`. `spent` are
    offsets of markers of aborted transactions without remaining records, which are forgotten."""

    topic: TopicName
    topic_id: Annotated[str, Meta(pattern=QUERY_PATTERN, description="as the plan has it")]
    partition: Partition
    expected: list[RunToReplace] = []
    segment: ReplacingSegment | None = None
    cleaned_to: Number | None = None
    spent: Annotated[list[Number], Meta(max_length=MAX_SPENT)] = []


class ReplacementView(msgspec.Struct, frozen=True, kw_only=True):
    """The number of removed runs."""

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
        request = await asyncio.to_thread(_replacement_request, call.body)
        return json_response(ReplacementView(replaced=await broker.maintenance.replacements.replace(request)))

    return [
        Operation(
            method="POST",
            path="/v1/maintenance/plan",
            handler=plan_maintenance,
            needs=needs(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
            summary="All runs of a topic, for maintenance jobs",
            about="Any agent responds, from metadata alone.",
            tag=TAG,
            query=NoQuery,
            body=MaintenanceQuestion,
            response=MaintenancePlanView,
            problems=(404,),
        ),
        Operation(
            method="POST",
            path="/v1/replacements",
            handler=replace_runs,
            needs=needs(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
            summary="Replace runs by a rewritten segment",
            about="It covers the same offsets, each under its epoch. Asked for again it is answered the same; 409: the"
            " runs are others by now, and nothing happened. Any agent does it.",
            tag=TAG,
            query=NoQuery,
            body=ReplacementRequest,
            response=ReplacementView,
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


def _replacement_request(request: ReplacementRequest) -> RunReplacementRequest:
    topic_id = TopicId(UUID(request.topic_id))
    partition = PartitionId(topic_id, request.partition)
    return RunReplacementRequest(
        name=TopicPartition(request.topic, request.partition),
        topic_id=topic_id,
        expected=[
            ExpectedRun(object_key=run.key, base=run.base, end=run.end, epoch=run.epoch) for run in request.expected
        ],
        commit=None if request.segment is None else _commit(request.segment, partition),
        cleaned_to=request.cleaned_to,
        spent=request.spent,
    )


def _commit(request: ReplacingSegment, partition: PartitionId) -> SegmentCommit:
    segment = SegmentObject(key=request.key, size_bytes=request.size_bytes, created_at_ms=request.created_at_ms)
    return SegmentCommit(segment=segment, runs=tuple(_run(run, partition, request.key) for run in request.runs))


def _run(request: ReplacingRun, partition: PartitionId, key: str) -> Run:
    return Run(
        partition=partition,
        base=request.base,
        end=request.end,
        stored_base=request.base,
        epoch=Epoch(request.epoch),
        object_key=key,
        position=request.position,
        length=request.length,
        index_position=request.index_position,
        index_length=request.index_length,
        records=request.records,
        max_timestamp_ms=request.max_timestamp_ms,
    )
