"""Raw client: just enough of Kafka's protocol to saturate a broker with frames that were built beforehand.

Data path   `batches` -> **raw_client** -> a broker's socket, and back
Owns        the bytes of the six requests the benchmarks send, and one blocking connection
Leaves      building record batches to `batches`; pacing and pipelining to the measures

One version per request, chosen so that Apache Kafka 4 and StreamHouse both speak it: Produce 9, Fetch 12, Metadata 9,
CreateTopics 5, DeleteTopics 4, ApiVersions 3. All are flexible: compact lengths are unsigned varints of length + 1, and
every structure ends with a count of tagged fields, which is always zero here.
"""

import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 3, 18, 19, 20
VERSION: Final = {PRODUCE: 9, FETCH: 12, METADATA: 9, API_VERSIONS: 3, CREATE_TOPICS: 5, DELETE_TOPICS: 4}
CLIENT_ID: Final = b"streamhouse-bench"
NO_TAGS: Final = b"\0"
TIMEOUT_S: Final = 30.0
DEFAULT_REPLICAS: Final = -1


class BrokerRefused(Exception):
    """The broker answered a request with an error code, or closed the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one partition's part of a fetch answer held."""

    partition: int
    next_offset: int
    records: int
    bytes: int


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    raw = value.encode()
    return uvarint(len(raw) + 1) + raw


def array(items: Sequence[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def frame(api: int, body: bytes, *, correlation: int = 0) -> bytes:
    # The client id keeps its two-byte length in flexible headers too.
    header = struct.pack(">hhih", api, VERSION[api], correlation, len(CLIENT_ID)) + CLIENT_ID + NO_TAGS
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_frame(topic: str, batches: Sequence[tuple[int, bytes]], *, acks: int, timeout_ms: int = 30_000) -> bytes:
    """A whole Produce request: one prepared record batch for each of the named partitions."""
    partitions = [
        struct.pack(">i", partition) + uvarint(len(batch) + 1) + batch + NO_TAGS for partition, batch in batches
    ]
    topic_data = text(topic) + array(partitions) + NO_TAGS
    return frame(PRODUCE, b"\0" + struct.pack(">hi", acks, timeout_ms) + array([topic_data]) + NO_TAGS)


def fetch_frame(
    topic: str, offsets: Sequence[tuple[int, int]], *, max_bytes: int, partition_max_bytes: int, max_wait_ms: int
) -> bytes:
    """A sessionless Fetch of (partition, offset) pairs that answers as soon as there is a byte."""
    partitions = [
        struct.pack(">iiqiqi", partition, -1, offset, -1, -1, partition_max_bytes) + NO_TAGS
        for partition, offset in offsets
    ]
    head = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
    forgotten, rack = uvarint(1), text("")
    return frame(FETCH, head + array([text(topic) + array(partitions) + NO_TAGS]) + forgotten + rack + NO_TAGS)


class Reader:
    """A cursor over an answer's bytes."""

    __slots__ = ("at", "view")

    def __init__(self, view: memoryview, at: int = 0) -> None:
        self.view, self.at = view, at

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.view, self.at)
        self.at += layout.size
        return values

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.view[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def chunk(self) -> memoryview:
        """A compact string, bytes or records field; empty when it is null."""
        length = max(0, self.uvarint() - 1)
        self.skip(length)
        return self.view[self.at - length : self.at]

    def skip(self, count: int) -> None:
        self.at += count

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())


PRODUCED: Final = struct.Struct(">ihqqq")  # partition, error, base offset, append time, log start
FETCH_HEAD: Final = struct.Struct(">ihi")  # throttle, error, session
FETCHED: Final = struct.Struct(">ihqqq")  # partition, error, high watermark, last stable offset, log start
BATCH_HEAD: Final = struct.Struct(">qiibIhiqqqhii")  # the 61 bytes in front of a batch's records
ERROR: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")


def first_offsets(response: memoryview) -> list[int]:
    """The base offset of each partition of a Produce answer; raises when one was refused."""
    reader = Reader(response, 5)
    offsets = []
    for _ in range(reader.uvarint() - 1):
        reader.chunk()
        for _ in range(reader.uvarint() - 1):
            partition, error, base_offset, _, _ = reader.unpack(PRODUCED)
            if error:
                raise BrokerRefused(f"produce refused; partition={partition} error_code={error}")
            offsets.append(base_offset)
            if reader.uvarint() > 1:
                raise BrokerRefused(f"produce refused records; partition={partition}")
            reader.chunk()
            reader.skip_tags()
        reader.skip_tags()
    return offsets


def fetched(response: memoryview) -> list[Fetched]:
    """What a Fetch answer brought, batch headers read and records left unopened."""
    reader = Reader(response, 5)
    _, error, _ = reader.unpack(FETCH_HEAD)
    if error:
        raise BrokerRefused(f"fetch refused; error_code={error}")
    return [part for _ in range(reader.uvarint() - 1) for part in _fetched_topic(reader)]


def _fetched_topic(reader: Reader) -> list[Fetched]:
    reader.chunk()
    parts = []
    for _ in range(reader.uvarint() - 1):
        partition, error, *_ = reader.unpack(FETCHED)
        if error:
            raise BrokerRefused(f"fetch refused; partition={partition} error_code={error}")
        for _ in range(reader.uvarint() - 1):  # aborted transactions
            reader.skip(16)
            reader.skip_tags()
        reader.skip(4)  # preferred read replica
        parts.append(_walk(partition, reader.chunk()))
        reader.skip_tags()
    reader.skip_tags()
    return parts


def _walk(partition: int, batches: memoryview) -> Fetched:
    at, records, next_offset = 0, 0, -1
    while at + BATCH_HEAD.size <= len(batches):
        base_offset, length, *_, last_delta, _, _, _, _, _, count = BATCH_HEAD.unpack_from(batches, at)
        if at + 12 + length > len(batches):
            break  # the tail of an answer may be cut in the middle of a batch
        next_offset = base_offset + last_delta + 1
        records += count
        at += 12 + length
    return Fetched(partition=partition, next_offset=next_offset, records=records, bytes=at)


class Connection:
    """One blocking connection that reuses one buffer for all its answers."""

    def __init__(self, host: str, port: int, *, timeout_s: float = TIMEOUT_S, buffer_bytes: int = 64 * 1024) -> None:
        self.sock = socket.create_connection((host, port), timeout=timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(buffer_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, request: bytes) -> None:
        self.sock.sendall(request)

    def receive(self) -> memoryview:
        """The next answer without its length; valid until the next call."""
        self._read(4)
        (size,) = INT32.unpack_from(self._buffer)
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        return self._read(size)

    def readable(self) -> bool:
        """Whether an answer, or its beginning, is there."""
        return bool(select.select([self.sock], [], [], 0.0)[0])

    def call(self, request: bytes) -> memoryview:
        self.send(request)
        return self.receive()

    def _read(self, size: int) -> memoryview:
        view = memoryview(self._buffer)[:size]
        done = 0
        while done < size:
            count = self.sock.recv_into(view[done:])
            if count == 0:
                raise BrokerRefused("connection closed by the broker")
            done += count
        return view


def metadata_brokers(connection: Connection) -> int:
    """How many brokers a Metadata answer names: the first sign that a broker serves."""
    body = uvarint(1) + b"\0\0\0" + NO_TAGS  # no topics; create none; no authorised operations
    reader = Reader(connection.call(frame(METADATA, body)), 5)
    reader.skip(4)
    return reader.uvarint() - 1


def topic_is_served(connection: Connection, topic: str, partitions: int) -> bool:
    """Whether every partition of an empty topic answers a fetch: metadata may name a leader before it leads."""
    offsets = [(partition, 0) for partition in range(partitions)]
    request = fetch_frame(topic, offsets, max_bytes=1, partition_max_bytes=1, max_wait_ms=0)
    try:
        return len(fetched(connection.call(request))) == partitions
    except BrokerRefused:
        return False


def create_topic(connection: Connection, topic: str, partitions: int) -> None:
    """Create a topic with as many replicas as the broker gives by default."""
    item = text(topic) + struct.pack(">ih", partitions, DEFAULT_REPLICAS) + uvarint(1) + uvarint(1) + NO_TAGS
    reader = Reader(connection.call(frame(CREATE_TOPICS, array([item]) + struct.pack(">ib", 30_000, 0) + NO_TAGS)), 5)
    reader.skip(4)
    reader.uvarint()
    reader.chunk()
    (error,) = reader.unpack(ERROR)
    if error:
        raise BrokerRefused(f"topic not created; topic={topic} error_code={error}")


def delete_topic(connection: Connection, topic: str) -> None:
    reader = Reader(connection.call(frame(DELETE_TOPICS, array([text(topic)]) + INT32.pack(30_000) + NO_TAGS)), 5)
    reader.skip(4)
    reader.uvarint()
    reader.chunk()
    (error,) = reader.unpack(ERROR)
    if error:
        raise BrokerRefused(f"topic not deleted; topic={topic} error_code={error}")
