"""OTLP as JSON: the body of `POST /v1/traces` of a collector (opentelemetry-proto, ExportTraceServiceRequest)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from streamhouse.tracing.span import Attribute, Span, attributes_of

SCOPE: Final = "streamhouse"
ERROR: Final = 2
"""The status code of a span that failed."""


def encode_spans(spans: Iterable[Span], resource: Mapping[str, Attribute]) -> bytes:
    body = {
        "resourceSpans": [
            {
                "resource": {"attributes": _pairs(resource)},
                "scopeSpans": [{"scope": {"name": SCOPE}, "spans": [_span(each) for each in spans]}],
            }
        ]
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _span(span: Span) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _pairs(attributes_of(span)),
    }
    if span.parent_id:
        encoded["parentSpanId"] = span.parent_id
    if span.links:
        encoded["links"] = [{"traceId": each.trace_id, "spanId": each.span_id} for each in span.links]
    if span.error:
        encoded["status"] = {"code": ERROR, "message": span.error}
    return encoded


def _pairs(attributes: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
