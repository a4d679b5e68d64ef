"""Consume streams: what a stream reads, the credit that the client granted, errors of partitions.

One response of the broker is sent before the next one is requested, and one message before the next one is built, so a
client that doesn't read costs the memory of one read.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from streamhouse.clock import Clock
from streamhouse.errors import Overloaded, Rejected, Retriable, Stopping, StreamhouseError
from streamhouse.model.access import Operation
from streamhouse.model.fetch import FetchResult
from streamhouse.model.names import TopicPartition
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.grpc.calls import Call, Send
from streamhouse.wire.grpc.errors import as_message
from streamhouse.wire.grpc.fetch import (
    INLINE_BYTES,
    UNLIMITED,
    DecodeLimits,
    FetchService,
    PartitionRecords,
    ResponseBudget,
    fill_batches,
    fill_records,
    partition_records,
    within_budget,
)
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.requests import check_count, number_of, partition_of, resolve_offsets


class Subscription:
    def __init__(self, *, max_partitions: int, message_bytes: int) -> None:
        self._max_partitions = max_partitions
        self._message_bytes = message_bytes
        self._positions: dict[TopicPartition, int] = {}
        self._records: int | None = None
        self._bytes: int | None = None
        self.client_is_done = False
        self.changed = asyncio.Event()
        """Set when partitions, the presence of credit, or the client's end of the stream changed."""

    def __repr__(self) -> str:
        return f"<Subscription partitions={len(self._positions)} records={self._records} bytes={self._bytes}>"

    # --- requests of the client

    def subscribe(self, name: TopicPartition, offset: int) -> None:
        if name not in self._positions and len(self._positions) >= self._max_partitions:
            raise Rejected(f"too many partitions; limit={self._max_partitions} setting=grpc.max_positions")
        self._positions[name] = offset
        self.changed.set()

    def drop(self, name: TopicPartition) -> None:
        if self._positions.pop(name, None) is not None:
            self.changed.set()

    def grant(self, *, records: int, size_bytes: int) -> None:
        had_credit = self.has_credit
        if records:
            self._records = min(UNLIMITED, (self._records or 0) + records)
        if size_bytes:
            self._bytes = min(UNLIMITED, (self._bytes or 0) + size_bytes)
        if self.has_credit != had_credit:
            self.changed.set()

    def end(self) -> None:
        self.client_is_done = True
        self.changed.set()

    # --- state

    @property
    def has_credit(self) -> bool:
        return (self._records is None or self._records > 0) and (self._bytes is None or self._bytes > 0)

    @property
    def is_over(self) -> bool:
        """The client has ended its side and nothing is left to send."""
        return self.client_is_done and not (self._positions and self.has_credit)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Offsets to read next, the partition that was served longest ago first; empty without credit."""
        return dict(self._positions) if self.has_credit else {}

    def is_at(self, name: TopicPartition, offset: int) -> bool:
        """Whether the partition is still subscribed at this offset."""
        return self._positions.get(name) == offset

    def budget(self) -> ResponseBudget:
        """The budget of the next message."""
        return ResponseBudget(
            records=UNLIMITED if self._records is None else self._records,
            size_bytes=min(self._message_bytes, UNLIMITED if self._bytes is None else self._bytes),
        )

    # --- sent messages

    def spent(self, *, records: int, size_bytes: int) -> None:
        if self._records is not None:
            self._records -= records
        if self._bytes is not None:
            self._bytes -= size_bytes

    def advance(self, name: TopicPartition, offset: int) -> None:
        """Set the position behind what was sent; the other partitions are served first."""
        if name in self._positions:
            del self._positions[name]
            self._positions[name] = offset

    def names(self) -> Iterable[TopicPartition]:
        return list(self._positions)


POLL_S: Final = 30.0
"""How long one read waits for records before it is repeated."""

RETRY_S: Final = 0.2
"""How long a stream waits after a retriable error."""

Request = pb.ConsumeRequest | pb.ConsumeBatchesRequest
Response = pb.ConsumeResponse | pb.ConsumeBatchesResponse


class ConsumeService:
    def __init__(self, reading: FetchService, clock: Clock) -> None:
        self._reading = reading
        self._clock = clock

    async def consume(self, requests: AsyncIterator[tuple[pb.ConsumeRequest, Call]], send: Send) -> None:
        async def make(pieces: Sequence[PartitionRecords], budget: ResponseBudget) -> bytes:
            def fill(opening: DecodeLimits) -> bytes:
                response = pb.ConsumeResponse()
                fill_records(response, within_budget(pieces, budget), budget, opening)
                return response.SerializeToString()

            return await self._reading.open(pieces, fill)

        await ConsumeStream(self._reading, self._clock, send, make, pb.ConsumeResponse).run(requests)

    async def consume_batches(self, requests: AsyncIterator[tuple[pb.ConsumeBatchesRequest, Call]], send: Send) -> None:
        async def make(pieces: Sequence[PartitionRecords], budget: ResponseBudget) -> bytes:
            def fill() -> bytes:
                response = pb.ConsumeBatchesResponse()
                fill_batches(response, within_budget(pieces, budget), budget)
                return response.SerializeToString()

            if sum(map(len, pieces[0].batches)) < INLINE_BYTES:
                return fill()
            return await asyncio.get_running_loop().run_in_executor(None, fill)

        await ConsumeStream(self._reading, self._clock, send, make, pb.ConsumeBatchesResponse).run(requests)


class ConsumeStream:
    """One stream. `make` builds a message from records; `empty` builds one for errors."""

    def __init__(
        self,
        reading: FetchService,
        clock: Clock,
        send: Send,
        make: Callable[[Sequence[PartitionRecords], ResponseBudget], Awaitable[bytes]],
        empty: Callable[[], Response],
    ) -> None:
        self._reading = reading
        self._clock = clock
        self._send = send
        self._make = make
        self._empty = empty
        settings = reading.settings
        self._subscription = Subscription(max_partitions=settings.max_positions, message_bytes=settings.fetch_bytes)
        self._access: RequestAccess | None = None
        self._reported: dict[TopicPartition, str] = {}
        """Name of the retriable error that the client was sent last, by partition; each is sent once while it lasts."""

    def __repr__(self) -> str:
        return f"<ConsumeStream {self._subscription!r}>"

    async def run(self, requests: AsyncIterator[tuple[pb.ConsumeRequest | pb.ConsumeBatchesRequest, Call]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(requests), name="requests")
            await self._serve()
            listening.cancel()

    # --- requests

    async def _listen(self, requests: AsyncIterator[tuple[Request, Call]]) -> None:
        async for request, call in requests:
            self._access = call.access
            await self._apply_request(request, call.access)
        self._subscription.end()

    async def _apply_request(self, request: Request, access: RequestAccess) -> None:
        limit = self._reading.settings.max_positions
        check_count(len(request.subscribe) + len(request.unsubscribe), limit, "subscribe")
        for position in request.subscribe:
            access.require_topic(Operation.READ, position.topic)
        for each in request.unsubscribe:
            self._subscription.drop(partition_of(each.topic, each.partition, "unsubscribe.partition"))
        if request.subscribe:
            starts = await resolve_offsets(self._reading.broker, request.subscribe, limit=limit, field="subscribe")
            for name, start in starts:
                if isinstance(start, StreamhouseError):
                    await self._send_error({name: start})
                else:
                    self._subscription.subscribe(name, start.offset)
        self._subscription.grant(
            records=number_of(request.grant_records, "grant_records"),
            size_bytes=number_of(request.grant_bytes, "grant_bytes"),
        )

    # --- responses

    async def _serve(self) -> None:
        subscription = self._subscription
        while True:
            subscription.changed.clear()
            if subscription.is_over:
                return
            if not (positions := subscription.positions):
                await subscription.changed.wait()
            elif (results := await self._read(positions)) is not None:
                await self._deliver(positions, results)

    async def _read(self, positions: Mapping[TopicPartition, int]) -> list[FetchResult] | None:
        """Wait for records and return them; None if the subscription changed first."""
        max_bytes = self._reading.settings.fetch_bytes
        reading = asyncio.ensure_future(
            self._reading.read(positions, max_bytes=max_bytes, min_bytes=1, max_wait_s=POLL_S)
        )
        changing = asyncio.ensure_future(self._subscription.changed.wait())
        try:
            await asyncio.wait({reading, changing}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()
            changing.cancel()
            await asyncio.gather(reading, changing, return_exceptions=True)

    async def _deliver(self, positions: Mapping[TopicPartition, int], results: Sequence[FetchResult]) -> None:
        failed = {each.name: each.error for each in results if each.error is not None}
        pieces: deque[PartitionRecords] = deque()
        for each in results:
            if each.error is None and each.records:
                try:
                    pieces.append(partition_records(each, positions[each.name]))
                except StreamhouseError as error:  # the bytes are not batches
                    failed[each.name] = error
        if failed:
            await self._on_failed(failed)
        for each in results:
            if each.name not in failed:
                self._reported.pop(each.name, None)
        all_pieces = list(pieces)
        await self._send_all(pieces)
        if not any(each.error is None for each in all_pieces) and (failed or all_pieces):
            await self._clock.sleep(RETRY_S)

    async def _send_all(self, pieces: deque[PartitionRecords]) -> None:
        """Send message after message, as credit allows, without partitions that are no longer subscribed there."""
        subscription = self._subscription
        while pieces := deque(
            each for each in pieces if subscription.is_at(each.name, each.next_offset) and not each.is_sent
        ):
            if subscription.has_credit:
                await self._send_some(pieces)
                continue
            subscription.changed.clear()
            if subscription.is_over:
                return
            if not subscription.has_credit:
                await subscription.changed.wait()

    async def _send_some(self, pieces: deque[PartitionRecords]) -> None:
        subscription, budget = self._subscription, self._subscription.budget()
        records, size_bytes = budget.records, budget.size_bytes
        before = {each.name: each.next_offset for each in pieces}
        try:
            message = await self._make(pieces, budget)
        except Overloaded:
            await self._clock.sleep(RETRY_S)
            return
        subscription.spent(records=records - budget.records, size_bytes=size_bytes - budget.size_bytes)
        for each in pieces:
            if each.next_offset != before[each.name] and subscription.is_at(each.name, before[each.name]):
                subscription.advance(each.name, each.next_offset)
        if self._access is not None:
            self._access.recheck()
        await self._send(message)
        for each in pieces:
            # The message carried the error, and reading the batch again would fail again: the client decides.
            if (
                each.error is not None
                and not isinstance(each.error, Retriable)
                and subscription.is_at(each.name, each.next_offset)
            ):
                subscription.drop(each.name)

    async def _on_failed(self, failed: Mapping[TopicPartition, StreamhouseError]) -> None:
        """Send each retriable error once while it lasts; drop a partition whose error is final.

        Raises `Stopping` when the agent stops, so that the client connects to another agent.
        """
        for error in failed.values():
            if isinstance(error, Stopping):
                raise error
        news = {name: error for name, error in failed.items() if self._reported.get(name) != type(error).__name__}
        for name, error in failed.items():
            if isinstance(error, Retriable):
                self._reported[name] = type(error).__name__
            else:
                self._subscription.drop(name)
        await self._send_error(news)

    async def _send_error(self, failed: Mapping[TopicPartition, StreamhouseError]) -> None:
        if failed:
            message = self._empty()
            for (topic, partition), error in failed.items():
                message.partitions.add(topic=topic, partition=partition, next_offset=-1, error=as_message(error))
            await self._send(message.SerializeToString())
