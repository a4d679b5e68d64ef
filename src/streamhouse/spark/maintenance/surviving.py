"""Surviving: which records of a topic stay, the latest of each key, found by Spark without knowing a single key.

Data path   runs -> hashes of keys, offsets -> the latest of each key -> **surviving** -> sorted offsets, group by group
Owns        what is shuffled: 16 bytes of hash and the offset of each record, then the offsets that stay
Leaves      reading to `spark.reading`, hashes to `format.key_hashes`, what is done with the offsets to `compacting`

Spark spills what doesn't fit into its memory; a task of ours has a few MiB of blocks, or the offsets of one group. What
is read here may be merged or compacted by others at the same time: a record that was the latest of its key up to an
offset stays that for ever, whoever rewrites the runs around it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from streamhouse.format.batch import Buffer
from streamhouse.format.compaction import batch_keys
from streamhouse.format.rewriting import batches_of
from streamhouse.spark.maintenance.rewriting import Costs
from streamhouse.spark.plan import Split
from streamhouse.spark.reading import LIMIT_BYTES, Get, Task, raw_blocks, read_runs

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import Row, SparkSession

RECORDS_PER_SHUFFLE: Final = 2_000_000
"""Keys of so many records are counted by one task: some 100 MiB, and Spark spills where it has less."""
MAX_SHUFFLES: Final = 10_000
LOOK_S: Final = 0.5
"""Between two looks at how far tasks are."""
KEYS: Final = "partition int, high long, low long, offset long"
GROUPED: Final = "group int, offset long"
PACKED: Final = "offsets binary"
_INT64: Final = np.dtype("<i8")


class Bounds(NamedTuple):
    """Offsets [start, end) of a partition that belong together."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTask:
    """What a task of the first reading does: the keys of its split; pieces name the partition."""

    splits: Sequence[Split]
    task: Task
    add_costs: Callable[[int, int], None]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.splits[number])

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        gets = read_bytes = 0

        def decode(get: Get, data: bytes) -> Iterator[pa.RecordBatch]:
            nonlocal gets, read_bytes
            gets, read_bytes = gets + 1, read_bytes + len(data)
            for raw in raw_blocks(get, data):
                yield key_rows(raw, get.piece.place.partition, shift=get.shift)

        yield from read_runs(split, self.task, decode)
        indexes = sum(piece.run.index_length for piece in split.pieces if piece.run is not None)
        self.add_costs(gets + len(split.pieces), read_bytes + indexes)


def key_rows(blocks: Iterable[Buffer], partition: int, *, shift: int) -> pa.RecordBatch:
    """Partition, hash and offset of every record that has a key, and is in no transaction."""
    keys = [batch_keys(batch, limit_bytes=LIMIT_BYTES) for block in blocks for batch in batches_of(block)]
    hashes = np.frombuffer(b"".join([each.hashes for each in keys]), _INT64).reshape(-1, 2)
    offsets = np.frombuffer(b"".join([each.offsets for each in keys]), _INT64) + shift
    columns = [
        pa.array(np.full(len(offsets), partition, np.int32)),
        pa.array(np.ascontiguousarray(hashes[:, 0])),
        pa.array(np.ascontiguousarray(hashes[:, 1])),
        pa.array(offsets),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "high", "low", "offset"])


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Which group an offset belongs to; groups are numbered in the order of their bounds, and leave no gap between
    them."""

    bounds: Sequence[Bounds]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partitions = np.array([each.partition for each in self.bounds], np.int64)
        ends = np.array([each.end for each in self.bounds], np.int64)
        for batch in batches:
            partition, offset = (batch.column(at).to_numpy(zero_copy_only=False) for at in (0, 1))
            numbers = np.empty(len(offset), np.int32)
            for each in np.unique(partition):
                first, last = np.searchsorted(partitions, [each, each + 1])
                chosen = partition == each
                found = first + np.searchsorted(ends[first:last], offset[chosen], side="right")
                numbers[chosen] = np.minimum(found, last - 1)
            yield pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(offset)], names=["group", "offset"])


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The offsets of one group, sorted, as one value."""
    offsets = [batch.column(1).to_numpy() for batch in batches]
    packed = np.sort(np.concatenate(offsets)).astype(_INT64).tobytes() if offsets else b""
    yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], names=["offsets"])


class Survivors(Protocol):
    """The offsets that stay."""

    def rewrite(self, wanted: Bounds, act: Callable[[bytes], bytes]) -> bytes:
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
        splits: Sequence[Split],
        bounds: Sequence[Bounds],
        *,
        task: Task,
        records: int,
        on_read: Callable[[int], None],
    ) -> tuple[Survivors, Costs]:
        """The latest offset of each key in what the splits read; bounds are in the order of their offsets. `on_read` is
        told of bytes that were read so far."""
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
        splits: Sequence[Split],
        bounds: Sequence[Bounds],
        *,
        task: Task,
        records: int,
        on_read: Callable[[int], None],
    ) -> tuple[Survivors, Costs]:
        spark = self._tasks.session
        gets, read_bytes = (spark.sparkContext.accumulator(0) for _ in range(2))

        def add_costs(more_gets: int, more_bytes: int) -> None:
            gets.add(more_gets)
            read_bytes.add(more_bytes)

        read = KeyTask(splits=splits, task=task, add_costs=add_costs)
        found = SparkSurvivors(packed_survivors(spark, read, bounds, records=records), bounds)
        thread = ThreadPoolExecutor(1, thread_name_prefix="finding-keys")
        finding = thread.submit(found.find)
        try:
            while not wait([finding], LOOK_S).done:
                on_read(read_bytes.value)
            finding.result()
        finally:
            if not finding.done():
                self.cancel()
            # Not waited for: a job that Spark didn't know yet was not cancelled, and ends when Spark is stopped.
            thread.shutdown(wait=False)
        return found, Costs(gets=gets.value, read_bytes=read_bytes.value)

    def cancel(self) -> None:
        self._tasks.session.sparkContext.cancelAllJobs()


class Sessions(Protocol):
    """Whoever has a Spark, or starts it."""

    @property
    def session(self) -> "SparkSession": ...


class SparkSurvivors:
    """The offsets that stay, in Spark's shuffle files, group by group."""

    def __init__(self, packed: "RDD[Row]", bounds: Sequence[Bounds]) -> None:
        self._packed = packed
        self._bounds = bounds
        self._ends = [(each.partition, each.end) for each in bounds]

    def __repr__(self) -> str:
        return f"<SparkSurvivors groups={len(self._bounds)}>"

    def find(self) -> None:
        """Read all keys now; otherwise that is done when offsets are asked for first."""
        context = self._packed.context
        context.runJob(self._packed, _nothing, [0])

    def rewrite(self, wanted: Bounds, act: Callable[[bytes], bytes]) -> bytes:
        first = bisect_right(self._ends, (wanted.partition, wanted.start))
        numbers = []
        for number in range(first, len(self._bounds)):
            each = self._bounds[number]
            if each.partition != wanted.partition or each.start >= wanted.end:
                break
            numbers.append(number)
        context = self._packed.context
        if len(numbers) == 1:  # the group is as it was planned: its offsets never leave the executors
            (answer,) = context.runJob(self._packed, lambda rows: [act(_joined(rows))], numbers)
            return bytes(answer)
        offsets = _joined(context.runJob(self._packed, list, numbers)) if numbers else b""
        (answer,) = context.parallelize([offsets], 1).map(act).collect()
        return bytes(answer)


def packed_survivors(spark: "SparkSession", read: KeyTask, bounds: Sequence[Bounds], *, records: int) -> "RDD[Row]":
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
