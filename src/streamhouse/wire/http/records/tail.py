"""Tail: all partitions of a topic, read in turn for as long as somebody wants more.

Data path   broker.records -> **tail** -> streams, pages of all partitions
Owns        where the reader is in each partition; partitions that are added on the way; records that retention took
Leaves      waiting and leaders to `broker.records`, writing to `streams`
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.broker.reading.fetch import Fetched, Wanted
from streamhouse.broker.reading.offsets import FoundOffset
from streamhouse.clock import SystemClock
from streamhouse.errors import DamagedRecords, OffsetOutOfRange, Retriable
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import StoredRecord
from streamhouse.model.topic import Topic
from streamhouse.wire.http.records.cursor import read_cursor, write_cursor
from streamhouse.wire.http.records.decoding import Limits, take

PAUSE_S: Final = 0.25
"""Between looks at partitions that nobody leads just now."""
PARALLEL: Final = 16
"""Partitions whose beginning is looked up at once."""


class Piece(NamedTuple):
    """Records of one partition. `lost` are offsets [from, to) that were deleted before they could be read."""

    partition: int
    records: Sequence[StoredRecord]
    next_offset: int
    size_bytes: int = 0
    is_full: bool = False
    lost: tuple[int, int] | None = None


class Tail:
    def __init__(self, broker: Broker, topic: Topic, offsets: list[int]) -> None:
        self._broker = broker
        self._topic = topic
        self._turn = 0
        self._clock = SystemClock()
        self.offsets = offsets
        """The next offset of each partition; whoever writes pieces moves them on."""
        self.is_behind = False
        """Whether the last read saw records behind those that it gave."""

    def __repr__(self) -> str:
        return f"<Tail {self._topic.name} {self.offsets}>"

    @property
    def cursor(self) -> str:
        return write_cursor(self._topic.topic_id, self.offsets)

    async def read(self, *, limit: int, max_bytes: int, max_wait_s: float) -> AsyncGenerator[Piece, None]:
        """What there is, partition by partition; nothing when nothing came in time. Raises what isn't worth a retry;
        that a range is missing or damaged, when the other partitions have nothing more."""
        await self._grow()
        count = len(self.offsets)
        self._turn = (self._turn + 1) % count  # the first one asked for gets the most
        wanted = [
            Wanted(TopicPartition(self._topic.name, number), self.offsets[number], max_bytes)
            for each in range(count)
            for number in [(each + self._turn) % count]
        ]
        found = await self._broker.records.read(wanted, max_bytes=max_bytes, min_bytes=1, max_wait_s=max_wait_s)
        self.is_behind = False
        damage: DamagedRecords | None = None
        has_some = False
        for item, fetched in zip(wanted, found, strict=True):
            if limit <= 0:
                return
            if isinstance(fetched.error, DamagedRecords):
                damage = fetched.error
                continue
            piece = await self._piece(item, fetched, limit, max_bytes)
            self.is_behind |= fetched.high_watermark > (item.offset if piece is None else piece.next_offset)
            if piece is not None:
                limit -= len(piece.records)
                has_some = True
                yield piece
        if damage is not None and not has_some:
            raise damage
        if any(fetched.error is not None for fetched in found):
            await self._clock.sleep(min(PAUSE_S, max_wait_s))

    async def _piece(self, item: Wanted, fetched: Fetched, limit: int, max_bytes: int) -> Piece | None:
        number = item.name.partition
        if fetched.error is not None:
            return await self._lost(item, fetched.error)
        if not fetched.records:
            return None
        taken = await take(self._broker.decoder, fetched, offset=item.offset, limits=Limits(limit, max_bytes))
        return Piece(number, taken.records, taken.next_offset, taken.size_bytes, taken.is_full)

    async def _lost(self, item: Wanted, error: Exception) -> Piece | None:
        """A reader whose records retention has taken goes on at the beginning, and is told."""
        if isinstance(error, Retriable):
            return None
        if isinstance(error, OffsetOutOfRange):
            start = (await self._broker.records.earliest(item.name)).offset
            if item.offset < start:
                return Piece(item.name.partition, (), start, lost=(item.offset, start))
        raise error

    async def _grow(self) -> None:
        self._topic = await self._broker.topic(self._topic.name)
        for number in range(len(self.offsets), self._topic.partitions):
            name = TopicPartition(self._topic.name, number)
            self.offsets.append((await self._broker.records.earliest(name)).offset)


async def open_tail(broker: Broker, topic: Topic, *, cursor: str | None, start: str) -> Tail:
    """A reader that begins at a cursor, else where `start` says: earliest, latest, or a time in milliseconds."""
    if cursor:
        offsets = read_cursor(cursor, topic.topic_id, partitions=topic.partitions)
        return Tail(broker, topic, offsets)  # partitions that were added since are read from their beginning
    turns = asyncio.Semaphore(PARALLEL)

    async def one(number: int) -> int:
        async with turns:
            return await first_offset(broker, TopicPartition(topic.name, number), start)

    return Tail(broker, topic, list(await asyncio.gather(*map(one, range(topic.partitions)))))


async def first_offset(broker: Broker, name: TopicPartition, start: str) -> int:
    ends: dict[str, Callable[[TopicPartition], Awaitable[FoundOffset]]] = {
        "earliest": broker.records.earliest,
        "latest": broker.records.stable_end,
    }
    if (end := ends.get(start)) is not None:
        return (await end(name)).offset
    found = await broker.records.at_time(name, int(start))
    return found.offset if found is not None else (await broker.records.stable_end(name)).offset
