"""The connector of lake tables: a micro-batch becomes one commit, also when Spark runs it again.

Data path   foreachBatch -> **LakeBatchWriter** -> data files by tasks -> one commit of the table; files -> rows
Owns        the order of steps: skip a committed batch, evolve the schema, write files, commit, expire snapshots; the
            latest row of each key; keys of tombstones
Leaves      files to `data_files`, metadata to each kind of table

A record without a value deletes its key. It has no columns, so the key is read from the record's key: the text of one
column, a JSON array of several, or a JSON object with their names.

Changes by key are copy-on-write: files that have a key of the micro-batch are rewritten without it, and replaced
together with the new rows in one commit. Spark joins files with changes, so memory is bounded; the driver sees file
names only.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, DataType, DateType, IntegerType, LongType, MapType, StringType, StructType
from pyspark.storagelevel import StorageLevel

from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Misconfigured, Rejected, Unavailable
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.replay import is_replay
from streamhouse.model.table import Table
from streamhouse.spark.connectors import ReadContext, WriteContext
from streamhouse.spark.connectors.topic import METADATA_COLUMNS
from streamhouse.spark.lake.data_files import FILE, file_rows, write_files
from streamhouse.spark.lake.schema_evolution import align_columns
from streamhouse.spark.lake.table import DataFile, KeyRange, LakeTable, NewDataFile, Progress, Snapshot
from streamhouse.spark.lake.table_options import LakeOptions, lake_options, open_table
from streamhouse.spark.runtime.checkpoint import BatchOffsets
from streamhouse.spark.runtime.checkpoint_sync import sync_checkpoint
from streamhouse.spark.runtime.jvm import batch_offsets

DELETED: Final = "_deleted"
_POSITION: Final = ("_partition", "_offset")
_LATEST: Final = "_sh_latest"
_ROW: Final = "_sh_row"


def own_columns(frame: DataFrame) -> list[str]:
    """The columns that are stored: all but metadata columns, unless they have an alias."""
    return [name for name in frame.columns if name not in METADATA_COLUMNS]


def drop_repeated_metadata(frame: DataFrame) -> DataFrame:
    """`SELECT *, _offset` has a metadata column twice; keep the first."""
    seen: set[str] = set()
    names, kept = [], []
    for position, name in enumerate(frame.columns):
        twice = name in seen and name in METADATA_COLUMNS
        names.append(f"{name}_{position}" if twice else name)
        kept += [] if twice else [name]
        seen.add(name)
    return frame if len(kept) == len(names) else frame.toDF(*names).select(*[quote_identifier(name) for name in kept])


def fill_tombstone_keys(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """The same rows; tombstones get the key columns from their record's key."""
    for name in key:
        if name not in frame.columns:
            raise Misconfigured(f"the key names no column; key={name} columns={', '.join(own_columns(frame))}")
    if DELETED not in frame.columns or "_key" not in frame.columns:
        return frame
    record = F.col("_key").cast("string")
    for position, name in enumerate(key):
        kind = frame.schema[name].dataType
        value = _from_record(record, position, name, kind, is_only=len(key) == 1)
        frame = frame.withColumn(name, F.when(F.col(DELETED), value).otherwise(F.col(quote_identifier(name))))
    return frame


def _from_record(record: Column, position: int, name: str, kind: DataType, *, is_only: bool) -> Column:
    """A column's value, parsed from the text of a record's key; null if it has none."""
    fields = F.from_json(record, MapType(StringType(), StringType()))
    in_object = F.try_element_at(fields, F.lit(name))
    if not is_only:
        texts = F.coalesce(F.get_json_object(record, f"$[{position}]"), in_object)
        return _read(texts, kind)
    is_object = record.startswith("{")
    return F.when(is_object, _read(in_object, kind)).otherwise(_read(record, kind))


def _read(text: Column, kind: DataType) -> Column:
    return text.cast(kind) if isinstance(kind, StringType | BinaryType) else text.try_cast(kind)


def has_key(key: Sequence[str]) -> Column:
    """Whether no key column of a row is null."""
    condition = F.lit(True)
    for name in key:
        condition = condition & F.col(quote_identifier(name)).isNotNull()
    return condition


def latest_per_key(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """One row for each key, the one with the last partition and offset: columns of the table, and `_deleted`.

    Records of a key are in one partition, in their order, as long as the number of partitions stays what it is.
    """
    own = own_columns(frame)
    has_position = all(name in frame.columns for name in _POSITION)
    by = [F.col(name) for name in _POSITION] if has_position else [F.monotonically_increasing_id()]
    row = F.struct(*[F.col(quote_identifier(name)) for name in own], _is_end(frame).alias(DELETED))
    rows = frame.where(has_key(key)).select(
        *[F.col(quote_identifier(name)) for name in key], row.alias(_ROW), F.struct(*by).alias(_LATEST)
    )
    latest = rows.groupBy(*[F.col(quote_identifier(name)) for name in key]).agg(F.max_by(_ROW, _LATEST).alias(_ROW))
    return latest.select(f"{_ROW}.*")


def _is_end(frame: DataFrame) -> Column:
    return F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in frame.columns else F.lit(False)


log = logging.getLogger(__name__)

EXPIRE_EVERY_S: Final = 3600.0
FENCE_TRIES: Final = 20
"""Attempts to write the owner's epoch at the start of a query, against concurrent commits."""
ORPHANS_AFTER_MS: Final = 24 * 3600 * 1000
"""Age from which orphaned files are deleted: younger ones may belong to a micro-batch in progress."""
SMALL_FILES: Final = 16
"""Number of files below half of the target size that are merged into larger ones, up to MERGE_BYTES at a time."""
MERGE_BYTES: Final = 1024 * 1024 * 1024
SNAPSHOTS: Final = 10
"""The newest versions of a table that a pipeline's status has."""

_PRUNED_BY: Final = (IntegerType, LongType, StringType, DateType)


@dataclass(slots=True, kw_only=True)
class LakeBatchWriter:
    """Writes the micro-batches of one query."""

    lake: LakeTable
    options: LakeOptions
    writing: WriteContext
    clock: Clock = field(default_factory=SystemClock)
    _cleared_at_s: float | None = None
    _snapshots: list[Snapshot] = field(default_factory=list)

    def take_over(self, frame: DataFrame) -> None:
        """Before the first micro-batch: create the table, and fence former owners of the pipeline."""
        frame = drop_repeated_metadata(frame)
        frame = fill_tombstone_keys(frame, self.options.key) if self.options.key else frame
        progress, tries = self.progress_of(-1), 0
        while True:
            try:
                self.lake.evolve_schema(_own(frame).schema)
                self.lake.fence(progress)
            except Unavailable:
                tries += 1
                if tries >= FENCE_TRIES:
                    raise
            else:
                self._report_snapshots()
                return

    def progress_of(self, batch_id: int, offsets: BatchOffsets | None = None) -> Progress:
        return Progress(
            query_id=self.writing.query_id,
            batch_id=batch_id,
            offsets="" if offsets is None else offsets.text,
            covers="" if offsets is None else offsets.covers,
            epoch=self.writing.epoch,
            pipeline=self.writing.pipeline,
            lineage=self.writing.lineage,
        )

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Raises `Rejected` for rows that don't fit the table, `Unavailable` if a retry may help."""
        before = self.writing.before_batch
        if before is not None:
            before()
        progress = self.progress_of(batch_id, batch_offsets(frame.sparkSession, self.writing.checkpoint, batch_id))
        if self._is_committed(progress):
            log.info("micro-batch already committed; skipped table=%s batch=%d", self.options.name, batch_id)
            return
        frame = drop_repeated_metadata(frame)
        if self.options.key:
            self._change(fill_tombstone_keys(frame, self.options.key), progress)
        else:
            self._append(frame, progress)
        self._expire(frame, progress)

    def _is_committed(self, progress: Progress) -> bool:
        """Raises `CheckpointMismatch` for a micro-batch with the number of a different one."""
        last = self.lake.last_batch(progress.query_id)
        known = None if last is None or last < progress.batch_id else self.lake.last_covers(progress)
        covers = progress.covers or None
        return is_replay(self.options.name, batch=progress.batch_id, covers=covers, last=last, last_covers=known)

    def _append(self, frame: DataFrame, progress: Progress) -> None:
        own = _own(frame)
        schema = self.lake.evolve_schema(own.schema)
        written = write_files(align_columns(own, schema), self.lake.plan_files(progress))
        if written:
            self._commit(written, (), progress)

    def _commit(self, written: Sequence[NewDataFile], removed: Sequence[DataFile], progress: Progress) -> None:
        sync_checkpoint(self.writing.checkpoint)
        self.writing.before_commit()
        self.lake.commit(written, removed, progress)
        self._report_snapshots()

    def _report_snapshots(self) -> None:
        """Report the newest versions of the table: all that are shown at first, then the one that was committed. A
        failure is only logged: the rows are committed."""
        try:
            newest = self.lake.snapshots(1 if self._snapshots else SNAPSHOTS)
        except Exception:
            log.warning("snapshots could not be read; table=%s", self.options.name, exc_info=True)
            return
        known = {each.version for each in newest}
        before = [each for each in self._snapshots if each.version not in known]
        self._snapshots = [*newest, *before][:SNAPSHOTS]
        self.writing.on_commit([asdict(each) for each in self._snapshots])

    # --- by key

    def _change(self, frame: DataFrame, progress: Progress) -> None:
        own = _own(frame)
        schema = self.lake.evolve_schema(own.schema)
        changes = latest_per_key(frame, self.options.key).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            keys = align_columns(changes, StructType([schema[name] for name in self.options.key]))
            touched = self._touched(keys, schema)
            rows = align_columns(changes.where(~F.col(DELETED)), schema)
            if touched:
                kept = file_rows(frame.sparkSession, touched, self.lake.reader(), schema)
                rows = rows.unionByName(
                    kept.join(keys, list(self.options.key), "left_anti").select(*map(quote_identifier, rows.columns))
                )
            written = write_files(rows, self.lake.plan_files(progress))
            if written or touched:
                self._commit(written, touched, progress)
        finally:
            changes.unpersist()

    def _touched(self, keys: DataFrame, schema: StructType) -> list[DataFile]:
        """The files that have a key of the micro-batch."""
        bounds = _bounds(keys, self.options.key)
        if bounds is None:
            return []
        files = self.lake.data_files(bounds if bounds.column else None)
        if not files:
            return []
        columns = StructType([schema[name] for name in self.options.key])
        stored = file_rows(keys.sparkSession, files, self.lake.reader(), columns, with_file=True)
        numbers = stored.join(keys, list(self.options.key), "left_semi").select(FILE).distinct().collect()
        return [files[row[0]] for row in sorted(numbers)]

    # --- maintenance

    def _expire(self, frame: DataFrame, progress: Progress) -> None:
        """Merge small files and expire snapshots. A failure is retried an hour later: the rows are committed
        already."""
        now_s = self.clock.monotonic()
        if self._cleared_at_s is not None and now_s - self._cleared_at_s < EXPIRE_EVERY_S:
            return
        self._cleared_at_s = now_s
        try:
            self.merge_small(frame, progress)
            now_ms = self.clock.now_ms()
            expired = self.lake.expire_snapshots(now_ms - self.options.expire_ms, now_ms - ORPHANS_AFTER_MS)
            log.info(
                "snapshots expired; table=%s snapshots=%d files=%d", self.options.name, expired.snapshots, expired.files
            )
        except Exception:
            log.warning("snapshot expiry failed; table=%s", self.options.name, exc_info=True)

    def merge_small(self, frame: DataFrame, progress: Progress) -> int:
        """Merge small files into large ones, if the format can remove files; return how many were merged."""
        if not self.lake.can_remove:
            return 0
        self.lake.last_batch(progress.query_id)  # the table as it is now
        small = chosen(self.lake.data_files(), self.options.file_size_bytes)
        if not small:
            return 0
        schema = self.lake.columns()
        rows = file_rows(frame.sparkSession, small, self.lake.reader(), schema)
        parts = max(1, sum(each.size_bytes for each in small) // self.options.file_size_bytes)
        written = write_files(rows.coalesce(parts), self.lake.plan_files(progress))
        self.lake.commit(written, small, progress, is_rewrite=True)
        self._report_snapshots()
        return len(small)


def _own(frame: DataFrame) -> DataFrame:
    """With the columns that are stored."""
    return frame.select(*[F.col(quote_identifier(name)) for name in own_columns(frame)])


def chosen(files: Sequence[DataFile], file_size_bytes: int) -> list[DataFile]:
    """The smallest files to merge; none if there are few."""
    small = sorted((each for each in files if each.size_bytes * 2 < file_size_bytes), key=lambda each: each.size_bytes)
    selected: list[DataFile] = []
    total = 0
    for each in small:
        total += each.size_bytes
        if total > MERGE_BYTES:
            break
        selected.append(each)
    return selected if len(selected) >= SMALL_FILES else []


def _bounds(keys: DataFrame, key: Sequence[str]) -> KeyRange | None:
    """The range of the first key column where files know theirs; a range of no column where not; None without rows."""
    kind, name = keys.schema[key[0]].dataType, quote_identifier(key[0])
    bounds: Any = keys.agg(
        F.min(name).alias("least"), F.max(name).alias("greatest"), F.count(F.lit(1)).alias("n")
    ).first()
    if bounds is None or not bounds["n"]:
        return None
    if not isinstance(kind, _PRUNED_BY):
        return KeyRange(column="", least=None, greatest=None)
    return KeyRange(column=key[0], least=bounds["least"], greatest=bounds["greatest"])


def check_mode(options: LakeOptions, output: str) -> None:
    """Raise `Rejected` for an output mode that the table can't take."""
    if output != "append" and not options.key:
        raise Rejected(
            f"rows that change need a key; table={options.name} output={output}"
            " do=mode = 'upsert' with PRIMARY KEY (…) or the option key, or a watermark, so that rows become final"
        )
    if output == "complete":
        raise Rejected(
            f"a lake table is changed by key, and not written anew; table={options.name} do=output = 'update'"
        )


def read(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    """The rows of the last commit, when the frame is made."""
    lake = open_table(lake_options(table, is_written=False))
    lake.last_batch("")  # the table as it is now
    schema = lake.columns()
    if table.columns is None:
        return file_rows(spark, lake.data_files(), lake.reader(), schema)
    absent = [each.name for each in table.columns if each.name not in schema.names]
    if absent:
        raise Misconfigured(
            f"the table has no such column; table={table.name} column={absent[0]} columns={','.join(schema.names)}"
        )
    # A row of no columns is still a row: it is read with the first one.
    selected = StructType([schema[each.name] for each in table.columns] or schema.fields[:1])
    rows = file_rows(spark, lake.data_files(), lake.reader(), selected)
    return rows.select(*[F.col(quote_identifier(each.name)).cast(each.type).alias(each.name) for each in table.columns])


def read_stream(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    raise Rejected(f"a lake table is not a stream; table={table.name} do=stream the topic that it is made of")


def write_stream(frame: DataFrame, table: Table, writing: WriteContext) -> DataStreamWriter:
    options = lake_options(table, writing.key)
    check_mode(options, writing.mode)
    if options.key:
        # Reports a key that is no column before the query starts.
        fill_tombstone_keys(drop_repeated_metadata(frame), options.key)
    step = LakeBatchWriter(lake=open_table(options), options=options, writing=writing)
    step.take_over(frame)
    return (
        frame.writeStream.outputMode(writing.mode)
        .option("checkpointLocation", writing.checkpoint)
        .foreachBatch(step.write)
    )
