"""A broker behind a real socket, and a client that says exactly what a test wants said."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar
from uuid import UUID

from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.wal.disk_recovery import DiskWalFactory
from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.config import FlushSettings, KafkaSettings, Settings, WalSettings, parse_address
from streamhouse.config.fields import Address
from streamhouse.config.secrets import Secrets
from streamhouse.format.batch import iter_batches
from streamhouse.format.records import Record, build_batch
from streamhouse.stores.local_files import LocalFiles
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.wire.kafka.codec import decode, encode_bytes
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from streamhouse.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from streamhouse.wire.kafka.messages.header import RequestHeader, ResponseHeader
from streamhouse.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from streamhouse.wire.kafka.schema import Buffer, Request, Response
from streamhouse.wire.kafka.server import KafkaServer
from streamhouse.wire.listener import OpenListener, bind

R = TypeVar("R", bound=Response)

TIMEOUT_S = 20.0
NOWHERE = Address(host="127.0.0.1", port=1)


def quick_settings(kafka: KafkaSettings) -> Settings:
    """A broker that starts and stops in no time."""
    return Settings(kafka=kafka, wal=WalSettings(fsync="never"), flush=FlushSettings(check_s=0.01))


@asynccontextmanager
async def a_broker(
    folder: Path,
    settings: Settings,
    clock: Clock | None = None,
    *,
    metadata_url: str = "sqlite::memory:",
    objects: ObjectStore | None = None,
    secrets: Secrets | None = None,
) -> AsyncIterator[Broker]:
    """A whole broker on memory stores and a WAL in a temporary folder."""
    clock, ids = clock or SystemClock(), Ids()
    metadata = await open_metadata_store(metadata_url, clock=clock)
    broker = Broker(
        Dependencies(
            settings=settings,
            objects=objects or MemoryObjectStore(clock),
            metadata=metadata,
            wal_factory=DiskWalFactory(folder / "wal", settings.wal, files=LocalFiles(), clock=clock, ids=ids),
            clock=clock,
            ids=ids,
            kafka=NOWHERE,
            http=NOWHERE,
            single_agent=True,
            secrets=secrets or Secrets(),
        )
    )
    await broker.start()
    running = asyncio.create_task(broker.run())
    try:
        yield broker
    finally:
        broker.stop()
        await running
        await metadata.aclose()


@dataclass(slots=True, kw_only=True)
class Served:
    """A server on a free port, and whoever talks to it."""

    broker: Broker
    server: KafkaServer
    registry: CollectorRegistry
    host: str
    port: int
    clients: "list[Client]" = field(default_factory=list)

    async def client(self) -> "Client":
        client = await Client.connect(self.host, self.port)
        self.clients.append(client)
        return client

    def counted(self, metric: str, **labels: str) -> float:
        return self.registry.get_sample_value(metric, labels) or 0.0


@asynccontextmanager
async def a_server(
    broker: Broker,
    settings: Settings,
    clock: Clock | None = None,
    *,
    listen: str = "127.0.0.1:0",
    listeners: Sequence[OpenListener] = (),
) -> AsyncIterator[Served]:
    registry = CollectorRegistry()
    advertised = parse_address(settings.kafka.advertise) if settings.kafka.advertise else None
    listeners = listeners or [OpenListener.plain(bind(parse_address(listen), flag="--kafka"), advertised)]
    server = KafkaServer(
        settings.kafka,
        broker,
        listeners=listeners,
        clock=clock or SystemClock(),
        registry=registry,
        cluster_id="a-cluster-of-the-tests",
    )
    host, port = await server.start()
    served = Served(broker=broker, server=server, registry=registry, host=host, port=port)
    try:
        yield served
    finally:
        for client in served.clients:
            await client.close()
        await server.stop()


def request_bytes(request: Request, version: int, correlation: int = 0, client_id: str | None = "test") -> bytes:
    """A whole frame, its size in front."""
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=version,
        correlation_id=correlation,
        client_id=client_id,
    )
    body = encode_bytes(header, request.header_version(version)) + encode_bytes(request, version)
    return struct.pack(">i", len(body)) + body


class Client:
    """One connection. Requests are numbered; answers are checked to come in the order of their numbers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._sent = 0
        self._received = 0

    @classmethod
    async def connect(cls, host: str, port: int) -> Self:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 26))

    async def send(self, request: Request, version: int) -> None:
        self._sent += 1
        await self.send_raw(request_bytes(request, version, self._sent))

    async def send_raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def skip_answer(self) -> None:
        """The last request gets no answer."""
        self._received += 1

    async def receive(self, kind: type[R], version: int) -> R:
        answer = await self.receive_raw()
        header, position = decode(ResponseHeader, kind.header_version(version), answer)
        self._received += 1
        assert header.correlation_id == self._received
        response, _ = decode(kind, version, answer, position, strict=True)
        return response

    async def receive_raw(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def call(self, request: Request, kind: type[R], version: int) -> R:
        assert request.response_class is kind
        await self.send(request, version)
        return await self.receive(kind, version)

    async def is_closed(self) -> bool:
        """Whether the server ended the connection, after whatever it still had to say."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return

    def shrink_receive_buffer(self) -> None:
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


async def until(condition: Callable[[], object]) -> None:
    """Let the server work until something is so; a test that waits in vain fails here."""
    for _ in range(int(TIMEOUT_S / 0.002)):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("waited in vain")


# --- requests that many tests make ----------------------------------------------------------------------------------


def a_batch(*values: bytes, timestamp_ms: int = 1_000, **fields: int) -> bytearray:
    records = [Record(timestamp_ms=timestamp_ms + n, key=b"k", value=value) for n, value in enumerate(values)]
    return build_batch(records, **fields)  # type: ignore[arg-type]


def produce_request(
    topic: str, *parts: tuple[int, Buffer | None], acks: int = -1, topic_id: UUID | None = None
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records) for partition, records in parts]
    request = TopicProduceData(name=topic, partition_data=data)
    if topic_id is not None:
        request.topic_id = topic_id
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[request])


async def produce(
    client: Client, topic: str, *parts: tuple[int, Buffer | None], version: int = 9
) -> list[PartitionProduceResponse]:
    response = await client.call(produce_request(topic, *parts), ProduceResponse, version)
    return response.responses[0].partition_responses


def fetch_request(
    topic: str,
    *parts: tuple[int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    topic_id: UUID | None = None,
) -> FetchRequest:
    request = FetchTopic(
        topic=topic,
        partitions=[
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
            for partition, offset in parts
        ],
    )
    if topic_id is not None:
        request.topic_id = topic_id
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[request],
    )


async def fetch(client: Client, request: FetchRequest, version: int = 12) -> list[PartitionData]:
    response = await client.call(request, FetchResponse, version)
    assert response.error_code == ErrorCode.NONE
    return response.responses[0].partitions


def batches_of(part: PartitionData) -> list[bytes]:
    """The batches of an answer, each one by itself."""
    assert isinstance(part.records, memoryview | bytes)
    data = bytes(part.records)
    return [data[span.position : span.position + span.size_bytes] for span in iter_batches(data)]


def as_sent(batch: bytes, original: Buffer) -> bytes:
    """A fetched batch with the three fields that are the log's (offset, length's neighbour epoch) as the client had
    them, to be compared with what was sent."""
    return bytes(original[:8]) + batch[8:12] + bytes(original[12:16]) + batch[16:]


async def create_topic(
    client: Client, name: str, *, partitions: int = 1, configs: Sequence[tuple[str, str]] = ()
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )
    response = await client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsRequest.response_class, 7)
    result = response.topics[0]  # type: ignore[attr-defined]
    assert result.error_code == ErrorCode.NONE, result.error_message
