"""Wire client: a connection that speaks Kafka's protocol with the product's server, in bytes.

Owns        frames, correlation ids, versions, what an error code means to a client; the broker's methods as requests
Leaves      bytes on their way to `sockets`; what is asked, and the verdict, to the clients of the simulation

`WireConnection` takes the place of `network.Connection`, and `RemoteBroker` that of the broker, so that the same
clients go through framing, codec, connection and handlers. They learn less: no more than a response says, when it
arrives.

A response must bear the correlation id of the oldest request without one, and end where its frame ends.
"""

import asyncio
import random
import struct
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import Context
from types import SimpleNamespace
from typing import Any, Final, Protocol, TypeVar, cast
from uuid import UUID

from streamhouse import errors
from streamhouse.broker.cluster.cluster import Leader
from streamhouse.broker.groups import JoinRequest, JoinResult, LeaveRequest, MemberRef, OffsetToCommit, SyncRequest
from streamhouse.broker.groups import SyncResult as Synced
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.config.fields import Address
from streamhouse.errors import Rejected, StreamhouseError, Unavailable
from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_requests import JoinedMember
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.model.transaction import AbortedTransaction, ProducerIdentity, TransactionCall
from streamhouse.wire.kafka.codec import decode, encode_bytes
from streamhouse.wire.kafka.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
)
from streamhouse.wire.kafka.messages import fetch as fetch_messages
from streamhouse.wire.kafka.messages.header import RequestHeader, ResponseHeader
from streamhouse.wire.kafka.schema import Request, Response

from .loop import Process, SimLoop, Violation
from .network import Begin, Lost
from .sockets import ServerTransport, SimServer, Stream

T = TypeVar("T")

BEYOND: Final = 2**62
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
IDS_SINCE: Final = 13
RETRIABLE: Final = frozenset({2, 3, 5, 7, 8, 9, 13, 19, 20, 56, 75, 89, 100})
"""As Kafka's protocol guide has it, and 75, on which clients look the leader up."""
KINDS: Final[Mapping[int, type[StreamhouseError]]] = {
    1: errors.OffsetOutOfRange,
    3: errors.UnknownTopic,
    14: errors.CoordinatorLoading,
    15: errors.CoordinatorUnavailable,
    16: errors.NotCoordinator,
    22: errors.IllegalGeneration,
    25: errors.UnknownMember,
    27: errors.RebalanceInProgress,
    45: errors.OutOfOrderSequence,
    46: errors.DuplicateSequence,
    47: errors.StaleProducerEpoch,
    48: errors.InvalidTransactionState,
    49: errors.UnknownProducerId,
    51: errors.ConcurrentTransactions,
    59: errors.AbortedSequence,
    69: errors.GroupNotFound,
    74: errors.FencedLeaderEpoch,
    75: errors.UnknownLeaderEpoch,
    82: errors.FencedInstance,
    88: errors.UnstableOffsets,
    90: errors.ProducerFenced,
    100: errors.UnknownTopicId,
    120: errors.TransactionAbortable,
}
NOT_LEADER: Final = 6
MEMBER_ID_REQUIRED: Final = 79


class WireServer(Protocol):
    """The agent at the other end."""

    process: Process
    is_listening: bool
    connections: list[Any]

    @property
    def wire(self) -> SimServer | None: ...


class WireWorld(Protocol):
    loop: SimLoop

    def partition(self, name: TopicPartition) -> PartitionId | None: ...


def error_of(code: int, about: object, text: str | None = None) -> StreamhouseError:
    """What a client makes of an error code."""
    kind = KINDS.get(code) or (Unavailable if code in RETRIABLE else Rejected)
    error = kind.__new__(kind)
    StreamhouseError.__init__(error, f"code {code}; about={about} text={text}")
    return error


def check(code: int, about: object, text: str | None = None) -> None:
    if code:
        raise error_of(code, about, text)


class WireConnection:
    """A client's connection: what is asked of the broker is sent in order, and what comes back is read in order."""

    def __init__(
        self, world: WireWorld, server: WireServer, chance: random.Random, *, cuts: float, naps: float
    ) -> None:
        self._world, self._loop, self._server, self._chance = world, world.loop, server, chance
        self._cuts, self._naps = cuts, naps
        self._asked: deque[tuple[Begin[Any], asyncio.Future[Any]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._pending: deque[tuple[int, Request, int, asyncio.Future[Any]]] = deque()
        self._received = bytearray()
        self._correlation = chance.randrange(1 << 30)
        self.is_lost = False
        self.broker = RemoteBroker(self, world, chance)
        server.connections.append(self)
        result = server.wire if server.is_listening and not server.process.is_dead else None
        if result is None or not result.is_open:
            self.is_lost = True
            return
        self._transport = ServerTransport(result, chance, self._arrived, self._reset, self._violated)
        self._going = Stream(self._loop, chance, self._transport.arrived, server.process.context.copy)
        self._going.end(self._transport.connect)

    def leads_to(self, server: object) -> bool:
        return self._server is server

    def leads_where(self, other: "WireConnection") -> bool:
        return self._server is other._server

    def _violated(self, what: str) -> None:
        self._loop.note(f"VIOLATION {what}")
        self._loop.fail(Violation(what))

    # --- what clients ask

    def send(self, begin: Begin[T]) -> "asyncio.Future[T]":
        """As `network.Connection.send`: its first stage writes the request, its second waits for the response."""
        response = self._loop.create_future()
        if self.is_lost:
            _fail(response, Lost())
            return response
        self._asked.append((begin, response))
        if self._worker is None:
            self._worker = self._loop.create_task(self._work(), name="wire client")
        return response

    async def _work(self) -> None:
        while self._asked:
            begin, response = self._asked.popleft()
            finish = await self._told(begin(cast(Any, self.broker)), response)
            if finish is not None:
                self._loop.create_task(self._finish(finish(), response), name="wire client")
        self._worker = None

    async def _finish(self, finishing: Coroutine[Any, Any, T], response: "asyncio.Future[T]") -> None:
        result = await self._told(finishing, response)
        if not response.done():
            response.set_result(cast(T, result))

    async def _told(self, work: Coroutine[Any, Any, T], response: "asyncio.Future[Any]") -> T | None:
        try:
            return await work
        except (StreamhouseError, Lost) as error:
            self._loop.note(f"refused {error}")
            _fail(response, error)
        except Exception as error:
            self._loop.fail(error)
            raise
        return None

    def close(self) -> None:
        """The client has lost deadline or interest; the server notices soon."""
        if not self.is_lost:
            self._going.end(lambda: self._transport.client_gone(None))
            self._reset()

    # --- requests and responses

    def request(self, request: Request, version: int) -> "asyncio.Future[Any]":
        """Write a request; the future has its response."""
        response = self._loop.create_future()
        if self.is_lost:
            _fail(response, Lost())
            return response
        self._correlation = (self._correlation + 1) % (1 << 31)
        self._pending.append((self._correlation, request, version, response))
        header = RequestHeader(
            request_api_key=request.api_key,
            request_api_version=version,
            correlation_id=self._correlation,
            client_id="simulated",
        )
        try:
            body = encode_bytes(header, request.header_version(version)) + encode_bytes(request, version)
        except StreamhouseError as error:
            raise AssertionError(f"not a request of this version; {error}") from error
        frame = struct.pack(">i", len(body)) + body
        if self._chance.random() < self._naps:
            self._transport.reads_from = self._loop.time() + self._chance.expovariate(1 / 0.2)
        if self._chance.random() < self._cuts:
            self._cut(frame)
        else:
            self._going.write(frame)
        return response

    def _cut(self, frame: bytes) -> None:
        """The connection breaks while a request is sent, before or after its last byte."""
        self._loop.note("a connection is cut")
        self._going.write(frame[: self._chance.randint(0, len(frame))])
        self._going.end(lambda: self._transport.client_gone(ConnectionResetError("cut")))
        if self._chance.random() < 0.5:
            self._transport.cut()
        self._loop.call_later(self._chance.expovariate(1 / 0.05), self._reset, context=Context())

    def _arrived(self, data: bytes) -> None:
        if self.is_lost:
            return
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._responded(frame)

    def _responded(self, frame: bytes) -> None:
        (correlation,) = struct.unpack_from(">i", frame)
        if not self._pending or self._pending[0][0] != correlation:
            expected = self._pending[0][0] if self._pending else None
            self._violated(f"a response belongs to another request; correlation={correlation} expected={expected}")
            return
        _, request, version, response = self._pending.popleft()
        kind: type[Response] = request.response_class
        try:
            _, position = decode(ResponseHeader, kind.header_version(version), frame)
            message, _ = decode(kind, version, frame, position, strict=True)
        except StreamhouseError as error:
            self._violated(f"a response can't be decoded; {kind.name} v{version} {error}")
            return
        if not response.done():
            response.set_result(message)

    # --- the end of it

    def _reset(self) -> None:
        self.is_lost = True
        for *_, response in self._pending:
            _fail(response, Lost())
        self._pending.clear()
        for _, answer in self._asked:
            _fail(answer, Lost())
        self._asked.clear()

    def server_gone(self) -> None:
        if not self.is_lost:
            self._transport.process_gone()

    def shut(self) -> list["asyncio.Task[None]"]:
        """The product's server ends its connections itself."""
        return []


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: a client that has moved on need not look


class RemoteAppend:
    """A Produce request on its way."""

    def __init__(self, name: TopicPartition, partition: PartitionId | None, response: "asyncio.Future[Any]") -> None:
        self.name, self.partition, self.response = name, partition, response


class RemoteBroker:
    """The methods of the broker that clients call, as requests. Versions are chosen by chance: each has its codec."""

    agent_session = None

    def __init__(self, connection: WireConnection, world: WireWorld, chance: random.Random) -> None:
        self._connection, self._world, self.chance = connection, world, chance
        self.groups = RemoteGroups(self)
        self.transactions = RemoteTransactions(self)

    def write(self, request: Request, versions: tuple[int, int]) -> "tuple[int, asyncio.Future[Any]]":
        version = self.chance.randint(*versions)
        return version, self._connection.request(request, version)

    async def ask(self, request: Request, versions: tuple[int, int]) -> Any:
        return await self.write(request, versions)[1]

    def topic_id(self, name: TopicPartition) -> UUID:
        partition = self._world.partition(name)
        return partition.topic_id if partition is not None else UUID(int=0)

    # --- records

    async def append(
        self, name: TopicPartition, batch: memoryview, transaction: ProduceTransaction | None = None
    ) -> RemoteAppend:
        """Write the request, without waiting for anything."""
        versions = (3, 13)
        if transaction is not None:
            versions = (12, 13) if transaction.enlists else (3, 11)
        part = produce.PartitionProduceData(index=name.partition, records=bytes(batch))
        topic = produce.TopicProduceData(name=name.topic, topic_id=self.topic_id(name), partition_data=[part])
        request = produce.ProduceRequest(
            transactional_id=transaction.transactional_id if transaction is not None else None,
            acks=-1,
            timeout_ms=3000,
            topic_data=[topic],
        )
        partition = self._world.partition(name)
        return RemoteAppend(name, partition, self.write(request, versions)[1])

    async def appended(self, placed: RemoteAppend) -> int:
        """The offset of an acknowledged batch."""
        response: produce.ProduceResponse = await placed.response
        ((part,),) = (topic.partition_responses for topic in response.responses)
        if part.error_code == NOT_LEADER:
            raise _not_leader(placed.name, part.current_leader, response.node_endpoints)
        check(part.error_code, placed.name, part.error_message)
        return part.base_offset

    async def fetch(
        self, wanted: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        topics: dict[str, fetch_messages.FetchTopic] = {}
        is_committed = any(item.committed for item in wanted)
        for item in wanted:
            topic = topics.setdefault(
                item.name.topic,
                fetch_messages.FetchTopic(topic=item.name.topic, topic_id=self.topic_id(item.name), partitions=[]),
            )
            topic.partitions.append(
                fetch_messages.FetchPartition(
                    partition=item.name.partition,
                    current_leader_epoch=item.leader_epoch,
                    fetch_offset=item.offset,
                    partition_max_bytes=item.max_bytes,
                )
            )
        request = fetch_messages.FetchRequest(
            max_wait_ms=round(max_wait_s * 1000),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(is_committed),
            topics=list(topics.values()),
        )
        version, future = self.write(request, (5, 18))
        response: fetch_messages.FetchResponse = await future
        check(response.error_code, "a fetch")
        names = {
            (self.topic_id(item.name) if version >= IDS_SINCE else item.name.topic): item.name.topic for item in wanted
        }
        parts = {
            (names[topic.topic_id if version >= IDS_SINCE else topic.topic], part.partition_index): part
            for topic in response.responses
            for part in topic.partitions
        }
        return [_fetched(item, parts[item.name], response.node_endpoints) for item in wanted]

    async def earliest(self, name: TopicPartition) -> OffsetResult:
        return await self._offset(name, EARLIEST)

    async def latest(self, name: TopicPartition, *, committed: bool = False) -> OffsetResult:
        return await self._offset(name, LATEST, is_committed=committed)

    async def _offset(self, name: TopicPartition, time_ms: int, *, is_committed: bool = False) -> OffsetResult:
        part = list_offsets.ListOffsetsPartition(partition_index=name.partition, timestamp=time_ms)
        topic = list_offsets.ListOffsetsTopic(name=name.topic, partitions=[part])
        request = list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=int(is_committed), topics=[topic])
        response = await self.ask(request, (2, 11))
        ((result,),) = (topic.partitions for topic in response.topics)
        if result.error_code == NOT_LEADER:
            raise _not_leader(name, None, ())
        check(result.error_code, name)
        return OffsetResult(result.offset, result.timestamp, result.leader_epoch)

    async def allocate_producer_id(self) -> int:
        request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        response = await self.ask(request, (0, 5))
        check(response.error_code, "a producer id")
        return int(response.producer_id)

    # --- who leads

    async def topic(self, name: str) -> Any:
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(topic_id=UUID(int=0), name=name)], allow_auto_topic_creation=False
        )
        response = await self.ask(request, (10, 12))
        (result,) = response.topics
        check(result.error_code, name)
        return SimpleNamespace(topic_id=TopicId(result.topic_id), found=result, brokers=response.brokers)

    async def leaders(self, topics: Sequence[Any]) -> dict[PartitionId, Leader]:
        leaders = {}
        for topic in topics:
            ports = {each.node_id: each.port for each in topic.brokers}
            for part in topic.found.partitions:
                port = ports.get(part.leader_id)
                session = SimpleNamespace(kafka=Address("127.0.0.1", port)) if port is not None else None
                leaders[PartitionId(topic.topic_id, part.partition_index)] = Leader(
                    cast(Any, session), part.leader_epoch
                )
        return leaders


def remote_of(broker: object) -> RemoteBroker | None:
    """The broker, if what is asked of it goes through the wire."""
    return broker if isinstance(broker, RemoteBroker) else None


def _not_leader(name: TopicPartition, leader: Any, endpoints: Sequence[Any]) -> errors.NotLeader:
    nodes = {each.node_id: (each.host, each.port) for each in endpoints}
    if leader is None or leader.leader_id < 0:
        return errors.NotLeader(name, node_id=None, epoch=-1, address=None)
    return errors.NotLeader(
        name, node_id=leader.leader_id, epoch=leader.leader_epoch, address=nodes.get(leader.leader_id)
    )


def _fetched(item: PartitionFetch, part: fetch_messages.PartitionData, endpoints: Sequence[Any]) -> FetchResult:
    if part.error_code == NOT_LEADER:
        return FetchResult(name=item.name, error=_not_leader(item.name, part.current_leader, endpoints))
    if part.error_code:
        return FetchResult(name=item.name, error=error_of(part.error_code, item.name))
    records = bytes(cast(Any, part.records) or b"")
    return FetchResult(
        name=item.name,
        high_watermark=part.high_watermark,
        last_stable=part.last_stable_offset,
        log_start=part.log_start_offset,
        aborted=[
            AbortedTransaction(each.producer_id, each.first_offset, BEYOND) for each in part.aborted_transactions or ()
        ],
        records=[records] if records else [],
    )


class RemoteGroups:
    def __init__(self, broker: RemoteBroker) -> None:
        self._broker = broker

    async def coordinator_of(self, group_id: str) -> Any:
        if self._broker.chance.random() < 0.5:
            request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
            (result,) = (await self._broker.ask(request, (4, 6))).coordinators
        else:
            request = find_coordinator.FindCoordinatorRequest(key=group_id, key_type=0)
            result = await self._broker.ask(request, (1, 3))
        check(result.error_code, group_id)
        return SimpleNamespace(kafka=Address(result.host, result.port))

    async def join(self, group_id: str, ask: JoinRequest) -> JoinResult:
        protocols = [
            join_group.JoinGroupRequestProtocol(name=each.name, metadata=each.metadata) for each in ask.protocols
        ]
        request = join_group.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=ask.session_timeout_ms,
            rebalance_timeout_ms=ask.rebalance_timeout_ms,
            member_id=ask.member_id,
            group_instance_id=ask.instance_id,
            protocol_type=ask.protocol_type,
            protocols=protocols,
        )
        versions = (9, 9) if ask.may_skip_assignment else (5, 8)
        response = await self._broker.ask(request, versions)
        if response.error_code == MEMBER_ID_REQUIRED:
            raise errors.MemberIdRequired(group_id, member_id=response.member_id)
        check(response.error_code, group_id)
        return JoinResult(
            generation=response.generation_id,
            protocol_type=response.protocol_type,
            protocol=response.protocol_name,
            leader=response.leader,
            member_id=response.member_id,
            members=tuple(
                JoinedMember(
                    member_id=each.member_id, instance_id=each.group_instance_id, metadata=bytes(each.metadata)
                )
                for each in response.members
            ),
            skip_assignment=response.skip_assignment,
        )

    async def sync(self, group_id: str, ask: SyncRequest) -> Synced:
        offered = [
            sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
            for member_id, data in ask.assignments.items()
        ]
        request = sync_group.SyncGroupRequest(
            group_id=group_id,
            generation_id=ask.generation,
            member_id=ask.member_id,
            group_instance_id=ask.instance_id,
            protocol_type=ask.protocol_type,
            protocol_name=ask.protocol,
            assignments=offered,
        )
        response = await self._broker.ask(request, (3, 5))
        check(response.error_code, group_id)
        return Synced(
            protocol_type=response.protocol_type,
            protocol=response.protocol_name,
            assignment=bytes(response.assignment),
        )

    async def heartbeat(self, group_id: str, caller: MemberRef) -> None:
        request = heartbeat.HeartbeatRequest(
            group_id=group_id,
            generation_id=caller.generation,
            member_id=caller.member_id,
            group_instance_id=caller.instance_id,
        )
        check((await self._broker.ask(request, (3, 4))).error_code, group_id)

    async def leave(self, group_id: str, leavers: Sequence[LeaveRequest]) -> None:
        members = [
            leave_group.MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id) for each in leavers
        ]
        response = await self._broker.ask(leave_group.LeaveGroupRequest(group_id=group_id, members=members), (3, 5))
        check(response.error_code, group_id)

    async def commit(
        self, group_id: str, caller: MemberRef, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> dict[TopicPartition, StreamhouseError | None]:
        topics: dict[str, offset_commit.OffsetCommitRequestTopic] = {}
        for name, result in offsets.items():
            topic = topics.setdefault(
                name.topic,
                offset_commit.OffsetCommitRequestTopic(
                    name=name.topic, topic_id=self._broker.topic_id(name), partitions=[]
                ),
            )
            topic.partitions.append(
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=name.partition, committed_offset=result.offset, committed_metadata=result.metadata
                )
            )
        request = offset_commit.OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=caller.generation,
            member_id=caller.member_id,
            group_instance_id=caller.instance_id,
            topics=list(topics.values()),
        )
        response = await self._broker.ask(request, (7, 9))
        return _outcomes(group_id, response.topics, offsets)

    async def fetch(
        self, asked: Mapping[str, Sequence[TopicPartition]], *, stable: bool = False
    ) -> dict[str, dict[TopicPartition, CommittedOffset | StreamhouseError]]:
        ((group_id, names),) = asked.items()
        topics: dict[str, offset_fetch.OffsetFetchRequestTopics] = {}
        for name in names:
            topic = topics.setdefault(
                name.topic, offset_fetch.OffsetFetchRequestTopics(name=name.topic, partition_indexes=[])
            )
            topic.partition_indexes.append(name.partition)
        group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=list(topics.values()))
        response = await self._broker.ask(
            offset_fetch.OffsetFetchRequest(groups=[group], require_stable=stable), (8, 9)
        )
        (actual,) = response.groups
        check(actual.error_code, group_id)
        result: dict[TopicPartition, CommittedOffset | StreamhouseError] = {}
        for topic in actual.topics:
            for part in topic.partitions:
                name = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    result[name] = error_of(part.error_code, name)
                elif part.committed_offset >= 0:
                    result[name] = CommittedOffset(
                        offset=part.committed_offset, metadata=part.metadata or "", committed_at_ms=0
                    )
        return {group_id: result}

    async def commit_in_transaction(
        self,
        group_id: str,
        caller: MemberRef,
        call: TransactionCall,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        begins: bool,
    ) -> dict[TopicPartition, StreamhouseError | None]:
        topics: dict[str, txn_offset_commit.TxnOffsetCommitRequestTopic] = {}
        for name, result in offsets.items():
            topic = topics.setdefault(
                name.topic, txn_offset_commit.TxnOffsetCommitRequestTopic(name=name.topic, partitions=[])
            )
            topic.partitions.append(
                txn_offset_commit.TxnOffsetCommitRequestPartition(
                    partition_index=name.partition, committed_offset=result.offset, committed_metadata=result.metadata
                )
            )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=call.transactional_id,
            group_id=group_id,
            producer_id=call.producer.producer_id,
            producer_epoch=call.producer.epoch,
            generation_id_or_member_epoch=caller.generation,
            member_id=caller.member_id,
            topics=list(topics.values()),
        )
        response = await self._broker.ask(request, (5, 5) if begins else (3, 4))
        return _outcomes(group_id, response.topics, offsets)


def _outcomes(
    group_id: str, topics: Sequence[Any], asked: Mapping[TopicPartition, object]
) -> dict[TopicPartition, StreamhouseError | None]:
    """Of each partition; what concerns the whole group is raised."""
    outcomes: dict[TopicPartition, StreamhouseError | None] = {}
    for topic in topics:
        for part in topic.partitions:
            name = TopicPartition(topic.name, part.partition_index)
            outcomes[name] = error_of(part.error_code, name) if part.error_code else None
    if outcomes.keys() != asked.keys():
        raise Violation(f"a response has other parts than its request; {group_id} {outcomes} {list(asked)}")
    errors_told = [error for error in outcomes.values() if error is not None]
    if len(errors_told) == len(outcomes) and errors_told and not isinstance(errors_told[0], errors.UnknownTopic):
        raise errors_told[0]
    return outcomes


class RemoteTransactions:
    def __init__(self, broker: RemoteBroker) -> None:
        self._broker = broker

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdentity | None
    ) -> ProducerIdentity:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known.producer_id if known is not None else -1,
            producer_epoch=known.epoch if known is not None else -1,
        )
        response = await self._broker.ask(request, (3, 5))
        check(response.error_code, transactional_id)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def add_partitions(
        self, call: TransactionCall, names: Sequence[TopicPartition]
    ) -> dict[TopicPartition, StreamhouseError | None]:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=call.transactional_id,
            v3_and_below_producer_id=call.producer.producer_id,
            v3_and_below_producer_epoch=call.producer.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=name.topic, partitions=[name.partition])
                for name in names
            ],
        )
        response = await self._broker.ask(request, (0, 3))
        return {
            (name := TopicPartition(topic.name, part.partition_index)): error_of(part.partition_error_code, name)
            if part.partition_error_code
            else None
            for topic in response.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }

    async def add_offsets(self, call: TransactionCall, group_id: str) -> None:
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=call.transactional_id,
            producer_id=call.producer.producer_id,
            producer_epoch=call.producer.epoch,
            group_id=group_id,
        )
        check((await self._broker.ask(request, (0, 4))).error_code, call.transactional_id)

    async def end(self, call: TransactionCall, *, commit: bool, bump: bool) -> ProducerIdentity:
        request = end_txn.EndTxnRequest(
            transactional_id=call.transactional_id,
            producer_id=call.producer.producer_id,
            producer_epoch=call.producer.epoch,
            committed=commit,
        )
        response = await self._broker.ask(request, (5, 5) if bump else (0, 4))
        check(response.error_code, call.transactional_id)
        return ProducerIdentity(response.producer_id, response.producer_epoch) if bump else call.producer
