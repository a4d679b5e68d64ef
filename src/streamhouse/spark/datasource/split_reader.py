"""Reads a split on an executor: segment ranges become Arrow batches, straight from the object store.

Data path   split -> run index -> blocks (range reads) -> **read_split** -> Arrow -> Spark
Owns        which blocks a range needs, which of them one read returns, prefetching; segments that moved
Leaves      requests to `segment_source`, the tail to `tail_reader`, bytes to `format`, arrays to `columns`

Tasks send requests to agents only for the tail, for a new plan if a merge removed an object before it was read, and
where they have no credentials of the store.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from streamhouse.client.loop_thread import LoopThread
from streamhouse.errors import DataLost, MissingRecords, Unavailable
from streamhouse.format.block import BlockEntry, decode_block
from streamhouse.format.columnar_decoder import Column, Columns, Selection, read_columns_in_parts
from streamhouse.format.run_index import RunIndex, decode_run_index
from streamhouse.format.transactions import AbortedTransactions, drop_aborted, shifted
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import AgentClient, OffsetRange, PartitionPlan, RunLocation
from streamhouse.spark.columns.record_columns import RecordBatchBuilder
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS, PushedFilters
from streamhouse.spark.datasource.read_options import ReadOptions, StoreAccess
from streamhouse.spark.datasource.segment_source import SegmentSource, open_source
from streamhouse.spark.datasource.split_planner import InputSplit, SegmentRange, segment_ranges
from streamhouse.spark.datasource.tail_reader import read_tail
from streamhouse.spark.runtime.object_store import prefetch
from streamhouse.spark.runtime.python_worker import prepare_worker_process
from streamhouse.stores.objects.base import ObjectMissing

if TYPE_CHECKING:
    from streamhouse.spark.columns.typed_decoder import ReaderSchema

log = logging.getLogger(__name__)

T = TypeVar("T")

GET_BYTES: Final = 8 * 1024 * 1024
"""Neighbouring blocks that one GET brings."""
ARROW_BYTES: Final = 2 * 1024 * 1024
"""Blocks that become one Arrow batch, before Kafka's own compression is undone: large enough to make the cost per batch
negligible, small enough to stay in the CPU cache between decompressing, decoding and sending."""
INDEXES_AHEAD: Final = 8
GETS_AHEAD: Final = 3
LIMIT_BYTES: Final = 256 * 1024 * 1024
"""Largest batch after decompression: what agents accept."""


class BatchBuilder(Protocol):
    """Builds Arrow batches in Spark's types."""

    @property
    def required(self) -> Column: ...
    def record_batch(self, columns: Columns, partition: TopicPartition, *, shift: int = 0) -> pa.RecordBatch: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """The parameters of all splits of a read: addresses of agents, and limits of timestamps."""

    agents: AgentAddress
    fail_on_data_loss: bool = True
    from_ms: int | None = None
    until_ms: int | None = None
    access: StoreAccess = StoreAccess.DIRECT

    def selection(self, required: Column, start: int, end: int) -> Selection:
        return Selection(required, start, end, self.from_ms, self.until_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRead:
    """Neighbouring blocks of a run, and the part of a piece that they hold."""

    piece: SegmentRange
    run: RunLocation
    blocks: Sequence[BlockEntry]
    start: int
    end: int

    @property
    def shift(self) -> int:
        """The difference between an offset in the log and in the object."""
        return self.run.base - self.run.stored_base


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeData:
    """The bytes of a GET, or None: the object is gone."""

    get: RangeRead
    data: bytes | None


def read_split(split: InputSplit, task: ReadTask, shape: BatchBuilder) -> Iterator[pa.RecordBatch]:
    """The records of a split in order; the first rows come while later ones are still on their way."""
    prepare_worker_process()
    decode, decode_runs = partial(_shaped, task, shape), partial(_decoded, task=task, shape=shape)
    for runs, piece in _runs_and_tails(split.pieces):
        if runs and task.access is not StoreAccess.AGENTS:
            handle = open_source(split.store, task.agents, signed=task.access is StoreAccess.SIGNED)
            yield from _read_runs(handle.loop, handle.source, runs, task, decode_runs)
            runs = []
        for from_agents in (*runs, *([] if piece is None else [piece])):
            yield from read_tail(from_agents, task.agents, decode, fail_on_data_loss=task.fail_on_data_loss)


def read_runs(split: InputSplit, task: ReadTask, decode: Callable[[RangeRead, bytes], Iterator[T]]) -> Iterator[T]:
    """What `decode` makes of the blocks of a split without a tail, in order, a GET at a time."""
    prepare_worker_process()
    handle = open_source(split.store, task.agents, signed=False)
    return _read_runs(handle.loop, handle.source, split.pieces, task, decode)


def _runs_and_tails(pieces: Sequence[SegmentRange]) -> Iterator[tuple[list[SegmentRange], SegmentRange | None]]:
    """Runs that follow each other are read together, the tails between them one by one."""
    runs: list[SegmentRange] = []
    for piece in pieces:
        if piece.run is not None:
            runs.append(piece)
            continue
        if runs:
            yield runs, None
            runs = []
        yield [], piece
    if runs:
        yield runs, None


def _shaped(
    task: ReadTask, shape: BatchBuilder, blocks: Sequence[bytes], piece: SegmentRange
) -> Iterator[pa.RecordBatch]:
    """Batches whose offsets are final already."""
    selection = task.selection(shape.required, piece.start, piece.end)
    committed = drop_aborted(blocks, AbortedTransactions(piece.aborted)) if piece.aborted else blocks
    for columns in read_columns_in_parts(committed, selection, limit_bytes=LIMIT_BYTES):
        yield shape.record_batch(columns, piece.partition)


def _read_runs(
    loop: LoopThread,
    source: SegmentSource,
    pieces: Sequence[SegmentRange],
    task: ReadTask,
    decode: Callable[[RangeRead, bytes], Iterator[T]],
    *,
    gone_key: str | None = None,
) -> Iterator[T]:
    """`gone_key`: the missing object because of which these ranges were planned again."""
    for got in loop.iterate(_listed(_bytes_of(source, pieces, task.from_ms))):
        if got.data is not None:
            yield from decode(got.get, got.data)
        elif gone_key is None:
            elsewhere = _replan_moved_segments(loop, got.get, task)
            yield from _read_runs(loop, source, elsewhere, task, decode, gone_key=got.get.run.key)
        elif got.get.run.key == gone_key:
            raise _missing(got.get)
        else:
            raise Unavailable(f"an object is gone though a plan names it; key={got.get.run.key} do=run the job again")


def _missing(get: RangeRead) -> MissingRecords:
    """For an object that a new plan still names after it was missing. Raised whatever failOnDataLoss is: that option is
    for records that were allowed to expire."""
    return MissingRecords(
        get.piece.partition,
        base=get.start,
        end=get.end,
        key=get.run.key,
        why="the object is missing, and a plan names it",
    )


def _decoded(get: RangeRead, data: bytes, *, task: ReadTask, shape: BatchBuilder) -> Iterator[pa.RecordBatch]:
    shift = get.shift
    selection = task.selection(shape.required, get.start - shift, get.end - shift)
    aborted = AbortedTransactions(shifted(get.piece.aborted, -shift))
    for raw in raw_blocks(get, data):
        # Of control batches nothing is read anyway.
        committed = drop_aborted(raw, aborted) if aborted else raw
        for columns in read_columns_in_parts(committed, selection, limit_bytes=LIMIT_BYTES):
            yield shape.record_batch(columns, get.piece.partition, shift=shift)


def raw_blocks(get: RangeRead, data: bytes) -> Iterator[list[bytes]]:
    """The batches of blocks as they are stored, as much at a time as becomes one Arrow batch."""
    view, first = memoryview(data), get.blocks[0].position
    for group in grouped(get.blocks, ARROW_BYTES, size=lambda entry: entry.raw_bytes):
        yield [
            decode_block(view[e.position - first : e.position - first + e.stored_bytes], e, key=get.run.key)
            for e in group
        ]


async def _listed(source: AsyncIterator[RangeData]) -> AsyncIterator[list[RangeData]]:
    async for each in source:
        yield [each]


async def _bytes_of(
    source: SegmentSource, pieces: Sequence[SegmentRange], from_ms: int | None
) -> AsyncIterator[RangeData]:
    async def indexes() -> AsyncIterator[Callable[[], Awaitable[list[RangeRead]]]]:
        for piece in pieces:
            yield partial(_range_reads, source, piece, from_ms)

    async def gets() -> AsyncIterator[Callable[[], Awaitable[RangeData]]]:
        async for reads in prefetch(indexes(), depth=INDEXES_AHEAD):
            for get in reads:
                yield partial(_read_range, source, get)

    async for got in prefetch(gets(), depth=GETS_AHEAD):
        yield got


async def _range_reads(source: SegmentSource, piece: SegmentRange, from_ms: int | None) -> list[RangeRead]:
    run = piece.run
    assert run is not None
    try:
        data = await source.get_range(piece, run.index_position, run.index_position + run.index_length)
    except ObjectMissing:
        return [RangeRead(piece=piece, run=run, blocks=(), start=piece.start, end=piece.end)]
    return list(plan_range_reads(piece, run, decode_run_index(data, key=run.key), from_ms))


async def _read_range(source: SegmentSource, get: RangeRead) -> RangeData:
    if not get.blocks:
        return RangeData(get=get, data=None)
    start, end = get.blocks[0].position, get.blocks[-1].position + get.blocks[-1].stored_bytes
    try:
        return RangeData(get=get, data=await source.get_range(get.piece, start, end))
    except ObjectMissing:
        return RangeData(get=get, data=None)


def plan_range_reads(
    piece: SegmentRange, run: RunLocation, index: RunIndex, from_ms: int | None
) -> Iterator[RangeRead]:
    """The blocks of a piece, neighbours together."""
    blocks = [
        entry
        for entry in index.blocks[index.block_for(piece.start - run.base) :]
        if entry.first < piece.end - run.base and (from_ms is None or entry.max_timestamp_ms >= from_ms)
    ]
    for group in grouped(blocks, GET_BYTES, size=lambda entry: entry.stored_bytes):
        start, end = run.base + group[0].first, run.base + group[-1].end
        yield RangeRead(piece=piece, run=run, blocks=group, start=max(start, piece.start), end=min(end, piece.end))


def grouped(
    blocks: Sequence[BlockEntry], limit_bytes: int, *, size: Callable[[BlockEntry], int]
) -> Iterator[list[BlockEntry]]:
    """Groups of adjacent blocks up to a total size; a larger block is alone."""
    group: list[BlockEntry] = []
    total = 0
    for block in blocks:
        follows = group and block.position == group[-1].position + group[-1].stored_bytes
        if group and (not follows or total + size(block) > limit_bytes):
            yield group
            group, total = [], 0
        group.append(block)
        total += size(block)
    if group:
        yield group


def _replan_moved_segments(loop: LoopThread, get: RangeRead, task: ReadTask) -> list[SegmentRange]:
    """Plan again records whose object was merged into another one, or expired."""
    partition, start, end = get.piece.partition, get.start, get.end
    plan = loop.run(_plan_again(task.agents, OffsetRange(partition, start, end)))
    if plan.log_start > start:
        lost = f"partition={partition} offsets={start} to {min(end, plan.log_start)}"
        if task.fail_on_data_loss:
            raise DataLost(
                f"records expired while they were read; {lost}"
                " do=keep them longer (retention.ms), or set failOnDataLoss=false to continue without"
            )
        log.warning("records expired while they were read; %s", lost)
    pieces = list(segment_ranges(plan, OffsetRange(partition, start, end), from_ms=task.from_ms))
    if any(piece.run is None for piece in pieces):
        raise Unavailable(
            f"records that were in segments are in no segment now; partition={partition} offset={start} do=run it again"
        )
    return pieces


async def _plan_again(address: AgentAddress, span: OffsetRange) -> PartitionPlan:
    async with AgentClient(address) as agents:
        (plan,) = (await agents.plan([span])).partitions
        return plan


class StreamhouseInputPartition(InputPartition):
    """A split on its way to a task."""

    def __init__(self, split: InputSplit, pushed: PushedFilters = NO_FILTERS) -> None:
        super().__init__(split)
        self.split, self.pushed = split, pushed


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """The schema of rows: the columns, and the schema that they are fields of, if they are."""

    columns: StructType
    typed: "ReaderSchema | None" = None

    @property
    def own(self) -> frozenset[str]:
        """The columns that are fields of records."""
        return (
            frozenset()
            if self.typed is None
            else frozenset(import_module("streamhouse.spark.columns.typed_columns").own_types(self.typed))
        )

    def shape(self, options: ReadOptions) -> BatchBuilder:
        if self.typed is None:
            return RecordBatchBuilder.of(self.columns)
        # The languages of schemas are loaded by tasks that need them.
        typed = import_module("streamhouse.spark.columns.typed_columns")
        builder = typed.TypedRecordBatchBuilder.of(
            self.columns,
            self.typed,
            options.agents,
            keep_errors=options.keep_errors,
            keep_values=options.keep_values,
            prefix=options.metadata_prefix,
        )
        return cast(BatchBuilder, builder)


def read(options: ReadOptions, output: OutputSchema, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read one split in a task."""
    if not isinstance(partition, StreamhouseInputPartition):  # Spark's own, when there is nothing to read
        return iter(())
    task = ReadTask(
        agents=options.agents,
        fail_on_data_loss=options.fail_on_data_loss,
        from_ms=partition.pushed.from_ms,
        until_ms=partition.pushed.until_ms,
        access=options.access,
    )
    return read_split(partition.split, task, output.shape(options))
