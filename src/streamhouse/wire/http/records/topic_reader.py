"""TopicReader: reads all partitions of a topic in turn, and the cursor that stores its position.

Data path   broker.forwarding -> **topic_reader** -> pages, streams
Owns        the next offset in each partition, partitions that are added meanwhile, gaps where retention deleted
            records; decoding batches within limits of records and bytes; the text of a cursor
Leaves      finding leaders to `broker.forwarding`, formats to `formats`
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.batch_decoder import StoredSize, stored_size
from streamhouse.clock import SystemClock
from streamhouse.errors import (
    BatchTooLarge,
    CorruptBatch,
    DamagedRecords,
    InvalidRecord,
    OffsetOutOfRange,
    Retriable,
    StreamhouseError,
)
from streamhouse.format.batch import Buffer, iter_batches, read_header
from streamhouse.format.compression import Codec
from streamhouse.format.records import iterate_batch
from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.model.record import StoredRecord
from streamhouse.model.topic import Topic
from streamhouse.wire.http.errors import Unprocessable

VERSION: Final = 1
MAX_CHARS: Final = 65_536
_ID_BYTES: Final = 4
_MAX_SHIFT: Final = 63


def write_cursor(topic_id: TopicId, offsets: Sequence[int]) -> str:
    data = bytearray([VERSION])
    data += topic_id.bytes[:_ID_BYTES]
    for offset in offsets:
        while offset > 0x7F:
            data.append(offset & 0x7F | 0x80)
            offset >>= 7
        data.append(offset)
    return urlsafe_b64encode(data).decode().rstrip("=")


def read_cursor(text: str, topic_id: TopicId, *, partitions: int) -> list[int]:
    """The offsets of the first partitions; raises `Unprocessable` for anything that isn't a cursor of this topic."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if urlsafe_b64encode(data).decode().rstrip("=") != text:
            raise ValueError
        offsets = _read_offsets(data[1 + _ID_BYTES :])
    except (ValueError, Base64Error):
        raise Unprocessable("invalid cursor") from None
    if data[:1] != bytes([VERSION]) or len(offsets) > partitions:
        raise Unprocessable("the cursor does not fit this topic")
    if data[1 : 1 + _ID_BYTES] != topic_id.bytes[:_ID_BYTES]:
        raise Unprocessable("the cursor belongs to another topic, or to a deleted topic of this name")
    return offsets


def _read_offsets(data: bytes) -> list[int]:
    offsets: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> _MAX_SHIFT:
                raise ValueError
            offsets.append(value)
            value = shift = 0
        else:
            shift += 7
            if shift > _MAX_SHIFT:
                raise ValueError
    if shift:
        raise ValueError
    return offsets


INLINE_BYTES: Final = 16 * 1024
"""Up to this size uncompressed batches are decoded on the event loop."""


class TooLargeForJson(Unprocessable):
    """A record exceeds `http.max_record_bytes`."""


UNDECODABLE: Final = (CorruptBatch, InvalidRecord)
"""Errors of a stored batch: it is damaged, or beyond the limits of this agent, which are lower than when it came."""


def undecodable(error: CorruptBatch | InvalidRecord, advice: str) -> StreamhouseError:
    """The error of a batch, which its reader can pass by."""
    kind = InvalidRecord if isinstance(error, InvalidRecord) else CorruptBatch
    return kind(f"{error}; {advice}")


MAX_HEADERS: Final = 100_000
"""Maximum headers of all records decoded at once; a single record may have more."""


class DecodedRecords(NamedTuple):
    """Records of one partition, and the offset after them and after the gaps that follow."""

    records: list[StoredRecord]
    next_offset: int
    size_bytes: int
    is_full: bool
    """Whether decoding stopped at a limit, before the end of the batches."""


class Limits(NamedTuple):
    """At most `records` records and `size_bytes`, but at least one record."""

    records: int
    size_bytes: int
    at_least_one: bool = True


class SplitBatches(NamedTuple):
    """The batches of a read, what decoding them takes, and the offset after the last one; -1 if there is none."""

    batches: Sequence[memoryview]
    stored: StoredSize
    end: int


async def split_batches(broker: Broker, fetched: FetchResult) -> SplitBatches:
    """Find the batches of a read; in a thread if it is large, because small producers' batches are many."""
    size = StoredSize(Codec.NONE, fetched.size_bytes)
    return await broker.decoder.run(size, partial(_split, fetched.records), inline_bytes=INLINE_BYTES)


def _split(buffers: Sequence[Buffer], _: int) -> SplitBatches:
    batches, end = list[memoryview](), -1
    for buffer in buffers:
        view = memoryview(buffer)
        for span in iter_batches(view):
            batches.append(view[span.position : span.position + span.size_bytes])
            end = max(end, span.end)
    return SplitBatches(batches, stored_size(batches), end)


async def decode_records(broker: Broker, fetched: FetchResult, *, offset: int, limits: Limits) -> DecodedRecords:
    """The first records from `offset` on. Raises `Overloaded` if the decoder is busy, `UNDECODABLE` if the first batch
    can't be decoded, and `TooLargeForJson` if the first record is larger than may be written: bytes become up to six
    times as many in JSON."""
    found = await split_batches(broker, fetched)
    max_bytes = broker.settings.http.max_record_bytes
    work = partial(
        _decode_records,
        fetched.name,
        found.batches,
        offset,
        limits,
        max_bytes,
        broker.decoder.max_headers,
        broker.decoder.limit_bytes,
    )
    return await broker.decoder.run(found.stored, work, inline_bytes=INLINE_BYTES)


def _decode_records(
    name: TopicPartition,
    batches: Sequence[memoryview],
    offset: int,
    limits: Limits,
    max_bytes: int,
    max_headers: int,
    most_bytes: int,
    limit_bytes: int,
) -> DecodedRecords:
    records: list[StoredRecord] = []
    size = headers = 0
    for batch in batches:
        in_batch = iterate_batch(batch, limit_bytes=limit_bytes, from_offset=offset, max_headers=max_headers)
        end = read_header(batch).end
        try:
            for record in in_batch:
                own = size_of(record)
                headers += len(record.headers)
                is_beyond = size + own > limits.size_bytes or headers > MAX_HEADERS or own > max_bytes
                if len(records) >= limits.records or (is_beyond and (records or not limits.at_least_one)):
                    return DecodedRecords(records, record.offset, size, is_full=True)
                if own > max_bytes:
                    raise TooLargeForJson(
                        f"a record is too large to be written as JSON; offset={record.offset} bytes={own}"
                        f" limit={max_bytes} setting=http.max_record_bytes"
                        " do=read it with GET …/batches, or with a Kafka client"
                    )
                records.append(record)
                size += own
        except UNDECODABLE as error:
            if isinstance(error, BatchTooLarge) and limit_bytes < most_bytes:
                raise  # the next try may take more
            if records:
                return DecodedRecords(records, max(offset, records[-1].offset + 1), size, is_full=True)
            raise undecodable(error, f"partition={name} do=read from offset={end} to continue behind it") from None
        offset = max(offset, end)
    return DecodedRecords(records, offset, size, is_full=False)


def size_of(record: StoredRecord) -> int:
    """The bytes of a record's key, value and headers."""
    _, _, key, value, headers = record
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in headers) if headers else size


PAUSE_S: Final = 0.25
"""Interval of polling partitions that have no leader at the moment."""
PARALLEL: Final = 16
"""Concurrent lookups of start offsets."""


class PartitionRecords(NamedTuple):
    """Records of one partition. `lost` are offsets [from, to) deleted before they were read."""

    partition: int
    records: Sequence[StoredRecord]
    next_offset: int
    size_bytes: int = 0
    is_full: bool = False
    lost: tuple[int, int] | None = None


class TopicReader:
    def __init__(self, broker: Broker, topic: Topic, offsets: list[int]) -> None:
        self._broker = broker
        self._topic = topic
        self._turn = 0
        self._clock = SystemClock()
        self.offsets = offsets
        """The next offset of each partition; advanced by the caller after it has sent the records."""
        self.is_behind = False
        """Whether there are more records than the last read returned."""

    def __repr__(self) -> str:
        return f"<TopicReader {self._topic.name} {self.offsets}>"

    @property
    def cursor(self) -> str:
        return write_cursor(self._topic.topic_id, self.offsets)

    async def read(self, *, limit: int, max_bytes: int, max_wait_s: float) -> AsyncGenerator[PartitionRecords, None]:
        """Available records by partition; empty if none arrive within `max_wait_s`. Raises errors that aren't
        retriable; an error of a missing or damaged range, of a batch that can't be decoded, or of a record that is
        too large, only when the other partitions have no more records."""
        await self._grow()
        count = len(self.offsets)
        self._turn = (self._turn + 1) % count  # the first partition gets the most
        fetches = [
            PartitionFetch(TopicPartition(self._topic.name, number), self.offsets[number], max_bytes)
            for each in range(count)
            for number in [(each + self._turn) % count]
        ]
        results = await self._broker.records.read(fetches, max_bytes=max_bytes, min_bytes=1, max_wait_s=max_wait_s)
        self.is_behind = False
        problem: StreamhouseError | None = None
        has_some = False
        for item, fetched in zip(fetches, results, strict=True):
            if limit <= 0:
                return
            if isinstance(fetched.error, DamagedRecords):
                problem = fetched.error
                continue
            try:
                piece = await self._piece(item, fetched, limit, max_bytes)
            except (*UNDECODABLE, TooLargeForJson) as error:
                problem = error
                continue
            self.is_behind |= fetched.high_watermark > (item.offset if piece is None else piece.next_offset)
            if piece is not None:
                limit -= len(piece.records)
                has_some = True
                yield piece
        if problem is not None and not has_some:
            raise problem
        if any(fetched.error is not None for fetched in results):
            await self._clock.sleep(min(PAUSE_S, max_wait_s))

    async def _piece(
        self, item: PartitionFetch, fetched: FetchResult, limit: int, max_bytes: int
    ) -> PartitionRecords | None:
        number = item.name.partition
        if fetched.error is not None:
            return await self._lost(item, fetched.error)
        if not fetched.records:
            return None
        taken = await decode_records(self._broker, fetched, offset=item.offset, limits=Limits(limit, max_bytes))
        return PartitionRecords(number, taken.records, taken.next_offset, taken.size_bytes, taken.is_full)

    async def _lost(self, item: PartitionFetch, error: Exception) -> PartitionRecords | None:
        """Report the gap of records deleted by retention, and continue at the log start."""
        if isinstance(error, Retriable):
            return None
        if isinstance(error, OffsetOutOfRange):
            start = (await self._broker.records.earliest(item.name)).offset
            if item.offset < start:
                return PartitionRecords(item.name.partition, (), start, lost=(item.offset, start))
        raise error

    async def _grow(self) -> None:
        self._topic = await self._broker.topic(self._topic.name)
        for number in range(len(self.offsets), self._topic.partitions):
            name = TopicPartition(self._topic.name, number)
            self.offsets.append((await self._broker.records.earliest(name)).offset)


async def open_topic_reader(broker: Broker, topic: Topic, *, cursor: str | None, start: str) -> TopicReader:
    """A reader that begins at a cursor, or else at `start`: earliest, latest, or a time in milliseconds."""
    if cursor:
        offsets = read_cursor(cursor, topic.topic_id, partitions=topic.partitions)
        return TopicReader(broker, topic, offsets)  # partitions added since then are read from their beginning
    turns = asyncio.Semaphore(PARALLEL)

    async def one(number: int) -> int:
        async with turns:
            return await first_offset(broker, TopicPartition(topic.name, number), start)

    return TopicReader(broker, topic, list(await asyncio.gather(*map(one, range(topic.partitions)))))


async def first_offset(broker: Broker, name: TopicPartition, start: str) -> int:
    ends: dict[str, Callable[[TopicPartition], Awaitable[OffsetResult]]] = {
        "earliest": broker.records.earliest,
        "latest": broker.records.stable_end,
    }
    if (end := ends.get(start)) is not None:
        return (await end(name)).offset
    result = await broker.records.at_time(name, int(start))
    return result.offset if result is not None else (await broker.records.stable_end(name)).offset
