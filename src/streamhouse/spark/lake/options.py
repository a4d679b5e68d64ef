"""Options: what `WITH (connector = 'iceberg', …)` says of a lake table.

Data path   a table's definition -> **options** -> the table that is opened
Owns        what the words of options mean; the lake that they name
Leaves      which words there are to `format.statement_options`
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from streamhouse.errors import Misconfigured
from streamhouse.errors.installation import install_command
from streamhouse.format.lake_options import Partition, a_duration_ms, a_file_size, some_partitions
from streamhouse.model.table import Connector, Table
from streamhouse.spark.lake.base import FILE_SIZE_BYTES, Lake, Layout
from streamhouse.spark.lake.places import Place, place_of

UPSERT: Final = "upsert"
EXPIRE_MS: Final = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions:
    """`key` is empty where rows are only appended. `place` None: a named catalog knows."""

    name: str
    connector: Connector
    place: Place | None
    key: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    file_size_bytes: int = FILE_SIZE_BYTES
    expire_ms: int = EXPIRE_MS
    catalog: str | None = None
    identifier: str | None = None


def options_of(table: Table, key: tuple[str, ...] = (), *, is_written: bool = True) -> LakeOptions:
    """`key` is the pipeline's, where it has one; whoever only reads needs none. Raises `Misconfigured`."""
    given = table.options
    mode = given.get("mode", "append").lower()
    found = key or table.key
    if mode == UPSERT and not found and is_written:
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
        place=place_of(location) if location else None,
        key=found if mode == UPSERT else (),
        partitions=some_partitions(given["partition_by"]) if given.get("partition_by") else (),
        file_size_bytes=a_file_size(given["file_size"]) if given.get("file_size") else FILE_SIZE_BYTES,
        expire_ms=a_duration_ms(given["expire_snapshots"]) if given.get("expire_snapshots") else EXPIRE_MS,
        catalog=catalog,
        identifier=given.get("table"),
    )


def open_lake(options: LakeOptions) -> Lake:
    """The table; its library is loaded when it is needed first."""
    try:
        return _opened(options)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "streamhouse":
            raise
        raise Misconfigured(
            f"this needs parts that are not installed; missing={error.name} do={install_command('lake')}"
        ) from None


def _opened(options: LakeOptions) -> Lake:
    module: Any = import_module(f"streamhouse.spark.lake.{options.connector.value}")
    layout = Layout(name=options.name, partitions=options.partitions, file_size_bytes=options.file_size_bytes)
    lake: Lake
    if options.connector is Connector.ICEBERG:
        lake = module.IcebergLake(layout, options.place, catalog=options.catalog, identifier=options.identifier)
    elif options.place is None:
        raise Misconfigured(f"only Iceberg tables have catalogs; table={options.name} do=say its location")
    elif options.connector is Connector.DELTA:
        lake = module.DeltaLake(layout, options.place)
    else:
        lake = module.ParquetLake(layout, options.place)
    return lake
