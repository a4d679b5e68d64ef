"""Context of a Kafka request: arguments and results of handlers, and the metrics of the server.

Data path   framing -> handler(**Context**, request) -> **HandlerResult** -> connection
Owns        the two stages of a request: the first runs in order, the second may wait
Leaves      decoding to `framing`, order and sockets to `connection`

A connection runs one handler at a time: the next request starts when the handler returns. A handler returns a response,
or a `PendingResponse` for which the connection waits while later requests start.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import ClassVar, Final, NamedTuple, TypeAlias
from uuid import UUID

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from streamhouse.broker.broker import Broker
from streamhouse.broker.security.security import Security
from streamhouse.config import Address
from streamhouse.errors import AccessDenied, Rejected, StreamhouseError, UnknownTopicId
from streamhouse.model.access import CLUSTER, Caller, Operation, Resource, ResourceType
from streamhouse.model.cluster import Session
from streamhouse.model.names import TopicId
from streamhouse.model.tenant import NOWHERE, cluster_id_of, unqualified
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.client_metrics import ClientMetrics
from streamhouse.wire.kafka.client_software import ClientSoftware
from streamhouse.wire.kafka.errors import ErrorCode, error_code
from streamhouse.wire.kafka.sasl.login import Login
from streamhouse.wire.kafka.schema import Response
from streamhouse.wire.listener import OpenListener

AGENT: Final = "streamhouse-agent"
"""The client id of agents. It says nothing about rights, except where there is no security at all."""


def asks_as_agent(caller: Caller, client_id: str, security: Security) -> bool:
    """Whether the client is another agent: authenticated as one, or, without logins, one that says so."""
    return caller.is_agent or (client_id == AGENT and security.is_off and not caller.tenant)


_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class RequestTimes:
    """How long the requests of an API took: counts by bucket, and their sum."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(_BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The buckets as Prometheus has them: each with the counts of those below."""
        bounds = (*map(floatToGoString, _BUCKETS_S), "+Inf")
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class KafkaMetrics(Collector):
    """The metrics of a server. Those that every request changes are plain numbers, which are read when metrics are
    scraped: a counter of the library has a lock, and costs ten times as much."""

    def __init__(self, registry: CollectorRegistry, clients: ClientMetrics) -> None:
        self.clients = clients
        self.bytes_in = 0
        self.bytes_out = 0
        self.errors = Counter("streamhouse_kafka_errors", "error codes in answers", ["api", "error"], registry=registry)
        self.connections = Gauge("streamhouse_kafka_connections", "open connections", registry=registry)
        self._times: dict[str, RequestTimes] = {}
        self._pauses = Counter(
            "streamhouse_kafka_pauses", "times that reading from a connection paused", ["why"], registry=registry
        )
        self._closed = Counter(
            "streamhouse_kafka_closed", "connections that were closed from this side", ["why"], registry=registry
        )
        self._delayed = Counter(
            "streamhouse_kafka_delayed_refusals",
            "refusals that were held back because the client retries without a pause",
            ["api"],
            registry=registry,
        )
        self.paused = cache(lambda why: self._pauses.labels(why))
        self.closed = cache(lambda why: self._closed.labels(why))
        self.delayed = cache(lambda api: self._delayed.labels(api))
        registry.register(self)

    def count_error(self, api: str, code: ErrorCode) -> None:
        self.errors.labels(api, code.name).inc()

    def observe(self, api: str, seconds: float) -> None:
        """Count a request that was answered, long polls included."""
        times = self._times.get(api)
        if times is None:
            times = self._times[api] = RequestTimes()
        times.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "streamhouse_kafka_request_seconds",
            "time from a whole request to its answer, long polls included",
            labels=["api"],
        )
        for api, times in tuple(self._times.items()):
            seconds.add_metric([api], times.buckets(), times.sum_s)
        yield seconds
        yield CounterMetricFamily("streamhouse_kafka_received_bytes", "bytes of requests", value=self.bytes_in)
        yield CounterMetricFamily("streamhouse_kafka_sent_bytes", "bytes of answers", value=self.bytes_out)
        yield from self.clients.collect()


class CloseConnection(Rejected):
    """The protocol has no error response for this request; the connection is closed."""


class PendingResponse:
    """The second stage of a request. Responses are sent, and therefore awaited, in the order of the requests.

    No abstract base class: the result of a handler is tested several times for being one of these, and an abstract
    one takes ten times as long to say so."""

    __slots__ = ()
    drain_on_stop: ClassVar[bool] = True
    """Whether an agent that stops waits for the response; a long poll is cancelled instead."""

    def is_ready(self) -> bool:
        """Whether `respond` returns without waiting: a hint by which responses are sent together."""
        return False

    async def respond(self) -> Response:
        """Return the response. Called once, after all earlier responses of the connection were sent."""
        raise NotImplementedError


HandlerResult: TypeAlias = Response | PendingResponse | None
"""None: the client expects no response."""


class Context(NamedTuple):
    """The context of a handler. A tuple, because one is made per request."""

    broker: Broker
    api: str
    version: int
    client_id: str
    client_host: str
    caller: Caller
    """Who sent the request, as authentication found."""
    listener: OpenListener
    advertised: Address
    cluster_id: str
    metrics: KafkaMetrics
    retain: Callable[[int], None]
    """The handler calls this with the number of bytes of the request's frame that the broker retains."""
    software: ClientSoftware
    """The client library; known after the client sent ApiVersions."""
    set_software: Callable[[ClientSoftware], None]
    """Called by the handler of ApiVersions, in which clients name their library."""
    login: Login
    delay_failed_login: Callable[[], Awaitable[None]]
    """Waits before a failed login is answered."""

    def agents(self) -> list[tuple[int, Address]]:
        """All agents by node id, at the addresses advertised to clients of this listener."""
        return [(each.node_id, self.address_of(each)) for each in self.broker.agents()]

    def address_of(self, agent: Session) -> Address:
        """Where clients of this listener reach an agent."""
        return self.advertised if agent.node_id == self.broker.node_id else agent.kafka_at(self.listener.spec.name)

    def zones(self) -> dict[int, str]:
        """The zones of the agents that have one, by node id: what Kafka calls racks."""
        return {each.node_id: each.zone for each in self.broker.agents() if each.zone}

    def addresses(self, leaders: Mapping[int | None, tuple[str, int] | None]) -> Iterator[tuple[int, Address]]:
        """The addresses of leaders, given by node id at those that agents have for each other."""
        known = {int(agent.node_id): agent for agent in self.broker.agents()} if leaders else {}
        for node, address in leaders.items():
            if node in known:
                yield known[node].node_id, self.address_of(known[node])
            elif node is not None and address is not None:
                yield node, Address(*address)

    def departed(self) -> list[tuple[int, Address]]:
        """Agents that departed a moment ago, by node id.

        Clients that bind requests to a node id get the address of this connection, others the address of the agent.
        """
        if self.software.takes_redirects:
            return [(each.node_id, self.advertised) for each in self.broker.redirected()]
        return [(each.node_id, each.kafka_at(self.listener.spec.name)) for each in self.broker.departed()]

    @property
    def is_agent(self) -> bool:
        return asks_as_agent(self.caller, self.client_id, self.broker.security)

    @property
    def tenant(self) -> str:
        """The tenant of the caller, who sees nothing else; empty for those who see the whole cluster."""
        return self.caller.tenant

    def in_tenant(self, *, is_refused: bool) -> "Context":
        """The context of a request of a tenant's client, whose cluster has an id of its own. `is_refused`: the request
        is no tenant's business, and everything in it is denied."""
        caller = replace(self.caller, tenant=NOWHERE) if is_refused else self.caller
        return self._replace(caller=caller, cluster_id=cluster_id_of(self.caller.tenant, self.cluster_id))

    def shown(self, name: str) -> str:
        """A name as the caller knows it."""
        return (unqualified(self.caller.tenant, name) or "") if self.caller.tenant else name

    async def topic_by_id(self, topic_id: UUID) -> Topic:
        """The topic with this id; raise `UnknownTopicId`, also for one that is outside the caller's tenant."""
        topic = await self.broker.catalog.find_by_id(TopicId(topic_id))
        if self.caller.tenant and unqualified(self.caller.tenant, topic.name) is None:
            raise UnknownTopicId(topic_id)
        return topic

    def check_agents(self, operation: Operation) -> None:
        """Raise `AccessDenied` unless the caller may do this to the agents themselves, which are no tenant's."""
        if self.caller.tenant:
            principal = self.caller.principal
            raise AccessDenied(principal, operation=operation, resource_type="cluster", name="agents")
        self.check_cluster(operation)

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the caller may do this."""
        return self.broker.security.access.allows(self.caller, operation, Resource(kind, name))

    def allows_topic(self, operation: Operation, topic: str) -> bool:
        return self.broker.security.access.allows(self.caller, operation, Resource(ResourceType.TOPIC, topic))

    def allows_cluster(self, operation: Operation) -> bool:
        return self.broker.security.access.allows(self.caller, operation, CLUSTER)

    def check(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise `AccessDenied` unless the caller may do this."""
        self.broker.security.access.check(self.caller, operation, Resource(kind, name))

    def check_topic(self, operation: Operation, topic: str) -> None:
        self.broker.security.access.check(self.caller, operation, Resource(ResourceType.TOPIC, topic))

    def check_group(self, operation: Operation, group_id: str) -> None:
        self.broker.security.access.check(self.caller, operation, Resource(ResourceType.GROUP, group_id))

    def check_transactional_id(self, operation: Operation, transactional_id: str) -> None:
        resource = Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
        self.broker.security.access.check(self.caller, operation, resource)

    def check_create_topic(self, topic: str) -> None:
        """Raise `AccessDenied` unless the caller may create this topic, or every topic."""
        if not self.allows_topic(Operation.CREATE, topic) and not self.allows_cluster(Operation.CREATE):
            self.check_topic(Operation.CREATE, topic)

    def check_cluster(self, operation: Operation) -> None:
        self.broker.security.access.check(self.caller, operation, CLUSTER)

    def charge_mutations(self, partitions: int) -> None:
        """Count partitions that the client creates or deletes; raise `QuotaExceeded` while it is above its limit."""
        quotas = self.broker.security.quotas
        quotas.charge_mutations(partitions, user=self.caller.principal.name, client_id=self.client_id)

    def count_error(self, error: StreamhouseError | ErrorCode) -> ErrorCode:
        """Count an error and return its code for the response."""
        code = error if isinstance(error, ErrorCode) else error_code(error)
        self.metrics.count_error(self.api, code)
        return code
