"""PushTelemetry, API key 72, versions 0-0: a client's own metrics, as OTLP (KIP-714).

Behaviour   added up over all clients, by metric and client software, into /metrics; metrics that were not asked for,
            and those beyond kafka.client_metrics_series, are left out
            another subscription than the current one: UNKNOWN_SUBSCRIPTION_ID; too early: THROTTLING_QUOTA_EXCEEDED;
            an unknown compression: UNSUPPORTED_COMPRESSION_TYPE; more than 1 MiB, also once it is decompressed:
            TELEMETRY_TOO_LARGE; damaged: INVALID_RECORD; without an id, or again after the last push: INVALID_REQUEST
            read in a thread where it is compressed or large, one at a time
Left out    attributes, such as the topic or the node; histograms; cumulative sums, which agents don't request
Versions    v0 flexible
"""

import asyncio
from typing import Final

from streamhouse.errors import BatchTooLarge, CorruptBatch, InvalidRecord, UnsupportedCompression
from streamhouse.format.batch import Buffer
from streamhouse.format.compression import Codec
from streamhouse.format.decompression import decompress
from streamhouse.model.needs import LOGGED_IN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.client_metrics import ClientMetrics, PushedSums
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.handlers.get_telemetry_subscriptions import NO_ID
from streamhouse.wire.kafka.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from streamhouse.wire.kafka.otlp_metrics import MAX_BYTES, read_points

INLINE_BYTES: Final = 4096


@handles(PushTelemetryRequest, (0, 0), needs=LOGGED_IN)
async def handle(context: Context, request: PushTelemetryRequest) -> HandlerResult:
    code = await _push(context, request)
    return PushTelemetryResponse(error_code=code if code is ErrorCode.NONE else context.count_error(code))


async def _push(context: Context, request: PushTelemetryRequest) -> ErrorCode:
    clients, client_id = context.metrics.clients, request.client_instance_id
    if not clients.is_on:
        return ErrorCode.UNSUPPORTED_VERSION
    if client_id == NO_ID:
        return ErrorCode.INVALID_REQUEST
    code = clients.admit(client_id, subscription_id=request.subscription_id, is_last=request.terminating)
    if code is not ErrorCode.NONE:
        return code
    try:
        sums = await _read(clients, request.compression_type, request.metrics)
    except UnsupportedCompression:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    except BatchTooLarge:
        code = ErrorCode.TELEMETRY_TOO_LARGE
    except (CorruptBatch, InvalidRecord):
        code = ErrorCode.INVALID_RECORD
    else:
        clients.add(sums, software=context.software.name)
        return ErrorCode.NONE
    clients.refused(client_id, code)
    return code


async def _read(clients: ClientMetrics, codec: int, data: Buffer) -> PushedSums:
    if len(data) > MAX_BYTES:
        raise BatchTooLarge(MAX_BYTES)
    if codec == Codec.NONE and len(data) <= INLINE_BYTES:
        return clients.summarize(read_points(data))
    async with clients.reading:
        return await asyncio.to_thread(_decompress_and_read, clients, codec, data)


def _decompress_and_read(clients: ClientMetrics, codec: int, data: Buffer) -> PushedSums:
    return clients.summarize(read_points(decompress(codec, data, limit_bytes=MAX_BYTES)))
