"""Options and location of a lake table, and how each library reaches a directory or a bucket.

Data path   `WITH (connector = 'iceberg', …)` -> **table_options** -> LakeTable
Owns        what the options mean; environment variables with the address and credentials of a bucket;
            `describe_table`
Leaves      the syntax of options to `sql.options`, bytes to the libraries

The variables are those that agents and executors read for the log's bucket. They are never options of a table:
locations are shared, credentials are not.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow.fs as fs

from streamhouse.errors import Misconfigured
from streamhouse.errors.base import install_command
from streamhouse.model.table import Connector, Partition, Table, parse_partitions
from streamhouse.spark.lake.table import FILE_SIZE_BYTES, LakeTable, Layout, TableNotFound, TableSummary
from streamhouse.sql.options import parse_duration_ms, parse_file_size

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
REGION: Final = "us-east-1"
"""If the environment names none: self-hosted servers ignore it, but requests are signed with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """`root` is an absolute path, or `s3://bucket/prefix`; neither ends with a slash."""

    root: str

    @property
    def is_bucket(self) -> bool:
        return self.root.startswith("s3://")

    @property
    def url(self) -> str:
        return self.root if self.is_bucket else f"file://{self.root}"

    def under(self, *names: str) -> str:
        return "/".join([self.root, *names])

    def files(self) -> fs.FileSystem:
        return file_system(self.root)


def parse_location(location: str) -> Location:
    """`/lake/orders`, `file:///lake/orders` or `s3://bucket/lake/orders`; raises `Misconfigured` for the rest."""
    parts = urlsplit(location)
    if parts.scheme == "s3" and parts.netloc and not (parts.query or parts.fragment or "@" in parts.netloc):
        return Location(root=location.rstrip("/"))
    path = unquote(parts.path) if parts.scheme == "file" and not parts.netloc else location
    if os.path.isabs(path) and path.strip("/"):
        return Location(root=os.path.normpath(path))
    raise Misconfigured(
        f"not a location of a lake table; location={location}"
        " do=an absolute folder that all of Spark sees, or s3://bucket/prefix"
    )


def file_system(path: str) -> fs.FileSystem:
    """The file system of a path or URL; `within` gives the path inside it."""
    return _bucket(os.environ) if path.startswith("s3://") else fs.LocalFileSystem()


def within(path: str) -> str:
    """A path as its file system names it."""
    if path.startswith("s3://"):
        return path.removeprefix("s3://")
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def _bucket(environ: Mapping[str, str]) -> fs.FileSystem:
    endpoint = urlsplit(_first(environ, _ENDPOINTS))
    given: dict[str, Any] = {"region": _first(environ, _REGIONS) or REGION}
    if endpoint.netloc:
        given |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    if environ.get("AWS_ACCESS_KEY_ID"):
        given |= {"access_key": environ["AWS_ACCESS_KEY_ID"], "secret_key": environ.get("AWS_SECRET_ACCESS_KEY", "")}
        given |= {"session_token": environ["AWS_SESSION_TOKEN"]} if environ.get("AWS_SESSION_TOKEN") else {}
    return fs.S3FileSystem(**given)


def endpoint_of(environ: Mapping[str, str] | None = None) -> str:
    """The address that replaces the cloud's own; empty: none."""
    return _first(os.environ if environ is None else environ, _ENDPOINTS)


def iceberg_properties(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """PyIceberg's properties from the environment; never stored in a table."""
    variables = os.environ if environ is None else environ
    properties = {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        "s3.endpoint": _first(variables, _ENDPOINTS),
        "s3.region": _first(variables, _REGIONS) or REGION,
        "s3.access-key-id": variables.get("AWS_ACCESS_KEY_ID", ""),
        "s3.secret-access-key": variables.get("AWS_SECRET_ACCESS_KEY", ""),
        "s3.session-token": variables.get("AWS_SESSION_TOKEN", ""),
    }
    return {name: value for name, value in properties.items() if value}


def delta_options(location: Location, environ: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """delta-rs's options from the environment, besides those that it reads itself."""
    if not location.is_bucket:
        return None
    variables = os.environ if environ is None else environ
    endpoint = _first(variables, _ENDPOINTS)
    options = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": _first(variables, _REGIONS) or REGION,
        "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else "",
        "aws_conditional_put": "etag",  # commits are files that only one writer can make
    }
    return {name: value for name, value in options.items() if value}


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


UPSERT: Final = "upsert"
EXPIRE_MS: Final = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions:
    """`key` is empty if rows are only appended. `location` is None if a named catalog has it."""

    name: str
    connector: Connector
    location: Location | None
    key: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    file_size_bytes: int = FILE_SIZE_BYTES
    expire_ms: int = EXPIRE_MS
    catalog: str | None = None
    identifier: str | None = None


def lake_options(table: Table, key: tuple[str, ...] = (), *, is_written: bool = True) -> LakeOptions:
    """`key` is the pipeline's, if it has one; a reader needs none. Raises `Misconfigured`."""
    given = table.options
    mode = given.get("mode", "append").lower()
    row_key = key or table.key
    if mode == UPSERT and not row_key and is_written:
        raise Misconfigured(
            f"rows that replace others need a key; table={table.name} do=PRIMARY KEY (…), or the pipeline's option key"
        )
    if mode == UPSERT and table.connector is Connector.PARQUET:
        raise Misconfigured(
            f"rows in Parquet files don't change; table={table.name} do=format iceberg or delta, or mode = 'append'"
        )
    location, catalog = given.get("location"), given.get("catalog")
    if not location and not catalog:
        raise Misconfigured(f"a lake table needs a location; table={table.name} do=location = '/lake/{table.name}'")
    return LakeOptions(
        name=table.name,
        connector=table.connector,
        location=parse_location(location) if location else None,
        key=row_key if mode == UPSERT else (),
        partitions=parse_partitions(given["partition_by"]) if given.get("partition_by") else (),
        file_size_bytes=parse_file_size(given["file_size"]) if given.get("file_size") else FILE_SIZE_BYTES,
        expire_ms=parse_duration_ms(given["expire_snapshots"]) if given.get("expire_snapshots") else EXPIRE_MS,
        catalog=catalog,
        identifier=given.get("table"),
    )


def open_table(options: LakeOptions) -> LakeTable:
    """The table; its library is loaded when it is needed first."""
    try:
        return _open(options)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "streamhouse":
            raise
        raise Misconfigured(
            f"this needs parts that are not installed; missing={error.name} do={install_command('lake')}"
        ) from None


def _open(options: LakeOptions) -> LakeTable:
    module: Any = import_module(f"streamhouse.spark.lake.{options.connector.value}_table")
    layout = Layout(name=options.name, partitions=options.partitions, file_size_bytes=options.file_size_bytes)
    lake: LakeTable
    if options.connector is Connector.ICEBERG:
        lake = module.IcebergLakeTable(layout, options.location, catalog=options.catalog, identifier=options.identifier)
    elif options.location is None:
        raise Misconfigured(f"only Iceberg tables have catalogs; table={options.name} do=give it a location")
    elif options.connector is Connector.DELTA:
        lake = module.DeltaLakeTable(layout, options.location)
    else:
        lake = module.ParquetLakeTable(layout, options.location)
    return lake


def describe_table(name: str, connector: str, options: Mapping[str, str]) -> TableSummary | None:
    """None if there is no table: nothing was committed yet."""
    table = Table(name=name, connector=Connector(connector), options=options)
    lake = open_table(lake_options(table, is_written=False))
    lake.last_batch("")  # the table as it is now
    try:
        return lake.describe()
    except TableNotFound:
        return None
