"""Health checks and metrics."""

from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import OPEN, needs
from streamhouse.wire.http.operations import Call, Media, NoQuery, Operation, json_response

OPEN_METRICS: Final = "application/openmetrics-text"


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    reason: str | None = None


def operations(broker: Broker, registry: CollectorRegistry) -> list[Operation[Any, Any]]:
    async def live(_: Call[NoQuery, None]) -> Response:
        return json_response(Health(status="live"))

    async def ready(_: Call[NoQuery, None]) -> Response:
        reason = broker.not_ready()
        status = 503 if reason else 200
        return json_response(Health(status="not ready" if reason else "ready", reason=reason), status=status)

    async def metrics(call: Call[NoQuery, None]) -> Response:
        if call.accepted == OPEN_METRICS:
            body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
            return Response(body, media_type=openmetrics.CONTENT_TYPE_LATEST)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return [
        Operation(
            method="GET",
            path="/health/live",
            handler=live,
            needs=OPEN,
            summary="Liveness of the process",
            tag="health",
            query=NoQuery,
            response=Health,
        ),
        Operation(
            method="GET",
            path="/health/ready",
            handler=ready,
            needs=OPEN,
            summary="Readiness of the agent for traffic",
            tag="health",
            query=NoQuery,
            response=Health,
            other_statuses={503: Health},
        ),
        Operation(
            method="GET",
            path="/metrics",
            handler=metrics,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="Metrics in Prometheus format",
            tag="health",
            query=NoQuery,
            other_responses=[
                Media(type="text/plain", about="the text format of Prometheus"),
                Media(type=OPEN_METRICS, about="the same with exemplars, the traces of slow requests"),
            ],
        ),
    ]
