"""Segments: which runs of partitions are registered, and in which objects.

GET /v1/segments?topic=…&limit=…    at most `limit` runs of each partition
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamhouse.broker.broker import Broker
from streamhouse.model.segment import Run
from streamhouse.wire.http.exchange import json_answer, read_limit


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


def routes(broker: Broker) -> list[Route]:
    async def segments(request: Request) -> Response:
        limit = read_limit(request)
        name = request.query_params.get("topic")
        topics = [await broker.topic(name)] if name else await broker.topics()
        found = [_view(topic.name, run) for topic in topics for run in await broker.runs(topic, limit=limit)]
        return json_answer(Segments(segments=found))

    return [Route("/v1/segments", segments)]


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
