"""Tracing: spans of what the agent did for a client's trace, sent to a collector by OTLP/HTTP.

Owns        W3C's `traceparent`, sampling, the bounded queue of spans, OTLP as JSON
Leaves      which requests and records have spans to the wires and the broker

Without `tracing.endpoint` there is no tracer, and no span is made.
"""

from streamhouse.tracing.exporter import SpanExporter
from streamhouse.tracing.span import HEADER, Span, SpanContext, SpanKind, parse_traceparent
from streamhouse.tracing.tracer import Tracer, active_span, current_context

__all__ = [
    "HEADER",
    "Span",
    "SpanContext",
    "SpanExporter",
    "SpanKind",
    "Tracer",
    "active_span",
    "current_context",
    "parse_traceparent",
]
