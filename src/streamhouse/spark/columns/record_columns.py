"""Record columns: records as in Spark's Kafka source, from the buffers that `format.columnar_decoder` fills.

Data path   reading, tail -> read_columns -> **record_batch** -> Spark
Owns        what a narrower schema needs of records, and Arrow's arrays
Leaves      names and types to `record_schema`, buffers to `format.columnar_decoder`, typed columns to `typed_columns`
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamhouse.format.columnar_decoder import Binary, Column, Columns, Headers
from streamhouse.model.names import TopicPartition

_REQUIRED: Final = {
    "key": Column.KEY,
    "value": Column.VALUE,
    "offset": Column.OFFSET,
    "timestamp": Column.TIMESTAMP,
    "timestampType": Column.TIMESTAMP_TYPE,
    "headers": Column.HEADERS,
    "deleted": Column.VALUE,
}
_MAX_MS: Final = (2**63 - 1) // 1000
"""Timestamps beyond 64 bits of microseconds become the largest possible: year 294247."""


def required_columns(names: Mapping[str, object] | list[str]) -> Column:
    """The parts of records to decode; topic and partition are known without."""
    required = Column(0)
    for name in names:
        required |= _REQUIRED.get(name, Column(0))
    return required


@dataclass(frozen=True, slots=True)
class RecordBatchBuilder:
    """Builds the columns of a query, in Spark's order and with Spark's types."""

    arrow: pa.Schema
    required: Column

    @classmethod
    def of(cls, schema: StructType) -> "RecordBatchBuilder":
        return cls(to_arrow_schema(schema, timezone="UTC"), required_columns(schema.fieldNames()))

    def record_batch(self, columns: Columns, partition: TopicPartition, *, shift: int = 0) -> pa.RecordBatch:
        """`shift` is added to stored offsets."""
        arrays = [self._array(field, columns, partition, shift) for field in self.arrow]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _array(self, field: pa.Field, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
        return ARRAYS[field.name](field.type, columns, partition, shift)


def _topic(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    return pa.repeat(pa.scalar(partition.topic, kind), columns.rows)


def _partition(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    return pa.repeat(pa.scalar(partition.partition, kind), columns.rows)


def _offset(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    assert columns.offset is not None
    if shift:
        np.frombuffer(columns.offset, dtype=np.int64)[:] += shift
    return _fixed(kind, columns.rows, columns.offset)


def _timestamp(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    assert columns.timestamp_ms is not None
    times = np.frombuffer(columns.timestamp_ms, dtype=np.int64)
    np.clip(times, -_MAX_MS, _MAX_MS, out=times)
    np.multiply(times, 1000, out=times)
    return _fixed(kind, columns.rows, columns.timestamp_ms)


def _timestamp_type(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    assert columns.timestamp_type is not None
    return _fixed(kind, columns.rows, columns.timestamp_type)


def _key(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    return binary_array(kind, columns.key)


def _value(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    return binary_array(kind, columns.value)


def _deleted(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    """Whether a record has no value: the end of its key."""
    return binary_array(pa.binary(), columns.value).is_null()


def _headers(kind: pa.DataType, columns: Columns, partition: TopicPartition, shift: int) -> pa.Array:
    return _header_lists(kind, columns.rows, columns.headers)


def _header_lists(kind: pa.DataType, rows: int, headers: Headers | None) -> pa.Array:
    assert headers is not None
    pair = kind.value_type
    names = binary_array(pair.field(0).type, headers.names)
    values = binary_array(pair.field(1).type, headers.values)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(pair))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(headers.offsets)], 0, children=[pairs])


def binary_array(kind: pa.DataType, column: Binary | None) -> pa.Array:
    """Bytes or texts, taken over without a copy."""
    assert column is not None
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, column.rows, buffers, column.nulls)


def _fixed(kind: pa.DataType, rows: int, data: bytearray) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)], 0)


_Make = Callable[[pa.DataType, Columns, TopicPartition, int], pa.Array]
ARRAYS: Final[Mapping[str, _Make]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
    "deleted": _deleted,
}
