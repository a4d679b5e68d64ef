"""Delta Lake tables, by delta-rs.

Data path   connector -> **delta_table** -> the table's log, one JSON file for each commit
Owns        creation and schema changes, add and remove actions, progress as an app transaction, vacuum
Leaves      the log's bytes and conflicts to delta-rs, data files to `data_files`

An app transaction (query id, micro-batch) is part of a commit, and two commits with the same one can't both succeed. A
partition by a transform is a column of its own, `ts_day`, because Delta has no hidden ones. The log alone can't widen
the types of old files: then all files are rewritten once.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamhouse.clock import SystemClock
from streamhouse.errors import Rejected, Unavailable
from streamhouse.model.table import IDENTITY
from streamhouse.spark.lake.data_files import footer_of, spark_schema
from streamhouse.spark.lake.hive_layout import FolderReader, check_folders, folder_plan, with_partitions
from streamhouse.spark.lake.schema_evolution import SchemaChange, evolve, stored
from streamhouse.spark.lake.table import (
    DataFile,
    Expiry,
    FilePlan,
    FileReader,
    KeyRange,
    Layout,
    NewDataFile,
    Progress,
    Snapshot,
    TableNotFound,
    TableSummary,
    check_commit,
    check_owner,
    last_epoch,
    summarize,
)
from streamhouse.spark.lake.table_options import Location, delta_options, within

MAX_TEXT: Final = 32
"""Characters of a text in the statistics of a file."""
EPOCH: Final = "streamhouse-epoch-"
"""An app transaction: the epoch of the last owner of a query or pipeline; followed by its id."""
COVERS: Final = "streamhouse-covers-"
"""An app transaction: a digest of what the last micro-batch of a query covers, as a number; followed by the query's
id."""
_CONFIGURATION: Final = {"delta.logRetentionDuration": "interval 30 days"}


class DeltaLakeTable:
    can_remove = True

    def __init__(self, layout: Layout, location: Location) -> None:
        check_folders(layout.partitions, layout.name)
        self._layout, self._location = layout, location
        self._name, self._partitions = layout.name, layout.partitions
        self._options = delta_options(location)
        self._loaded: DeltaTable | None = None

    def __repr__(self) -> str:
        return f"<DeltaLakeTable {self._name} {self._location.root}>"

    # --- tables

    def evolve_schema(self, schema: StructType) -> StructType:
        new_schema = stored(schema, has_small_numbers=True)
        table = self._load() or self._create(new_schema)
        growth = evolve(self._name, self._columns(table), new_schema)
        if not growth.is_none:
            table = self._grow(table, growth)
        self._check_partitions(table)
        return self._columns(table)

    def columns(self) -> StructType:
        return self._columns(self._table())

    def _load(self) -> DeltaTable | None:
        try:
            self._loaded = DeltaTable(self._location.root, storage_options=self._options)
        except TableNotFoundError:
            return None
        return self._loaded

    def _create(self, schema: StructType) -> DeltaTable:
        self._layout.check_columns(schema.names)
        arrow = with_partitions(to_arrow_schema(schema, timezone="UTC"), self._partitions)
        try:
            self._loaded = DeltaTable.create(
                self._location.root,
                DeltaSchema.from_arrow(arrow),
                mode="ignore",
                partition_by=[each.name for each in self._partitions],
                name=self._name,
                configuration=_CONFIGURATION,
                storage_options=self._options,
            )
        except (DeltaError, TypeError, ValueError) as error:
            raise Rejected(f"Delta rejects the table; table={self._name} error={_short(error)}") from None
        return self._loaded

    def _grow(self, table: DeltaTable, growth: SchemaChange) -> DeltaTable:
        extra = [each.name for each in self._partitions if each.transform != IDENTITY]
        arrow = to_arrow_schema(growth.schema, timezone="UTC")
        known = pa.schema(table.schema().to_arrow())
        arrow = pa.schema([*arrow, *(known.field(name) for name in extra)])
        try:
            if growth.widened:
                self._rewrite(table, arrow)
            else:
                write_deltalake(table, arrow.empty_table(), mode="append", schema_mode="merge")
        except DeltaError as error:
            raise Unavailable(f"the schema can't be changed now; table={self._name} error={_short(error)}") from None
        return self._load() or table

    def _rewrite(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Rewrite all rows with wider types, file by file, in one commit that keeps the table's progress."""
        reader, files = FolderReader(schema=schema), self.data_files()

        def rows() -> Iterator[pa.RecordBatch]:
            for each in files:
                yield from reader.batches(each.token, schema.names)

        write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(schema, rows()),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=table.metadata().partition_columns or None,
            target_file_size=self._layout.file_size_bytes,
        )

    def _columns(self, table: DeltaTable) -> StructType:
        """Without the columns of partition transforms, which rows to write don't have."""
        extra = {each.name for each in self._partitions if each.transform != IDENTITY}
        columns = spark_schema(pa.schema(table.schema().to_arrow()))
        return StructType([each for each in columns.fields if each.name not in extra])

    def _check_partitions(self, table: DeltaTable) -> None:
        names = table.metadata().partition_columns
        if names != [each.name for each in self._partitions]:
            raise self._layout.partition_mismatch(",".join(names))

    def _table(self) -> DeltaTable:
        if self._loaded is None and self._load() is None:
            raise TableNotFound(f"no such Delta table; table={self._name} at={self._location.root}")
        assert self._loaded is not None
        return self._loaded

    # --- files

    def last_batch(self, query_id: str) -> int | None:
        table = self._load()
        return None if table is None else table.transaction_version(query_id)

    def last_covers(self, progress: Progress) -> str | None:
        number = self._table().transaction_version(COVERS + progress.query_id)
        return (
            None if number is None else progress.covers if number == covers_number(progress.covers) else f"{number:x}"
        )

    def plan_files(self, progress: Progress) -> FilePlan:
        return folder_plan(self._location.root, self._layout, self._columns(self._table()), progress)

    def data_files(self, bounds: KeyRange | None = None) -> list[DataFile]:
        table = self._table()
        if pa.table(table.deletion_vectors()).num_rows:
            raise Rejected(f"rows were deleted by vectors, which aren't known here; table={self._name}")
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [self._live(each) for each in actions if _may_have(each, bounds)]

    def _live(self, action: Mapping[str, Any]) -> DataFile:
        values = {each.name: action.get(f"partition.{each.name}") for each in self._partitions}
        path = unquote(action["path"]) if "%" in action["path"] else action["path"]
        return DataFile(
            path=path,
            size_bytes=action["size_bytes"],
            rows=action.get("num_records") or 0,
            token=(self._location.under(path), values),
        )

    def reader(self) -> FileReader:
        return FolderReader(schema=pa.schema(self._table().schema().to_arrow()))

    # --- commits

    def fence(self, progress: Progress) -> None:
        table = self._load() or self._table()
        epochs = [table.transaction_version(EPOCH + name) for name in progress.fenced]
        check_owner(progress, epoch=last_epoch(epochs))
        if any(epoch != progress.epoch for epoch in epochs):
            now_ms = SystemClock().now_ms()
            self._commit(table, [], {}, [Transaction(EPOCH + name, progress.epoch, now_ms) for name in progress.fenced])

    def commit(
        self,
        written: Sequence[NewDataFile],
        removed: Sequence[DataFile],
        progress: Progress,
        *,
        is_rewrite: bool = False,
    ) -> None:
        table, now_ms = self._table(), SystemClock().now_ms()
        epoch = last_epoch(table.transaction_version(EPOCH + name) for name in progress.fenced)
        batch = table.transaction_version(progress.query_id)
        check_commit(progress, epoch=epoch, batch=batch, is_rewrite=is_rewrite)
        adds = [self._add(each, now_ms, is_change=not is_rewrite) for each in written]
        removes = [
            RemoveAction(each.path, not is_rewrite, now_ms, each.size_bytes, self._partition_texts(each))
            for each in removed
        ]
        done = [] if is_rewrite else _done(progress, now_ms)
        metadata = {} if is_rewrite else {"streamhouse.offsets": progress.offsets}
        self._commit(table, [*adds, *removes], metadata, done)

    def _commit(
        self,
        table: DeltaTable,
        actions: list[AddAction | RemoveAction],
        metadata: dict[str, str],
        done: list[Transaction],
    ) -> None:
        """Commit the next version of the table; raise `Unavailable` if another commit was first."""
        try:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=[each.name for each in self._partitions],
                commit_properties=CommitProperties(
                    custom_metadata=metadata, app_transactions=done, max_commit_retries=0
                ),
            )
        except CommitFailedError as error:
            raise Unavailable(f"another commit was first; table={self._name} error={_short(error)}") from None
        self._loaded = None  # it has the version before

    def _add(self, written: NewDataFile, now_ms: int, *, is_change: bool) -> AddAction:
        values = {each.name: value for each, value in zip(self._partitions, written.partition, strict=True)}
        return AddAction(
            path=within(written.path).removeprefix(within(self._location.root) + "/"),
            size=written.size_bytes,
            partition_values=values,
            modification_time=now_ms,
            data_change=is_change,
            stats=json.dumps(statistics(footer_of(written), written.rows)),
        )

    def _partition_texts(self, live: DataFile) -> dict[str, str | None]:
        return {name: None if value is None else str(value) for name, value in live.token[1].items()}

    # --- expiry

    def expire_snapshots(self, older_than_ms: int, orphans_before_ms: int) -> Expiry:
        """Delete files of versions before a time, and orphaned files."""
        now_ms = SystemClock().now_ms()
        hours = max(0, now_ms - min(older_than_ms, orphans_before_ms)) // 3_600_000
        table = self._load() or self._table()
        gone = table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.create_checkpoint()
        table.cleanup_metadata()
        return Expiry(files=len(gone))

    def snapshots(self, limit: int) -> list[Snapshot]:
        """Only the newest has its rows, files and bytes: the log has those of others in its older entries."""
        table = self._table()
        versions = [
            Snapshot(
                version=str(each["version"]), at_ms=each.get("timestamp") or 0, operation=each.get("operation", "")
            )
            for each in table.history(limit)
        ]
        if versions:
            files = pa.table(table.get_add_actions(flatten=True))
            size_bytes, rows = (_sum(files, name) for name in ("size_bytes", "num_records"))
            versions[0] = replace(versions[0], rows=rows, files=files.num_rows, size_bytes=size_bytes)
        return versions

    def describe(self) -> TableSummary:
        table = self._table()
        return replace(summarize(self._columns(table), self.data_files()), version=str(table.version()))


def _sum(files: pa.Table, name: str) -> int | None:
    """The sum of a column of numbers; None where the table has none, or not of every file."""
    if not files.num_rows:
        return 0
    is_known = name in files.column_names and not files[name].null_count
    return int(pc.sum(files[name]).as_py()) if is_known else None


def _done(progress: Progress, now_ms: int) -> list[Transaction]:
    batch = Transaction(progress.query_id, progress.batch_id, now_ms)
    if not progress.covers:
        return [batch]
    return [batch, Transaction(COVERS + progress.query_id, covers_number(progress.covers), now_ms)]


def covers_number(covers: str) -> int:
    """An app transaction has only a number of 63 bits."""
    return int.from_bytes(hashlib.sha256(covers.encode()).digest()[:8]) >> 1


# --- statistics


def statistics(footer: pq.FileMetaData, rows: int) -> dict[str, Any]:
    """File statistics, by which readers skip files: of whole numbers, dates and short texts."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(footer.num_columns):
        groups = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
        name = groups[0].path_in_schema if groups else ""
        statistics_of_groups = [each.statistics for each in groups]
        if not groups or "." in name or any(each is None for each in statistics_of_groups):
            continue
        if all(each.has_null_count for each in statistics_of_groups):
            nulls[name] = sum(each.null_count for each in statistics_of_groups)
        ends = [(each.min, each.max) for each in statistics_of_groups if each.has_min_max]
        full = [each for each in statistics_of_groups if each.null_count != each.num_values + each.null_count]
        if ends and len(ends) == len(full) and all(_is_plain(value) for pair in ends for value in pair):
            least[name] = _json(min(pair[0] for pair in ends))
            greatest[name] = _json(max(pair[1] for pair in ends))
    return {"numRecords": rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    return type(value) in (int, date)


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _may_have(action: Mapping[str, Any], bounds: KeyRange | None) -> bool:
    """Whether a file may have values within bounds, by its statistics."""
    if bounds is None:
        return True
    least, greatest = action.get(f"min.{bounds.column}"), action.get(f"max.{bounds.column}")
    if least is None or greatest is None or type(least) is not type(bounds.least):
        return True
    return bool(least <= bounds.greatest and greatest >= bounds.least)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
