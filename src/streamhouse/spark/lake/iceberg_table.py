"""Iceberg tables, by PyIceberg, with snapshots and hidden partitions.

Data path   connector -> **iceberg_table** -> manifests and metadata -> a file catalog, or a named one
Owns        creation and schema changes, files as manifests name them, snapshots with the progress in them, expiry
Leaves      metadata on disk to PyIceberg, commits to the catalog, data files to `data_files`

The progress is in a snapshot's summary, for people, and in the table's properties, which outlive snapshots: both are in
the same commit as the files. PyIceberg's own retries are off: a writer that lost a race checks whether its micro-batch
is committed before it tries again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    ArrowScan,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamhouse.errors import Misconfigured, Rejected, Unavailable
from streamhouse.model.table import IDENTITY, WITH_NUMBER, Partition
from streamhouse.spark.lake.data_files import footer_of, spark_schema
from streamhouse.spark.lake.iceberg_metadata import FileCatalog, values_of
from streamhouse.spark.lake.schema_evolution import evolve, stored
from streamhouse.spark.lake.table import (
    PREFIX,
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
    begins_of,
    check_commit,
    check_owner,
    last_epoch,
    summarize,
)
from streamhouse.spark.lake.table_options import Location, file_system, iceberg_properties, within

QUERY: Final = "streamhouse.query-id"
BATCH: Final = "streamhouse.batch-id"
OFFSETS: Final = "streamhouse.offsets."
"""A property of the table: the offsets of a query's streams after the last commit, for people; followed by the
query's id.

Not in the summaries of snapshots, which the metadata file has all of: it would grow with every commit.
"""
PROGRESS: Final = "streamhouse.progress."
"""A property of the table: the last micro-batch of a query; followed by the query's id."""
EPOCH: Final = "streamhouse.epoch."
"""A property of the table: the epoch of the last owner of a query or pipeline; followed by its id."""
COVERS: Final = "streamhouse.covers."
"""A property of the table: what that micro-batch covers."""
RETRIES: Final = "commit.retry.num-retries"
_PROPERTIES: Final[Mapping[str, str]] = {
    "format-version": "2",
    RETRIES: "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergLakeTable:
    """`catalog` names one of PyIceberg's configuration; without it, the table's directory is the catalog."""

    can_remove = True

    def __init__(
        self, layout: Layout, location: Location | None, *, catalog: str | None = None, identifier: str | None = None
    ) -> None:
        self._layout, self._location, self._name = layout, location, layout.name
        self._catalog: Catalog = load_catalog(catalog) if catalog else _file_catalog(layout.name, location)
        self._identifier = identifier or layout.name
        self._loaded: Table | None = None

    def __repr__(self) -> str:
        return f"<IcebergLakeTable {self._name} {self._location.root if self._location else self._identifier}>"

    # --- tables

    def evolve_schema(self, schema: StructType) -> StructType:
        new_schema = stored(schema, has_small_numbers=False)
        table = self._load() or self._create(new_schema)
        growth = evolve(self._name, _columns(table), new_schema)
        if not growth.is_none:
            with self._commit_errors(), table.update_schema() as update:
                update.union_by_name(to_arrow_schema(growth.schema, timezone="UTC"))
        self._check_partitions(table)
        return _columns(table)

    def columns(self) -> StructType:
        return _columns(self._table())

    def _load(self) -> Table | None:
        try:
            self._loaded = _without_retries(self._catalog.load_table(self._identifier))
        except NoSuchTableError:
            return None
        return self._loaded

    def _create(self, schema: StructType) -> Table:
        arrow = to_arrow_schema(schema, timezone="UTC")
        try:
            fields = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(arrow))
        except (TypeError, ValueError) as error:
            raise Rejected(f"Iceberg has no such type; table={self._name} error={error}") from None
        self._layout.check_columns(fields.column_names)
        spec = _spec(fields, self._layout)
        if isinstance(self._catalog, FileCatalog):
            self._loaded = self._catalog.begin_table(fields, spec, _PROPERTIES)
        else:
            location = self._location.root if self._location else None
            self._catalog.create_namespace_if_not_exists(Catalog.namespace_from(self._identifier))
            self._loaded = self._catalog.create_table_if_not_exists(
                self._identifier, fields, location, spec, properties=dict(_PROPERTIES)
            )
        self._loaded = _without_retries(self._loaded)
        return self._loaded

    def _check_partitions(self, table: Table) -> None:
        """Files follow the stored partition spec; reject a definition that differs from it."""
        names = {field.name for field in table.spec().fields}
        if self._layout.partitions and names != {each.name for each in self._layout.partitions}:
            raise self._layout.partition_mismatch(",".join(sorted(names)))

    def _table(self) -> Table:
        if self._loaded is None and self._load() is None:
            raise TableNotFound(
                f"no such Iceberg table; table={self._name} at={self._location.root if self._location else ''}"
            )
        assert self._loaded is not None
        return self._loaded

    # --- files

    def last_batch(self, query_id: str) -> int | None:
        table = self._load()
        return None if table is None else _number(table, PROGRESS, query_id)

    def last_covers(self, progress: Progress) -> str | None:
        return self._table().properties.get(COVERS + progress.query_id) or None

    def plan_files(self, progress: Progress) -> FilePlan:
        table = self._table()
        return FilePlan(
            data=f"{table.location()}/data",
            begins=begins_of(progress),
            schema=schema_to_pyarrow(table.schema(), include_field_ids=True),
            partitions=tuple(_partition(field, table.schema()) for field in table.spec().fields),
            values=values_of,
            file_size_bytes=self._layout.file_size_bytes,
        )

    def data_files(self, bounds: KeyRange | None = None) -> list[DataFile]:
        tasks = self._table().scan(row_filter=_between(bounds)).plan_files()
        return [
            DataFile(
                path=task.file.file_path,
                size_bytes=task.file.file_size_in_bytes,
                rows=task.file.record_count,
                token=task,
            )
            for task in tasks
        ]

    def reader(self) -> FileReader:
        return _Reader(metadata=self._table().metadata)

    # --- commits

    def fence(self, progress: Progress) -> None:
        """Commit an empty snapshot: commits that are based on an older snapshot fail then."""
        table = self._load() or self._table()
        epochs = [_number(table, EPOCH, name) for name in progress.fenced]
        check_owner(progress, epoch=last_epoch(epochs))
        if all(epoch == progress.epoch for epoch in epochs):
            return
        with self._commit_errors(), table.transaction() as transaction:
            transaction.set_properties({EPOCH + name: str(progress.epoch) for name in progress.fenced})
            with transaction.update_snapshot({QUERY: progress.query_id}).fast_append():
                pass

    def commit(
        self,
        written: Sequence[NewDataFile],
        removed: Sequence[DataFile],
        progress: Progress,
        *,
        is_rewrite: bool = False,
    ) -> None:
        table = self._table()
        epoch = last_epoch(_number(table, EPOCH, name) for name in progress.fenced)
        batch = _number(table, PROGRESS, progress.query_id)
        check_commit(progress, epoch=epoch, batch=batch, is_rewrite=is_rewrite)
        added = [_data_file(each, table) for each in written]
        summary = {QUERY: progress.query_id, BATCH: str(progress.batch_id)}
        with self._commit_errors(), table.transaction() as transaction:
            if not is_rewrite:
                _note_progress(transaction, table, progress)
            snapshot = transaction.update_snapshot({} if is_rewrite else summary)
            with snapshot.overwrite() if removed else snapshot.merge_append() as files:
                for data_file in added:
                    files.append_data_file(data_file)
                for each in removed:
                    files.delete_data_file(each.token.file)

    def _commit_errors(self) -> "_CommitErrors":
        return _CommitErrors(self._name)

    # --- expiry

    def expire_snapshots(self, older_than_ms: int, orphans_before_ms: int) -> Expiry:
        table = self._table()
        before = len(table.snapshots())
        with self._commit_errors():
            old = datetime.fromtimestamp(older_than_ms / 1000, UTC).replace(tzinfo=None)
            table.maintenance.expire_snapshots().older_than(old).commit()
        table = self._load() or table
        return Expiry(snapshots=before - len(table.snapshots()), files=self._delete_orphans(table, orphans_before_ms))

    def _delete_orphans(self, table: Table, before_ms: int) -> int:
        """Delete files that no snapshot refers to: of expired snapshots, and of commits that failed."""
        files, kept = file_system(table.location()), _referred(table)
        deleted = 0
        for folder in ("data", "metadata"):
            under = fs.FileSelector(within(f"{table.location()}/{folder}"), recursive=True, allow_not_found=True)
            for each in files.get_file_info(under):
                is_ours = each.base_name.startswith(PREFIX) if folder == "data" else each.extension == "avro"
                if each.is_file and is_ours and each.path not in kept and each.mtime_ns < before_ms * 1_000_000:
                    files.delete_file(each.path)
                    deleted += 1
        return deleted

    def snapshots(self, limit: int) -> list[Snapshot]:
        newest = sorted(self._table().snapshots(), key=lambda each: each.sequence_number or 0, reverse=True)
        return [_snapshot(each) for each in newest[:limit]]

    def describe(self) -> TableSummary:
        table = self._table()
        progress = {
            name.removeprefix(PROGRESS): int(value)
            for name, value in table.properties.items()
            if name.startswith(PROGRESS)
        }
        version = table.metadata_location.rsplit("/", 1)[-1]
        return replace(summarize(_columns(table), self.data_files()), version=version, progress=progress)


def _snapshot(stored: IcebergSnapshot) -> Snapshot:
    summary = stored.summary

    def total(name: str) -> int | None:
        text = None if summary is None else summary.additional_properties.get(name)
        return None if text is None else int(text)

    return Snapshot(
        version=str(stored.snapshot_id),
        at_ms=stored.timestamp_ms,
        operation="" if summary is None else str(summary.operation.value),
        rows=total("total-records"),
        files=total("total-data-files"),
        size_bytes=total("total-files-size"),
    )


def _file_catalog(name: str, location: Location | None) -> FileCatalog:
    if location is None:
        raise Misconfigured(f"an Iceberg table needs a location or a catalog; table={name}")
    return FileCatalog(location)


class _CommitErrors:
    """Raises `Unavailable` instead of PyIceberg's errors when another commit was first."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CommitFailedException | CommitStateUnknownException):
            raise Unavailable(f"another commit was first; table={self._name} error={str(error)[:200]}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Rows of one file as the table has them now: columns by their ids, deleted rows left out."""

    metadata: TableMetadata

    def batches(self, token: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert isinstance(token, FileScanTask)
        schema = self.metadata.schema()
        selected = Schema(*[schema.find_field(name) for name in columns])
        io = load_file_io({**iceberg_properties(), **self.metadata.properties}, self.metadata.location)
        whole = FileScanTask(token.file, token.delete_files)  # without the filter of the scan
        return ArrowScan(self.metadata, io, selected, AlwaysTrue()).to_record_batches([whole])


def _without_retries(table: Table) -> Table:
    """Switch PyIceberg's retries off in this process only: they are a property of the table, which others may have
    created."""
    properties = {**table.metadata.properties, RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _number(table: Table, prefix: str, query_id: str) -> int | None:
    """A number that a property of the table has for a query."""
    text = table.properties.get(prefix + query_id)
    return None if text is None else int(text)


def _note_progress(transaction: Transaction, table: Table, progress: Progress) -> None:
    """The micro-batch for good; the offsets of the last commit only, whichever query made it."""
    noted = {PROGRESS + progress.query_id: str(progress.batch_id), COVERS + progress.query_id: progress.covers}
    noted |= {OFFSETS + progress.query_id: progress.offsets} if progress.offsets else {}
    if old := [name for name in table.properties if name.startswith(OFFSETS) and name not in noted]:
        transaction.remove_properties(*old)
    transaction.set_properties(noted)


def _columns(table: Table) -> StructType:
    return spark_schema(schema_to_pyarrow(table.schema(), include_field_ids=False))


def _between(bounds: KeyRange | None) -> BooleanExpression:
    if bounds is None:
        return AlwaysTrue()
    kinds: tuple[Any, Any] = (GreaterThanOrEqual, LessThanOrEqual)
    return And(kinds[0](bounds.column, bounds.least), kinds[1](bounds.column, bounds.greatest))


def _spec(schema: Schema, layout: Layout) -> PartitionSpec:
    fields = []
    for number, each in enumerate(layout.partitions):
        source = schema.find_field(each.column)
        transform = parse_transform(f"{each.transform}[{each.width}]" if each.width else each.transform)
        if not transform.can_transform(source.field_type):
            raise Misconfigured(f"a type can't be partitioned so; table={layout.name} partition_by={each}")
        fields.append(PartitionField(source.field_id, 1000 + number, transform, each.name))
    return PartitionSpec(*fields)


def _partition(field: PartitionField, schema: Schema) -> Partition:
    """A field of the table's own spec, in our words."""
    transform, _, rest = str(field.transform).partition("[")
    column = schema.find_field(field.source_id).name
    if transform not in (IDENTITY, "year", "month", "day", "hour", *WITH_NUMBER):
        raise Rejected(f"nothing is known of a partition's transform; transform={field.transform} column={column}")
    return Partition(column=column, transform=transform, width=int(rest.rstrip("]")) if rest else 0)


def _data_file(written: NewDataFile, table: Table) -> IcebergDataFile:
    schema = table.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer_of(written),
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return IcebergDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*written.partition),
        file_size_in_bytes=written.size_bytes,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _referred(table: Table) -> set[str]:
    """Paths of everything that a snapshot still refers to."""
    paths: set[str] = set()
    manifests: dict[str, Any] = {}
    for snapshot in table.snapshots():
        paths.add(within(snapshot.manifest_list))
        manifests |= {each.manifest_path: each for each in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        paths.add(within(path))
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        paths.update(within(entry.data_file.file_path) for entry in entries)
    return paths
