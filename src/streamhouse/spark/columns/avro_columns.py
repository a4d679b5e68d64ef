"""Avro's types as Spark's.

Data path   Avro schema -> **fields_of** -> columns
Owns        the table of types; a union of null and one other type is that type, others are JSON text
Leaves      values to `schemas.avro`, which defines their form
"""

from decimal import Decimal
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from streamhouse.schemas.avro import AvroSchema
from streamhouse.schemas.avro.canonical_form import logical_name
from streamhouse.schemas.avro.types import MISSING, Array, AvroType, Map, Record, Union
from streamhouse.spark.columns.column_types import (
    JSON_TEXT,
    MAX_DEPTH,
    ColumnType,
    Convert,
    Field,
    list_of,
    map_of,
    struct_of,
)

MAX_DECIMAL_DIGITS: Final = 38
_PLAIN: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "enum": StringType(),
}
_TIMES: Final[dict[str, tuple[DataType, Convert | None]]] = {
    "date": (DateType(), None),
    "timestamp-millis": (TimestampType(), lambda value: value * 1000),
    "timestamp-micros": (TimestampType(), None),
    "timestamp-nanos": (TimestampType(), lambda value: value // 1000),
    "local-timestamp-millis": (TimestampNTZType(), lambda value: value * 1000),
    "local-timestamp-micros": (TimestampNTZType(), None),
    "local-timestamp-nanos": (TimestampNTZType(), lambda value: value // 1000),
}


def fields_of(schema: AvroSchema) -> list[Field] | None:
    """The columns of a record; None where the schema is no record."""
    return _fields(schema.root, 0) if isinstance(schema.root, Record) else None


def column_type(schema: AvroSchema) -> ColumnType:
    return _column_type(schema.root, 0)


def _fields(record: Record, depth: int) -> list[Field]:
    return [
        Field(
            field.name,
            field.name,
            _column_type(field.type, depth + 1),
            None if field.default is MISSING else field.default,
        )
        for field in record.fields
    ]


def _column_type(kind: AvroType, depth: int) -> ColumnType:
    if depth > MAX_DEPTH:  # a recursive type ends here, too
        return JSON_TEXT
    if isinstance(kind, Record):
        return struct_of(_fields(kind, depth))
    if isinstance(kind, Array):
        return list_of(_column_type(kind.items, depth + 1))
    if isinstance(kind, Map):
        return map_of(_column_type(kind.values, depth + 1))
    if isinstance(kind, Union):
        return _union(kind, depth)
    return _single(kind)


def _union(kind: Union, depth: int) -> ColumnType:
    others = [branch for branch in kind.branches if branch.kind != "null"]
    if not others:
        return ColumnType(NullType())
    return _column_type(others[0], depth + 1) if len(others) == 1 else JSON_TEXT


def _single(kind: AvroType) -> ColumnType:
    logical = logical_name(kind)
    if logical in _TIMES:
        return ColumnType(*_TIMES[logical])
    if logical == "decimal":
        return _decimal(kind)
    if logical == "uuid":
        return ColumnType(StringType())
    if kind.kind in ("bytes", "fixed"):
        return ColumnType(BinaryType(), lambda value: value.encode("latin-1"))
    return ColumnType(_PLAIN[kind.kind]) if kind.kind in _PLAIN else JSON_TEXT


def _decimal(kind: AvroType) -> ColumnType:
    precision, scale = int(str(kind.props["precision"])), int(str(kind.props.get("scale", 0)))
    if precision > MAX_DECIMAL_DIGITS:
        return ColumnType(StringType())
    return ColumnType(DecimalType(precision, scale), Decimal)
