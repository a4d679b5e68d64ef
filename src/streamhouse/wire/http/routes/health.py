"""Health and metrics, for whoever starts agents and whoever watches them."""

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamhouse.broker.broker import Broker
from streamhouse.wire.http.exchange import json_answer


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    reason: str | None = None


def routes(broker: Broker, registry: CollectorRegistry) -> list[Route]:
    async def live(_: Request) -> Response:
        return json_answer(Health(status="live"))

    async def ready(_: Request) -> Response:
        reason = broker.not_ready()
        status = 503 if reason else 200
        return json_answer(Health(status="not ready" if reason else "ready", reason=reason), status=status)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/health/live", live), Route("/health/ready", ready), Route("/metrics", metrics)]
