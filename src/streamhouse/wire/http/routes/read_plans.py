"""Read plans: where records are in the object store, for readers that fetch them there; and offsets by time.

POST /v1/read-plans              {"topics": [{"topic": "orders", "partitions": [{"partition": 0, "from": 1, "to": 9}]}]}
POST /v1/signed-reads            {"topic": "orders", "partition": 0, "offset": 1, "key": …, "start": 0, "end": 4096}
GET  /v1/topics/{topic}/offsets  ?timestamp=1700000000000: the first record of that time or later, by partition

Without `partitions` a plan covers all partitions of a topic, without `to` all records. If a response has `next`, send
it as `cursor` to get the rest. Plans end at the last stable offset. Records below `settled_end` are in segments, except
for those of the listed aborted transactions and for markers; the leader has the others (`GET …/batches`).

A signed read is a URL that gives a range of an object, within the run with that offset, to whoever has it; readers
without credentials of the store ask for one before each read. 409: the run is elsewhere by now, plan again.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch.read_plans import ObjectRange, OffsetRange, PartitionPlan, RunCursor
from streamhouse.errors import InvalidPartitions, UnknownTopic
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.segment import Run
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.operations import MAX_INT, MAX_LONG, Call, NoQuery, Operation, json_response

MAX_CURSOR: Final = 300

Cursor = Annotated[str, Meta(max_length=MAX_CURSOR, description="where the answer before stopped, as it says itself")]


def write_run_cursor(at: RunCursor | None) -> str | None:
    return None if at is None else f"{at.name.topic}:{at.name.partition}:{at.offset}"


def read_run_cursor(text: str | None) -> RunCursor | None:
    if text is None:
        return None
    match text.split(":"):
        case [topic, partition, offset] if _is_number(partition) and _is_number(offset):
            return RunCursor(TopicPartition(topic, int(partition)), int(offset))
    raise Unprocessable("invalid cursor; use one from an earlier response")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_LONG)) and int(text) <= MAX_LONG


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [base, end) of a partition under one epoch, in `length` bytes of an object at `position`. Offsets in the
    object begin at `stored_base`: add `base - stored_base` to each."""

    key: str
    base: int
    end: int
    epoch: int
    stored_base: int
    position: int
    length: int
    index_position: int
    index_length: int
    records: int
    max_timestamp_ms: int


def run_view(run: Run) -> RunView:
    return RunView(
        key=run.object_key,
        base=run.base,
        end=run.end,
        epoch=run.epoch,
        stored_base=run.stored_base,
        position=run.position,
        length=run.length,
        index_position=run.index_position,
        index_length=run.index_length,
        records=run.records,
        max_timestamp_ms=run.max_timestamp_ms,
    )


class AbortedView(msgspec.Struct, frozen=True, kw_only=True):
    """An aborted transaction: transactional records of its producer from `first_offset` to the marker at `last_offset`
    must be skipped."""

    producer_id: int
    first_offset: int
    last_offset: int


def aborted_views(aborted: Iterable[AbortedTransaction]) -> list[AbortedView]:
    return [AbortedView(producer_id=each[0], first_offset=each[1], last_offset=each[2]) for each in aborted]


TAG: Final = "plans"
REQUESTS_AT_ONCE: Final = 16
"""Concurrent lookups by time; each may read from the object store."""

Offset = Annotated[int, Meta(ge=0, le=MAX_LONG)]


class WantedPartition(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Offsets from `from` up to, not including, `to`; null: to the end."""

    partition: Annotated[int, Meta(ge=0, le=MAX_INT)]
    start: Offset = msgspec.field(name="from", default=0)
    end: Offset | None = msgspec.field(name="to", default=None)


class WantedTopic(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to read; without `partitions` all of them."""

    topic: Annotated[str, Meta(min_length=1, max_length=249)]
    partitions: list[WantedPartition] | None = None


class ReadPlanQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topics: list[WantedTopic]
    cursor: Cursor | None = None


class PartitionPlanView(msgspec.Struct, frozen=True, kw_only=True):
    """`end` is the last stable offset, or `settled_end` for partitions that are read only up to there. Below
    `settled_end`, which is at most `flushed_end`, `runs` contain all records; those of `aborted` transactions must be
    skipped."""

    topic: str
    topic_id: str
    partition: int
    log_start: int
    end: int
    flushed_end: int
    settled_end: int
    runs: list[RunView]
    aborted: list[AbortedView]


class ReadPlanView(msgspec.Struct, frozen=True, kw_only=True):
    """`store` is the URL of the object store, without credentials. Objects are kept for at least `grace_s`.
    `max_commit_runs` is the maximum number of runs of one `POST /v1/commits`. `can_sign`: `POST /v1/signed-reads` gives
    URLs to those who have no credentials."""

    store: str
    grace_s: float
    max_commit_runs: int
    can_sign: bool
    partitions: list[PartitionPlanView]
    next: str | None


class ReadToSign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes [start, end) of the object `key`, which a plan names for the run that has `offset`."""

    topic: Annotated[str, Meta(min_length=1, max_length=249)]
    partition: Annotated[int, Meta(ge=0, le=MAX_INT)]
    offset: Offset
    key: Annotated[str, Meta(min_length=1, max_length=200)]
    start: Offset
    end: Offset


class SignedReadView(msgspec.Struct, frozen=True, kw_only=True):
    """A GET of `url` with exactly these `headers`, for `expires_s` from now on."""

    url: str
    headers: dict[str, str]
    expires_s: float


class OffsetsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timestamp: Annotated[int, Meta(ge=0, le=MAX_LONG, description="milliseconds since 1970")]
    partition: Annotated[int, Meta(ge=0, le=MAX_INT, description="only of this partition")] | None = None


class OffsetAtTime(msgspec.Struct, frozen=True, kw_only=True):
    """The offset of the first record with that time or a later one; null if there is none."""

    partition: int
    offset: int | None
    timestamp_ms: int | None


class OffsetsAtTime(msgspec.Struct, frozen=True, kw_only=True):
    offsets: list[OffsetAtTime]


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def plan_reading(call: Call[NoQuery, ReadPlanQuestion]) -> Response:
        topics = (each.topic for each in call.body.topics)
        call.access.require_each(AclOperation.READ, ResourceType.TOPIC, topics)
        spans = await _spans(broker, call.body.topics)
        plan = await broker.plans.plan(spans, begin=read_run_cursor(call.body.cursor))
        return json_response(
            ReadPlanView(
                store=broker.plans.store_url,
                grace_s=broker.plans.grace_s,
                max_commit_runs=broker.plans.max_commit_runs,
                can_sign=broker.plans.can_sign,
                partitions=[_view(each) for each in plan.partitions],
                next=write_run_cursor(plan.next),
            )
        )

    async def sign_read(call: Call[NoQuery, ReadToSign]) -> Response:
        body = call.body
        call.access.require_topic(AclOperation.READ, body.topic)
        signed = await broker.plans.sign(
            TopicPartition(body.topic, body.partition), ObjectRange(body.key, body.offset, body.start, body.end)
        )
        call.access.recheck()  # a signed URL can't be revoked
        return json_response(
            SignedReadView(url=signed.url, headers=dict(signed.headers), expires_s=broker.settings.plans.signed_read_s)
        )

    async def offsets_at_time(call: Call[OffsetsQuery, None]) -> Response:
        topic = await broker.topic(call.topic)
        only = call.query.partition
        if only is not None and only >= topic.partitions:
            raise UnknownTopic(TopicPartition(topic.name, only))
        asking = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def look_up(partition: int) -> OffsetAtTime:
            async with asking:
                offset = await broker.records.at_time(TopicPartition(topic.name, partition), call.query.timestamp)
            if offset is None:
                return OffsetAtTime(partition=partition, offset=None, timestamp_ms=None)
            return OffsetAtTime(partition=partition, offset=offset.offset, timestamp_ms=offset.timestamp_ms)

        try:
            async with asyncio.TaskGroup() as tasks:
                partitions = range(topic.partitions) if only is None else [only]
                lookups = [tasks.create_task(look_up(partition)) for partition in partitions]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return json_response(OffsetsAtTime(offsets=[each.result() for each in lookups]))

    return [
        Operation(
            method="POST",
            path="/v1/read-plans",
            handler=plan_reading,
            needs=needs(AclOperation.READ, ResourceType.TOPIC),
            summary="Locations of records in the object store",
            about="For readers that fetch segments themselves. Any agent responds.",
            tag=TAG,
            query=NoQuery,
            body=ReadPlanQuestion,
            response=ReadPlanView,
            problems=(404,),
        ),
        Operation(
            method="POST",
            path="/v1/signed-reads",
            handler=sign_read,
            needs=needs(AclOperation.READ, ResourceType.TOPIC),
            summary="A URL with which a range of a segment can be read",
            about="For readers without credentials of the store. The range is within a run of the topic; the URL gives"
            " nothing else. Any agent answers.",
            tag=TAG,
            query=NoQuery,
            body=ReadToSign,
            response=SignedReadView,
            problems=(404, 409),
        ),
        Operation(
            method="GET",
            path="/v1/topics/{topic}/offsets",
            handler=offsets_at_time,
            needs=needs(AclOperation.DESCRIBE, ResourceType.TOPIC, "topic"),
            summary="First offset at or after a time, by partition",
            tag=TAG,
            query=OffsetsQuery,
            response=OffsetsAtTime,
            problems=(404,),
        ),
    ]


async def _spans(broker: Broker, requested: list[WantedTopic]) -> list[OffsetRange]:
    spans: list[OffsetRange] = []
    left: dict[str, int] = {}
    async for each in iterate_fairly(requested):
        topic = await broker.topic(each.topic)
        count = topic.partitions if each.partitions is None else len(each.partitions)
        left[topic.name] = left.get(topic.name, topic.partitions) - count
        if left[topic.name] < 0:  # a few bytes for each topic could ask for millions of partitions
            raise InvalidPartitions(f"a partition is requested twice, or isn't there; topic={topic.name}")
        if each.partitions is None:
            spans += [OffsetRange(TopicPartition(topic.name, number)) for number in range(topic.partitions)]
        else:
            spans += [
                OffsetRange(TopicPartition(topic.name, one.partition), one.start, one.end) for one in each.partitions
            ]
    return spans


def _view(plan: PartitionPlan) -> PartitionPlanView:
    return PartitionPlanView(
        topic=plan.name.topic,
        topic_id=str(plan.partition.topic_id),
        partition=plan.name.partition,
        log_start=plan.log_start,
        end=plan.end,
        flushed_end=plan.flushed_end,
        settled_end=plan.settled_end,
        runs=[run_view(run) for run in plan.runs],
        aborted=aborted_views(plan.aborted),
    )
