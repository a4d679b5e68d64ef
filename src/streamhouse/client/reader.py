"""Record reader: the records of a topic from a start to an end, or without end."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from streamhouse.client.consumer import Consumer
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.serde import SchemaReader
from streamhouse.client.types import EARLIEST, LATEST, Record
from streamhouse.errors import InvalidPartitions, OffsetOutOfRange, Rejected

POLL_RECORDS: Final = 5_000
POLL_S: Final = 0.5

Start: TypeAlias = Literal["earliest", "latest"] | int | datetime | Mapping[int, int]
"""An end, an offset (-10: ten before the end), a time, or an offset for each partition."""
Until: TypeAlias = Literal["end"] | datetime | None
"""The current end, the first record at or after a time, or None: never."""
Connect: TypeAlias = "Callable[[Mapping[int, int]], AbstractAsyncContextManager[Consumer]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """The range to read."""

    from_: Start = "earliest"
    until: Until = None
    partitions: Sequence[int] | None = None
    limit: int | None = None


def time_ms(moment: datetime) -> int:
    """Milliseconds since 1970; a time without a zone is local."""
    return int(moment.timestamp() * 1000)


def decide_starts(
    from_: Start, *, topic: str, earliest: Mapping[int, int], latest: Mapping[int, int], at_time: Mapping[int, int]
) -> dict[int, int]:
    """Per partition the first offset to read; `at_time` is for a start that is a time."""
    if isinstance(from_, datetime):
        return at_or_end(at_time, latest)
    if isinstance(from_, str):
        if from_ not in ("earliest", "latest"):
            raise Rejected(f"reading starts at earliest, latest, an offset or a time; from={from_!r}")
        return dict(earliest if from_ == "earliest" else latest)
    if isinstance(from_, int) and from_ < 0:
        return {number: max(earliest[number], end + from_) for number, end in latest.items()}
    starts = dict.fromkeys(latest, from_) if isinstance(from_, int) else dict(from_)
    for number, offset in starts.items():
        if not earliest[number] <= offset <= latest[number]:
            raise OffsetOutOfRange(f"{topic}-{number}", offset=offset, start=earliest[number], end=latest[number])
    return starts


def at_or_end(at_time: Mapping[int, int], latest: Mapping[int, int]) -> dict[int, int]:
    """The offset at a time, or the end if no record is that late."""
    return {number: latest[number] if at_time[number] < 0 else at_time[number] for number in latest}


class RecordReader:
    """Iterate over it, or call `poll` until `is_over`. Polling needs `async with`; iterating opens and closes it
    itself."""

    def __init__(
        self,
        admin: Callable[[], Awaitable[Admin]],
        connect: Connect,
        topic: str,
        span: ReadRange,
        *,
        reader: SchemaReader | None = None,
    ) -> None:
        self._admin, self._connect, self._topic, self._span, self._reader = admin, connect, topic, span, reader
        self._left = span.limit
        self._ends: dict[int, int] | None = None
        self._consumer: Consumer | None = None
        self._open = AsyncExitStack()
        self.is_empty = False

    def __repr__(self) -> str:
        return f"<RecordReader {self._topic} from={self._span.from_} until={self._span.until} left={self._left}>"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            starts, self._ends = await self._range(await self._admin())
            ends = self._ends
            self.is_empty = ends is not None and all(starts[number] >= end for number, end in ends.items())
            if not self.is_empty:
                self._consumer = await opened.enter_async_context(self._connect(starts))
            self._open = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer = None
        await self._open.aclose()

    async def _range(self, admin: Admin) -> tuple[dict[int, int], dict[int, int] | None]:
        span = self._span
        topic = await admin.topic(self._topic)
        partitions = select_partitions(self._topic, {p.partition for p in topic.partitions}, span)
        latest = await admin.offsets(topic, LATEST, partitions, committed=True)
        earliest = await admin.offsets(topic, EARLIEST, partitions)
        at_time = (
            await admin.offsets(topic, time_ms(span.from_), partitions) if isinstance(span.from_, datetime) else {}
        )
        starts = decide_starts(span.from_, topic=self._topic, earliest=earliest, latest=latest, at_time=at_time)
        if span.until is None:
            return starts, None
        if isinstance(span.until, datetime):
            return starts, at_or_end(await admin.offsets(topic, time_ms(span.until), partitions), latest)
        return starts, latest

    async def is_over(self) -> bool:
        if self.is_empty or (self._left is not None and self._left <= 0):
            return True
        if self._ends is None:
            return False
        assert self._consumer is not None
        positions = await self._consumer.positions()
        return all(positions[number] >= end for number, end in self._ends.items())

    async def poll(self, *, timeout_s: float = POLL_S) -> list[Record]:
        """Return buffered records, or wait for some until the timeout."""
        assert self._consumer is not None, "nothing to read, or not open"
        max_records = POLL_RECORDS if self._left is None else min(POLL_RECORDS, self._left)
        records = within(await self._consumer.poll(max_records=max_records, timeout_s=timeout_s), self._ends)
        if self._left is not None:
            self._left -= len(records)
        return records if self._reader is None else await self._reader.read(records)

    async def batches(self) -> AsyncGenerator[list[Record], None]:
        """Yield records in lists as they arrive; cheaper than record by record."""
        async with self:
            while not await self.is_over():
                if records := await self.poll():
                    yield records

    def __aiter__(self) -> AsyncGenerator[Record, None]:
        return self.records()

    async def records(self) -> AsyncGenerator[Record, None]:
        """The generator behind `async for`, for callers that close it themselves."""
        async with aclosing(self.batches()) as batches:
            async for records in batches:
                for record in records:
                    yield record


def select_partitions(topic: str, known: set[int], span: ReadRange) -> set[int]:
    """The partitions to read; raises `InvalidPartitions` for one that isn't there."""
    named = span.partitions
    if named is None and isinstance(span.from_, Mapping):
        named = list(span.from_)
    selected = known if named is None else set(named)
    if not selected <= known:
        missing = min(selected - known)
        raise InvalidPartitions(f"no such partition; topic={topic} partition={missing} allowed=0 to {len(known) - 1}")
    return selected


def within(records: Iterable[Record], ends: Mapping[int, int] | None) -> list[Record]:
    """The records below these end offsets."""
    return [*records] if ends is None else [record for record in records if record.offset < ends[record.partition]]
