"""Restore sources: Parquet files, Iceberg and Delta tables as splits that tasks read as Arrow.

Data path   files of a lake -> **restore_sources** -> Spark's rows -> restore_job
Owns        the kind of a source; its version, its splits in a fixed order, reading a split
Leaves      access to `table_access`, Parquet to pyarrow, the tables' own metadata to pyiceberg and deltalake
Invariant   a source opened again at its version has the same splits in the same order
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs

from streamhouse.errors import Misconfigured
from streamhouse.spark.lake.table_options import iceberg_properties
from streamhouse.spark.replay.table_access import check_bucket, delta_access, located, plain, unreadable

Kind = Literal["parquet", "iceberg", "delta"]
ROWS: Final = 64 * 1024
"""Maximum rows of a batch: a task holds few of them at once."""
HIVE: Final = "hive"


class Reference(NamedTuple):
    """The state with which a task opens a source; `version` is empty until it was opened once."""

    kind: Kind
    url: str
    version: str = ""


class Source(Protocol):
    @property
    def version(self) -> str:
        """The current version, with which the same content can be opened again."""
        ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each piece."""
        ...

    def read(self, piece: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of a piece; only these columns of them, where some are named."""
        ...


def find_kind(url: str) -> Kind:
    """The kind of source at an address, by the files in the folder."""
    if url.endswith(".metadata.json"):
        return "iceberg"
    check_bucket(url)
    files, root = located(url)
    try:
        if files.get_file_info(f"{root}/_delta_log").type == pa_fs.FileType.Directory:
            return "delta"
        if files.get_file_info(f"{root}/metadata").type == pa_fs.FileType.Directory:
            return "iceberg"
    except OSError as error:
        raise unreadable(url, error) from None
    return "parquet"


def open_source(reference: Reference) -> Source:
    """Open a source; raises `Misconfigured` if its version no longer exists, `Unavailable` if the store is
    unreachable."""
    check_bucket(reference.url)
    try:
        source: Source = _OPEN[reference.kind].open(reference.url, reference.version)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise unreadable(reference.url, error, reference.kind) from None
    return source


@lru_cache(maxsize=8)
def open_cached(reference: Reference) -> Source:
    """For tasks: kept for the next piece, as Spark's Python workers live on."""
    return open_source(reference)


# --- Parquet


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFiles:
    """A file, or all in a folder by their names; folders `name=value` are columns."""

    root: str
    files: Any
    listing: tuple[tuple[str, int], ...]
    schema: pa.Schema

    @classmethod
    def open(cls, url: str, version: str) -> "ParquetFiles":
        files, root = located(url)
        listing = tuple(sorted((info.path, info.size) for info in _parquet_in(files, root)))
        if not listing:
            raise Misconfigured(f"no Parquet file there; source={plain(url)}")
        source = cls(root=root, files=files, listing=listing, schema=_first_schema(files, root, listing[0][0]))
        if version and version != source.version:
            raise Misconfigured(f"the files are others than when the job began; source={plain(url)} do=use another id")
        return source

    @property
    def version(self) -> str:
        return hashlib.sha256(repr([(path, size) for path, size in self.listing]).encode()).hexdigest()

    @property
    def sizes(self) -> Sequence[int]:
        return [size for _, size in self.listing]

    def read(self, piece: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        file = _dataset(self.files, self.root, [self.listing[piece][0]], self.schema)
        yield from file.to_batches(columns=columns, batch_size=ROWS)


def _first_schema(files: Any, root: str, path: str) -> pa.Schema:
    try:
        return _dataset(files, root, [path], None).schema
    except pa.ArrowInvalid:  # whose text speaks of footers, magic bytes, and options of pyarrow
        raise Misconfigured(
            f"this is no Parquet file, or a broken one; file={path}"
            " do=give a Parquet file, a folder of them, or --kind for a table"
        ) from None


def _parquet_in(files: Any, root: str) -> Iterator[Any]:
    info = files.get_file_info(root)
    if info.type == pa_fs.FileType.File:
        yield info
    elif info.type == pa_fs.FileType.Directory:
        for each in files.get_file_info(pa_fs.FileSelector(root, recursive=True)):
            parts = each.path[len(root) :].split("/")
            if each.path.endswith((".parquet", ".parq")) and not any(part.startswith(("_", ".")) for part in parts):
                yield each


def _dataset(files: Any, root: str, paths: list[str], schema: pa.Schema | None) -> Any:
    base = root if paths != [root] else root.rpartition("/")[0]
    return ds.dataset(
        paths, schema=schema, format="parquet", filesystem=files, partitioning=HIVE, partition_base_dir=base
    )


# --- Iceberg


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergTable:
    """A snapshot of a table: by the address of its metadata or of its folder, or by its name in a catalog that
    pyiceberg is configured for."""

    table: Any
    snapshot: int | None
    tasks: tuple[Any, ...]
    schema: pa.Schema

    @classmethod
    def open(cls, url: str, version: str) -> "IcebergTable":
        table = _iceberg(url)
        current = table.current_snapshot()
        snapshot = int(version) if version else None if current is None else current.snapshot_id
        scan = table.scan(snapshot_id=snapshot)
        tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path) if snapshot is not None else []
        return cls(table=table, snapshot=snapshot, tasks=tuple(tasks), schema=scan.projection().as_arrow())

    @property
    def version(self) -> str:
        return "" if self.snapshot is None else str(self.snapshot)

    @property
    def sizes(self) -> Sequence[int]:
        return [task.file.file_size_in_bytes for task in self.tasks]

    def read(self, piece: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        selected = ("*",) if columns is None else tuple(columns)
        projected = self.table.scan(snapshot_id=self.snapshot, selected_fields=selected).projection()
        scan = ArrowScan(self.table.metadata, self.table.io, projected, AlwaysTrue())
        yield from scan.to_record_batches([self.tasks[piece]])


def _iceberg(url: str) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
    from pyiceberg.table import StaticTable

    catalog, dot, name = url.partition(".")
    if "/" not in url and dot:
        try:
            return load_catalog(catalog).load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError, ValueError) as error:
            raise Misconfigured(f"no such table; source={url} why={error}") from None
    metadata = url if url.endswith(".metadata.json") else _newest_metadata(url)
    try:
        return StaticTable.from_metadata(metadata, properties=iceberg_properties())
    except ValidationError:
        raise Misconfigured(f"this is no metadata of an Iceberg table; file={plain(metadata)}") from None


def _newest_metadata(url: str) -> str:
    """Versions count up at the beginning of the names."""
    files, root = located(url)
    metadata_files = [
        info.path
        for info in files.get_file_info(pa_fs.FileSelector(f"{root}/metadata", allow_not_found=True))
        if info.path.endswith(".metadata.json")
    ]
    if not metadata_files:
        raise Misconfigured(f"no metadata of an Iceberg table there; source={plain(url)}")
    newest = max(metadata_files, key=_metadata_number)
    scheme = urlsplit(url).scheme if "://" in url else "file"
    return f"{scheme}://{newest}"


def _metadata_number(path: str) -> tuple[int, str]:
    name = path.rpartition("/")[2]
    digits = name.lstrip("v").partition("-")[0].partition(".")[0]
    return (int(digits) if digits.isdecimal() else -1, name)


# --- Delta


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTable:
    """A version of a table, by the address of its folder."""

    number: int
    whole: Any
    fragments: tuple[Any, ...]
    sizes: tuple[int, ...]

    @classmethod
    def open(cls, url: str, version: str) -> "DeltaTable":
        from deltalake import DeltaTable as Opened
        from deltalake.exceptions import DeltaError

        try:
            table = Opened(url, version=int(version) if version else None, storage_options=delta_access(url))
            whole = table.to_pyarrow_dataset()
        except DeltaError as error:
            raise unreadable(url, error, "delta") from None
        fragments = tuple(sorted(whole.get_fragments(), key=lambda each: each.path))
        known = dict(_file_bytes(table))
        sizes = tuple(known.get(each.path) or _fragment_bytes(each) for each in fragments)
        return cls(number=table.version(), whole=whole, fragments=fragments, sizes=sizes)

    @property
    def version(self) -> str:
        return str(self.number)

    @property
    def schema(self) -> pa.Schema:
        return self.whole.schema

    def read(self, piece: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        yield from self.fragments[piece].to_batches(schema=self.whole.schema, columns=columns, batch_size=ROWS)


def _file_bytes(table: Any) -> Iterator[tuple[str, int]]:
    """Paths and sizes as the log has them: a HEAD request for each file would cost."""
    for action in pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist():
        yield action["path"], action["size_bytes"]


def _fragment_bytes(fragment: Any) -> int:
    return int(fragment.filesystem.get_file_info(fragment.path).size or 0)


_OPEN: Final[dict[Kind, Any]] = {"parquet": ParquetFiles, "iceberg": IcebergTable, "delta": DeltaTable}
