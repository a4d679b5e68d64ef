"""Settings of traces."""

from typing import Annotated

from streamhouse.config.fields import Section, about


class TracingSettings(Section, frozen=True, kw_only=True):
    endpoint: Annotated[
        str,
        about(
            "where spans go by OTLP/HTTP (JSON), such as http://127.0.0.1:4318/v1/traces; headers come from "
            "OTEL_EXPORTER_OTLP_HEADERS; empty: no tracing"
        ),
    ] = ""
    sample_ratio: Annotated[
        float, about("share of requests without a traceparent that are traced; with one the client decides", ge=0, le=1)
    ] = 0.0
    max_spans_per_s: Annotated[int, about("spans per second beyond which further ones are dropped", gt=0)] = 1000
    max_queued: Annotated[int, about("ended spans that wait for the exporter; further ones are dropped", gt=0)] = 10_000
    max_records: Annotated[
        int, about("traced records whose flushes and fetches an agent follows, the newest", gt=0)
    ] = 10_000
    batch_spans: Annotated[int, about("maximum spans of one request to the collector", gt=0)] = 500
    interval_s: Annotated[float, about("time between two requests to the collector", gt=0)] = 1.0
    timeout_s: Annotated[float, about("timeout of a request to the collector", gt=0)] = 5.0
