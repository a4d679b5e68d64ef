"""Reading records.

GET /v1/topics/{topic}/partitions/{partition}/records?offset=…     a page of one partition; wait_ms waits for records
GET /v1/topics/{topic}/records                                     all partitions: a page and a cursor for the next, or
    Accept: application/x-ndjson, Accept: text/event-stream        a stream that continues until the client leaves
GET /v1/topics/{topic}/partitions/{partition}/batches?offset=…     record batches as they are stored
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.format.batch import iter_batches
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.wire.http.operations import (
    BATCHES,
    EVENTS,
    JSON,
    MAX_LONG,
    NDJSON,
    Call,
    Header,
    Media,
    Operation,
    json_response,
)
from streamhouse.wire.http.records.formats import Registry, Viewer
from streamhouse.wire.http.records.pages import fetch, partition_page, topic_page
from streamhouse.wire.http.records.schema_encoding import SchemaEncoding
from streamhouse.wire.http.records.streams import Events, JsonMemory, Lines, PageResponse, StreamResponse, Streams
from streamhouse.wire.http.records.tenant_schemas import schemas_for
from streamhouse.wire.http.records.topic_reader import first_offset, open_topic_reader, size_of
from streamhouse.wire.http.records.types import ReadFormat, RecordView

TAG: Final = "records"
DEFAULT_RECORDS: Final = 100
MAX_RECORDS: Final = 10_000
DEFAULT_BYTES: Final = 1024 * 1024
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 300_000

MaxBytes = Annotated[int, Meta(ge=1, le=MAX_BYTES, description="bytes at most, if more than one record")]
WaitMs = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS, description="how long to wait when there is nothing yet")]
Offset = Annotated[int, Meta(ge=0, le=MAX_LONG, description="the first offset; the log's first one")]
Timestamp = Annotated[int, Meta(ge=0, le=MAX_LONG, description="instead of an offset: the first record since then, ms")]

LAST_EVENT_ID: Final = Header(
    name="Last-Event-ID",
    about="continues behind this event, whatever the query says; browsers send it by themselves",
    max_chars=32_768,
    pattern=r"^[A-Za-z0-9_-]+$",
)


class Formats(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Annotated[ReadFormat, Meta(description="the same as value_format")] | UnsetType = UNSET
    key_format: Annotated[ReadFormat, Meta(description="how keys are written")] = "text"
    value_format: Annotated[ReadFormat, Meta(description="how values are written; json")] | UnsetType = UNSET

    def viewer(self, registry: Registry, encoding: SchemaEncoding) -> Viewer:
        return Viewer(
            registry, encoding, key_format=self.key_format, value_format=self.value_format or self.format or "json"
        )


class PageQuery(Formats, frozen=True, kw_only=True, forbid_unknown_fields=True):
    offset: Offset | UnsetType = UNSET
    timestamp: Timestamp | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_RECORDS, description="records at most")] = DEFAULT_RECORDS
    max_bytes: MaxBytes = DEFAULT_BYTES
    wait_ms: WaitMs = 0


class TopicQuery(Formats, frozen=True, kw_only=True, forbid_unknown_fields=True):
    start: Annotated[
        str,
        Meta(pattern=r"^(earliest|latest|[0-9]{1,15})$", description="earliest, latest, or a time in milliseconds"),
    ] = msgspec.field(default="earliest", name="from")
    cursor: Annotated[str, Meta(max_length=32_768, description="continues where an answer with it ended")] = ""
    limit: (
        Annotated[int, Meta(ge=1, le=MAX_LONG, description="records at most; 100 in a page, no end in a stream")]
        | UnsetType
    ) = UNSET
    max_bytes: MaxBytes = DEFAULT_BYTES
    wait_ms: WaitMs = 0


class RawQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    offset: Offset | UnsetType = UNSET
    timestamp: Timestamp | UnsetType = UNSET
    max_bytes: MaxBytes = DEFAULT_BYTES
    wait_ms: WaitMs = 0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a partition; the next page begins at `next_offset`."""

    topic: str
    partition: int
    records: list[RecordView]
    next_offset: int
    high_watermark: int
    log_start: int


class TopicPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records of all partitions; `cursor` is for the next page."""

    topic: str
    records: list[RecordView]
    cursor: str


class ReadingCalls:
    """Operations that read records: as pages, streams or stored batches."""

    def __init__(
        self, broker: Broker, registry: Registry, encoding: SchemaEncoding, streams: Streams, memory: JsonMemory
    ) -> None:
        self._encoding = encoding
        self._broker = broker
        self._registry = registry
        self._streams = streams
        self._settings = broker.settings.http
        self._memory = memory

    async def read_partition(self, call: Call[PageQuery, None]) -> Response:
        query, name = call.query, TopicPartition(call.topic, call.partition)
        offset = await start_of(self._broker, name, query)
        records = await partition_page(
            self._broker,
            name,
            offset=offset,
            limit=query.limit,
            max_bytes=query.max_bytes,
            max_wait_s=query.wait_ms / 1000,
        )

        async def write() -> Response:
            call.access.recheck()  # it may have waited for memory
            viewer = query.viewer(schemas_for(call.caller, self._registry), self._encoding)
            page = Page(
                topic=call.shown(call.topic),
                partition=call.partition,
                records=await viewer.views(call.partition, records.records),
                next_offset=records.next_offset,
                high_watermark=records.high_watermark,
                log_start=records.log_start,
            )
            return json_response(page)

        return PageResponse(sum(map(size_of, records.records)), write, memory=self._memory)

    async def read_batches(self, call: Call[RawQuery, None]) -> Response:
        query, name = call.query, TopicPartition(call.topic, call.partition)
        offset = await start_of(self._broker, name, query)
        fetched = await fetch(self._broker, name, offset, max_bytes=query.max_bytes, max_wait_s=query.wait_ms / 1000)
        ends = [span.end for buffer in fetched.records for span in iter_batches(buffer)]
        headers = {
            "streamhouse-next-offset": str(max(ends, default=offset)),
            "streamhouse-high-watermark": str(fetched.high_watermark),
            "streamhouse-log-start": str(fetched.log_start),
        }
        return Response(b"".join(fetched.records), media_type=BATCHES, headers=headers)

    async def read_topic(self, call: Call[TopicQuery, None]) -> Response:
        query = call.query
        topic = await self._broker.topic(call.topic)
        streaming = call.accepted != JSON
        if streaming:
            self._streams.check()
        cursor = call.header(LAST_EVENT_ID.name) or query.cursor
        tail = await open_topic_reader(self._broker, topic, cursor=cursor, start=query.start)
        limit = None if query.limit is UNSET else query.limit
        if streaming:
            framing = Lines() if call.accepted == NDJSON else Events(reconnect_s=self._settings.reconnect_s)
            return StreamResponse(
                tail,
                query.viewer(schemas_for(call.caller, self._registry), self._encoding),
                framing,
                streams=self._streams,
                settings=self._settings,
                memory=self._memory,
                limit=limit,
                access=call.access,
            )
        pieces = [
            piece
            async for piece in topic_page(
                tail,
                limit=min(limit or DEFAULT_RECORDS, MAX_RECORDS),
                max_bytes=query.max_bytes,
                max_wait_s=query.wait_ms / 1000,
            )
        ]

        async def write() -> Response:
            call.access.recheck()
            viewer, records = query.viewer(schemas_for(call.caller, self._registry), self._encoding), list[RecordView]()
            for piece in pieces:
                records += await viewer.views(piece.partition, piece.records)
            return json_response(TopicPage(topic=call.shown(topic.name), records=records, cursor=tail.cursor))

        return PageResponse(sum(piece.size_bytes for piece in pieces), write, memory=self._memory)


def operations(
    broker: Broker, registry: Registry, encoding: SchemaEncoding, streams: Streams, memory: JsonMemory
) -> list[Operation[Any, Any]]:
    calls = ReadingCalls(broker, registry, encoding, streams, memory)
    one = "/v1/topics/{topic}/partitions/{partition}"
    return [
        Operation(
            method="GET",
            path="/v1/topics/{topic}/records",
            handler=calls.read_topic,
            needs=needs(AclOperation.READ, ResourceType.TOPIC, "topic"),
            summary="Read all partitions of a topic, a page at a time or as a stream",
            about="As JSON it is a page with a cursor for the next one. As NDJSON or server-sent events it is a stream "
            "that waits for new records; ids of events are cursors, so a browser continues where it was.",
            tag=TAG,
            query=TopicQuery,
            headers=[LAST_EVENT_ID],
            response=TopicPage,
            other_responses=[
                Media(type=NDJSON, about="a stream: a record in each line"),
                Media(type=EVENTS, about="a stream: a record in each message"),
            ],
            problems=(404,),
        ),
        Operation(
            method="GET",
            path=one + "/records",
            handler=calls.read_partition,
            needs=needs(AclOperation.READ, ResourceType.TOPIC, "topic"),
            summary="Read a page of one partition",
            about="Give an offset or a timestamp, or neither: then it begins with the first record.",
            tag=TAG,
            query=PageQuery,
            response=Page,
            problems=(404, 416),
        ),
        Operation(
            method="GET",
            path=one + "/batches",
            handler=calls.read_batches,
            needs=needs(AclOperation.READ, ResourceType.TOPIC, "topic"),
            summary="Read record batches as they are stored",
            about="The first batch may begin before the requested offset.",
            tag=TAG,
            query=RawQuery,
            other_responses=[
                Media(type=BATCHES, about="record batches", schema={"type": "string", "format": "binary"})
            ],
            response_headers={
                "Streamhouse-Next-Offset": "where the next read begins",
                "Streamhouse-High-Watermark": "the end of what can be read",
                "Streamhouse-Log-Start": "the partition's first offset",
            },
            problems=(404, 416),
        ),
    ]


async def start_of(broker: Broker, name: TopicPartition, query: PageQuery | RawQuery) -> int:
    if query.offset is not UNSET:
        return query.offset
    start = "earliest" if query.timestamp is UNSET else str(query.timestamp)
    return await first_offset(broker, name, start)
