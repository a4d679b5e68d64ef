"""Input rows: the columns of rows to write, as the Arrow buffers that the encoder reads.

Data path   Spark -> Arrow -> **input_rows** -> `format.columnar_encoder`
Owns        which columns have a meaning, of which types; buffers of arrays, without a copy where that is possible
Leaves      bytes of records to `format.columnar_encoder`

Columns without a meaning are left out, as Spark's Kafka sink does it: a stream that was read can be written as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streamhouse.errors import InvalidRecord, Misconfigured
from streamhouse.format.columnar_encoder import BytesColumn, HeadersColumn, NumberColumn, RecordColumns

KEY, VALUE, TOPIC, PARTITION, TIMESTAMP, HEADERS = "key", "value", "topic", "partition", "timestamp", "headers"
RECORD_COLUMNS: Final = (KEY, VALUE, TOPIC, PARTITION, TIMESTAMP, HEADERS)

_MILLISECONDS: Final = pa.timestamp("ms")
_EMPTY: Final = pa.py_buffer(b"")


class TopicRows(NamedTuple):
    """Rows of one topic; None: of the only one there is."""

    topic: str | None
    rows: pa.RecordBatch


def check_schema(schema: StructType, *, topic: str | None) -> None:
    """Raise `Misconfigured` if the columns can't be written as records."""
    types = {field.name: field.dataType for field in schema.fields}
    if VALUE not in types:
        raise Misconfigured(
            f"a record needs a value; columns={','.join(types)} do=name one value, such as to_json(struct(*)) AS value"
        )
    if topic is None and TOPIC not in types:
        raise Misconfigured("no topic is named; do=give the option topic, or a column topic")
    for name, (is_allowed, expected) in _TYPES.items():
        if name in types and not is_allowed(types[name]):
            raise Misconfigured(
                f"a column has the wrong type; column={name} type={types[name].simpleString()} do=cast it to {expected}"
            )


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType | TimestampNTZType | LongType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields in ([("key", StringType), ("value", BinaryType)], [("key", StringType), ("value", StringType)])


_TYPES: Final[Mapping[str, tuple[Callable[[DataType], bool], str]]] = {
    KEY: (_is_text, "string or binary"),
    VALUE: (_is_text, "string or binary"),
    TOPIC: (lambda kind: isinstance(kind, StringType), "string"),
    PARTITION: (lambda kind: isinstance(kind, IntegerType), "int"),
    TIMESTAMP: (_is_time, "timestamp, or bigint in milliseconds"),
    HEADERS: (_is_headers, "array<struct<key:string,value:binary>>"),
}


def select_record_columns(batch: pa.RecordBatch, *, with_topic: bool) -> pa.RecordBatch:
    """The columns that become part of records, or determine topic and partition."""
    names = [name for name in batch.schema.names if name in RECORD_COLUMNS and (with_topic or name != TOPIC)]
    return batch.select(names)


def concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, concatenated."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def by_topic(rows: pa.RecordBatch) -> Iterator[TopicRows]:
    """Rows of each topic, in their order; raises `InvalidRecord` for a row without one."""
    if TOPIC not in rows.schema.names:
        yield TopicRows(None, rows)
        return
    topics = rows.column(TOPIC)
    if topics.null_count:
        raise InvalidRecord("a row has no topic; do=fill the column topic, or give the option topic")
    order = pc.sort_indices(topics)  # rows of one topic stay in their order
    if len(pc.unique(topics)) > 1:
        rows = rows.take(order)
    runs = pc.run_end_encode(rows.column(TOPIC))
    start = 0
    for end, topic in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield TopicRows(topic, rows.slice(start, end - start))
        start = end


def record_columns(rows: pa.RecordBatch) -> RecordColumns:
    return RecordColumns(
        rows.num_rows,
        key_column(rows),
        _bytes(rows.column(VALUE)),
        times(rows),
        _headers(rows.column(HEADERS)) if HEADERS in rows.schema.names else None,
    )


def key_column(rows: pa.RecordBatch) -> BytesColumn | None:
    return _bytes(rows.column(KEY)) if KEY in rows.schema.names else None


def requested_partitions(rows: pa.RecordBatch) -> NumberColumn | None:
    return _numbers(rows.column(PARTITION)) if PARTITION in rows.schema.names else None


def null_keys(rows: pa.RecordBatch) -> int:
    return int(rows.column(KEY).null_count) if KEY in rows.schema.names else int(rows.num_rows)


def time_range(rows: pa.RecordBatch) -> tuple[int, int] | None:
    """The earliest and the latest time in milliseconds; None where no row has one of its own."""
    column = _milliseconds(rows)
    if column is None or column.null_count == len(column):
        return None
    limits = pc.min_max(column).as_py()
    return limits["min"], limits["max"]


def times(rows: pa.RecordBatch) -> NumberColumn | None:
    column = _milliseconds(rows)
    return None if column is None else _numbers(column)


def _milliseconds(rows: pa.RecordBatch) -> Any:
    if TIMESTAMP not in rows.schema.names:
        return None
    column = rows.column(TIMESTAMP)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return column.cast(pa.int64())


def _numbers(column: Any) -> NumberColumn:
    validity, data = column.buffers()
    return NumberColumn(column.offset, _bits(validity, column), _view(data))


def _bytes(column: Any) -> BytesColumn:
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    return BytesColumn(column.offset, _bits(validity, column), _view(offsets), _view(data))


def _headers(column: Any) -> HeadersColumn:
    validity, offsets = column.buffers()[:2]
    names, values = column.values.flatten()  # a null among the headers becomes one without a name
    return HeadersColumn(column.offset, _bits(validity, column), _view(offsets), _bytes(names), _bytes(values))


def _bits(validity: Any, column: Any) -> memoryview | None:
    return None if validity is None or not column.null_count else memoryview(validity)


def _view(buffer: Any) -> memoryview:
    return memoryview(_EMPTY if buffer is None else buffer)
