"""Metrics as JSON: what the console shows of all agents, in one response.

GET /v1/metrics            {"agents": [{"node": 1, "samples": {"streamhouse_appended_bytes_total": 123, …}, …}]}
GET /v1/metrics?local=1    only the agent that responds

An agent collects its samples, and asks the others for theirs, at most once in `MIN_AGE_S`, however many consoles ask.
"""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Final, Protocol

import msgspec
from msgspec import Meta
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock, SystemClock
from streamhouse.config.fields import Address
from streamhouse.errors import Unavailable
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.cluster import Session
from streamhouse.model.needs import needs
from streamhouse.wire.http.operations import JSON, Call, Operation, json_response

MIN_AGE_S: Final = 1.0
PEER_TIMEOUT_S: Final = 2.0
SHOWN: Final = frozenset(
    {
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "streamhouse_appended_bytes",
        "streamhouse_appended_records",
        "streamhouse_buffer_bytes",
        "streamhouse_buffer_pressure",
        "streamhouse_cache_bytes",
        "streamhouse_cache_hits",
        "streamhouse_cache_misses",
        "streamhouse_fetched_bytes",
        "streamhouse_flush_failures",
        "streamhouse_flushed_segments",
        "streamhouse_grpc_streams",
        "streamhouse_http_requests_active",
        "streamhouse_http_streams",
        "streamhouse_kafka_connections",
        "streamhouse_kafka_request_seconds",
        "streamhouse_object_store_bytes",
        "streamhouse_object_store_requests",
        "streamhouse_object_store_seconds",
        "streamhouse_open_partitions",
        "streamhouse_refused_appends",
        "streamhouse_transactions_open",
        "streamhouse_wal_bytes",
    }
)
"""The metrics in the response; `/metrics` has all."""


class AgentMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one agent, by the names and labels of `/metrics`, without those that are 0. `error`: why there are
    none, for an agent that didn't answer."""

    node: int
    at_ms: int
    samples: dict[str, float]
    error: str | None = None


class ClusterMetrics(msgspec.Struct, frozen=True, kw_only=True):
    agents: list[AgentMetrics]


class MetricsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    local: Annotated[bool, Meta(description="only those of the agent that responds")] = False


class Peers(Protocol):
    """The HTTP ports of other agents."""

    async def metrics(self, at: Address, *, timeout_s: float) -> bytes:
        """The response of `/v1/metrics?local=1`; raises `Unavailable`."""
        ...


class LocalMetrics:
    """The samples of this agent."""

    def __init__(self, broker: Broker, registry: CollectorRegistry, clock: Clock) -> None:
        self._broker = broker
        self._registry = registry
        self._clock = clock
        self._last: AgentMetrics | None = None
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<LocalMetrics {self._broker.node_id}>"

    def take(self) -> AgentMetrics:
        now = self._clock.monotonic()
        if self._last is None or now >= self._until:
            self._until = now + MIN_AGE_S
            self._last = AgentMetrics(
                node=self._broker.node_id, at_ms=self._clock.now_ms(), samples=samples_of(self._registry.collect())
            )
        return self._last


def samples_of(metrics: Iterable[Metric]) -> dict[str, float]:
    return {
        sample_name(sample.name, sample.labels): sample.value
        for metric in metrics
        if metric.name in SHOWN
        for sample in metric.samples
        if sample.value and not sample.name.endswith("_created")
    }


def sample_name(name: str, labels: dict[str, str]) -> str:
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{pairs}}}" if pairs else name


class AllMetrics:
    """The samples of all agents as a response; those who ask at the same time share one."""

    def __init__(self, broker: Broker, local: LocalMetrics, peers: Peers | None, clock: Clock) -> None:
        self._broker = broker
        self._local = local
        self._peers = peers
        self._clock = clock
        self._taking = asyncio.Lock()
        self._last = b""
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<AllMetrics {self._broker.node_id}>"

    async def take(self) -> bytes:
        async with self._taking:
            if not self._last or self._clock.monotonic() >= self._until:
                own = self._local.take()
                others = [each for each in self._broker.agents() if each.node_id != own.node]
                agents = [own, *await asyncio.gather(*map(self._of_peer, others))]
                self._last = msgspec.json.encode(ClusterMetrics(agents=agents))
                self._until = self._clock.monotonic() + MIN_AGE_S
            return self._last

    async def _of_peer(self, agent: Session) -> AgentMetrics:
        node, at_ms = agent.node_id, self._clock.now_ms()
        if self._peers is None:
            return AgentMetrics(node=node, at_ms=at_ms, samples={}, error="other agents can't be reached from here")
        try:
            body = await self._peers.metrics(agent.http, timeout_s=PEER_TIMEOUT_S)
            return msgspec.json.decode(body, type=ClusterMetrics).agents[0]
        except (Unavailable, msgspec.DecodeError, IndexError) as error:
            return AgentMetrics(node=node, at_ms=at_ms, samples={}, error=str(error))


def operations(broker: Broker, registry: CollectorRegistry, peers: Peers | None) -> list[Operation[Any, Any]]:
    clock = SystemClock()
    local = LocalMetrics(broker, registry, clock)
    everywhere = AllMetrics(broker, local, peers, clock)

    async def get_metrics(call: Call[MetricsQuery, None]) -> Response:
        if call.query.local:
            return json_response(ClusterMetrics(agents=[local.take()]))
        return Response(await everywhere.take(), media_type=JSON)

    return [
        Operation(
            method="GET",
            path="/v1/metrics",
            handler=get_metrics,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="Main metrics of all agents, as JSON",
            about="What the console shows; `/metrics` has all metrics of one agent. Agents that don't answer in time "
            "have an `error`.",
            tag="agents",
            query=MetricsQuery,
            response=ClusterMetrics,
        )
    ]
