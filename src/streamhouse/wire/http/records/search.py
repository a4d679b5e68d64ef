"""Search: finds the records of a topic that match, over any range, a bounded number of bytes at a time.

Data path   broker.segments (where a key may be), broker.forwarding -> **search** -> the batch decoder -> routes.search
Owns        what matches; which partition comes first; which batches are not decoded; how much was searched
Leaves      finding leaders to `broker.forwarding`, blocks that don't hold a key to `broker.segments.key_search`,
            formats to `formats`, the text of a cursor to `topic_reader`

Of flushed records, a search for a key reads the blocks that may hold it. A batch whose records can't match isn't
decoded: its payload is decompressed, and compared with the bytes that a match must contain. The next read is in
progress while the batches of the last one are compared; of a search for a key, `READS_AT_ONCE` are looked through at
once, in threads, because blocks without a key filter are all read.

A few kilobytes may decompress to gigabytes, and a value of brackets becomes twenty times its size as objects. So
decompressed bytes count, too, and of a JSON value only the place that is compared becomes an object.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from streamhouse.broker.broker import Broker
from streamhouse.broker.segments.key_search import KeySearch, KeySpan
from streamhouse.clock import Clock
from streamhouse.errors import BatchTooLarge, DamagedRecords, OffsetOutOfRange, StreamhouseError, Unavailable
from streamhouse.format.batch import BatchHeader, Buffer, read_header
from streamhouse.format.key_filter import may_have_key
from streamhouse.format.partitioner import partition_for
from streamhouse.format.records import iterate_payload, stored_payload
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.record import StoredRecord
from streamhouse.model.topic import Topic
from streamhouse.wire.http.errors import FieldError, Unprocessable
from streamhouse.wire.http.records.topic_reader import (
    MAX_HEADERS,
    UNDECODABLE,
    SplitBatches,
    TooLargeForJson,
    size_of,
    split_batches,
    undecodable,
)

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are read at once."""

READS_AT_ONCE: Final = 3
"""Reads whose batches are looked through for a key at once: one more than the decoder has threads by default."""

EXPANSION: Final = 16
"""A search decompresses this multiple of the bytes that it may search, at most."""

TRIP_BYTES: Final = 128 * 1024 * 1024
"""Decompressed bytes from which on a trip to a thread ends, so that others have their turn."""

MAX_STEPS: Final = 64
MAX_INDEX: Final = 999
"""Limits of the paths of JSON conditions."""

MAX_DECODERS: Final = 1024
"""More than the conditions of one search have steps: a decoder takes a hundred times as long to make as to use."""

_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")
_UNSUPPORTED: Final = re.compile(r'["\\\x00-\x1f]')
_NOTHING: Final = Raw()


class JsonCondition(NamedTuple):
    """A path in a JSON value, as names and numbers, and the value at it."""

    steps: tuple[str | int, ...]
    equals: Any

    def holds(self, value: object) -> bool:
        for step in self.steps:
            if isinstance(step, int):
                if not isinstance(value, list) or step >= len(value):
                    return False
                value = value[step]
            elif isinstance(value, Mapping) and step in value:
                value = value[step]
            else:
                return False
        return self._equals(value)

    def holds_in(self, text: bytes) -> bool:
        """The same for a value as it is stored."""
        try:
            at = Raw(text)
            for step in self.steps:
                at = _member(at, step) if isinstance(step, str) else _element(at, step)
                if not bytes(at):
                    return False
            return self._equals(_LEAVES.decode(at))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return False

    def _equals(self, value: object) -> bool:
        return (type(value) is type(self.equals) and value == self.equals) or _same_number(value, self.equals)


_LEAVES: Final = msgspec.json.Decoder(str | int | float | bool | None)


def _member(text: Raw, name: str) -> Raw:
    """The value of this name in an object, `_NOTHING` if there is none; other fields are skipped."""
    found: Raw = _member_decoder(name).decode(text).value
    return found


@lru_cache(maxsize=MAX_DECODERS)
def _member_decoder(name: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(msgspec.defstruct("Member", [("value", Raw, _NOTHING)], rename={"value": name}))


def _element(text: Raw, number: int) -> Raw:
    """The element of an array with this number, `_NOTHING` if it has none; those behind it are passed over."""
    room = 1 << number.bit_length()  # a decoder for each number would be up to a thousand of them, each with its fields
    found: Raw = getattr(_elements_decoder(room).decode(text), f"at_{number}")
    return found


@lru_cache(maxsize=MAX_INDEX.bit_length() + 1)
def _elements_decoder(room: int) -> msgspec.json.Decoder[Any]:
    fields = [(f"at_{number}", Raw, _NOTHING) for number in range(room)]
    return msgspec.json.Decoder(msgspec.defstruct("Elements", fields, array_like=True))


class Conditions(NamedTuple):
    """The conditions on a record, all of which must hold."""

    key: bytes | None = None
    text: bytes | None = None
    header: tuple[str, bytes | None] | None = None
    json: tuple[JsonCondition, ...] = ()

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Bytes that the payload of a batch contains if one of its records matches, besides the key."""
        name, value = (b"", None) if self.header is None else (self.header[0].encode(), self.header[1])
        return tuple(each for each in (self.text, name, value) if each)

    def hold_in(self, record: StoredRecord, *, with_json: bool) -> bool:
        return (
            (self.key is None or record.key == self.key)
            and (self.text is None or _contains(record, self.text))
            and (self.header is None or _has_header(record, *self.header))
            and (not with_json or not self.json or self._hold_in_text(record.value))
        )

    def _hold_in_text(self, text: bytes | None) -> bool:
        return text is not None and all(each.holds_in(text) for each in self.json)

    def hold_in_value(self, value: object) -> bool:
        return all(each.holds(value) for each in self.json)


def parse_path(path: str) -> tuple[str | int, ...]:
    """`$.user.roles[0]` as its steps; raises `Unprocessable`."""
    text, position, steps = path.removeprefix("$"), 0, list[str | int]()
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            break
        steps.append(found[1] if found[1] is not None else int(found[2]))
        position = found.end()
    reason = ""
    if not steps or position < len(text):
        reason = f"not a path such as user.roles[0]: {path[:200]!r}"
    elif any(isinstance(step, str) and _UNSUPPORTED.search(step) for step in steps):
        reason = f"a name in a path has no quotes, backslashes or control characters: {path[:200]!r}"
    elif len(steps) > MAX_STEPS:
        reason = f"a path has at most {MAX_STEPS} steps; this one has {len(steps)}"
    elif any(isinstance(step, int) and step > MAX_INDEX for step in steps):
        reason = f"only the first {MAX_INDEX + 1} elements of an array can be compared: {path[:200]!r}"
    if reason:
        raise Unprocessable(reason, field_errors=[FieldError(path="$.json", reason=reason)])
    return tuple(steps)


def _same_number(one: object, other: object) -> bool:
    numbers = (int, float)
    return (
        isinstance(one, numbers)
        and isinstance(other, numbers)
        and not isinstance(one, bool)
        and not isinstance(other, bool)
        and one == other
    )


def _contains(record: StoredRecord, text: bytes) -> bool:
    return (
        text in (record.value or b"")
        or text in (record.key or b"")
        or any(text in name.encode() or text in (value or b"") for name, value in record.headers)
    )


def _has_header(record: StoredRecord, name: str, value: bytes | None) -> bool:
    return any(each == name and (value is None or content == value) for each, content in record.headers)


class Range(NamedTuple):
    """Offsets of a partition that are searched."""

    number: int
    start: int
    end: int


class Room(NamedTuple):
    """How many matches a result may still have, and how many bytes and headers of them: a header of two bytes is thirty
    as JSON."""

    records: int
    size_bytes: int
    headers: int = MAX_HEADERS

    @property
    def is_full(self) -> bool:
        return self.records <= 0 or self.size_bytes <= 0 or self.headers <= 0

    def without(self, records: Sequence[StoredRecord]) -> "Room":
        return Room(
            self.records - len(records),
            self.size_bytes - sum(map(size_of, records)),
            self.headers - sum(len(record.headers) for record in records),
        )


class SearchedBatches(NamedTuple):
    """The matches of a read, and where it ended: behind the last match if there is no room for more, or at a batch or
    record if `is_cut`, because enough was decompressed or the time of the search is over."""

    records: list[StoredRecord]
    next_offset: int
    size_bytes: int
    expanded_bytes: int = 0
    is_cut: bool = False


class _Read(NamedTuple):
    """A read, or none if there is nothing to read below `next_offset`. `without_key` are the positions of batches that
    were decompressed to `expanded_bytes` and don't have the key."""

    found: SplitBatches | None
    size_bytes: int
    next_offset: int
    span: KeySpan
    without_key: frozenset[int] = frozenset()
    expanded_bytes: int = 0


class Search:
    """One search; `offsets` are the next ones by partition, advanced with every result.

    `problems` are the errors of partitions whose next records can't be searched: their objects are missing or damaged,
    or they can't be decoded or written. The other partitions are searched all the same.
    """

    def __init__(
        self, broker: Broker, topic: Topic, conditions: Conditions, *, offsets: list[int], clock: Clock
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._ends_at = clock.monotonic() + broker.settings.http.search_time_s
        self._topic = topic
        self._conditions = conditions
        self._with_json = True
        self.offsets = offsets
        self.problems: dict[int, StreamhouseError] = {}
        self.searched_bytes = 0
        self._expanded_bytes = 0
        self.skipped_bytes = self.segments = self.segments_needed = 0

    def leave_json(self) -> None:
        """Let the caller compare JSON conditions, because values are decoded by their schemas."""
        self._with_json = False

    def in_order(self, ranges: Sequence[Range]) -> list[Range]:
        """Where a key probably is comes first: in the partition that Kafka's clients choose for it."""
        if self._conditions.key is None:
            return list(ranges)
        likely = partition_for(self._conditions.key, self._topic.partitions)
        return sorted(ranges, key=lambda each: each.number != likely)

    async def run(
        self, ranges: Sequence[Range], *, room: Room, max_bytes: int
    ) -> AsyncGenerator[tuple[int, list[StoredRecord]], None]:
        """Matches by partition, until there is no room, `max_bytes` were read, or the time of a search is over: a topic
        of many small segments takes a request for each. Raises errors of reading that may pass."""
        for each in self.in_order(ranges):
            keys = self._keys(each)
            reads = self._reads(each, keys, max_bytes=max_bytes)
            try:
                async for read in reads:
                    is_cut, looked_through_bytes = True, read.expanded_bytes
                    while is_cut:
                        found = await self._matches(each, read, room, EXPANSION * max_bytes - self._expanded_bytes)
                        is_cut = found.is_cut
                        self.offsets[each.number] = min(found.next_offset, each.end)
                        self.searched_bytes += found.size_bytes
                        self._expanded_bytes += found.expanded_bytes + looked_through_bytes
                        looked_through_bytes = 0
                        room = room.without(found.records)
                        if found.records:
                            yield each.number, found.records
                        if room.is_full or self._is_enough(max_bytes):
                            return
            except (DamagedRecords, *UNDECODABLE, TooLargeForJson) as error:
                self.problems[each.number] = error
                continue
            finally:
                await reads.aclose()
                self._count(keys)
            self.offsets[each.number] = each.end

    def is_at_its_end(self, ranges: Iterable[Range]) -> bool:
        """Whether nothing more can be found but behind `problems`."""
        return all(each.number in self.problems or self.offsets[each.number] >= each.end for each in ranges)

    def _is_enough(self, max_bytes: int) -> bool:
        is_read = self.searched_bytes >= max_bytes or self._expanded_bytes >= EXPANSION * max_bytes
        return is_read or self._is_over()

    def _is_over(self) -> bool:
        return self._clock.monotonic() >= self._ends_at

    def _keys(self, each: Range) -> KeySearch | None:
        if self._conditions.key is None:
            return None
        return KeySearch(self._broker.reader, PartitionId(self._topic.topic_id, each.number), self._conditions.key)

    def _count(self, keys: KeySearch | None) -> None:
        if keys is not None:
            self.skipped_bytes += keys.skipped_bytes
            self.segments += keys.runs
            self.segments_needed += keys.runs_needed

    async def _reads(self, each: Range, keys: KeySearch | None, *, max_bytes: int) -> AsyncGenerator[_Read, None]:
        """Reads of a partition up to the end of the range; the next ones are in progress unless `max_bytes` are
        reached."""
        offset = self.offsets[each.number]
        span = KeySpan(offset, each.end if keys is None else offset)
        filter_bytes = ahead_bytes = 0
        reading: asyncio.Future[_Read] | None = None
        looking = deque[asyncio.Future[_Read]]()
        most = 1 if keys is None else READS_AT_ONCE
        try:
            while looking or offset < each.end:
                while len(looking) < most and offset < each.end:
                    if looking and self.searched_bytes + ahead_bytes >= max_bytes:
                        break
                    reading = reading or asyncio.ensure_future(self._next(each, offset, span, keys))
                    await asyncio.wait([reading])
                    if looking and reading.exception() is not None:
                        break  # first comes what was read before the error
                    read, reading = reading.result(), None
                    offset, span = read.next_offset, read.span
                    ahead_bytes += read.size_bytes
                    looking.append(asyncio.ensure_future(self._look_for_key(read, max_bytes=max_bytes)))
                    if read.found is None:
                        break  # first the caller hears how far the search is
                    if offset < each.end and self.searched_bytes + ahead_bytes < max_bytes:
                        reading = asyncio.ensure_future(self._next(each, offset, span, keys))
                if keys is not None:
                    self.searched_bytes += keys.filter_bytes - filter_bytes
                    filter_bytes = keys.filter_bytes
                looked = await looking.popleft()
                ahead_bytes -= looked.size_bytes
                yield looked
        finally:
            for task in (*looking, *((reading,) if reading is not None else ())):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _next(self, each: Range, offset: int, span: KeySpan, keys: KeySearch | None) -> _Read:
        """Read from this offset on, or from the next one at which the key may be."""
        if keys is not None and offset >= span.end:
            span = await keys.step(offset, each.end, max_bytes=READ_BYTES)
            if span.start == span.end:
                return _Read(None, 0, span.end, span)
            offset = span.start
        name = TopicPartition(self._topic.name, each.number)
        fetched = await self._read(name, offset, max_bytes=min(span.size_bytes or READ_BYTES, READ_BYTES))
        found = await split_batches(self._broker, fetched)
        if not found.batches:
            raise Unavailable(f"records below the end are not readable now; partition={name} offset={offset}")
        return _Read(found, fetched.size_bytes, found.end, span)

    async def _read(self, name: TopicPartition, offset: int, *, max_bytes: int) -> FetchResult:
        [fetched] = await self._broker.records.read(
            [PartitionFetch(name, offset, max_bytes)], max_bytes=max_bytes, min_bytes=0, max_wait_s=0
        )
        if isinstance(fetched.error, OffsetOutOfRange):
            start = (await self._broker.records.earliest(name)).offset
            if offset < start:  # deleted by retention meanwhile
                return await self._read(name, start, max_bytes=max_bytes)
        if fetched.error is not None:
            raise fetched.error
        return fetched

    async def _look_for_key(self, read: _Read, *, max_bytes: int) -> _Read:
        """The read, with the batches that don't have the key."""
        key = self._conditions.key
        if key is None or read.found is None:
            return read
        trip_bytes = min(TRIP_BYTES, EXPANSION * max_bytes - self._expanded_bytes)
        work = partial(_without_key, read.found.batches, key, trip_bytes)
        without_key, expanded_bytes = await self._broker.decoder.run(read.found.stored, work, inline_bytes=0)
        return read._replace(without_key=without_key, expanded_bytes=expanded_bytes)

    async def _matches(self, each: Range, read: _Read, room: Room, left_bytes: int) -> SearchedBatches:
        if read.found is None:
            return SearchedBatches([], read.next_offset, 0)
        comparison = _Comparison(
            self._conditions,
            name=TopicPartition(self._topic.name, each.number),
            max_headers=self._broker.decoder.max_headers,
            with_json=self._with_json,
            end=each.end,
            max_record_bytes=self._broker.settings.http.max_record_bytes,
            most_bytes=self._broker.decoder.limit_bytes,
            trip_bytes=min(TRIP_BYTES, left_bytes),
            is_over=self._is_over,
        )
        if len(read.without_key) == len(read.found.batches):
            return SearchedBatches([], read.next_offset, sum(map(len, read.found.batches)))
        work = partial(
            _matches, read.found.batches, comparison, self.offsets[each.number], room, without_key=read.without_key
        )
        return await self._broker.decoder.run(read.found.stored, work, inline_bytes=0)


class _Comparison(NamedTuple):
    """What is looked for below an offset, in records of a largest size. It ends behind `trip_bytes`, decompressed, and
    behind the record at which the search `is_over`: eight conditions of 64 steps take a hundred times as long for a
    record as one does."""

    conditions: Conditions
    name: TopicPartition
    with_json: bool
    end: int
    max_headers: int
    max_record_bytes: int
    most_bytes: int
    trip_bytes: int
    is_over: Callable[[], bool]

    def holds(self, record: StoredRecord) -> bool:
        """Raises `TooLargeForJson` for a match that can't be written, or a value that can't be read, as JSON."""
        reads_json = self.with_json and bool(self.conditions.json)
        if reads_json and not self.conditions.hold_in(record, with_json=False):
            return False
        is_too_large = size_of(record) > self.max_record_bytes
        if not (reads_json and is_too_large) and not self.conditions.hold_in(record, with_json=self.with_json):
            return False
        if is_too_large:
            raise TooLargeForJson(
                f"a record is too large for JSON; offset={record.offset} bytes={size_of(record)}"
                f" limit={self.max_record_bytes} setting=http.max_record_bytes do=search before or behind its time,"
                " and read it with GET …/batches, or with a Kafka client"
            )
        return True


def _without_key(
    batches: Sequence[memoryview], key: bytes, trip_bytes: int, limit_bytes: int
) -> tuple[frozenset[int], int]:
    """The positions of batches that don't have the key, and how much was decompressed. Those that can't be read are not
    among them: comparing them raises the error."""
    without_key, expanded_bytes = set[int](), 0
    for position, batch in enumerate(batches):
        if expanded_bytes >= trip_bytes:
            break
        header = read_header(batch)
        try:
            payload = stored_payload(batch, header, limit_bytes)
        except UNDECODABLE:
            continue
        expanded_bytes += len(payload)
        if header.is_control or not may_have_key(payload, header.record_count, key):
            without_key.add(position)
    return frozenset(without_key), expanded_bytes


def _matches(
    batches: Sequence[memoryview],
    comparison: _Comparison,
    offset: int,
    room: Room,
    limit_bytes: int,
    *,
    without_key: Collection[int] = (),
) -> SearchedBatches:
    found: list[StoredRecord] = []
    size_bytes = expanded_bytes = 0
    for position, batch in enumerate(batches):
        header = read_header(batch)
        if header.end <= offset or header.base_offset >= comparison.end:
            continue
        if expanded_bytes >= comparison.trip_bytes:
            return SearchedBatches(found, offset, size_bytes, expanded_bytes, is_cut=True)
        size_bytes += len(batch)
        if not header.is_control and position not in without_key:
            try:
                payload = stored_payload(batch, header, limit_bytes)
                expanded_bytes += len(payload)
                if not _may_match(payload, header, comparison.conditions):
                    offset = max(offset, header.end)
                    continue
                for record in iterate_payload(payload, header, from_offset=offset, max_headers=comparison.max_headers):
                    if record.offset < comparison.end and comparison.holds(record):
                        found.append(record)
                        room = room.without([record])
                        if room.is_full:
                            return SearchedBatches(found, record.offset + 1, size_bytes, expanded_bytes)
                    offset = record.offset + 1
                    if comparison.is_over():
                        return SearchedBatches(found, offset, size_bytes, expanded_bytes, is_cut=True)
            except (*UNDECODABLE, TooLargeForJson) as error:
                if isinstance(error, BatchTooLarge) and limit_bytes < comparison.most_bytes:
                    raise  # the next try may take more
                if found:  # they go first; the next comparison begins with the error
                    return SearchedBatches(found, offset, size_bytes, expanded_bytes, is_cut=True)
                if isinstance(error, TooLargeForJson):
                    raise
                place = f"partition={comparison.name} offsets=[{offset},{header.end})"
                raise undecodable(error, f"{place} do=search before or behind its time") from None
        offset = max(offset, header.end)
    return SearchedBatches(found, offset, size_bytes, expanded_bytes)


def _may_match(payload: Buffer, header: BatchHeader, conditions: Conditions) -> bool:
    """Whether the records of a batch contain all bytes that a match has."""
    if conditions.key is not None and not may_have_key(payload, header.record_count, conditions.key):
        return False
    if not (needles := conditions.needles):
        return True
    text = payload if isinstance(payload, bytes | bytearray) else bytes(payload)
    return all(needle in text for needle in needles)
