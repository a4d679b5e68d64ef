"""Metrics of the Kafka server.

Data path   beside connection and handlers; nothing flows through it
Owns        the names of the metrics, and their children, which are made once
Leaves      serving them to `wire.http`

Answer: what a handler gets and what it gives back.

Data path   exchange -> handler(**Context**, request) -> **Answer** -> connection
Owns        the two stages of a request: what must happen in order, and what may be waited for
Leaves      decoding to `exchange`, order and sockets to `connection`

A handler runs alone on its connection: the next request begins when it returns. What it returns may be an answer, or
one that is still owed (`PendingResponse`), for which the connection waits while later requests begin.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streamhouse.broker.broker import Broker
from streamhouse.config import Address
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.wire.kafka.client_software import ClientSoftware
from streamhouse.wire.kafka.errors import ErrorCode, error_code
from streamhouse.wire.kafka.schema import Response

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


class CloseConnection(Rejected):
    """The protocol leaves no way to answer this; the connection is closed, which the client notices."""


class PendingResponse(ABC):
    """The second stage of a request. Answers leave in the order of their requests, so it is awaited in that order."""

    __slots__ = ()
    owed: ClassVar[bool] = True
    """Whether an agent that stops waits for it; a long poll is cut short instead."""

    def is_ready(self) -> bool:
        """Whether `respond` will answer without waiting; only a hint, by which answers are sent together."""
        return False

    @abstractmethod
    async def respond(self) -> Response:
        """Called once, when all earlier answers of the connection are on their way."""


HandlerResult: TypeAlias = Response | PendingResponse | None
"""None: the client expects no answer."""


class Context(NamedTuple):
    """What a handler knows besides the request itself. A tuple, because one is made per request."""

    broker: Broker
    api: str
    version: int
    client_id: str
    client_host: str
    advertised: Address
    cluster_id: str
    metrics: KafkaMetrics
    keeps: Callable[[int], None]
    """To be told how many bytes of the request's frame the broker took over."""
    software: ClientSoftware
    """Which library the client is; known once it has asked for ApiVersions."""
    set_software: Callable[[ClientSoftware], None]
    """Called by ApiVersions, which is where clients name themselves."""

    def agents(self) -> list[tuple[int, Address]]:
        """All agents by node id: this one at the address by which it is known here, others at theirs."""
        own = self.broker.node_id
        return [(each.node_id, self.advertised if each.node_id == own else each.kafka) for each in self.broker.agents()]

    def departed(self) -> list[tuple[int, Address]]:
        """Agents that departed a moment ago, by node id, at the addresses that this client should be given: its own
        connection's address for clients that bind calls to the id, else the one that the agent had."""
        if self.software.takes_redirects:
            return [(each.node_id, self.advertised) for each in self.broker.redirected()]
        return [(each.node_id, each.kafka) for each in self.broker.departed()]

    def refused(self, error: StreamhouseError | ErrorCode) -> ErrorCode:
        """The code for an answer; counted."""
        code = error if isinstance(error, ErrorCode) else error_code(error)
        self.metrics.refused(self.api, code)
        return code
