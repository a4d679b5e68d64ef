"""GetTelemetrySubscriptions, API key 71, versions 0-0: which metrics a client should push, and how often (KIP-714).

Behaviour   the prefixes of kafka.client_metrics, for all clients; where it is empty the API is not in ApiVersions, and
            a request is UNSUPPORTED_VERSION
            a client without an id gets one
            more than one request in an interval is THROTTLING_QUOTA_EXCEEDED, unless the last push was an unknown
            subscription or compression
            increases are asked for (delta temporality), compressed by zstd, lz4, gzip, snappy or not at all
Left out    subscriptions by client (client metrics of IncrementalAlterConfigs)
Versions    v0 flexible
"""

from typing import Final
from uuid import UUID

from streamhouse.format.compression import Codec
from streamhouse.model.needs import LOGGED_IN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from streamhouse.wire.kafka.otlp_metrics import MAX_BYTES

NO_ID: Final = UUID(int=0)
COMPRESSION: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In the order of preference. Kafka's clients may always push without compression."""


@handles(GetTelemetrySubscriptionsRequest, (0, 0), needs=LOGGED_IN)
async def handle(context: Context, request: GetTelemetrySubscriptionsRequest) -> HandlerResult:
    clients = context.metrics.clients
    if not clients.is_on:
        return GetTelemetrySubscriptionsResponse(error_code=context.count_error(ErrorCode.UNSUPPORTED_VERSION))
    client_id = request.client_instance_id if request.client_instance_id != NO_ID else clients.new_id()
    code = clients.ask(client_id)
    if code is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=context.count_error(code))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_id,
        subscription_id=clients.subscription_id,
        accepted_compression_types=list(COMPRESSION),
        push_interval_ms=int(clients.interval_s * 1000),
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
        requested_metrics=list(clients.prefixes),
    )
