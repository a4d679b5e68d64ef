"""Segment rewrite: a task reads runs by ranges, and stores one object that replaces them.

Data path   object store -> **segment_rewrite** -> object store; results go to the driver, and on to agents
Owns        which ranges one GET brings, memory's bound, the names of objects that jobs write
Leaves      what stays of runs to `merge_job` and `compaction_job`, layout to `format.run_rewrite`, registering to the
            driver
Invariant   every task attempt writes its own objects; no reader sees them before an agent has registered them

Names are those of the sink's segments, so that agents collect what a killed job left by the same rule.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from streamhouse.clock import Clock, Ids
from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer
from streamhouse.format.object_keys import external_segment_key
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.run_rewrite import RewrittenRun, Source, batches_of, decode_run_blocks, run_inputs
from streamhouse.format.segment import EncodedSegment, encode_segment
from streamhouse.model.external_commit import QueryId
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.spark.agents.run_replacements import ExpectedRun, Replacement, ReplacingRun, ReplacingSegment, RunRow
from streamhouse.spark.runtime.object_store import prefetch
from streamhouse.stores.objects.base import ObjectStore

GET_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of one request for adjacent ranges; a longer range is one request of its own."""
GAP_BYTES: Final = 128 * 1024
"""Between two ranges of an object: reading it costs less than another request."""
GETS_AHEAD: Final = 8


class RewriteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive runs of a partition that a task rewrites as one object; what the driver sends."""

    job: str
    store: str
    topic: str
    topic_id: str
    partition: int
    runs: tuple[RunRow, ...]

    @property
    def id(self) -> PartitionId:
        return PartitionId(TopicId(UUID(self.topic_id)), self.partition)

    @property
    def stored_bytes(self) -> int:
        return sum(run.length + run.index_length for run in self.runs)


class IoStats(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and bytes of a task at the object store."""

    gets: int = 0
    read_bytes: int = 0
    puts: int = 0
    written_bytes: int = 0

    def __add__(self, other: "IoStats") -> "IoStats":
        return IoStats(
            gets=self.gets + other.gets,
            read_bytes=self.read_bytes + other.read_bytes,
            puts=self.puts + other.puts,
            written_bytes=self.written_bytes + other.written_bytes,
        )


class Range(NamedTuple):
    """Bytes [start, end) of an object."""

    key: str
    start: int
    end: int


@dataclass(slots=True)
class RunBytes:
    """Bytes of runs, as few requests brought them."""

    pieces: Mapping[str, Sequence[tuple[int, bytes]]]
    """By object: where each piece begins."""
    costs: IoStats

    def bytes(self, key: str, start: int, length: int) -> memoryview:
        for begin, data in self.pieces.get(key, ()):
            if begin <= start and start + length <= begin + len(data):
                return memoryview(data)[start - begin : start - begin + length]
        raise CorruptObject(key, why=f"ends before {start + length}")

    def source(self, row: RunRow, partition: PartitionId) -> Source:
        """A run with its index."""
        index = self.bytes(row.key, row.index_position, row.index_length)
        return Source(row.run(partition), decode_run_index(index, key=row.key))

    def batches(self, source: Source) -> list[Buffer]:
        """A run's batches in order, as they are served, one per buffer."""
        blocks, run = source.index.blocks, source.run
        if not blocks:
            return []
        start, end = blocks[0].position, blocks[-1].position + blocks[-1].stored_bytes
        stored = self.bytes(run.object_key, start, end - start)
        return list(batches_of(decode_run_blocks(stored, blocks, source)))


async def fetch(store: ObjectStore, rows: Iterable[RunRow]) -> RunBytes:
    """Read runs and their indexes, adjacent ones in one request."""
    ranges = ranges_of(rows)

    async def gets() -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        for each in ranges:
            yield partial(store.get_range, each.key, each.start, each.end)

    pieces: dict[str, list[tuple[int, bytes]]] = {}
    read_bytes = number = 0
    async for data in prefetch(gets(), depth=GETS_AHEAD):
        pieces.setdefault(ranges[number].key, []).append((ranges[number].start, data))
        number, read_bytes = number + 1, read_bytes + len(data)
    return RunBytes(pieces=pieces, costs=IoStats(gets=number, read_bytes=read_bytes))


def ranges_of(rows: Iterable[RunRow]) -> list[Range]:
    """The requests that bring these runs. Decides; touches nothing."""
    parts: list[Range] = []
    for row in rows:
        parts.append(Range(row.key, row.index_position, row.index_position + row.index_length))
        if row.length:
            parts.append(Range(row.key, row.position, row.position + row.length))
    ranges: list[Range] = []
    for part in sorted(set(parts)):
        last = ranges[-1] if ranges else None
        if (
            last is not None
            and last.key == part.key
            and part.start - last.end <= GAP_BYTES
            and part.end - last.start <= GET_BYTES
        ):
            ranges[-1] = last._replace(end=max(last.end, part.end))
        else:
            ranges.append(part)
    return ranges


async def store_replacement(
    store: ObjectStore, work: RewriteTask, rewritten: Sequence[RewrittenRun], *, clock: Clock, ids: Ids
) -> tuple[Replacement, IoStats]:
    """Store what stays of consecutive runs as one object; return the replacement to commit."""
    encoded = encode_segment(list(run_inputs(rewritten)))
    key = external_segment_key(QueryId(work.job), work.partition, ids.token())
    await store.put_new(key, encoded.body)
    segment = _segment(key, encoded, created_at_ms=clock.now_ms())
    expected = tuple(_expected(item.source) for item in rewritten)
    replacement = Replacement(
        topic=work.topic, topic_id=work.topic_id, partition=work.partition, expected=expected, segment=segment
    )
    return replacement, IoStats(puts=1, written_bytes=encoded.size_bytes)


def _expected(source: Source) -> ExpectedRun:
    run = source.run
    return ExpectedRun(key=run.object_key, base=run.base, end=run.end, epoch=run.epoch)


def _segment(key: str, encoded: EncodedSegment, *, created_at_ms: int) -> ReplacingSegment:
    runs = tuple(
        ReplacingRun(
            base=entry.base,
            end=entry.end,
            epoch=entry.epoch,
            position=entry.position,
            length=entry.length,
            index_position=entry.index_position,
            index_length=entry.index_length,
            records=entry.records,
            max_timestamp_ms=entry.max_timestamp_ms,
        )
        for entry in (layout.entry for layout in encoded.layouts)
    )
    return ReplacingSegment(key=key, size_bytes=encoded.size_bytes, created_at_ms=created_at_ms, runs=runs)
