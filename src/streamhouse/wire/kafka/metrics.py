"""Metrics of the Kafka server.

Data path   beside connection and handlers; nothing flows through it
Owns        the names of the metrics, and their children, which are made once
Leaves      serving them to `wire.http`
"""

from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streamhouse.wire.kafka.errors import ErrorCode

_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class KafkaMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "streamhouse_kafka_request_seconds",
            "time from a whole request to its answer, long polls included",
            ["api"],
            registry=registry,
            buckets=_BUCKETS_S,
        )
        self.errors = Counter("streamhouse_kafka_errors", "error codes in answers", ["api", "error"], registry=registry)
        self.bytes_in = Counter("streamhouse_kafka_received_bytes", "bytes of requests", registry=registry)
        self.bytes_out = Counter("streamhouse_kafka_sent_bytes", "bytes of answers", registry=registry)
        self.connections = Gauge("streamhouse_kafka_connections", "open connections", registry=registry)
        self._pauses = Counter(
            "streamhouse_kafka_pauses", "times that reading from a connection paused", ["why"], registry=registry
        )
        self._closed = Counter(
            "streamhouse_kafka_closed", "connections that were closed from this side", ["why"], registry=registry
        )
        self._delayed = Counter(
            "streamhouse_kafka_delayed_refusals",
            "refusals that were held back because the client asks again and again",
            ["api"],
            registry=registry,
        )
        self.seconds_of = cache(lambda api: self.seconds.labels(api))
        self.paused = cache(lambda why: self._pauses.labels(why))
        self.closed = cache(lambda why: self._closed.labels(why))
        self.delayed = cache(lambda api: self._delayed.labels(api))

    def refused(self, api: str, code: ErrorCode) -> None:
        self.errors.labels(api, code.name).inc()
