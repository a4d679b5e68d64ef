"""Iceberg: lake tables that most engines read, with snapshots and hidden partitions.

Data path   writing -> **iceberg** -> manifests and metadata, by PyIceberg -> a folder's catalog, or a named one
Owns        tables that are made and grow, files as manifests name them, snapshots with the progress in them, expiry
Leaves      metadata on disk to PyIceberg, commits to the catalog, data files to `files`

The progress is in a snapshot's summary, for people, and in the table's properties, which outlive snapshots: both are in
the same commit as the files. PyIceberg's own retries are off: whoever lost a race looks again whether a micro-batch is
there before it tries again.
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
"""A property of the table: where the streams of the query that follows stand behind the last commit, for people.

Not in the summaries of snapshots, which the metadata file has all of: it would grow with every commit.
"""
PROGRESS: Final = "streamhouse.progress."
"""A property of the table: which micro-batch of the query that follows is in it."""
EPOCH: Final = "streamhouse.epoch."
"""A property of the table: the epoch of the last owner of the query, or of the pipeline, that follows."""
COVERS: Final = "streamhouse.covers."
"""A property of the table: what that micro-batch is made of."""
RETRIES: Final = "commit.retry.num-retries"
_PROPERTIES: Final[Mapping[str, str]] = {
    "format-version": "2",
    RETRIES: "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergLakeTable:
    """`catalog` is the name of one that PyIceberg's own configuration knows; without, the folder itself is one."""

    can_remove = True

    def __init__(
        self, layout: Layout, place: Location | None, *, catalog: str | None = None, identifier: str | None = None
    ) -> None:
        self._layout, self._place, self._name = layout, place, layout.name
        self._catalog: Catalog = load_catalog(catalog) if catalog else _folder(layout.name, place)
        self._identifier = identifier or layout.name
        self._found: Table | None = None

    def __repr__(self) -> str:
        return f"<IcebergLake {self._name} {self._place.root if self._place else self._identifier}>"

    # --- tables

    def fit(self, schema: StructType) -> StructType:
        wanted = stored(schema, has_small_numbers=False)
        table = self._load() or self._made(wanted)
        growth = evolve(self._name, _columns(table), wanted)
        if not growth.is_none:
            with self._told(), table.update_schema() as update:
                update.union_by_name(to_arrow_schema(growth.schema, timezone="UTC"))
        self._check_partitions(table)
        return _columns(table)

    def columns(self) -> StructType:
        return _columns(self._table())

    def _load(self) -> Table | None:
        try:
            self._found = _without_retries(self._catalog.load_table(self._identifier))
        except NoSuchTableError:
            return None
        return self._found

    def _made(self, schema: StructType) -> Table:
        arrow = to_arrow_schema(schema, timezone="UTC")
        try:
            fields = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(arrow))
        except (TypeError, ValueError) as error:
            raise Rejected(f"Iceberg has no such type; table={self._name} why={error}") from None
        self._layout.check_columns(fields.column_names)
        spec = _spec(fields, self._layout)
        if isinstance(self._catalog, FileCatalog):
            self._found = self._catalog.begin_table(fields, spec, _PROPERTIES)
        else:
            location = self._place.root if self._place else None
            self._catalog.create_namespace_if_not_exists(Catalog.namespace_from(self._identifier))
            self._found = self._catalog.create_table_if_not_exists(
                self._identifier, fields, location, spec, properties=dict(_PROPERTIES)
            )
        self._found = _without_retries(self._found)
        return self._found

    def _check_partitions(self, table: Table) -> None:
        """Files are cut as the table says; where a definition says otherwise, somebody should know."""
        names = {field.name for field in table.spec().fields}
        if self._layout.partitions and names != {each.name for each in self._layout.partitions}:
            raise self._layout.otherwise(",".join(sorted(names)))

    def _table(self) -> Table:
        if self._found is None and self._load() is None:
            raise TableNotFound(
                f"no such Iceberg table; table={self._name} at={self._place.root if self._place else ''}"
            )
        assert self._found is not None
        return self._found

    # --- files

    def last_batch(self, query_id: str) -> int | None:
        table = self._load()
        return None if table is None else _number(table, PROGRESS, query_id)

    def last_covers(self, progress: Progress) -> str | None:
        return self._table().properties.get(COVERS + progress.query_id) or None

    def begin(self, progress: Progress) -> FilePlan:
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
        """With a snapshot that changes nothing: a commit is made on a snapshot, and fails where there is another."""
        table = self._load() or self._table()
        epochs = [_number(table, EPOCH, name) for name in progress.fenced]
        check_owner(progress, epoch=last_epoch(epochs))
        if all(epoch == progress.epoch for epoch in epochs):
            return
        with self._told(), table.transaction() as transaction:
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
        told = {QUERY: progress.query_id, BATCH: str(progress.batch_id)}
        with self._told(), table.transaction() as transaction:
            if not is_rewrite:
                _note_progress(transaction, table, progress)
            snapshot = transaction.update_snapshot({} if is_rewrite else told)
            with snapshot.overwrite() if removed else snapshot.merge_append() as files:
                for data_file in added:
                    files.append_data_file(data_file)
                for each in removed:
                    files.delete_data_file(each.token.file)

    def _told(self) -> "_CommitProperties":
        return _CommitProperties(self._name)

    # --- clearing away

    def clear(self, older_than_ms: int, orphans_before_ms: int) -> Expiry:
        table = self._table()
        before = len(table.snapshots())
        with self._told():
            old = datetime.fromtimestamp(older_than_ms / 1000, UTC).replace(tzinfo=None)
            table.maintenance.expire_snapshots().older_than(old).commit()
        table = self._load() or table
        return Expiry(snapshots=before - len(table.snapshots()), files=self._swept(table, orphans_before_ms))

    def _swept(self, table: Table, before_ms: int) -> int:
        """Delete files that no snapshot refers to: of snapshots that are gone, and of commits that never were."""
        files, kept = file_system(table.location()), _referred(table)
        swept = 0
        for folder in ("data", "metadata"):
            under = fs.FileSelector(within(f"{table.location()}/{folder}"), recursive=True, allow_not_found=True)
            for each in files.get_file_info(under):
                is_ours = each.base_name.startswith(PREFIX) if folder == "data" else each.extension == "avro"
                if each.is_file and is_ours and each.path not in kept and each.mtime_ns < before_ms * 1_000_000:
                    files.delete_file(each.path)
                    swept += 1
        return swept

    def describe(self) -> TableSummary:
        table = self._table()
        progress = {
            name.removeprefix(PROGRESS): int(value)
            for name, value in table.properties.items()
            if name.startswith(PROGRESS)
        }
        version = table.metadata_location.rsplit("/", 1)[-1]
        return replace(summarize(_columns(table), self.data_files()), version=version, progress=progress)


def _folder(name: str, place: Location | None) -> FileCatalog:
    if place is None:
        raise Misconfigured(f"an Iceberg table needs a location or a catalog; table={name}")
    return FileCatalog(place)


class _CommitProperties:
    """What PyIceberg says when somebody else was quicker, in our words."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CommitFailedException | CommitStateUnknownException):
            raise Unavailable(f"another commit was quicker; table={self._name} why={str(error)[:200]}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Rows of one file as the table has them now: columns by their ids, deleted rows left out."""

    metadata: TableMetadata

    def batches(self, token: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert isinstance(token, FileScanTask)
        schema = self.metadata.schema()
        wanted = Schema(*[schema.find_field(name) for name in columns])
        io = load_file_io({**iceberg_properties(), **self.metadata.properties}, self.metadata.location)
        whole = FileScanTask(token.file, token.delete_files)  # without the filter that found it
        return ArrowScan(self.metadata, io, wanted, AlwaysTrue()).to_record_batches([whole])


def _without_retries(table: Table) -> Table:
    """As this process sees it: PyIceberg goes by the table's properties, which are others' where others made it."""
    properties = {**table.metadata.properties, RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _number(table: Table, prefix: str, query_id: str) -> int | None:
    """What a property of the table says of a query."""
    found = table.properties.get(prefix + query_id)
    return None if found is None else int(found)


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
    found: set[str] = set()
    manifests: dict[str, Any] = {}
    for snapshot in table.snapshots():
        found.add(within(snapshot.manifest_list))
        manifests |= {each.manifest_path: each for each in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        found.add(within(path))
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        found.update(within(entry.data_file.file_path) for entry in entries)
    return found
