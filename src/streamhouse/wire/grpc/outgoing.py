"""Outgoing: what was read becomes messages of bounded size.

Data path   broker.records.read -> **outgoing** -> messages to the client
Owns        how much goes into one message, where reading goes on behind it, what waits for the next message
Leaves      reading to the broker, batches to `format`, credit to `subscription`

Batches are opened one at a time, when their turn comes: what waits is no larger than it was read, but for one batch.
All of it is plain and synchronous, so that it can be done in a thread.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from streamhouse.broker.reading.fetch import Fetched
from streamhouse.errors import Retriable, StreamhouseError
from streamhouse.format.batch import spans
from streamhouse.format.records import decode_batch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import StoredRecord

from .errors import as_message
from .generated import streamhouse_pb2 as pb


@dataclass(slots=True, kw_only=True)
class Room:
    """What may still go into a message."""

    records: int
    size_bytes: int

    @property
    def is_full(self) -> bool:
        return self.records <= 0 or self.size_bytes <= 0

    def take(self, records: int, size_bytes: int) -> None:
        self.records -= records
        self.size_bytes -= size_bytes


@dataclass(slots=True, kw_only=True)
class Piece:
    """What was read of one partition and is not sent yet."""

    name: TopicPartition
    next_offset: int
    high_watermark: int
    log_start: int
    batches: deque[memoryview]
    opened: list[StoredRecord] = field(default_factory=list)
    opened_end: int = 0
    error: StreamhouseError | None = None

    @property
    def is_sent(self) -> bool:
        return not self.batches and not self.opened

    def take_records(self, room: Room, *, limit_bytes: int) -> Iterator[StoredRecord]:
        """Records for one message, as many as it has room for, and one at least."""
        while not room.is_full and not self.is_sent:
            if not self.opened:
                self._open(limit_bytes)
                continue
            count, size_bytes = fitting(self.opened, room)
            yield from self.opened[:count]
            room.take(count, size_bytes)
            self.opened = self.opened[count:]
            self.next_offset = self.opened[0].offset if self.opened else self.opened_end

    def _open(self, limit_bytes: int) -> None:
        batch = self.batches.popleft()
        self.opened_end = spans(batch)[0].end
        self.opened = decode_batch(batch, limit_bytes=limit_bytes, from_offset=self.next_offset)
        if not self.opened:
            self.next_offset = max(self.next_offset, self.opened_end)

    def take_batches(self, room: Room) -> Iterator[bytes]:
        """Batches for one message, as many as it has room for, and one at least."""
        while not room.is_full and self.batches:
            batch = self.batches.popleft()
            span = spans(batch)[0]
            self.next_offset = max(self.next_offset, span.end)
            room.take(span.end - span.base, span.size_bytes)
            yield bytes(batch)

    def fail(self, error: StreamhouseError) -> None:
        """Nothing more of it can be sent."""
        self.batches.clear()
        self.opened = []
        self.error = error


def piece_of(found: Fetched, offset: int) -> Piece:
    """What was read from `offset` on."""
    return Piece(
        name=found.name,
        next_offset=offset,
        high_watermark=found.high_watermark,
        log_start=found.log_start,
        batches=deque(_split(found)),
    )


def _split(found: Fetched) -> Iterator[memoryview]:
    for buffer in found.records:
        whole = memoryview(buffer)
        for span in spans(whole):
            yield whole[span.position : span.position + span.size_bytes]


def fitting(records: list[StoredRecord], room: Room) -> tuple[int, int]:
    """How many of the first records fit, and their bytes; the last one may go beyond."""
    among = records[: room.records] if room.records < len(records) else records
    total = 0
    for count, total in enumerate(accumulate(map(_size_bytes, among)), start=1):
        if total >= room.size_bytes:
            return count, total
    return len(among), total


def _size_bytes(record: StoredRecord) -> int:
    _, _, key, value, headers = record
    size = (len(key) if key else 0) + (len(value) if value else 0)
    return size + sum(len(name) + len(content or b"") for name, content in headers) if headers else size


def fill_records(
    response: pb.FetchResponse | pb.ConsumeResponse, pieces: Iterable[Piece], room: Room, *, limit_bytes: int
) -> None:
    """Put into the response what it has room for, one entry per piece; a piece that can't be opened says why."""
    for piece in pieces:
        topic, partition = piece.name
        part = response.partitions.add(
            topic=topic, partition=partition, high_watermark=piece.high_watermark, log_start=piece.log_start
        )
        add = part.records.add
        try:
            for offset, timestamp_ms, key, value, headers in piece.take_records(room, limit_bytes=limit_bytes):
                made = add(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value)
                if headers:
                    made.headers.extend([pb.Header(key=name, value=content) for name, content in headers])
        except StreamhouseError as error:
            piece.fail(error)
            part.error.CopyFrom(as_message(error))
            if not isinstance(error, Retriable) and piece.opened_end > piece.next_offset:
                part.error.message += f"; to go on behind what can't be read, read from offset={piece.opened_end}"
        part.next_offset = piece.next_offset


def fill_batches(
    response: pb.FetchBatchesResponse | pb.ConsumeBatchesResponse, pieces: Iterable[Piece], room: Room
) -> None:
    """Put into the response what it has room for, one entry per piece."""
    for piece in pieces:
        topic, partition = piece.name
        part = response.partitions.add(
            topic=topic, partition=partition, high_watermark=piece.high_watermark, log_start=piece.log_start
        )
        part.batches.extend(piece.take_batches(room))
        part.next_offset = piece.next_offset


def while_room(pieces: Iterable[Piece], room: Room) -> Iterator[Piece]:
    """The first pieces, until there is no room for more."""
    for piece in pieces:
        if room.is_full:
            return
        yield piece
