"""Fetch and FetchBatches, and messages of bounded size for everything that reads.

Batches are decoded one at a time, up to `DECODED_BYTES` and `DECODED_OBJECTS`, when they are next; a batch with more is
decoded again for the rest. Building a message is synchronous, so that large ones can be built in a thread.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.batch_decoder import StoredSize, stored_size, sum_stored
from streamhouse.config import GrpcSettings
from streamhouse.errors import BatchTooLarge, Retriable, StreamhouseError
from streamhouse.format.batch import iter_batches, read_header
from streamhouse.format.records import MAX_RECORD_HEADERS, iterate_batch
from streamhouse.format.run_rewrite import batches_of
from streamhouse.model.access import Operation
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import StoredRecord
from streamhouse.wire.grpc.calls import Call
from streamhouse.wire.grpc.errors import as_message
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.requests import check_count, number_of, resolve_offsets

UNLIMITED: Final = 2**62
MESSAGE_OBJECTS: Final = 100_000
"""Records and headers that one message may have, however small they are."""

DECODED_BYTES: Final = 4 * 1024 * 1024
DECODED_OBJECTS: Final = 20_000
"""How much of a batch is decoded at a time: bytes, and records plus headers; at least one record."""


class DecodeLimits(NamedTuple):
    """Limits of decoding: bytes of a batch, and headers of a record. With `may_grow` a larger batch may be decoded at
    the next try, with a higher limit."""

    limit_bytes: int
    max_headers: int = MAX_RECORD_HEADERS
    may_grow: bool = False


@dataclass(slots=True, kw_only=True)
class ResponseBudget:
    """How many records, bytes and objects a message may still take."""

    records: int
    size_bytes: int
    objects: int = MESSAGE_OBJECTS

    @property
    def is_full(self) -> bool:
        return self.records <= 0 or self.size_bytes <= 0 or self.objects <= 0

    def take(self, records: int, size_bytes: int, headers: int = 0) -> None:
        self.records -= records
        self.size_bytes -= size_bytes
        self.objects -= records + headers

    def close(self) -> None:
        """Let nothing more into the message."""
        self.objects = 0


@dataclass(slots=True, kw_only=True)
class PartitionRecords:
    """Records of one partition that were read and are not sent yet."""

    name: TopicPartition
    next_offset: int
    high_watermark: int
    log_start: int
    batches: deque[memoryview]
    stored: StoredSize
    opened: list[StoredRecord] = field(default_factory=list)
    opened_end: int = 0
    error: StreamhouseError | None = None

    @property
    def is_sent(self) -> bool:
        return not self.batches and not self.opened

    def take_records(self, budget: ResponseBudget, opening: DecodeLimits) -> Iterator[StoredRecord]:
        """Take records for one message, up to its budget; at least one."""
        while not budget.is_full and not self.is_sent:
            if not self.opened:
                self._open(opening)
                continue
            count, size_bytes = fitting(self.opened, budget)
            taken = self.opened[:count]
            yield from taken
            budget.take(count, size_bytes, sum(len(record.headers) for record in taken))
            self.opened = self.opened[count:]
            self.next_offset = self.opened[0].offset if self.opened else self.opened_end

    def _open(self, opening: DecodeLimits) -> None:
        """Decode the next batch, or a part of it; raise before any of its records is taken."""
        batch = self.batches[0]
        self.opened_end = read_header(batch).end
        records = iterate_batch(
            batch,
            limit_bytes=opening.limit_bytes,
            from_offset=self.next_offset,
            max_headers=opening.max_headers,
        )
        opened, is_whole = _some(records)
        self.opened = opened
        if is_whole:
            self.batches.popleft()
        else:
            self.opened_end = opened[-1].offset + 1
        if not opened:
            self.next_offset = max(self.next_offset, self.opened_end)

    def take_batches(self, budget: ResponseBudget) -> Iterator[bytes]:
        """Take batches for one message, up to its budget; at least one."""
        while not budget.is_full and self.batches:
            batch = self.batches.popleft()
            span = iter_batches(batch)[0]
            self.next_offset = max(self.next_offset, span.end)
            budget.take(span.end - span.base, span.size_bytes)
            yield bytes(batch)

    def fail(self, error: StreamhouseError) -> None:
        """Drop the batches and keep the error."""
        self.batches.clear()
        self.opened = []
        self.error = error


def partition_records(result: FetchResult, offset: int) -> PartitionRecords:
    """Return the records of a fetch result from `offset` on."""
    batches = [batch for buffer in result.records for batch in batches_of(buffer)]
    return PartitionRecords(
        name=result.name,
        next_offset=offset,
        high_watermark=result.high_watermark,
        log_start=result.log_start,
        batches=deque(batches),
        stored=stored_size(batches),
    )


def _some(records: Iterator[StoredRecord]) -> tuple[list[StoredRecord], bool]:
    """Return the first records, as many as are decoded at a time, and whether these are all."""
    some: list[StoredRecord] = []
    size_bytes = objects = 0
    for record in records:
        some.append(record)
        size_bytes += _size_bytes(record)
        objects += 1 + len(record.headers)
        if size_bytes >= DECODED_BYTES or objects >= DECODED_OBJECTS:
            return some, False
    return some, True


def fitting(records: list[StoredRecord], budget: ResponseBudget) -> tuple[int, int]:
    """Return how many of the first records fit, and their bytes; the last one may exceed the budget."""
    most = min(budget.records, budget.objects)
    among = records[:most] if most < len(records) else records
    total = 0
    for count, total in enumerate(accumulate(map(_size_bytes, among)), start=1):
        if total >= budget.size_bytes:
            return count, total
    return len(among), total


def _size_bytes(record: StoredRecord) -> int:
    _, _, key, value, headers = record
    size = (len(key) if key else 0) + (len(value) if value else 0)
    return size + sum(len(name) + len(content or b"") for name, content in headers) if headers else size


def fill_records(
    response: pb.FetchResponse | pb.ConsumeResponse,
    pieces: Iterable[PartitionRecords],
    budget: ResponseBudget,
    opening: DecodeLimits,
) -> None:
    """Fill the response up to its budget, one entry per piece; the entry of a piece that can't be decoded has
    the error.

    Raises `BatchTooLarge` if the response is empty and a larger limit may let the batch be decoded at the next try.
    """
    records = budget.records
    for piece in pieces:
        topic, partition = piece.name
        part = response.partitions.add(
            topic=topic, partition=partition, high_watermark=piece.high_watermark, log_start=piece.log_start
        )
        add = part.records.add
        try:
            for offset, timestamp_ms, key, value, headers in piece.take_records(budget, opening):
                made = add(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value)
                if headers:
                    made.headers.extend([pb.Header(key=name, value=content) for name, content in headers])
        except StreamhouseError as error:
            if not (isinstance(error, BatchTooLarge) and opening.may_grow):
                piece.fail(error)
                part.error.CopyFrom(as_message(error))
                if not isinstance(error, Retriable) and piece.opened_end > piece.next_offset:
                    part.error.message += (
                        f"; to continue behind what can't be read, read from offset={piece.opened_end}"
                    )
            elif budget.records == records:
                raise
            else:
                budget.close()  # it begins the next message
        part.next_offset = piece.next_offset


def fill_batches(
    response: pb.FetchBatchesResponse | pb.ConsumeBatchesResponse,
    pieces: Iterable[PartitionRecords],
    budget: ResponseBudget,
) -> None:
    """Fill the response up to its budget, one entry per piece."""
    for piece in pieces:
        topic, partition = piece.name
        part = response.partitions.add(
            topic=topic, partition=partition, high_watermark=piece.high_watermark, log_start=piece.log_start
        )
        part.batches.extend(piece.take_batches(budget))
        part.next_offset = piece.next_offset


def within_budget(pieces: Iterable[PartitionRecords], budget: ResponseBudget) -> Iterator[PartitionRecords]:
    """Yield pieces until the budget is used up."""
    for piece in pieces:
        if budget.is_full:
            return
        yield piece


INLINE_BYTES: Final = 64 * 1024
"""Up to this size, and only without compression, a message is built on the event loop."""

OF_DEADLINE: Final = 0.8
"""Share of the remaining deadline for which a call waits for records."""

Request = TypeVar("Request", pb.FetchRequest, pb.FetchBatchesRequest)
Response = TypeVar("Response", pb.FetchResponse, pb.FetchBatchesResponse)
T = TypeVar("T")


class FetchService:
    def __init__(self, settings: GrpcSettings, broker: Broker) -> None:
        self.settings = settings
        self.broker = broker

    async def fetch(self, request: pb.FetchRequest, call: Call) -> pb.FetchResponse:
        budget = ResponseBudget(
            records=number_of(request.max_records, "max_records") or UNLIMITED, size_bytes=self._max_bytes(request)
        )
        offsets, results, failed = await self._read(request, call)
        pieces = [partition_records(result, offsets[result.name]) for result in results if result.error is None]

        def fill(opening: DecodeLimits) -> pb.FetchResponse:
            response = pb.FetchResponse()
            fill_records(response, pieces, budget, opening)
            return response

        return _with_errors(await self.open(pieces, fill), failed)

    async def open(self, pieces: Iterable[PartitionRecords], work: Callable[[DecodeLimits], T]) -> T:
        """Run `work`, which decodes these pieces, within the decoder's memory; raise `Overloaded` if it is used up."""
        decoder = self.broker.decoder
        stored = sum_stored(piece.stored for piece in pieces)

        def act(limit_bytes: int) -> T:
            return work(DecodeLimits(limit_bytes, decoder.max_headers, may_grow=limit_bytes < decoder.limit_bytes))

        return await decoder.run(stored, act, inline_bytes=INLINE_BYTES)

    async def fetch_batches(self, request: pb.FetchBatchesRequest, call: Call) -> pb.FetchBatchesResponse:
        budget = ResponseBudget(records=UNLIMITED, size_bytes=self._max_bytes(request))
        offsets, results, failed = await self._read(request, call)
        response = pb.FetchBatchesResponse()
        fill_batches(
            response,
            [partition_records(result, offsets[result.name]) for result in results if result.error is None],
            budget,
        )
        return _with_errors(response, failed)

    def _max_bytes(self, request: Request) -> int:
        max_bytes = number_of(request.max_bytes, "max_bytes") or self.settings.fetch_bytes
        return min(max_bytes, self.settings.max_message_bytes)

    async def _read(
        self, request: Request, call: Call
    ) -> tuple[Mapping[TopicPartition, int], list[FetchResult], Mapping[TopicPartition, StreamhouseError]]:
        """Return the requested offsets, the results, and the errors by partition."""
        wait_s = min(number_of(request.max_wait_ms, "max_wait_ms") / 1000, call.timeout_s * OF_DEADLINE)
        min_bytes = number_of(request.min_bytes, "min_bytes")
        limit, max_bytes = self.settings.max_positions, self._max_bytes(request)
        check_count(len(request.positions), limit)
        for position in request.positions:
            call.access.require_topic(Operation.READ, position.topic)
        starts = await resolve_offsets(self.broker, request.positions, limit=limit)
        failed = {name: start for name, start in starts if isinstance(start, StreamhouseError)}
        offsets = {name: start.offset for name, start in starts if not isinstance(start, StreamhouseError)}
        results = await self.read(
            offsets, max_bytes=max_bytes, min_bytes=max(1, min_bytes) if wait_s else 0, max_wait_s=wait_s
        )
        call.access.recheck()  # it may have waited for records
        failed |= {result.name: result.error for result in results if result.error is not None}
        return offsets, results, failed

    async def read(
        self, offsets: Mapping[TopicPartition, int], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        requests = [PartitionFetch(name, offset, max_bytes) for name, offset in offsets.items()]
        return await self.broker.records.read(requests, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)


def _with_errors(response: Response, failed: Mapping[TopicPartition, StreamhouseError]) -> Response:
    for (topic, partition), error in failed.items():
        response.partitions.add(topic=topic, partition=partition, next_offset=-1, error=as_message(error))
    return response
