"""App: the routes of the HTTP port.

Data path   HTTP -> **app** -> broker
Owns        which paths exist
Leaves      sockets to `server`, promises to the broker, error bodies to `errors`
"""

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamhouse.broker.broker import Broker
from streamhouse.errors import Rejected, StreamhouseError

from .errors import on_error

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    reason: str | None = None


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


def make_app(broker: Broker, registry: CollectorRegistry) -> Starlette:
    async def live(_: Request) -> Response:
        return _json(Health(status="live"))

    async def ready(_: Request) -> Response:
        reason = broker.not_ready()
        return _json(Health(status="not ready" if reason else "ready", reason=reason), status=503 if reason else 200)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def segments(request: Request) -> Response:
        limit = _limit(request.query_params.get("limit"))
        name = request.query_params.get("topic")
        topics = [await broker.topic(name)] if name else await broker.topics()
        found = [
            SegmentView(
                topic=topic.name,
                partition=run.partition.partition,
                base=run.base,
                end=run.end,
                records=run.records,
                bytes=run.length,
                max_timestamp_ms=run.max_timestamp_ms,
                epoch=run.epoch,
                object=run.object_key,
            )
            for topic in topics
            for run in await broker.runs(topic, limit=limit)
        ]
        return _json(Segments(segments=found))

    return Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", ready),
            Route("/metrics", metrics),
            Route("/v1/segments", segments),
        ],
        exception_handlers={StreamhouseError: on_error},
    )


def _json(body: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdecimal() and len(text) < 10) or not 1 <= int(text) <= MAX_LIMIT:
        raise Rejected(f"limit is out of range; limit={text} allowed=1 to {MAX_LIMIT}")
    return int(text)
