"""Topic: a topic's records as rows of a table, and rows as records.

Data path   topic -> `format("streamhouse")` -> **topic** -> rows with the table's columns
Owns        how a value becomes columns (JSON, raw, registry), what happens to values that can't, where a read starts
Leaves      bytes to `datasource.data_source`, schemas to `spark.columns`, which columns there are to `sql.catalog`,
            writing to
            `topic_writer`

`table.columns` are the columns to read, metadata columns (`_key`, `_offset` …) among them; nothing else is
read. Spark moves filters below what they read from, and would parse JSON once for the filter and once more for the
rest. A generator stays where it is, so `inline` makes it one parse for each record; filters on offsets and times go
below it still.
"""

import json
from collections.abc import Mapping
from typing import Final, TypeVar

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from streamhouse.errors import Misconfigured
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.table import Column, Table
from streamhouse.spark.agents.address import address_options
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.connectors.record_order import VERSION, version_of
from streamhouse.spark.connectors.topic_writer import topic_of, write_stream
from streamhouse.sql.options import starting_time_ms

__all__ = ["ERROR", "METADATA_COLUMNS", "VALUE", "metadata_columns", "read", "read_stream", "write_stream"]

Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)

JSON: Final = "json"
RAW: Final = "raw"
REGISTRY: Final = "registry"
METADATA_COLUMNS: Final[Mapping[str, str]] = {
    "_key": "STRING",
    "_topic": "STRING",
    "_partition": "INT",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMP",
    "_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "_deleted": "BOOLEAN",
}
"""The metadata columns of every record. `_deleted`: the record has no value, and so deletes its key."""
DELETED: Final = "_deleted"
ERROR: Final = "_sh_error"
VALUE: Final = "_sh_value"
"""The column of rows that can't be decoded; no record has a field of this name."""
NOT_JSON: Final = "the value is not JSON"
OTHER_JSON: Final = "the value is JSON, but not an object with columns of these types"

_IN_SOURCE: Final = {**METADATA_COLUMNS, "_key": "BINARY"}
_PREFIX: Final = "_sh_"
"""Before names of columns about a record, where the source decodes records: no field of theirs has such a name."""
_ORDERING: Final = ("timestamp", "partition", "offset")
_CORRUPT: Final = "_sh_corrupt"
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def metadata_columns(table: Table) -> tuple[Column, ...]:
    """The metadata columns; the key is text unless the table has key_format."""
    key = "BINARY" if table.options.get("key_format") == RAW else METADATA_COLUMNS["_key"]
    return tuple(Column(name=name, type=key if name == "_key" else kind) for name, kind in METADATA_COLUMNS.items())


def read(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    """The records that there are, from `reading.starting` on."""
    return _rows(_reader(spark.read.format("streamhouse"), table, reading), table, reading)


def read_stream(spark: SparkSession, table: Table, reading: ReadContext) -> DataFrame:
    """The records from `reading.starting` on, without an end."""
    reader = _reader(spark.readStream.format("streamhouse"), table, reading)
    if reading.max_records_per_trigger is not None:
        reader = reader.option("maxRecordsPerTrigger", str(reading.max_records_per_trigger))
    return _rows(reader, table, reading)


def starting_options(topic: str, starting: str) -> dict[str, str]:
    """The source's options for a starting point; of offsets those of the topic, which has its earliest without."""
    if starting in ("earliest", "latest"):
        return {"startingOffsets": starting}
    time_ms = starting_time_ms(starting)
    if time_ms is not None:
        return {"startingTimestamp": str(time_ms), "startingOffsetsByTimestampStrategy": "latest"}
    try:
        offsets = json.loads(starting).get(topic)
    except (ValueError, AttributeError):
        raise Misconfigured(
            f"not a starting position; starting={starting[:80]!r} do=earliest, latest, a time, or offsets as JSON"
        ) from None
    return {"startingOffsets": json.dumps({topic: offsets}) if offsets else "earliest"}


def _reader(reader: Reader, table: Table, reading: ReadContext) -> Reader:
    topic = topic_of(table)
    return (
        reader.options(**address_options(reading.agents))
        .option("topic", topic)
        .options(**starting_options(topic, reading.starting))
    )


def _rows(reader: DataFrameReader | DataStreamReader, table: Table, reading: ReadContext) -> DataFrame:
    columns = _known_columns(table)
    own = [column for column in columns if column.name not in METADATA_COLUMNS]
    fmt = table.options.get("format", JSON)
    if fmt == REGISTRY:
        return _registry(reader, table, own, reading)
    names = [column.name[1:] for column in columns if column.name in METADATA_COLUMNS]
    needs_value = bool(own) or DELETED[1:] in names or reading.include_malformed
    names += _ORDERING if reading.with_versions else ()
    loaded = dict.fromkeys(name for name in names if name != DELETED[1:])
    frame = _loaded(reader, list(loaded), with_value=needs_value)
    if reading.with_versions:
        frame = frame.withColumn(VERSION, version_of(topic_of(table), *_ORDERING))
    if fmt == RAW:
        return _raw(frame, table, own, keeps=reading.include_malformed)
    return _json(frame, table, own, keeps=reading.include_malformed)


def _known_columns(table: Table) -> tuple[Column, ...]:
    if table.columns is None:
        raise Misconfigured(f"columns aren't known; table={table.name} do=take the table from a catalog")
    return table.columns


def _loaded(reader: DataFrameReader | DataStreamReader, names: list[str], *, with_value: bool) -> DataFrame:
    """Records undecoded; if only their number matters, the partition is read, which costs nothing."""
    fields = [f"{quote_identifier(name)} {_IN_SOURCE[f'_{name}']}" for name in names]
    fields += ["value BINARY"] if with_value else []
    return reader.schema(", ".join(fields or ["partition INT"])).load()


def _metadata(table: Table, column: Column, *, source: str) -> Expression:
    """A column about the record, from the source's column of this name."""
    loaded = F.col(quote_identifier(source))
    is_text = column.name == "_key" and table.options.get("key_format") != RAW
    return (loaded.cast("string") if is_text else loaded).alias(column.name)


def _others(table: Table, frame: DataFrame) -> list[Expression]:
    """The selected metadata columns, and the version if the frame has it."""
    selected = [
        F.col("value").isNull().alias(DELETED)
        if column.name == DELETED
        else _metadata(table, column, source=column.name[1:])
        for column in _known_columns(table)
        if column.name in METADATA_COLUMNS
    ]
    return [*selected, *_version(frame)]


def _version(frame: DataFrame) -> list[Expression]:
    return [F.col(VERSION)] if VERSION in frame.columns else []


def _json(frame: DataFrame, table: Table, own: list[Column], *, keeps: bool) -> DataFrame:
    if not own and not keeps:
        return frame.select(*_others(table, frame))
    fields = [f"{quote_identifier(column.name)} {column.type}" for column in own]
    parsed = F.from_json(F.col("value").cast("string"), ", ".join([*fields, f"{_CORRUPT} STRING"]), _OPTIONS)
    bytes_ = [F.col("value").alias(VALUE)] if keeps else []
    rows = frame.select(*_others(table, frame), *bytes_, F.inline(F.array(parsed)))
    if not keeps:
        return _in_table_order(rows.where(F.col(_CORRUPT).isNull()), table)
    return _with_errors(rows, table)


def _with_errors(rows: DataFrame, table: Table) -> DataFrame:
    corrupt = F.col(_CORRUPT)
    is_right = corrupt.isNull()
    why = F.when(F.try_parse_json(corrupt).isNull(), F.lit(NOT_JSON)).otherwise(F.lit(OTHER_JSON))
    columns = [
        F.col(quote_identifier(column.name))
        if column.name in METADATA_COLUMNS
        else F.when(is_right, F.col(quote_identifier(column.name))).alias(column.name)
        for column in _known_columns(table)
    ]
    return rows.select(*columns, F.when(~is_right, why).alias(ERROR), F.col(VALUE))


def _raw(frame: DataFrame, table: Table, own: list[Column], *, keeps: bool) -> DataFrame:
    """One column, the value itself: there is nothing that can't be decoded."""
    if len(own) > 1:
        names = ", ".join(column.name for column in own)
        raise Misconfigured(f"a raw value is one column; table={table.name} columns={names} do=declare one")
    value = [F.col("value").cast(column.type).alias(column.name) for column in own]
    errors = [F.lit(None).cast("string").alias(ERROR), F.lit(None).cast("binary").alias(VALUE)] if keeps else []
    rows = frame.select(*_others(table, frame), *value, *errors)
    return rows if keeps else _in_table_order(rows, table)


def _registry(
    reader: DataFrameReader | DataStreamReader, table: Table, own: list[Column], reading: ReadContext
) -> DataFrame:
    """The source decodes these itself, with errors in two columns."""
    columns, keeps = _known_columns(table), reading.include_malformed
    fields = {column.name: column.type for column in own}
    about = [column.name[1:] for column in columns if column.name in METADATA_COLUMNS]
    about += _ORDERING if reading.with_versions else ()
    fields |= {_PREFIX + name: _IN_SOURCE[f"_{name}"] for name in about}
    decodes = bool(own) or keeps
    fields |= {ERROR: "STRING"} if decodes else {}
    fields |= {VALUE: "BINARY"} if keeps else {}
    reader = reader.option("schema", REGISTRY).option("metadataPrefix", _PREFIX)
    reader = reader.option("decodeErrors", "bytes" if reading.include_values else "columns") if decodes else reader
    fields = fields or {f"{_PREFIX}partition": "INT"}
    frame = reader.schema(", ".join(f"{quote_identifier(name)} {kind}" for name, kind in fields.items())).load()
    if reading.with_versions:
        frame = frame.withColumn(VERSION, version_of(topic_of(table), *(_PREFIX + name for name in _ORDERING)))
    shown = [
        _metadata(table, column, source=_PREFIX + column.name[1:])
        if column.name in METADATA_COLUMNS
        else F.col(quote_identifier(column.name))
        for column in columns
    ]
    shown += _version(frame)
    if keeps:
        return frame.select(*shown, ERROR, VALUE)
    return (frame.where(F.col(ERROR).isNull()) if decodes else frame).select(*shown)


def _in_table_order(rows: DataFrame, table: Table) -> DataFrame:
    return rows.select(*[F.col(quote_identifier(column.name)) for column in _known_columns(table)], *_version(rows))
