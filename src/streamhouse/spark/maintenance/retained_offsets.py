"""Retained offsets: the latest record of each key of a topic, determined by Spark from hashes of keys.

Data path   runs -> hashes of keys, offsets -> the latest of each key -> **retained_offsets** -> sorted offsets by group
Owns        what is shuffled: 16 bytes of hash and the offset of each record, then the offsets that stay
Leaves      reading to `datasource.split_reader`, hashes to `format.compaction_kernel`, which markers stay to
            `compaction_scan`, rewriting to `compaction_job`

Spark spills what doesn't fit into its memory; a task of ours has a few MiB of blocks, or the offsets of one group. What
is read here may be merged or compacted by others at the same time: a record that was the latest of its key up to an
offset stays the same, whatever rewrites the runs around it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.compaction import batch_keys
from streamhouse.format.run_rewrite import batches_of
from streamhouse.format.transactions import AbortedTransactions, shifted
from streamhouse.spark.datasource.split_planner import InputSplit
from streamhouse.spark.datasource.split_reader import LIMIT_BYTES, RangeRead, ReadTask, raw_blocks, read_runs
from streamhouse.spark.maintenance.compaction_scan import Edges, MarkerScan, markers_to_keep
from streamhouse.spark.maintenance.segment_rewrite import IoStats

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import Row, SparkSession

RECORDS_PER_SHUFFLE: Final = 2_000_000
"""Number of records whose keys one task counts: some 100 MiB, and Spark spills where it has less."""
MAX_SHUFFLES: Final = 10_000
LOOK_S: Final = 0.5
"""Between two looks at how far tasks are."""
KEYS: Final = "partition int, high long, low long, offset long"
GROUPED: Final = "group int, offset long"
PACKED: Final = "offsets binary"
MARKER: Final = -1
"""The other half of the sort key of a marker."""
_INT64: Final = np.dtype("<i8")


class OffsetGroup(NamedTuple):
    """Offsets [start, end) of a partition that belong together."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKeys:
    """The task of the first pass: the keys of its split; pieces name the partition."""

    splits: Sequence[InputSplit]
    task: ReadTask
    add_costs: Callable[[int, int], None]
    add_edges: Callable[[Edges], None]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.splits[number])

    def _read(self, split: InputSplit) -> Iterator[pa.RecordBatch]:
        gets = read_bytes = 0
        scan = MarkerScan()

        def decode(get: RangeRead, data: bytes) -> Iterator[pa.RecordBatch]:
            nonlocal gets, read_bytes
            gets, read_bytes = gets + 1, read_bytes + len(data)
            aborted = AbortedTransactions(shifted(get.piece.aborted, -get.shift))
            for raw in raw_blocks(get, data):
                scan.at(get.piece.partition.partition, get.piece.start, get.piece.end, shift=get.shift)
                yield key_rows(raw, scan, aborted=aborted)

        yield from read_runs(split, self.task, decode)
        indexes = sum(piece.run.index_length for piece in split.pieces if piece.run is not None)
        self.add_costs(gets + len(split.pieces), read_bytes + indexes)
        if edges := scan.edges():
            self.add_edges(edges)


def key_rows(blocks: Iterable[Buffer], scan: MarkerScan, *, aborted: AbortedTransactions) -> pa.RecordBatch:
    """Partition, hash and offset of every record that has a key, and was not aborted. Markers that stay are keys of
    their own: the offset replaces half a hash."""
    batches = [batch for block in blocks for batch in batches_of(block)]
    keys = [batch_keys(batch, limit_bytes=LIMIT_BYTES, aborted=aborted) for batch in batches]
    headers = map(read_header, batches)
    busy = [each.base_offset for each in headers if scan.is_busy(each)]
    hashes = np.frombuffer(b"".join([each.hashes for each in keys]), _INT64).reshape(-1, 2)
    offsets = np.frombuffer(b"".join([each.offsets for each in keys]), _INT64) + scan.shift
    if busy:
        markers = np.array(busy, _INT64) + scan.shift
        hashes = np.concatenate([hashes, np.stack([markers, np.full(len(markers), MARKER, _INT64)], axis=1)])
        offsets = np.concatenate([offsets, markers])
    columns = [
        pa.array(np.full(len(offsets), scan.partition, np.int32)),
        pa.array(np.ascontiguousarray(hashes[:, 0])),
        pa.array(np.ascontiguousarray(hashes[:, 1])),
        pa.array(offsets),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "high", "low", "offset"])


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Which group an offset belongs to; groups are numbered in the order of their bounds, and leave no gap between
    them."""

    bounds: Sequence[OffsetGroup]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partitions = np.array([each.partition for each in self.bounds], np.int64)
        ends = np.array([each.end for each in self.bounds], np.int64)
        for batch in batches:
            partition, offset = (batch.column(at).to_numpy(zero_copy_only=False) for at in (0, 1))
            numbers = np.empty(len(offset), np.int32)
            for each in np.unique(partition):
                first, last = np.searchsorted(partitions, [each, each + 1])
                chosen = partition == each
                positions = first + np.searchsorted(ends[first:last], offset[chosen], side="right")
                numbers[chosen] = np.minimum(positions, last - 1)
            yield pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(offset)], names=["group", "offset"])


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The offsets of one group, sorted, as one value."""
    offsets = [batch.column(1).to_numpy() for batch in batches]
    packed = np.sort(np.concatenate(offsets)).astype(_INT64).tobytes() if offsets else b""
    yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], names=["offsets"])


class RetainedOffsets(Protocol):
    """The offsets that stay."""

    def rewrite(self, group: OffsetGroup, act: Callable[[bytes], bytes]) -> bytes:
        """What `act` makes, on an executor, of the sorted offsets of these bounds, and maybe of some around them. May
        be called by several threads."""
        ...


class Executors(Protocol):
    """Where keys are read and runs are rewritten."""

    @property
    def at_once(self) -> int:
        """How many tasks may run at the same time."""
        ...

    def find(
        self,
        splits: Sequence[InputSplit],
        bounds: Sequence[OffsetGroup],
        *,
        task: ReadTask,
        records: int,
        on_read: Callable[[int], None],
    ) -> tuple[RetainedOffsets, IoStats]:
        """The latest offset of each key in what the splits read; bounds are in the order of their offsets. `on_read` is
        called with the bytes that were read so far."""
        ...

    def cancel(self) -> None: ...


class SparkExecutors:
    """A Spark that is started when it is needed first."""

    def __init__(self, tasks: "Sessions") -> None:
        self._tasks = tasks

    def __repr__(self) -> str:
        return f"<SparkExecutors {self._tasks!r}>"

    @property
    def at_once(self) -> int:
        return self._tasks.session.sparkContext.defaultParallelism

    def find(
        self,
        splits: Sequence[InputSplit],
        bounds: Sequence[OffsetGroup],
        *,
        task: ReadTask,
        records: int,
        on_read: Callable[[int], None],
    ) -> tuple[RetainedOffsets, IoStats]:
        spark = self._tasks.session
        gets, read_bytes = (spark.sparkContext.accumulator(0) for _ in range(2))
        lists: Any = _Lists()
        edges = spark.sparkContext.accumulator([], lists)

        def add_costs(more_gets: int, more_bytes: int) -> None:
            gets.add(more_gets)
            read_bytes.add(more_bytes)

        def add_edges(more: Edges) -> None:
            edges.add(more)

        read = ScanKeys(splits=splits, task=task, add_costs=add_costs, add_edges=add_edges)
        retained = SparkRetainedOffsets(pack_retained_offsets(spark, read, bounds, records=records), bounds)
        thread = ThreadPoolExecutor(1, thread_name_prefix="finding-keys")
        finding = thread.submit(retained.find)
        try:
            while not wait([finding], LOOK_S).done:
                on_read(read_bytes.value)
            finding.result()
            retained.busy = markers_to_keep(edges.value)
        finally:
            if not finding.done():
                self.cancel()
            # Not waited for: a job that Spark didn't know yet was not cancelled, and ends when Spark is stopped.
            thread.shutdown(wait=False)
        return retained, IoStats(gets=gets.value, read_bytes=read_bytes.value)

    def cancel(self) -> None:
        self._tasks.session.sparkContext.cancelAllJobs()


class _Lists:
    """Merges the results of tasks; a result that comes twice counts once."""

    def zero(self, value: Edges) -> Edges:
        return []

    def addInPlace(self, value: Edges, more: Edges) -> Edges:
        return value + more


class Sessions(Protocol):
    """Provides a Spark session, and starts one if needed."""

    @property
    def session(self) -> "SparkSession": ...


class SparkRetainedOffsets:
    """The offsets that stay, in Spark's shuffle files, group by group."""

    def __init__(self, packed: "RDD[Row]", bounds: Sequence[OffsetGroup]) -> None:
        self._packed = packed
        self._bounds = bounds
        self._ends = [(each.partition, each.end) for each in bounds]
        self.busy: Mapping[int, list[int]] = {}
        """Markers that stay besides, by partition."""

    def __repr__(self) -> str:
        return f"<SparkSurvivors groups={len(self._bounds)}>"

    def find(self) -> None:
        """Read all keys now; otherwise at the first use of offsets."""
        context = self._packed.context
        context.runJob(self._packed, _nothing, [0])

    def rewrite(self, group: OffsetGroup, act: Callable[[bytes], bytes]) -> bytes:
        first = bisect_right(self._ends, (group.partition, group.start))
        numbers = []
        for number in range(first, len(self._bounds)):
            each = self._bounds[number]
            if each.partition != group.partition or each.start >= group.end:
                break
            numbers.append(number)
        context = self._packed.context
        more = busy_within(self.busy, group)
        if len(numbers) == 1:  # the group is as it was planned: its offsets never leave the executors
            (output,) = context.runJob(self._packed, lambda rows: [act(merged(_joined(rows), more))], numbers)
            return bytes(output)
        offsets = _joined(context.runJob(self._packed, list, numbers)) if numbers else b""
        (output,) = context.parallelize([merged(offsets, more)], 1).map(act).collect()
        return bytes(output)


def busy_within(busy: Mapping[int, Sequence[int]], group: OffsetGroup) -> list[int]:
    offsets = busy.get(group.partition, ())
    return list(offsets[bisect_left(offsets, group.start) : bisect_left(offsets, group.end)])


def merged(offsets: bytes, more: Sequence[int]) -> bytes:
    """Sorted offsets with some more among them."""
    if not more:
        return offsets
    return np.union1d(np.frombuffer(offsets, _INT64), np.array(more, _INT64)).astype(_INT64).tobytes()


def pack_retained_offsets(
    spark: "SparkSession", read: ScanKeys, bounds: Sequence[OffsetGroup], *, records: int
) -> "RDD[Row]":
    """The offsets that stay, one value for each group."""
    own = spark.newSession()
    # Groups are tasks, one by one: nothing is to be put together because it is small.
    own.conf.set("spark.sql.adaptive.enabled", "false")
    shuffles = max(spark.sparkContext.defaultParallelism, records // RECORDS_PER_SHUFFLE)
    own.conf.set("spark.sql.shuffle.partitions", str(min(MAX_SHUFFLES, shuffles)))
    count = len(read.splits)
    keys = own.range(0, count, 1, count).mapInArrow(_plain(read), KEYS)
    latest = keys.groupBy("partition", "high", "low").agg({"offset": "max"})
    grouped = latest.selectExpr("partition", "`max(offset)` AS offset").mapInArrow(_plain(GroupTask(bounds)), GROUPED)
    return grouped.repartitionById(len(bounds), "group").mapInArrow(pack, PACKED).rdd


def _plain(
    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function, which is all that Spark takes."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batches)

    return run


def _nothing(rows: Iterable["Row"]) -> list[int]:
    return [sum(1 for _ in rows)]


def _joined(rows: Iterable["Row"]) -> bytes:
    return b"".join([bytes(row[0]) for row in rows])
