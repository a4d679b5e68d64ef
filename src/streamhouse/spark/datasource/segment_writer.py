"""Segment writer: a task's rows to record batches, segments and objects in the store.

Data path   Arrow batches -> **segment_writer** -> partitions, record batches, segments -> object store; their
            metadata to `data_writer`
Owns        how many rows are encoded at once, what goes into one object, uploads under way, rules of topics
Leaves      bytes of batches and segments to `format`, requests to `stores`, the commit to the driver
Invariant   every task attempt writes its own objects; no reader sees them before a commit names them
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from streamhouse.clock import Clock, Ids
from streamhouse.errors import CommitRefused, InvalidRecord, InvalidTimestamp, RecordTooLarge, UnknownTopic
from streamhouse.format.columnar_encoder import ColumnBatch, encode_columns, finished, partition_rows
from streamhouse.format.compression import Codec
from streamhouse.format.object_keys import external_segment_key
from streamhouse.format.segment import EncodedSegment, RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicPartition
from streamhouse.spark.agents.commits import RunRow, SegmentRow, TopicTarget
from streamhouse.spark.datasource.input_rows import (
    TopicRows,
    by_topic,
    concat_batches,
    key_column,
    null_keys,
    record_columns,
    requested_partitions,
    select_record_columns,
    time_range,
)
from streamhouse.spark.datasource.write_options import CommitId, WriteOptions

COALESCE_BYTES: Final = 16 * 1024 * 1024
"""Size of Arrow columns that are encoded at once: enough for full batches of many partitions, small compared to an
object."""

Put = Callable[[str, EncodedSegment], "Future[None]"]
"""Begins to store an object."""


@dataclass(slots=True)
class _Run:
    """A partition's batches in the object that is being made; offsets count from 0."""

    target: TopicTarget
    partition: int
    batches: list[bytearray] = field(default_factory=list)
    end: int = 0

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.target.name, self.partition)

    def input(self) -> RunInput:
        return RunInput(
            partition=PartitionId(self.target.topic_id, self.partition),
            epoch=Epoch(0),
            base=0,
            end=self.end,
            batches=self.batches,
            producers=b"",
        )


class SegmentWriter:
    """Rows of one try of one task."""

    def __init__(
        self,
        options: WriteOptions,
        identity: CommitId,
        *,
        target: Callable[[str | None], TopicTarget],
        put: Put,
        clock: Clock,
        ids: Ids,
        max_partitions: int | None = None,
    ) -> None:
        self._options = options
        self._identity = identity
        self._target = target
        self._put = put
        self._clock = clock
        self._ids = ids
        self._max_partitions = max_partitions
        self._runs: dict[TopicPartition, _Run] = {}
        self._names: set[TopicPartition] = set()
        self._run_bytes = 0
        self._turns: dict[str, int] = {}
        self._under_way: Future[None] | None = None
        self._segments: list[SegmentRow] = []

    def __repr__(self) -> str:
        return f"<TaskWriter {self._identity} segments={len(self._segments)} waiting_bytes={self._run_bytes}>"

    def write(self, batches: Iterable[pa.RecordBatch]) -> tuple[SegmentRow, ...]:
        """Store all rows, and say where; raises for the first that its topic wouldn't take."""
        for rows in coalesce_batches(batches, with_topic=self._options.topic is None):
            for part in by_topic(rows):
                self._encode(part)
        self._end_segment()
        self._wait()
        return tuple(self._segments)

    def _encode(self, part: TopicRows) -> None:
        target, rows, now_ms = self._target(part.topic), part.rows, self._clock.now_ms()
        check_rules(rows, target, now_ms=now_ms)
        batches = encode_columns(
            record_columns(rows),
            self._partitions(rows, target),
            count=target.partitions,
            now_ms=now_ms,
            batch_bytes=min(self._options.batch_bytes, target.config.max_message_bytes),
        )
        for encoded in batches:
            self._add(target, encoded, append_time_ms=now_ms if target.config.log_append_time else None)
            if self._run_bytes >= self._options.segment_bytes:
                self._end_segment()

    def _partitions(self, rows: pa.RecordBatch, target: TopicTarget) -> bytearray:
        """Rows without a key continue where the last ones ended, and begin anywhere: small batches spread, too."""
        start = self._turns.get(target.name, int(self._ids.token(), 16) % target.partitions)
        refused, chosen, self._turns[target.name] = partition_rows(
            rows.num_rows, key_column(rows), requested_partitions(rows), count=target.partitions, start=start
        )
        if refused is not None:
            number = rows.column("partition")[refused].as_py()
            raise UnknownTopic(
                f"{target.name}-{number} partitions={target.partitions} do=correct or drop the column partition"
            )
        return chosen

    def _add(self, target: TopicTarget, encoded: ColumnBatch, *, append_time_ms: int | None) -> None:
        name = TopicPartition(target.name, encoded.partition)
        run = self._runs.get(name)
        if run is None:
            run = self._runs[name] = _Run(target, encoded.partition)
            self._names.add(name)
            self._check_partitions()
        batch = compress_if_smaller(encoded, self._options.codec, base_offset=run.end, append_time_ms=append_time_ms)
        if len(batch) > target.config.max_message_bytes:
            raise RecordTooLarge(
                f"{name} do=raise max.message.bytes of the topic, or make rows smaller;",
                size_bytes=len(batch),
                limit_bytes=target.config.max_message_bytes,
            )
        run.batches.append(batch)
        run.end += encoded.records
        self._run_bytes += len(batch)

    def _check_partitions(self) -> None:
        """Every partition is a run at least: whatever is merged, such a commit would be refused."""
        if self._max_partitions is not None and len(self._names) > self._max_partitions:
            raise CommitRefused(
                f"the commit would be too large; partitions={len(self._names)} limit={self._max_partitions}"
                " setting=placing.max_runs do=raise the setting, or write to fewer partitions at once"
            )

    def _end_segment(self) -> None:
        """Begin to store what has come together, once what was begun before is stored: memory has a bound."""
        if not self._runs:
            return
        runs = [self._runs[name] for name in sorted(self._runs)]
        encoded = encode_segment([run.input() for run in runs])
        self._runs, self._run_bytes = {}, 0
        key = external_segment_key(self._identity.query, self._identity.epoch, self._ids.token())
        self._wait()
        self._under_way = self._put(key, encoded)
        self._segments.append(segment_row(key, encoded, runs, created_at_ms=self._clock.now_ms()))

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None


def coalesce_batches(batches: Iterable[pa.RecordBatch], *, with_topic: bool) -> Iterator[pa.RecordBatch]:
    """Rows in pieces of about `COALESCE_BYTES`."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(select_record_columns(batch, with_topic=with_topic))
            size += waiting[-1].nbytes
        if size >= COALESCE_BYTES:
            yield concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield concat_batches(waiting)


def check_rules(rows: pa.RecordBatch, target: TopicTarget, *, now_ms: int) -> None:
    """Raise for what an agent would refuse: the rules of `broker.rules`, for whole columns."""
    config = target.config
    if config.compacts and (missing := null_keys(rows)):
        raise InvalidRecord(f"a compacted topic needs keys; topic={target.name} rows_without_key={missing}")
    times = None if config.log_append_time else time_range(rows)
    if times is None:
        return
    earliest, latest = times
    if earliest < 0:
        raise InvalidTimestamp(f"a timestamp is before 1970; topic={target.name} timestamp_ms={earliest}")
    if latest > now_ms + config.timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"a time is too far ahead; topic={target.name} timestamp_ms={latest} setting=message.timestamp.after.max.ms"
        )
    if earliest < now_ms - config.timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"a time is too far behind; topic={target.name} timestamp_ms={earliest}"
            " setting=message.timestamp.before.max.ms"
        )


def compress_if_smaller(
    encoded: ColumnBatch, codec: Codec, *, base_offset: int, append_time_ms: int | None
) -> bytearray:
    """The batch as it is stored; not compressed where that would make it larger."""
    batch = finished(encoded, codec=codec, base_offset=base_offset, append_time_ms=append_time_ms)
    if codec == Codec.NONE or len(batch) < len(encoded.batch):
        return batch
    return finished(encoded, codec=Codec.NONE, base_offset=base_offset, append_time_ms=append_time_ms)


class StoredRun(Protocol):
    """A partition's part of a segment, before it was encoded."""

    @property
    def name(self) -> TopicPartition: ...

    def input(self) -> RunInput: ...


def segment_row(key: str, encoded: EncodedSegment, runs: Iterable[StoredRun], *, created_at_ms: int) -> SegmentRow:
    names: Mapping[PartitionId, TopicPartition] = {run.input().partition: run.name for run in runs}
    rows = [
        RunRow(
            topic=names[entry.partition].topic,
            partition=entry.partition.partition,
            records=entry.records,
            stored_base=entry.base,
            stored_end=entry.end,
            position=entry.position,
            length=entry.length,
            index_position=entry.index_position,
            index_length=entry.index_length,
            max_timestamp_ms=entry.max_timestamp_ms,
        )
        for entry in (layout.entry for layout in encoded.layouts)
    ]
    return SegmentRow(key=key, size_bytes=encoded.size_bytes, created_at_ms=created_at_ms, runs=tuple(rows))
