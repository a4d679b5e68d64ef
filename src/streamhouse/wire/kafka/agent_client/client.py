"""Peers: this agent as a Kafka client of the others.

Data path   broker.records, broker.returns -> **peers** -> another agent's Kafka listener
Owns        the agents that it talks to
Leaves      who leads to the broker, connections and limits to `peer`, requests to `appends`, `reads`, `groups` and
            `markers`
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from streamhouse.broker.dependencies import Appended
from streamhouse.broker.fetch.fetch import Fetched, Wanted
from streamhouse.broker.fetch.list_offsets import FoundOffset
from streamhouse.broker.groups import DescribedGroup, ListedGroup, OffsetToCommit
from streamhouse.clock import Clock, SystemClock
from streamhouse.config import AgentClientSettings
from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_requests import Outcomes
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import Marker
from streamhouse.wire.kafka.agent_client import appends, groups, markers, reads
from streamhouse.wire.kafka.agent_client.connections import AgentConnections
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from streamhouse.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from streamhouse.wire.kafka.messages.list_offsets import ListOffsetsResponse
from streamhouse.wire.kafka.messages.offset_commit import OffsetCommitResponse
from streamhouse.wire.kafka.messages.offset_fetch import OffsetFetchResponse
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from streamhouse.wire.kafka.messages.write_txn_markers import WriteTxnMarkersResponse
from streamhouse.wire.kafka.schema import Buffer

APPENDS: Final = "appends"
READS: Final = "questions"
MARKERS: Final = "markers"


class KafkaAgentClient:
    """Implements `broker.doors.Peers`."""

    def __init__(self, settings: AgentClientSettings | None = None, *, clock: Clock | None = None) -> None:
        self._settings = settings or AgentClientSettings()
        self._clock = clock or SystemClock()
        self._peers: dict[Address, AgentConnections] = {}

    def __repr__(self) -> str:
        return f"<KafkaPeers links={sum(peer.links for peer in self._peers.values())}>"

    async def append(
        self,
        at: Address,
        partition: PartitionId,
        batch: Buffer,
        *,
        timeout_s: float | None = None,
        flush_soon: bool = False,
    ) -> Appended:
        timeout_s = self._settings.timeout_s if timeout_s is None else timeout_s
        request = appends.append_request(partition, batch, timeout_s=timeout_s, flush_soon=flush_soon)
        async with self._peer(at) as peer:
            answer = await peer.ask(
                APPENDS, request, appends.VERSION, ProduceResponse, timeout_s=timeout_s, size_bytes=len(batch)
            )
            return appends.append_result(answer, at, partition)

    async def fetch(
        self,
        at: Address,
        wanted: Sequence[tuple[PartitionId, Wanted]],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_s: float,
        timeout_s: float,
    ) -> list[Fetched]:
        request = reads.fetch_request(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        async with self._peer(at) as peer:
            answer = await peer.read(request, reads.FETCH_VERSION, FetchResponse, timeout_s=timeout_s)
            return reads.fetch_results(answer, at, wanted)

    async def offset(
        self, at: Address, name: TopicPartition, timestamp_ms: int, *, committed: bool = False, timeout_s: float
    ) -> FoundOffset | None:
        request = reads.offsets_request(name, timestamp_ms, committed=committed)
        async with self._peer(at) as peer:
            answer = await peer.ask(READS, request, reads.OFFSETS_VERSION, ListOffsetsResponse, timeout_s=timeout_s)
            return reads.offset_result(answer, at, name)

    async def list_groups(self, at: Address, *, timeout_s: float) -> list[ListedGroup]:
        request = ListGroupsRequest()
        async with self._peer(at) as peer:
            answer = await peer.ask(READS, request, groups.LIST_VERSION, ListGroupsResponse, timeout_s=timeout_s)
            return groups.listed_groups(answer, at)

    async def describe_group(self, at: Address, group_id: str, *, timeout_s: float) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group_id])
        async with self._peer(at) as peer:
            answer = await peer.ask(
                READS, request, groups.DESCRIBE_VERSION, DescribeGroupsResponse, timeout_s=timeout_s
            )
            return groups.described_group(answer, at, group_id)

    async def committed(
        self, at: Address, group_id: str, *, timeout_s: float
    ) -> Mapping[TopicPartition, CommittedOffset]:
        request = groups.offset_fetch_request(group_id)
        async with self._peer(at) as peer:
            answer = await peer.ask(
                READS, request, groups.OFFSET_FETCH_VERSION, OffsetFetchResponse, timeout_s=timeout_s
            )
            return groups.committed_offsets(answer, at, group_id)

    async def commit(
        self, at: Address, group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, timeout_s: float
    ) -> Outcomes:
        request = groups.commit_request(group_id, offsets)
        async with self._peer(at) as peer:
            answer = await peer.ask(READS, request, groups.COMMIT_VERSION, OffsetCommitResponse, timeout_s=timeout_s)
            return groups.commit_results(answer, at)

    async def delete_group(self, at: Address, group_id: str, *, timeout_s: float) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        async with self._peer(at) as peer:
            answer = await peer.ask(READS, request, groups.DELETE_VERSION, DeleteGroupsResponse, timeout_s=timeout_s)
            groups.check_deleted(answer, at, group_id)

    async def mark(
        self, at: Address, marker: Marker, partitions: Sequence[PartitionId], *, timeout_s: float
    ) -> Mapping[PartitionId, StreamhouseError | None]:
        request = markers.marker_request(marker, partitions)
        async with self._peer(at) as peer:
            answer = await peer.ask(MARKERS, request, markers.VERSION, WriteTxnMarkersResponse, timeout_s=timeout_s)
            return markers.marker_results(answer, at, partitions)

    @asynccontextmanager
    async def _peer(self, at: Address) -> AsyncIterator[AgentConnections]:
        peer = self._peers.get(at)
        if peer is None:
            peer = self._peers[at] = AgentConnections(at, self._settings, self._clock)
        try:
            yield peer
        except MalformedMessage as error:
            raise Unavailable(f"another agent's answer makes no sense; address={at} why={error}") from error
        finally:
            if peer.is_unused and self._peers.get(at) is peer:
                del self._peers[at]

    async def aclose(self) -> None:
        peers, self._peers = list(self._peers.values()), {}
        for peer in peers:
            await peer.aclose()
