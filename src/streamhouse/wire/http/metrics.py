"""Metrics of the HTTP port.

Data path   beside gate and streams; nothing flows through it
Owns        the names of the metrics, and their children, which are made once
Leaves      serving them to `routes.health`
"""

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge


class HttpMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        requests = Counter(
            "streamhouse_http_requests", "requests answered", ["method", "route", "status"], registry=registry
        )
        self.bytes_in = Counter("streamhouse_http_received_bytes", "bytes of bodies of requests", registry=registry)
        self.bytes_out = Counter("streamhouse_http_sent_bytes", "bytes of bodies of answers", registry=registry)
        self.busy = Gauge("streamhouse_http_requests_active", "requests being answered, streams too", registry=registry)
        self.streams = Gauge("streamhouse_http_streams", "open streams of records", registry=registry)
        self.delayed_connections = Counter(
            "streamhouse_http_delayed_connections", "connections that waited for their turn", registry=registry
        )
        self.delayed = Counter(
            "streamhouse_http_delayed_refusals",
            "refusals that were held back because the client asks again and again",
            registry=registry,
        )
        cut = Counter("streamhouse_http_cut", "clients that were cut off", ["why"], registry=registry)
        self.answered = cache(lambda method, route, status: requests.labels(method, route, status))
        self.cut = cache(lambda why: cut.labels(why))
