"""Protobuf's types as Spark's.

Data path   .proto file -> **fields_of** -> columns
Owns        the table of types; columns have the names of fields, whatever JSON calls them
Leaves      messages to `schemas.protobuf`, whose values are Protobuf's JSON form
"""

from base64 import b64decode
from datetime import datetime
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from streamhouse.errors import Misconfigured
from streamhouse.schemas.protobuf.schema import ProtobufSchema
from streamhouse.spark.columns.column_types import JSON_TEXT, MAX_DEPTH, ColumnType, Field, list_of, map_of, struct_of

_LONG: Final = ColumnType(LongType(), int)
_UNSIGNED: Final = ColumnType(DecimalType(20, 0), int)
_SCALARS: Final = {
    FieldDescriptor.TYPE_BOOL: ColumnType(BooleanType()),
    FieldDescriptor.TYPE_STRING: ColumnType(StringType()),
    FieldDescriptor.TYPE_BYTES: ColumnType(BinaryType(), b64decode),
    FieldDescriptor.TYPE_FLOAT: ColumnType(FloatType(), float),
    FieldDescriptor.TYPE_DOUBLE: ColumnType(DoubleType(), float),
    FieldDescriptor.TYPE_ENUM: ColumnType(StringType(), str),
    FieldDescriptor.TYPE_INT32: ColumnType(IntegerType()),
    FieldDescriptor.TYPE_SINT32: ColumnType(IntegerType()),
    FieldDescriptor.TYPE_SFIXED32: ColumnType(IntegerType()),
    FieldDescriptor.TYPE_UINT32: ColumnType(LongType()),
    FieldDescriptor.TYPE_FIXED32: ColumnType(LongType()),
    FieldDescriptor.TYPE_INT64: _LONG,
    FieldDescriptor.TYPE_SINT64: _LONG,
    FieldDescriptor.TYPE_SFIXED64: _LONG,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED,
}
_OWN_FORM: Final = {
    "google.protobuf.Timestamp": ColumnType(TimestampType(), lambda text: datetime.fromisoformat(text)),
    "google.protobuf.Duration": ColumnType(StringType()),
    "google.protobuf.FieldMask": ColumnType(StringType()),
    "google.protobuf.BoolValue": ColumnType(BooleanType()),
    "google.protobuf.StringValue": ColumnType(StringType()),
    "google.protobuf.BytesValue": ColumnType(BinaryType(), b64decode),
    "google.protobuf.FloatValue": ColumnType(FloatType(), float),
    "google.protobuf.DoubleValue": ColumnType(DoubleType(), float),
    "google.protobuf.Int32Value": ColumnType(IntegerType()),
    "google.protobuf.UInt32Value": ColumnType(LongType()),
    "google.protobuf.Int64Value": _LONG,
    "google.protobuf.UInt64Value": _UNSIGNED,
    "google.protobuf.Any": JSON_TEXT,
    "google.protobuf.ListValue": JSON_TEXT,
    "google.protobuf.Struct": JSON_TEXT,
    "google.protobuf.Value": JSON_TEXT,
}


def fields_of(schema: ProtobufSchema) -> list[Field]:
    """The columns of the file's first message."""
    return _fields(first_message(schema), 0)


def first_message(schema: ProtobufSchema) -> Descriptor:
    names = schema.message_names()
    if not names:
        raise Misconfigured("the schema has no message; do=register a .proto file that has one")
    return schema.files.pool.FindMessageTypeByName(names[0])


def _fields(message: Descriptor, depth: int) -> list[Field]:
    return [Field(field.name, field.json_name, _column_type(field, depth + 1)) for field in message.fields]


def _column_type(field: FieldDescriptor, depth: int) -> ColumnType:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key = _SCALARS[entry.fields_by_name["key"].type]
        keys = ColumnType(StringType()) if isinstance(key.spark, BooleanType) else ColumnType(key.spark, _key(key))
        return map_of(_one(entry.fields_by_name["value"], depth), keys=keys)
    return list_of(_one(field, depth)) if field.is_repeated else _one(field, depth)


def _key(kind: ColumnType) -> type[int] | None:
    """Keys are texts in JSON, also those that are numbers."""
    return None if isinstance(kind.spark, StringType) else int


def _one(field: FieldDescriptor, depth: int) -> ColumnType:
    message = field.message_type
    if message is None:
        return _SCALARS[field.type]
    if message.full_name in _OWN_FORM:
        return _OWN_FORM[message.full_name]
    # A recursive message ends here, too.
    return JSON_TEXT if depth > MAX_DEPTH else struct_of(_fields(message, depth))
