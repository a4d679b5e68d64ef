"""Result formats: Arrow batches as JSON, lines of JSON, CSV or an Arrow stream.

Data path   query_executor -> **result_formats** -> http_app
Owns        the formats and their media types; how a value of each type looks in text
Leaves      where batches come from to `query_executor`, tables on a terminal to the command line

Times are ISO 8601 in UTC, bytes are base64, numbers that JSON doesn't have ("NaN") are text, maps are objects.
"""

import base64
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from streamhouse.model.table import Column

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
MEDIA_TYPES: Final = (JSON, NDJSON, CSV, ARROW)
"""The first is the default, but for live queries."""

Convert = Callable[[Any], Any]
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def choose_format(accept: str | None, *, is_live: bool = False) -> str | None:
    """The media type of the response; None if none of the accepted ones is supported.

    A live query is answered with lines of JSON if the client accepts any type: one JSON document would be sent only
    when the query ends.
    """
    accepted = [part.partition(";")[0].strip().lower() for part in (accept or "*/*").split(",")]
    for each in accepted:
        if each in MEDIA_TYPES:
            return each
        if each in ("*/*", "application/*", ""):
            return NDJSON if is_live else JSON
    return None


def sql_type(kind: DataType) -> str:
    """A type as it is written in SQL: `BIGINT`, `ARRAY<STRING>`, `STRUCT<id: INT>`."""
    if isinstance(kind, ArrayType):
        return f"ARRAY<{sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{each.name}: {sql_type(each.dataType)}' for each in kind.fields)}>"
    return kind.simpleString().upper()


def columns_of(schema: StructType) -> tuple[Column, ...]:
    return tuple(Column(name=each.name, type=sql_type(each.dataType)) for each in schema.fields)


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with a number appended to duplicates: objects and files can't have a name twice."""
    used: set[str] = set()
    unique: list[str] = []
    for name in names:
        number, free = 1, name
        while free.lower() in used:
            number += 1
            free = f"{name}_{number}"
        used.add(free.lower())
        unique.append(free)
    return unique


# --- values


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as objects, with values that JSON knows."""
    columns = {name: _plain(batch.column(at)) for at, name in enumerate(batch.schema.names)}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _plain(column: pa.Array) -> list[Any]:
    convert = _converter(column.type)
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a time that Python's calendar doesn't reach
        return list(column.cast(pa.string()).to_pylist())
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Convert | None:
    """The function that converts values of this type to JSON's types; None if they are."""
    if pa.types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else _odd_number(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_timestamp(kind):
        return _iso_time
    if pa.types.is_date(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_time(kind):
        return str
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _in_list(_converter(kind.value_type))
    if pa.types.is_map(kind):
        return _in_map(_converter(kind.key_type), _converter(kind.item_type))
    if pa.types.is_struct(kind):
        return _in_struct({field.name: _converter(field.type) for field in kind})
    return None


def _odd_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _iso_time(value: datetime) -> str:
    """ISO 8601, with a `Z` for a timestamp with a time zone."""
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _in_list(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: [None if value is None else convert(value) for value in values]


def _in_map(key_look: Convert | None, value_look: Convert | None) -> Convert:
    def convert(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        return {
            str(key if key_look is None else key_look(key)): (
                value if value is None or value_look is None else value_look(value)
            )
            for key, value in pairs
        }

    return convert


def _in_struct(looks: Mapping[str, Convert | None]) -> Convert | None:
    if not any(looks.values()):
        return None

    def convert(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value if value is None or (convert_field := looks.get(name)) is None else convert_field(value)
            for name, value in fields.items()
        }

    return convert


# --- formats


def json_of(value: object) -> bytes:
    return _ENCODER.encode(value)


def ndjson_of(batch: pa.RecordBatch) -> bytes:
    return b"".join(_ENCODER.encode(row) + b"\n" for row in rows_of(batch))


def csv_head(names: Sequence[str]) -> bytes:
    return _csv_lines([names])


def csv_of(batch: pa.RecordBatch) -> bytes:
    """Null is an empty field, empty text is `""`; nested values are JSON."""
    columns = [[_cell(value) for value in _plain(batch.column(at))] for at in range(batch.num_columns)]
    return _csv_lines(zip(*columns, strict=True))


def _csv_lines(rows: Iterable[Sequence[object]]) -> bytes:
    return "".join(",".join(map(_quoted, row)) + "\n" for row in rows).encode()


def _quoted(value: object) -> str:
    text = "" if value is None else str(value)
    needs_quotes = (value is not None and not text) or any(sign in text for sign in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if needs_quotes else text


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _ENCODER.encode(value).decode() if isinstance(value, dict | list) else value


def arrow_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The parts of an Arrow IPC stream, as batches come."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield _taken(sink)
    yield _taken(sink)


def _taken(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
