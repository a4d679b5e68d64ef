"""Streams: endless responses of records, as NDJSON or as server-sent events for browsers.

Data path   topic_reader -> **streams** -> socket
Owns        the number of streams, framing of records, and when a stream ends: limit reached, client gone, agent
            stopping, rights over
Leaves      closing connections of clients that don't read to `server`; records to `topic_reader`
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streamhouse.broker.broker import Broker
from streamhouse.config import HttpSettings
from streamhouse.errors import StreamhouseError
from streamhouse.limits import FifoLimiter
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.errors import Problem, TooManyRequests, problem_of
from streamhouse.wire.http.middleware import HttpMetrics
from streamhouse.wire.http.operations import EVENTS, MAX_LIMIT, NDJSON
from streamhouse.wire.http.records.formats import Viewer
from streamhouse.wire.http.records.topic_reader import PartitionRecords, TopicReader
from streamhouse.wire.http.records.types import RecordView
from streamhouse.wire.http.request_body import end_now

WRITTEN: Final = 8
"""Memory that a byte of a record takes while it is written: itself, its text, and up to six bytes of JSON."""
SMALL_BYTES: Final = 64 * 1024
"""Fewer bytes are written without being counted."""
MAX_WAITING: Final = 32
PART_BYTES: Final = 256 * 1024


class JsonMemory:
    """Limits the memory of records that are written as JSON, until their clients have them."""

    def __init__(self, settings: HttpSettings) -> None:
        self._limiter = FifoLimiter(
            "records written as JSON",
            max_items=settings.max_requests,
            max_bytes=settings.max_json_bytes,
            max_waiting=MAX_WAITING,
        )

    def __repr__(self) -> str:
        return f"<JsonMemory {self._limiter!r}>"

    def of(self, size_bytes: int) -> AbstractAsyncContextManager[None]:
        """Hold the memory of records of this size; raises `Overloaded` if too many requests wait already."""
        return self._limiter.inside(size_bytes * WRITTEN) if size_bytes > SMALL_BYTES else nullcontext()


class PageResponse(Response):
    """A page that is written when there is memory for it, which it holds until it is sent."""

    def __init__(self, size_bytes: int, make: Callable[[], Awaitable[Response]], *, memory: JsonMemory) -> None:
        self._size_bytes = size_bytes
        self._make = make
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._memory.of(self._size_bytes):
            page = await self._make()
            await send({"type": "http.response.start", "status": page.status_code, "headers": page.raw_headers})
            for at in range(0, len(page.body), PART_BYTES):  # the next part goes when the client has taken the last
                part = page.body[at : at + PART_BYTES]
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


EACH_UP_TO: Final = 64
"""Up to this many partitions, every event has a cursor; for larger topics only the last event of each write."""

_ENCODER: Final = msgspec.json.Encoder()
_encode: Final = _ENCODER.encode


class Streams:
    """All open streams; they end when the agent stops."""

    def __init__(self, broker: Broker, settings: HttpSettings, metrics: HttpMetrics) -> None:
        self._stopping = broker.wait_stopping
        self._limit = settings.max_streams
        self._gauge = metrics.streams
        self._open: set[asyncio.Timeout] = set()
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Streams open={len(self._open)}>"

    def check(self) -> None:
        if len(self._open) >= self._limit:
            raise TooManyRequests(f"too many concurrent streams; limit={self._limit} setting=http.max_streams")

    @contextmanager
    def opened(self, ending: asyncio.Timeout) -> Iterator[None]:
        """Register a stream; `ending` is set when the agent stops."""
        self._open.add(ending)
        self._gauge.set(len(self._open))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch(), name="http-streams")
        try:
            yield
        finally:
            self._open.discard(ending)
            self._gauge.set(len(self._open))
            if not self._open:
                self._watching.cancel()
                self._watching = None

    async def _watch(self) -> None:
        await self._stopping()
        for ending in self._open:
            end_now(ending)


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [from_offset, to_offset) of a partition that were deleted before they could be read."""

    partition: int
    from_offset: int
    to_offset: int


class Framing(Protocol):
    """Encodes records, gaps and errors of a stream in one media type."""

    media_type: str

    def opening(self) -> bytes: ...
    def records(self, views: Sequence[RecordView], piece: PartitionRecords, tail: TopicReader) -> bytes: ...
    def gap(self, gap: Gap) -> bytes: ...
    def error(self, problem: Problem) -> bytes: ...
    def alive(self) -> bytes: ...


class Lines:
    """NDJSON: a record is a line; a gap or an error is an object with the single field `gap` or `error`."""

    media_type = NDJSON

    def opening(self) -> bytes:
        return b""

    def records(self, views: Sequence[RecordView], piece: PartitionRecords, tail: TopicReader) -> bytes:
        tail.offsets[piece.partition] = piece.next_offset
        if views:
            views[-1].cursor = tail.cursor
        return _ENCODER.encode_lines(views)

    def gap(self, gap: Gap) -> bytes:
        return _encode({"gap": gap}) + b"\n"

    def error(self, problem: Problem) -> bytes:
        return _encode({"error": problem}) + b"\n"

    def alive(self) -> bytes:
        return b""


class Events:
    """Server-sent events: a record is a message with a cursor as id; gaps and errors are events with these names."""

    media_type = EVENTS

    def __init__(self, *, reconnect_s: float) -> None:
        self._reconnect_ms = round(reconnect_s * 1000)

    def opening(self) -> bytes:
        return b"retry: %d\n\n" % self._reconnect_ms

    def records(self, views: Sequence[RecordView], piece: PartitionRecords, tail: TopicReader) -> bytes:
        offsets, number = tail.offsets, piece.partition
        parts: list[bytes] = []
        for view in views[:-1]:
            offsets[number] = view.offset + 1
            if len(offsets) <= EACH_UP_TO:
                parts.append(b"id: %s\n" % tail.cursor.encode())
            parts.append(b"data: %s\n\n" % _encode(view))
        offsets[number] = piece.next_offset
        parts += [b"id: %s\ndata: %s\n\n" % (tail.cursor.encode(), _encode(view)) for view in views[-1:]]
        return b"".join(parts)

    def gap(self, gap: Gap) -> bytes:
        return b"event: gap\ndata: %s\n\n" % _encode(gap)

    def error(self, problem: Problem) -> bytes:
        return b"event: problem\ndata: %s\n\n" % _encode(problem)

    def alive(self) -> bytes:
        return b": alive\n\n"


class StreamResponse(Response):
    """Sends the records of a topic reader, endlessly or until `limit` records were sent."""

    def __init__(
        self,
        tail: TopicReader,
        viewer: Viewer,
        framing: Framing,
        *,
        streams: Streams,
        settings: HttpSettings,
        memory: JsonMemory,
        limit: int | None,
        access: RequestAccess,
    ) -> None:
        super().__init__(
            media_type=framing.media_type, headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._tail = tail
        self._viewer = viewer
        self._framing = framing
        self._streams = streams
        self._settings = settings
        self._memory = memory
        self._left = limit
        self._access = access
        self._ended_by: StreamhouseError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            await self._serve(receive, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _serve(self, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(None) as ending:
                leaving = asyncio.get_running_loop().create_task(_client_left(receive, ending), name="http-leaving")
                self._access.on_end = partial(self._end, ending)
                try:
                    with self._streams.opened(ending):
                        await self._run(send)
                finally:
                    leaving.cancel()
        except TimeoutError:
            if self._ended_by is not None:
                await self._send(send, self._framing.error(problem_of(self._ended_by)))
            # otherwise the client left, or the agent stops

    def _end(self, ending: asyncio.Timeout, error: StreamhouseError) -> None:
        """The caller's rights or credentials have ended."""
        self._ended_by = error
        end_now(ending)

    async def _run(self, send: Send) -> None:
        await self._send(send, self._framing.opening())
        try:
            while self._left is None or self._left > 0:
                if not await self._step(send):
                    await self._send(send, self._framing.alive())
        except StreamhouseError as error:
            await self._send(send, self._framing.error(problem_of(error)))

    async def _step(self, send: Send) -> bool:
        """Send the next records; False if there were none."""
        any_yet = False
        limit = MAX_LIMIT if self._left is None else self._left
        async for piece in self._tail.read(
            limit=limit, max_bytes=self._settings.stream_read_bytes, max_wait_s=self._settings.keep_alive_s
        ):
            any_yet = True
            self._access.recheck()
            async with self._memory.of(piece.size_bytes):
                await self._send(send, await self._written(piece))
        return any_yet

    async def _written(self, piece: PartitionRecords) -> bytes:
        number = piece.partition
        parts: list[bytes] = []
        if piece.lost is not None:
            parts.append(self._framing.gap(Gap(partition=number, from_offset=piece.lost[0], to_offset=piece.lost[1])))
        views = await self._viewer.views(number, piece.records)
        parts.append(self._framing.records(views, piece, self._tail))
        if self._left is not None:
            self._left -= len(views)
        return b"".join(parts)

    @staticmethod
    async def _send(send: Send, data: bytes) -> None:
        if data:
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def _client_left(receive: Receive, ending: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    end_now(ending)
