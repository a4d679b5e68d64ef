"""KafkaAgentClient: this agent as a Kafka client of the other agents.

Data path   broker.forwarding, broker.failover -> **client** -> another agent's Kafka listener
Leaves      who leads a partition to the broker, connections and limits to `connections`, contents of messages to
            `writes`, `reads` and `groups`
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from streamhouse.broker.dependencies import AppendResult
from streamhouse.broker.groups import DescribedGroup, ListedGroup, OffsetToCommit
from streamhouse.clock import Clock, SystemClock
from streamhouse.config import AgentClientSettings
from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
from streamhouse.model.group_requests import Outcomes
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import Marker
from streamhouse.wire.agent_login import NO_LOGIN, AgentLogin
from streamhouse.wire.kafka.agent_client import groups, reads, writes
from streamhouse.wire.kafka.agent_client.connections import AgentConnections
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from streamhouse.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from streamhouse.wire.kafka.messages.list_offsets import ListOffsetsResponse
from streamhouse.wire.kafka.messages.offset_commit import OffsetCommitResponse
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from streamhouse.wire.kafka.messages.write_txn_markers import WriteTxnMarkersResponse
from streamhouse.wire.kafka.schema import Buffer

APPENDS: Final = "appends"
REQUESTS: Final = "requests"
MARKERS: Final = "markers"


class KafkaAgentClient:
    """The `AgentClient` of the broker over the Kafka protocol."""

    def __init__(
        self,
        settings: AgentClientSettings | None = None,
        *,
        clock: Clock | None = None,
        login: AgentLogin = NO_LOGIN,
    ) -> None:
        self._settings = settings or AgentClientSettings()
        self._login = login
        self._clock = clock or SystemClock()
        self._agents: dict[Address, AgentConnections] = {}

    def __repr__(self) -> str:
        return f"<KafkaAgentClient connections={sum(agent.count for agent in self._agents.values())}>"

    async def append(
        self,
        at: Address,
        partition: PartitionId,
        batch: Buffer,
        *,
        timeout_s: float | None = None,
        request_flush: bool = False,
    ) -> AppendResult:
        timeout_s = self._settings.timeout_s if timeout_s is None else timeout_s
        request = writes.append_request(partition, batch, timeout_s=timeout_s, request_flush=request_flush)
        async with self._agent(at) as agent:
            response = await agent.send(
                APPENDS, request, writes.PRODUCE_VERSION, ProduceResponse, timeout_s=timeout_s, size_bytes=len(batch)
            )
            return writes.append_result(response, at, partition)

    async def fetch(
        self,
        at: Address,
        requested: Sequence[tuple[PartitionId, PartitionFetch]],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_s: float,
        timeout_s: float,
    ) -> list[FetchResult]:
        request = reads.fetch_request(requested, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        async with self._agent(at) as agent:
            response = await agent.read(request, reads.FETCH_VERSION, FetchResponse, timeout_s=timeout_s)
            return reads.fetch_results(response, at, requested)

    async def offset(
        self, at: Address, name: TopicPartition, timestamp_ms: int, *, committed: bool = False, timeout_s: float
    ) -> OffsetResult | None:
        request = reads.offsets_request(name, timestamp_ms, committed=committed)
        async with self._agent(at) as agent:
            response = await agent.send(
                REQUESTS, request, reads.OFFSETS_VERSION, ListOffsetsResponse, timeout_s=timeout_s
            )
            return reads.offset_result(response, at, name)

    async def list_groups(self, at: Address, *, timeout_s: float) -> list[ListedGroup]:
        request = ListGroupsRequest()
        async with self._agent(at) as agent:
            response = await agent.send(REQUESTS, request, groups.LIST_VERSION, ListGroupsResponse, timeout_s=timeout_s)
            return groups.listed_groups(response, at)

    async def describe_group(self, at: Address, group_id: str, *, timeout_s: float) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group_id])
        async with self._agent(at) as agent:
            response = await agent.send(
                REQUESTS, request, groups.DESCRIBE_VERSION, DescribeGroupsResponse, timeout_s=timeout_s
            )
            return groups.described_group(response, at, group_id)

    async def commit(
        self, at: Address, group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, timeout_s: float
    ) -> Outcomes:
        request = groups.commit_request(group_id, offsets)
        async with self._agent(at) as agent:
            response = await agent.send(
                REQUESTS, request, groups.COMMIT_VERSION, OffsetCommitResponse, timeout_s=timeout_s
            )
            return groups.commit_results(response, at)

    async def delete_group(self, at: Address, group_id: str, *, timeout_s: float) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        async with self._agent(at) as agent:
            response = await agent.send(
                REQUESTS, request, groups.DELETE_VERSION, DeleteGroupsResponse, timeout_s=timeout_s
            )
            groups.check_deleted(response, at, group_id)

    async def mark(
        self, at: Address, marker: Marker, partitions: Sequence[PartitionId], *, timeout_s: float
    ) -> Mapping[PartitionId, StreamhouseError | None]:
        request = writes.marker_request(marker, partitions)
        async with self._agent(at) as agent:
            response = await agent.send(
                MARKERS, request, writes.MARKERS_VERSION, WriteTxnMarkersResponse, timeout_s=timeout_s
            )
            return writes.marker_results(response, at, partitions)

    @asynccontextmanager
    async def _agent(self, at: Address) -> AsyncIterator[AgentConnections]:
        agent = self._agents.get(at)
        if agent is None:
            agent = self._agents[at] = AgentConnections(at, self._settings, self._clock, self._login)
        try:
            yield agent
        except MalformedMessage as error:
            raise Unavailable(f"another agent's response is malformed; address={at} why={error}") from error
        finally:
            if agent.is_unused and self._agents.get(at) is agent:
                del self._agents[at]

    async def aclose(self) -> None:
        agents, self._agents = list(self._agents.values()), {}
        for agent in agents:
            await agent.aclose()
