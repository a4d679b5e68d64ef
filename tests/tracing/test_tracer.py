"""Spans: whose they are, which are recorded, how they are written down, and what a collector that fails costs."""

import random
import socket
import threading

import pytest
from msgspec.structs import replace

from streamhouse.clock import Ids
from streamhouse.config import TracingSettings
from streamhouse.tracing import SpanContext, SpanExporter, SpanKind, Tracer, current_context, parse_traceparent
from streamhouse.tracing.exporter import export_headers
from tests.contracts.clocks import ManualClock

from .collector import collecting

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CLIENT = SpanContext(TRACE, PARENT)


def make_tracer(**settings: object) -> Tracer:
    chosen = replace(TracingSettings(endpoint="http://127.0.0.1:9/v1/traces"), **settings)
    return Tracer(chosen, clock=ManualClock(), ids=Ids(random.Random(1)))


def test_a_traceparent_is_read_and_written() -> None:
    context = parse_traceparent(f"00-{TRACE}-{PARENT}-01")
    assert context == CLIENT
    assert context.traceparent == f"00-{TRACE}-{PARENT}-01"
    assert parse_traceparent(f"00-{TRACE}-{PARENT}-00") == SpanContext(TRACE, PARENT, is_sampled=False)
    assert parse_traceparent(f"01-{TRACE}-{PARENT}-01-later") == CLIENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01\n",
    ],
)
def test_a_header_that_is_no_traceparent_is_ignored(text: str) -> None:
    assert parse_traceparent(text) is None


def test_the_parent_decides_what_is_recorded() -> None:
    tracer = make_tracer(sample_ratio=1.0)
    assert tracer.begin("append", CLIENT) is not None
    assert tracer.begin("append", CLIENT._replace(is_sampled=False)) is None


def test_without_a_parent_the_ratio_decides() -> None:
    assert make_tracer().begin("append") is None
    assert make_tracer(sample_ratio=1.0).begin("append") is not None
    some = make_tracer(sample_ratio=0.25, max_spans_per_s=10_000)
    assert 150 < sum(some.begin("append") is not None for _ in range(1000)) < 350


def test_a_span_has_the_trace_of_its_parent_and_an_id_of_its_own() -> None:
    tracer = make_tracer()
    first, second = tracer.begin("append", CLIENT), tracer.begin("append", CLIENT)
    assert first is not None
    assert second is not None
    assert (first.context.trace_id, first.parent_id) == (TRACE, PARENT)
    assert len(first.context.span_id) == 16
    assert first.context.span_id != second.context.span_id


def test_spans_beyond_the_rate_and_the_queue_are_dropped_and_counted() -> None:
    tracer = make_tracer(max_spans_per_s=3, max_queued=2)
    begun = [tracer.begin("append", CLIENT) for _ in range(5)]
    assert [each is not None for each in begun] == [True, True, True, False, False]
    for each in begun:
        tracer.end(each)
    assert len(tracer.take(10)) == 2
    assert tracer.dropped == 3


def test_the_active_span_is_that_of_the_block() -> None:
    tracer = make_tracer()
    with tracer.span("request", CLIENT) as span:
        assert span is not None
        assert current_context() == span.context
    assert current_context() is None
    with pytest.raises(ValueError, match="no"), tracer.span("request", CLIENT):
        raise ValueError("no")
    assert [each.error for each in tracer.take(10)] == ["", "ValueError"]


def test_spans_arrive_at_a_collector_as_otlp() -> None:
    with collecting() as collector:
        tracer = make_tracer(endpoint=collector.endpoint)
        span = tracer.begin("append orders", CLIENT, kind=SpanKind.SERVER, attributes={"n": 7, "topic": "orders"})
        assert span is not None
        tracer.end(span, error="AppendFailed")
        exporter = SpanExporter(
            tracer, resource={"service.name": "streamhouse"}, headers={"authorization": "Bearer x"}, clock=ManualClock()
        )
        exporter.export()
        assert collector.headers[0]["authorization"] == "Bearer x"
        assert collector.headers[0]["content-type"] == "application/json"
        resource = collector.bodies[0]["resourceSpans"][0]["resource"]["attributes"]
        assert resource == [{"key": "service.name", "value": {"stringValue": "streamhouse"}}]
        assert collector.spans == [
            {
                "traceId": TRACE,
                "spanId": span.context.span_id,
                "parentSpanId": PARENT,
                "name": "append orders",
                "kind": 2,
                "startTimeUnixNano": str(span.start_ns),
                "endTimeUnixNano": str(span.end_ns),
                "attributes": [
                    {"key": "n", "value": {"intValue": "7"}},
                    {"key": "topic", "value": {"stringValue": "orders"}},
                ],
                "status": {"code": 2, "message": "AppendFailed"},
            }
        ]
        assert tracer.exported == 1


def test_a_collector_that_refuses_costs_the_spans_and_nothing_else() -> None:
    with collecting(status=503) as collector:
        tracer = make_tracer(endpoint=collector.endpoint)
        tracer.end(tracer.begin("append", CLIENT))
        SpanExporter(tracer, resource={}, headers={}, clock=ManualClock()).export()
        assert (tracer.exported, tracer.dropped, tracer.take(10)) == (0, 1, [])


def test_a_collector_that_does_not_speak_http_costs_the_spans_and_nothing_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=respond)
        thread.start()
        tracer = make_tracer(endpoint=f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces")
        tracer.end(tracer.begin("append", CLIENT))
        SpanExporter(tracer, resource={}, headers={}, clock=ManualClock()).export()
        thread.join()
    assert (tracer.exported, tracer.dropped) == (0, 1)


def test_headers_for_the_collector_come_from_opentelemetrys_variable() -> None:
    assert export_headers({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x, team = a,broken"}) == {
        "authorization": "Bearer x",
        "team": "a",
    }
    assert export_headers({}) == {}
