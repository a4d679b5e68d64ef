"""Consuming: streams that read for ever.

Data path   client's wishes -> subscription -> **consuming** -> broker.records.read -> outgoing -> client
Owns        one stream: what it reads, when it waits, what it tells of partitions that can't be read
Leaves      positions and credit to `subscription`, messages to `outgoing`, the long poll to the broker

One answer of the broker is sent before the next one is asked for, and a message before the next one is made; so a
client that doesn't read costs what one read may bring, and no more.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final

from streamhouse.broker.reading.fetch import Fetched
from streamhouse.clock import Clock
from streamhouse.errors import Overloaded, Retriable, Stopping, StreamhouseError
from streamhouse.model.names import TopicPartition

from .calls import Call, Send
from .errors import as_message
from .generated import streamhouse_pb2 as pb
from .outgoing import Opening, Piece, Room, fill_batches, fill_records, piece_of, while_room
from .positions import find_starts
from .reading import INLINE_BYTES, Reading
from .requests import number_of, partition_of
from .subscription import Subscription

POLL_S: Final = 30.0
"""How long one read waits for records before it is asked again."""

RETRY_S: Final = 0.2
"""How long a stream waits when partitions can't be read for now."""

Request = pb.ConsumeRequest | pb.ConsumeBatchesRequest
Response = pb.ConsumeResponse | pb.ConsumeBatchesResponse


class Consuming:
    def __init__(self, reading: Reading, clock: Clock) -> None:
        self._reading = reading
        self._clock = clock

    async def consume(self, requests: AsyncIterator[tuple[pb.ConsumeRequest, Call]], send: Send) -> None:
        async def make(pieces: Sequence[Piece], room: Room) -> bytes:
            def fill(opening: Opening) -> bytes:
                response = pb.ConsumeResponse()
                fill_records(response, while_room(pieces, room), room, opening)
                return response.SerializeToString()

            return await self._reading.open(pieces, fill)

        await ConsumeStream(self._reading, self._clock, send, make, pb.ConsumeResponse).run(requests)

    async def consume_batches(self, requests: AsyncIterator[tuple[pb.ConsumeBatchesRequest, Call]], send: Send) -> None:
        async def make(pieces: Sequence[Piece], room: Room) -> bytes:
            def fill() -> bytes:
                response = pb.ConsumeBatchesResponse()
                fill_batches(response, while_room(pieces, room), room)
                return response.SerializeToString()

            if sum(map(len, pieces[0].batches)) < INLINE_BYTES:
                return fill()
            return await asyncio.get_running_loop().run_in_executor(None, fill)

        await ConsumeStream(self._reading, self._clock, send, make, pb.ConsumeBatchesResponse).run(requests)


class ConsumeStream:
    """One stream. `make` makes a message of what was read; `empty` is one that only tells errors."""

    def __init__(
        self,
        reading: Reading,
        clock: Clock,
        send: Send,
        make: Callable[[Sequence[Piece], Room], Awaitable[bytes]],
        empty: Callable[[], Response],
    ) -> None:
        self._reading = reading
        self._clock = clock
        self._send = send
        self._make = make
        self._empty = empty
        settings = reading.settings
        self._wishes = Subscription(max_partitions=settings.max_positions, message_bytes=settings.fetch_bytes)
        self._told: dict[TopicPartition, str] = {}
        """Troubles that will pass and that the client knows of, by the error's name."""

    def __repr__(self) -> str:
        return f"<ConsumeStream {self._wishes!r}>"

    async def run(self, requests: AsyncIterator[tuple[pb.ConsumeRequest | pb.ConsumeBatchesRequest, Call]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(requests), name="wishes")
            await self._serve()
            listening.cancel()

    # --- what the client wants

    async def _listen(self, requests: AsyncIterator[tuple[Request, Call]]) -> None:
        async for request, _ in requests:
            await self._obey(request)
        self._wishes.end()

    async def _obey(self, request: Request) -> None:
        for each in request.unsubscribe:
            self._wishes.drop(partition_of(each.topic, each.partition, "unsubscribe.partition"))
        if request.subscribe:
            limit = self._reading.settings.max_positions
            starts = await find_starts(self._reading.broker, request.subscribe, limit=limit, field="subscribe")
            for name, found in starts:
                if isinstance(found, StreamhouseError):
                    await self._tell({name: found})
                else:
                    self._wishes.subscribe(name, found.offset)
        self._wishes.grant(
            records=number_of(request.grant_records, "grant_records"),
            size_bytes=number_of(request.grant_bytes, "grant_bytes"),
        )

    # --- what it gets

    async def _serve(self) -> None:
        wishes = self._wishes
        while True:
            wishes.changed.clear()
            if wishes.is_over:
                return
            if not (wants := wishes.wants):
                await wishes.changed.wait()
            elif (found := await self._read(wants)) is not None:
                await self._deliver(wants, found)

    async def _read(self, wants: Mapping[TopicPartition, int]) -> list[Fetched] | None:
        """What there is, once there is something; None when the client wants something else meanwhile."""
        max_bytes = self._reading.settings.fetch_bytes
        reading = asyncio.ensure_future(self._reading.read(wants, max_bytes=max_bytes, min_bytes=1, max_wait_s=POLL_S))
        changing = asyncio.ensure_future(self._wishes.changed.wait())
        try:
            await asyncio.wait({reading, changing}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()
            changing.cancel()
            await asyncio.gather(reading, changing, return_exceptions=True)

    async def _deliver(self, wants: Mapping[TopicPartition, int], found: Sequence[Fetched]) -> None:
        failed = {each.name: each.error for each in found if each.error is not None}
        pieces: deque[Piece] = deque()
        for each in found:
            if each.error is None and each.records:
                try:
                    pieces.append(piece_of(each, wants[each.name]))
                except StreamhouseError as error:  # bytes that are no batches
                    failed[each.name] = error
        if failed:
            await self._on_failed(failed)
        for each in found:
            if each.name not in failed:
                self._told.pop(each.name, None)
        all_pieces = list(pieces)
        await self._send_all(pieces)
        if not any(each.error is None for each in all_pieces) and (failed or all_pieces):
            await self._clock.sleep(RETRY_S)

    async def _send_all(self, pieces: deque[Piece]) -> None:
        """One message after the other, as credit allows; what the client doesn't want any more is left out."""
        wishes = self._wishes
        while pieces := deque(
            each for each in pieces if wishes.is_at(each.name, each.next_offset) and not each.is_sent
        ):
            if wishes.has_credit:
                await self._send_some(pieces)
                continue
            wishes.changed.clear()
            if wishes.is_over:
                return
            if not wishes.has_credit:
                await wishes.changed.wait()

    async def _send_some(self, pieces: deque[Piece]) -> None:
        wishes, room = self._wishes, self._wishes.room()
        records, size_bytes = room.records, room.size_bytes
        before = {each.name: each.next_offset for each in pieces}
        try:
            message = await self._make(pieces, room)
        except Overloaded:
            await self._clock.sleep(RETRY_S)
            return
        wishes.spent(records=records - room.records, size_bytes=size_bytes - room.size_bytes)
        for each in pieces:
            if each.next_offset != before[each.name] and wishes.is_at(each.name, before[each.name]):
                wishes.moved(each.name, each.next_offset)
        await self._send(message)
        for each in pieces:
            # The message had the error. It would be the same when the batch is read again, so the client decides.
            if (
                each.error is not None
                and not isinstance(each.error, Retriable)
                and wishes.is_at(each.name, each.next_offset)
            ):
                wishes.drop(each.name)

    async def _on_failed(self, failed: Mapping[TopicPartition, StreamhouseError]) -> None:
        """Tell each trouble once while it lasts. A partition that can't be read later either is dropped.

        An agent that stops has nothing more to tell: the client had better ask another one now.
        """
        for error in failed.values():
            if isinstance(error, Stopping):
                raise error
        news = {name: error for name, error in failed.items() if self._told.get(name) != type(error).__name__}
        for name, error in failed.items():
            if isinstance(error, Retriable):
                self._told[name] = type(error).__name__
            else:
                self._wishes.drop(name)
        await self._tell(news)

    async def _tell(self, failed: Mapping[TopicPartition, StreamhouseError]) -> None:
        if failed:
            message = self._empty()
            for (topic, partition), error in failed.items():
                message.partitions.add(topic=topic, partition=partition, next_offset=-1, error=as_message(error))
            await self._send(message.SerializeToString())
