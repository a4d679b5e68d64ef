"""Metrics of the gRPC server."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge


class GrpcMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "streamhouse_grpc_calls",
            "calls and streams that ended, by status code",
            ["method", "code"],
            registry=registry,
        )
        self.streams = Gauge("streamhouse_grpc_streams", "open streams", registry=registry)
        self.delayed = Counter(
            "streamhouse_grpc_delayed_refusals",
            "refusals that were held back because the client retries without a pause",
            registry=registry,
        )
        self.received_bytes = Counter(
            "streamhouse_grpc_received_bytes", "bytes of messages received", registry=registry
        )
        self.sent_bytes = Counter("streamhouse_grpc_sent_bytes", "bytes of messages sent", registry=registry)

    def ended(self, method: str, code: Any) -> None:
        self._calls.labels(method, code.name).inc()
