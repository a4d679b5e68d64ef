"""Searching records.

POST /v1/topics/{topic}/search     records by key, text, header or JSON path, over any range; continues with a cursor
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.clock import SystemClock
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.record import StoredRecord
from streamhouse.model.topic import Topic
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.errors import FieldError, TooManyRequests, Unprocessable
from streamhouse.wire.http.operations import MAX_BODY_BYTES, MAX_LONG, Call, NoQuery, Operation, json_response
from streamhouse.wire.http.records.formats import Registry, Viewer
from streamhouse.wire.http.records.pages import each_of
from streamhouse.wire.http.records.schema_encoding import SchemaEncoding
from streamhouse.wire.http.records.search import Conditions, JsonCondition, Range, Room, Search, parse_path
from streamhouse.wire.http.records.streams import JsonMemory, PageResponse
from streamhouse.wire.http.records.tenant_schemas import schemas_for
from streamhouse.wire.http.records.topic_reader import MAX_CHARS, first_offset, read_cursor, size_of, write_cursor
from streamhouse.wire.http.records.types import PartitionNumber, ReadFormat, RecordView

TAG: Final = "records"
MAX_FOUND: Final = 1000
DEFAULT_BYTES: Final = 64 * 1024 * 1024
MAX_BYTES: Final = 1024 * 1024 * 1024
MAX_TEXT: Final = 4096
FOUND_BYTES: Final = 8 * 1024 * 1024
"""Bytes of matches in an answer, if more than one record."""

CANDIDATES: Final = 10_000
"""Records that are decoded by their schemas for one answer."""

VIEWS_AT_ONCE: Final = 200

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Time = Annotated[int, Meta(ge=0, le=MAX_LONG)]


class HeaderIs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A header of this name, whatever its value, or with this one."""

    name: Text
    value: str | None = None


class JsonIs(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path in the value, such as `user.roles[0]`, and the value at it."""

    path: Text
    equals: str | int | float | bool | None


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to find, which must all hold, and where: all of the topic, or between two times, which count as they do for
    Kafka's offsets by time: from the first record with a timestamp since `from_ms` to the first one since `until_ms`.
    With `value_format` `schema`, `json` looks into values that were decoded by their schemas."""

    key: Annotated[str, Meta(max_length=MAX_TEXT)] | UnsetType = UNSET
    text: Text | UnsetType = UNSET
    header: HeaderIs | UnsetType = UNSET
    json: Annotated[list[JsonIs], Meta(max_length=8)] = []
    from_ms: Time | UnsetType = UNSET
    until_ms: Time | UnsetType = UNSET
    partitions: Annotated[list[PartitionNumber], Meta(max_length=10_000)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_FOUND, description="records at most")] = 100
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BYTES, description="bytes to search at most, until a cursor")] = (
        DEFAULT_BYTES
    )
    cursor: Annotated[str, Meta(max_length=MAX_CHARS, description="continues where an answer ended")] = ""
    key_format: ReadFormat = "text"
    value_format: ReadFormat = "json"


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search got: bytes and offsets that were searched for this answer, and offsets that are left. Of a
    search for a key also what was left out because it holds other keys: bytes, and how many segments were needed."""

    bytes: int
    offsets: int
    left: int
    skipped_bytes: int = 0
    segments: int = 0
    segments_needed: int = 0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Records that match, by partition and offset. `cursor` is null when all of the range was searched."""

    topic: str
    records: list[RecordView]
    cursor: str | None
    searched: Searched


SearchCall = Call[NoQuery, SearchRequest]


class SearchCalls:
    def __init__(self, broker: Broker, registry: Registry, encoding: SchemaEncoding, memory: JsonMemory) -> None:
        self._broker = broker
        self._registry = registry
        self._encoding = encoding
        self._memory = memory
        self._clock = SystemClock()
        self._running = 0

    async def search(self, call: Call[NoQuery, SearchRequest]) -> Response:
        limit = self._broker.settings.http.max_searches
        if self._running >= limit:
            raise TooManyRequests(f"too many searches at the same time; limit={limit} setting=http.max_searches")
        self._running += 1
        try:
            return await self._search(await self._broker.topic(call.topic), call)
        finally:
            self._running -= 1

    async def _search(self, topic: Topic, call: Call[NoQuery, SearchRequest]) -> Response:
        request = call.body
        conditions = _conditions(request)
        ranges = await self._ranges(topic, request)
        offsets = [0] * topic.partitions
        for each in ranges:
            offsets[each.number] = each.start
        search = Search(self._broker, topic, conditions, offsets=offsets, clock=self._clock)
        decodes = bool(conditions.json) and request.value_format == "schema"
        if decodes:
            search.leave_json()
        room = Room(CANDIDATES if decodes else request.limit, FOUND_BYTES)
        matches = list[tuple[int, StoredRecord]]()
        async with aclosing(search.run(ranges, room=room, max_bytes=request.max_bytes)) as found:
            async for number, records in found:
                held = await self._held(call, number, records, conditions) if decodes else records
                matches += [(number, record) for record in held]
                if len(matches) >= request.limit:
                    del matches[request.limit :]
                    offsets[number] = min(offsets[number], matches[-1][1].offset + 1)
                    break
        if search.problems and not matches and search.is_at_its_end(ranges):
            raise next(iter(search.problems.values()))
        searched = Searched(
            bytes=search.searched_bytes,
            offsets=sum(offsets[each.number] - each.start for each in ranges),
            left=sum(each.end - offsets[each.number] for each in ranges),
            skipped_bytes=search.skipped_bytes,
            segments=search.segments,
            segments_needed=search.segments_needed,
        )
        matches.sort(key=lambda each: (each[0], each[1].offset))

        async def write() -> Response:
            call.access.recheck()  # it may have waited for memory
            views = list[RecordView]()
            for number, of_partition in groupby(matches, key=itemgetter(0)):
                async for part in self._views(call, number, [record for _, record in of_partition]):
                    views += part
            cursor = write_cursor(topic.topic_id, offsets) if searched.left else None
            return json_response(Found(topic=call.shown(topic.name), records=views, cursor=cursor, searched=searched))

        return PageResponse(sum(size_of(record) for _, record in matches), write, memory=self._memory)

    async def _held(
        self, call: SearchCall, number: int, records: list[StoredRecord], conditions: Conditions
    ) -> list[StoredRecord]:
        """The records whose values, decoded by their schemas, are what is looked for."""
        views = [each async for part in self._views(call, number, records) for each in part]
        return [record for record, view in zip(records, views, strict=True) if conditions.hold_in_value(view.value)]

    async def _views(
        self, call: SearchCall, number: int, records: list[StoredRecord]
    ) -> AsyncGenerator[list[RecordView], None]:
        viewer = Viewer(
            schemas_for(call.caller, self._registry),
            self._encoding,
            key_format=call.body.key_format,
            value_format=call.body.value_format,
        )
        for start in range(0, len(records), VIEWS_AT_ONCE):
            yield await viewer.views(number, records[start : start + VIEWS_AT_ONCE])

    async def _ranges(self, topic: Topic, request: SearchRequest) -> list[Range]:
        """The offsets to search, by partition; they begin at the cursor where there is one."""
        names = [TopicPartition(topic.name, number) for number in _numbers(topic, request)]
        first = "earliest" if request.from_ms is UNSET else str(request.from_ms)
        last = "latest" if request.until_ms is UNSET else str(request.until_ms)
        starts = await each_of(names, lambda name: first_offset(self._broker, name, first))
        ends = await each_of(names, lambda name: first_offset(self._broker, name, last))
        reached = read_cursor(request.cursor, topic.topic_id, partitions=topic.partitions) if request.cursor else []
        ranges = list[Range]()
        for name in names:
            start, end = starts[name] or 0, ends[name] or 0
            if name.partition < len(reached):
                start = max(start, reached[name.partition])
            ranges.append(Range(name.partition, start, max(start, end)))
        return ranges


def _numbers(topic: Topic, request: SearchRequest) -> list[int]:
    if request.partitions is UNSET:
        return list(range(topic.partitions))
    for number in request.partitions:
        if number >= topic.partitions:
            reason = f"the topic has {topic.partitions} partitions; there is none with number {number}"
            raise Unprocessable(reason, field_errors=[FieldError(path="$.partitions", reason=reason)])
    return sorted(set(request.partitions))


def _conditions(request: SearchRequest) -> Conditions:
    header = None
    if request.header is not UNSET:
        header = (request.header.name, None if request.header.value is None else request.header.value.encode())
    conditions = Conditions(
        key=None if request.key is UNSET else request.key.encode(),
        text=None if request.text is UNSET else request.text.encode(),
        header=header,
        json=tuple(JsonCondition(parse_path(each.path), each.equals) for each in request.json),
    )
    if conditions == Conditions():
        reason = "say what to find: key, text, header or json"
        raise Unprocessable(reason, field_errors=[FieldError(path="$", reason=reason)])
    return conditions


def operations(
    broker: Broker, registry: Registry, encoding: SchemaEncoding, memory: JsonMemory
) -> list[Operation[Any, Any]]:
    calls = SearchCalls(broker, registry, encoding, memory)
    return [
        Operation(
            method="POST",
            path="/v1/topics/{topic}/search",
            handler=calls.search,
            needs=needs(AclOperation.READ, ResourceType.TOPIC, "topic"),
            summary="Search records by key, text, header or JSON path",
            about="One call searches `max_bytes` at most; the next one continues with the cursor. A key is looked for "
            "first in the partition that Kafka's clients choose for it, and then in the others; blocks "
            "of segments whose filters say that they don't hold it are not read. Where records are missing or damaged, "
            "the other partitions are searched; the error comes when nothing else is left, and names the range.",
            tag=TAG,
            query=NoQuery,
            body=SearchRequest,
            max_body_bytes=MAX_BODY_BYTES + MAX_CHARS,
            response=Found,
            problems=(404, 429),
        )
    ]
