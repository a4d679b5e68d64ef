"""Pages of records, and end offsets of many partitions.

Data path   broker.forwarding, topic_reader -> **pages** -> routes.fetch
Owns        when a page is complete; the number of concurrent requests for end offsets
Leaves      decoding batches and the order of partitions to `topic_reader`, finding leaders to `broker.forwarding`

One read of a log ends at a block, and where segments end, though more records may follow. Only the first read of a page
waits; the others return what is there.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import StoredRecord
from streamhouse.wire.http.records.topic_reader import PARALLEL, Limits, PartitionRecords, TopicReader, decode_records


class PartitionPage(NamedTuple):
    records: list[StoredRecord]
    next_offset: int
    high_watermark: int
    log_start: int


async def fetch(broker: Broker, name: TopicPartition, offset: int, *, max_bytes: int, max_wait_s: float) -> FetchResult:
    (result,) = await broker.records.read(
        [PartitionFetch(name, offset, max_bytes)],
        max_bytes=max_bytes,
        min_bytes=1 if max_wait_s else 0,
        max_wait_s=max_wait_s,
    )
    if result.error is not None:
        raise result.error
    return result


async def partition_page(
    broker: Broker, name: TopicPartition, *, offset: int, limit: int, max_bytes: int, max_wait_s: float
) -> PartitionPage:
    """At most `limit` records and `max_bytes`, but at least one record."""
    records: list[StoredRecord] = []
    fetched = await fetch(broker, name, offset, max_bytes=max_bytes, max_wait_s=max_wait_s)
    while True:
        taken = await decode_records(
            broker,
            fetched,
            offset=offset,
            limits=Limits(limit - len(records), max_bytes, at_least_one=not records),
        )
        records += taken.records
        max_bytes -= taken.size_bytes
        has_moved, offset = taken.next_offset > offset, taken.next_offset
        is_full = taken.is_full or len(records) >= limit or max_bytes <= 0
        if is_full or not has_moved or offset >= fetched.high_watermark:
            break
        try:
            fetched = await fetch(broker, name, offset, max_bytes=max_bytes, max_wait_s=0)
        except StreamhouseError:
            break  # the request for the next page gets the error
    return PartitionPage(records, offset, fetched.high_watermark, fetched.log_start)


async def topic_page(
    tail: TopicReader, *, limit: int, max_bytes: int, max_wait_s: float
) -> AsyncGenerator[PartitionRecords, None]:
    """At most `limit` records and `max_bytes` over all partitions, but at least one record; advances the reader."""
    left, left_bytes = limit, max_bytes
    while True:
        has_moved = False
        async with aclosing(tail.read(limit=left, max_bytes=left_bytes, max_wait_s=max_wait_s)) as pieces:
            async for piece in pieces:
                if left < limit and piece.size_bytes > left_bytes:
                    return
                tail.offsets[piece.partition] = piece.next_offset
                left, left_bytes = left - len(piece.records), left_bytes - piece.size_bytes
                has_moved = True
                yield piece
                if piece.is_full or left <= 0 or left_bytes <= 0:
                    return
        if not has_moved or not tail.is_behind:
            return
        max_wait_s = 0


async def ends_of(
    broker: Broker, names: Iterable[TopicPartition], *, timeout_s: float | None = None
) -> dict[TopicPartition, int | None]:
    """The high watermarks; None for partitions whose leader can't be reached or doesn't answer in time, and of deleted
    topics."""

    async def end(name: TopicPartition) -> int | None:
        try:
            async with asyncio.timeout(timeout_s):
                return (await broker.records.latest(name)).offset
        except (StreamhouseError, TimeoutError):
            return None

    return await each_of(names, end)


async def each_of(
    names: Iterable[TopicPartition], ask: Callable[[TopicPartition], Awaitable[int | None]]
) -> dict[TopicPartition, int | None]:
    """Call `ask` for each partition, some of them concurrently."""
    turns = asyncio.Semaphore(PARALLEL)

    async def one(name: TopicPartition) -> tuple[TopicPartition, int | None]:
        async with turns:
            return name, await ask(name)

    return dict(await asyncio.gather(*map(one, names)))
