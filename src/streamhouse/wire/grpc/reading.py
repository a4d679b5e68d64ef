"""Reading: Fetch and FetchBatches, one answer each; and what every reader needs.

Data path   calls -> **reading** -> positions, broker.records -> outgoing -> the answer
Owns        how much is read and how long is waited; where messages are made: large ones in a thread
Leaves      what a message holds to `outgoing`, streams to `consuming`
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from streamhouse.broker.broker import Broker
from streamhouse.broker.decoder import stored_together
from streamhouse.broker.reading.fetch import Fetched, Wanted
from streamhouse.config import GrpcSettings
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import TopicPartition

from .calls import Call
from .errors import as_message
from .generated import streamhouse_pb2 as pb
from .outgoing import Opening, Piece, Room, fill_batches, fill_records, piece_of
from .positions import find_starts
from .requests import number_of
from .subscription import UNLIMITED

INLINE_BYTES: Final = 64 * 1024
"""A message is made on the event loop of no more than this, and only if nothing of it is compressed."""

OF_DEADLINE: Final = 0.8
"""Share of the time that is left to a call after which it stops waiting for records and answers."""

Request = TypeVar("Request", pb.FetchRequest, pb.FetchBatchesRequest)
Response = TypeVar("Response", pb.FetchResponse, pb.FetchBatchesResponse)
T = TypeVar("T")


class Reading:
    def __init__(self, settings: GrpcSettings, broker: Broker) -> None:
        self.settings = settings
        self.broker = broker

    async def fetch(self, request: pb.FetchRequest, call: Call) -> pb.FetchResponse:
        room = Room(
            records=number_of(request.max_records, "max_records") or UNLIMITED, size_bytes=self._max_bytes(request)
        )
        wants, found, failed = await self._read(request, call)
        pieces = [piece_of(each, wants[each.name]) for each in found if each.error is None]

        def fill(opening: Opening) -> pb.FetchResponse:
            response = pb.FetchResponse()
            fill_records(response, pieces, room, opening)
            return response

        return _with_errors(await self.open(pieces, fill), failed)

    async def open(self, pieces: Iterable[Piece], work: Callable[[Opening], T]) -> T:
        """What `work` makes of the batches of pieces. Raises `Overloaded` where there is no memory for it now."""
        decoder = self.broker.decoder
        stored = stored_together(piece.stored for piece in pieces)

        def act(limit_bytes: int) -> T:
            return work(Opening(limit_bytes, decoder.max_headers, may_grow=limit_bytes < decoder.limit_bytes))

        return await decoder.run(stored, act, inline_bytes=INLINE_BYTES)

    async def fetch_batches(self, request: pb.FetchBatchesRequest, call: Call) -> pb.FetchBatchesResponse:
        room = Room(records=UNLIMITED, size_bytes=self._max_bytes(request))
        wants, found, failed = await self._read(request, call)
        response = pb.FetchBatchesResponse()
        fill_batches(response, [piece_of(each, wants[each.name]) for each in found if each.error is None], room)
        return _with_errors(response, failed)

    def _max_bytes(self, request: Request) -> int:
        asked = number_of(request.max_bytes, "max_bytes") or self.settings.fetch_bytes
        return min(asked, self.settings.max_message_bytes)

    async def _read(
        self, request: Request, call: Call
    ) -> tuple[Mapping[TopicPartition, int], list[Fetched], Mapping[TopicPartition, StreamhouseError]]:
        """What was asked for, what was found, and what failed."""
        wait_s = min(number_of(request.max_wait_ms, "max_wait_ms") / 1000, call.timeout_s * OF_DEADLINE)
        min_bytes = number_of(request.min_bytes, "min_bytes")
        limit, max_bytes = self.settings.max_positions, self._max_bytes(request)
        starts = await find_starts(self.broker, request.positions, limit=limit)
        failed = {name: found for name, found in starts if isinstance(found, StreamhouseError)}
        wants = {name: found.offset for name, found in starts if not isinstance(found, StreamhouseError)}
        found = await self.read(
            wants, max_bytes=max_bytes, min_bytes=max(1, min_bytes) if wait_s else 0, max_wait_s=wait_s
        )
        failed |= {each.name: each.error for each in found if each.error is not None}
        return wants, found, failed

    async def read(
        self, wants: Mapping[TopicPartition, int], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[Fetched]:
        wanted = [Wanted(name, offset, max_bytes) for name, offset in wants.items()]
        return await self.broker.records.read(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)


def _with_errors(response: Response, failed: Mapping[TopicPartition, StreamhouseError]) -> Response:
    for (topic, partition), error in failed.items():
        response.partitions.add(topic=topic, partition=partition, next_offset=-1, error=as_message(error))
    return response
