"""Typed columns: the fields of records, and what is known of a record besides, in columns that begin with `_`.

Data path   read_columns -> **TypedShape** -> Arrow -> Spark
Owns        decoding a batch of values, only where columns of theirs are wanted
Leaves      types to each language, schemas to `registry`
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from streamhouse.errors import InvalidRecordValue, Misconfigured
from streamhouse.format.columns import Binary, Column, Columns
from streamhouse.format.schemas.framing import PREFIX_BYTES, schema_id_of
from streamhouse.model.names import TopicPartition
from streamhouse.spark.columns import ARRAYS, wanted_columns
from streamhouse.spark.fields import PREFIX, TYPES
from streamhouse.spark.typed.kinds import Field, field_value
from streamhouse.spark.typed.registry import ReaderSchema, fields_of, is_bare, writer_schema

_ALWAYS: Final = ("key", "topic", "partition", "offset", "timestamp")


def typed_schema(schema: ReaderSchema, *, include_headers: bool) -> StructType:
    """The record's columns, then those about it, unless a record has one of that name itself."""
    own = {field.name: field.kind.spark for field in fields_of(schema.parsed())}
    about = (*_ALWAYS, "headers") if include_headers else _ALWAYS
    others = {PREFIX + name: TYPES[name] for name in about if PREFIX + name not in own}
    return StructType([StructField(name, kind) for name, kind in {**own, **others}.items()])


def check_typed(schema: StructType, reader: ReaderSchema) -> None:
    """Raise `Misconfigured` unless these are columns of the record, or about it."""
    known = typed_schema(reader, include_headers=True)
    for field in schema.fields:
        if field.name not in known.fieldNames():
            raise Misconfigured(f"the schema has no such field; column={field.name} columns={','.join(known.names)}")
        kind = known[field.name].dataType.simpleString()
        if field.dataType.simpleString() != kind:
            raise Misconfigured(f"a column has another type; column={field.name} type={kind} do=read it so, then cast")


@dataclass(frozen=True, slots=True)
class TypedShape:
    """The columns of an answer, in Spark's order and with Spark's types."""

    arrow: pa.Schema
    wanted: Column
    fields: dict[str, Field]
    is_bare: bool
    address: str

    @classmethod
    def of(cls, schema: StructType, reader: ReaderSchema, address: str) -> "TypedShape":
        fields = fields_of(reader.parsed())
        own = {field.name: field for field in fields}
        names = [name.removeprefix(PREFIX) for name in schema.fieldNames() if name not in own]
        chosen = {name: own[name] for name in schema.fieldNames() if name in own}
        wanted = wanted_columns(names) | (Column.VALUE | Column.OFFSET if chosen else Column(0))
        return cls(to_arrow_schema(schema, timezone="UTC"), wanted, chosen, is_bare(fields), address)

    def record_batch(self, columns: Columns, place: TopicPartition, *, shift: int = 0) -> pa.RecordBatch:
        decoded = list(self._decoded(columns, place, shift)) if self.fields else []
        arrays = [
            self._typed(field, decoded, place)
            if field.name in self.fields
            else ARRAYS[field.name.removeprefix(PREFIX)](field.type, columns, place, shift)
            for field in self.arrow
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _typed(self, column: pa.Field, decoded: list[Any], place: TopicPartition) -> pa.Array:
        field = self.fields[column.name]
        try:
            if self.is_bare:
                values = [field.kind.value(value) for value in decoded]
            else:
                values = [None if value is None else field_value(field, value) for value in decoded]
            return pa.array(values, type=column.type)
        except (ValueError, TypeError, ArithmeticError, AttributeError, pa.ArrowException) as error:
            raise InvalidRecordValue(
                f"a value is none of the column's type; partition={place} type={column.type} why={error}",
                path=f"/{column.name}",
            ) from None

    def _decoded(self, columns: Columns, place: TopicPartition, shift: int) -> Iterator[Any]:
        assert columns.value is not None
        for row, data in enumerate(_values(columns.value)):
            if data is None:
                yield None
                continue
            schema_id = schema_id_of(data)
            if schema_id is None:
                raise InvalidRecordValue(
                    f"it does not begin with the id of a schema; record={_where(columns, place, row, shift)}"
                    " do=read it without schema=registry"
                )
            try:
                yield writer_schema(self.address, schema_id).decode(memoryview(data)[PREFIX_BYTES:])
            except InvalidRecordValue as error:
                where = _where(columns, place, row, shift)
                raise InvalidRecordValue(f"{error.reason}; record={where}", path=error.path) from None


def _where(columns: Columns, place: TopicPartition, row: int, shift: int) -> str:
    assert columns.offset is not None
    return f"{place}@{int(np.frombuffer(columns.offset, dtype=np.int64)[row]) + shift}"


def _values(column: Binary) -> Iterator[bytes | None]:
    offsets = np.frombuffer(column.offsets, dtype=np.int32).tolist()
    data, validity = bytes(column.data), column.validity
    for row in range(column.rows):
        is_null = validity is not None and not validity[row >> 3] >> (row & 7) & 1
        yield None if is_null else data[offsets[row] : offsets[row + 1]]
