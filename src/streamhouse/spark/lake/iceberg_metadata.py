"""Iceberg metadata in a directory, without a catalog service, and partition values as manifests have them.

Data path   iceberg_table -> **FileCatalog** -> metadata/v7.metadata.json, created by the first writer
Owns        which metadata file is current; that two commits can't create the same version; ordinals of times
Leaves      the contents of metadata, hashes and prefixes to PyIceberg, put-if-absent to `stores.objects`

Files have the names of Iceberg's file system tables: `v7.metadata.json`, and `version-hint.text`, which may lag
behind. A version is created, never replaced: on S3 by a conditional PUT, in directories by a link. So a writer that
lost the race knows it, and readers need the table's location only.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.transforms import parse_transform

from streamhouse.clock import Ids
from streamhouse.model.table import IDENTITY, Partition
from streamhouse.spark.lake.hive_layout import mapped
from streamhouse.spark.lake.table_options import Location, file_system, iceberg_properties, within
from streamhouse.spark.runtime.object_store import open_store as opened_store
from streamhouse.stores.objects.base import ObjectExists

HINT: Final = "version-hint.text"
MAX_AHEAD: Final = 10_000
"""Versions that a hint may lag behind."""


class FileCatalog(MetastoreCatalog, NoopCatalog):
    """A catalog of one table, in the table's own directory."""

    def __init__(self, location: Location) -> None:
        super().__init__("folder", **iceberg_properties())
        self._location = location

    def __repr__(self) -> str:
        return f"<FileCatalog {self._location.root}>"

    def load_table(self, identifier: Any = None) -> Table:
        version = self._version()
        if version is None:
            raise NoSuchTableError(self._location.root)
        return self._table(self._read(version), version)

    def begin_table(self, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]) -> Table:
        """Create the table, or load it if another writer created it first."""
        fresh = assign_fresh_schema_ids(schema)
        metadata = new_table_metadata(
            location=self._location.root,
            schema=fresh,
            partition_spec=assign_fresh_partition_spec_ids(spec, schema, fresh),
            sort_order=UNSORTED_SORT_ORDER,
            properties=dict(properties),
        )
        try:
            self._publish(1, metadata)
        except ObjectExists:
            return self.load_table()
        return self._table(metadata, 1)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        version = self._version()
        if version is None:
            raise NoSuchTableError(self._location.root)
        before = self._read(version)
        for requirement in requirements:
            requirement.validate(before)
        after = update_table_metadata(before, updates, metadata_location=self._path(version))
        if after == before:
            return _commit_response(before, self._path(version))
        try:
            self._publish(version + 1, after)
        except ObjectExists:
            raise CommitFailedException(f"another commit was first; version={version + 1}") from None
        return _commit_response(after, self._path(version + 1))

    # --- versions

    def _version(self) -> int | None:
        """The last version: the hint's, or a later one whose writer did not update the hint."""
        version = self._hinted() or 1
        if not self._exists(version):
            return None
        for ahead in range(version + 1, version + MAX_AHEAD):
            if not self._exists(ahead):
                return ahead - 1
        raise CommitFailedException(f"a hint is too old to find the table's version; version={version}")

    def _hinted(self) -> int | None:
        files, path = file_system(self._location.root), within(self._location.under("metadata", HINT))
        try:
            with files.open_input_stream(path) as stream:
                text = stream.read().decode().strip()
        except FileNotFoundError:
            return None
        return int(text) if text.isdecimal() else None

    def _exists(self, version: int) -> bool:
        (info,) = file_system(self._location.root).get_file_info([within(self._path(version))])
        return bool(info.is_file)

    def _publish(self, version: int, metadata: TableMetadata) -> None:
        """Raises `ObjectExists` if the version exists already."""
        body = metadata.model_dump_json().encode()
        if self._location.is_bucket:
            self._put(f"metadata/{_name(version)}", body)
        else:
            _create(Path(self._path(version)), body)
        if (self._hinted() or 0) < version:
            self._hint(version)

    def _put(self, key: str, body: bytes) -> None:
        """After a lost response our own object already exists: compare its content before raising."""
        loop, store = opened_store(self._location.url)
        try:
            loop.run(store.put_new(key, [body]))
        except ObjectExists:
            if loop.run(store.get_range(key, 0, len(body) + 1)) != body:
                raise

    def _hint(self, version: int) -> None:
        """Write the hint atomically."""
        path = self._location.under("metadata", HINT)
        if self._location.is_bucket:
            with file_system(path).open_output_stream(within(path)) as stream:
                stream.write(str(version).encode())
            return
        making = f"{path}.{version}"
        Path(making).write_text(str(version), encoding="ascii")
        os.replace(making, path)

    def _read(self, version: int) -> TableMetadata:
        io = load_file_io(iceberg_properties(), self._path(version))
        return FromInputFile.table_metadata(io.new_input(self._path(version)))

    def _table(self, metadata: TableMetadata, version: int) -> Table:
        path = self._path(version)
        io = load_file_io({**iceberg_properties(), **metadata.properties}, path)
        return Table(
            identifier=("lake", self._location.root.rsplit("/", 1)[-1]),
            metadata=metadata,
            metadata_location=path,
            io=io,
            catalog=self,
        )

    def _path(self, version: int) -> str:
        return self._location.under("metadata", _name(version))


def _commit_response(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})


def _name(version: int) -> str:
    return f"v{version}.metadata.json"


def _create(path: Path, body: bytes) -> None:
    """Create a file that must not exist yet, atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    making = path.with_name(f".{path.name}.{Ids().token()}")
    try:
        with making.open("xb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(making, path)
    except FileExistsError:
        raise ObjectExists(str(path)) from None
    finally:
        making.unlink(missing_ok=True)


_DAY_US: Final = 24 * 3600 * 1_000_000
_HOUR_US: Final = 3600 * 1_000_000


def values_of(partition: Partition, values: pa.Array) -> list[Any]:
    """One for each row: ordinals from 1970 on for times, PyIceberg's for the rest."""
    if partition.transform in ("day", "hour"):
        return _floored(values, _DAY_US if partition.transform == "day" else _HOUR_US)
    if partition.transform in ("year", "month"):
        return _calendar(values, partition.transform)
    plain = _represented(values)
    if partition.transform == IDENTITY:
        return list(plain.to_pylist())
    schema = _pyarrow_to_schema_without_ids(pa.schema([("value", values.type)]))
    transform = parse_transform(f"{partition.transform}[{partition.width}]")
    return mapped(plain, transform.transform(schema.fields[0].field_type))


def _represented(values: pa.Array) -> pa.Array:
    """Dates and times are numbers in manifests."""
    if pa.types.is_date(values.type):
        return values.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        return _micros(values)
    return values


def _micros(values: pa.Array) -> pa.Array:
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp("us")).cast(pa.int64())
    return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())


def _floored(values: pa.Array, unit_us: int) -> list[Any]:
    """Downwards, also before 1970."""
    return [None if each is None else each // unit_us for each in _micros(values).to_pylist()]


def _calendar(values: pa.Array, transform: str) -> list[Any]:
    times = _micros(values).cast(pa.timestamp("us"))
    years = pc.subtract(pc.year(times), 1970)
    if transform == "year":
        return list(years.to_pylist())
    return list(pc.add(pc.multiply(years, 12), pc.subtract(pc.month(times), 1)).to_pylist())
