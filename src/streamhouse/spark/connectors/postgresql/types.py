"""Types: what a column of PostgreSQL is in Spark, and which columns of Spark fit into it.

Data path   none; asked before rows move
Owns        both directions; how a value that CSV can't carry as it is travels (bytes, arrays, JSON)
Leaves      catalogs to `tables`, moving rows to `reading` and `writing`

Widths are the database's to judge, for each value; kinds are judged here, before anything runs: a text doesn't fit into
a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as st

from streamhouse.model.identifiers import quote_identifier

TEXT: Final = "text"
UTC_MICROSECONDS: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutType:
    """How a column leaves the database: `select` makes its CSV, `arrow` reads it, `spark` is what it is to be.

    `{}` in `select` stands for the column; `restore` is an expression of Spark's where Arrow can't make the value.
    """

    spark: st.DataType
    arrow: Any
    select: str = "{}"
    restore: str | None = None
    is_quoted: bool = False


_STRING: Final = OutType(spark=st.StringType(), arrow=pa.string(), select="{}::text", is_quoted=True)
_EPOCH: Final = "CASE WHEN isfinite({}) THEN (extract(epoch FROM {}) * 1000000)::bigint END"
_SIMPLE: Final[Mapping[str, OutType]] = {
    "bool": OutType(spark=st.BooleanType(), arrow=pa.bool_()),
    "int2": OutType(spark=st.ShortType(), arrow=pa.int16()),
    "int4": OutType(spark=st.IntegerType(), arrow=pa.int32()),
    "int8": OutType(spark=st.LongType(), arrow=pa.int64()),
    "float4": OutType(spark=st.FloatType(), arrow=pa.float32()),
    "float8": OutType(spark=st.DoubleType(), arrow=pa.float64()),
    "date": OutType(
        spark=st.DateType(), arrow=pa.date32(), select="CASE WHEN isfinite({}) THEN {} - DATE '1970-01-01' END"
    ),
    "timestamptz": OutType(spark=st.TimestampType(), arrow=UTC_MICROSECONDS, select=_EPOCH),
    "timestamp": OutType(spark=st.TimestampNTZType(), arrow=pa.timestamp("us"), select=_EPOCH),
    "bytea": OutType(
        spark=st.BinaryType(), arrow=pa.string(), select="encode({}, 'hex')", restore="unhex({})", is_quoted=True
    ),
}
MAX_DIGITS: Final = 38
UNBOUNDED: Final = (38, 18)
"""Digits and scale of a numeric that says neither, as Spark's own reader has it."""


def out_type(typname: str, typmod: int, *, element: str | None) -> OutType:
    """What a column is in Spark; `element` is the type of an array's elements. What is not known is its text."""
    if element is not None:
        kind = _SIMPLE.get(element, _STRING).spark
        if isinstance(kind, st.BinaryType | st.TimestampType | st.TimestampNTZType | st.DateType):
            kind = st.StringType()
        array = st.ArrayType(kind)
        restore = f"from_json({{}}, '{array.simpleString()}')"
        return OutType(spark=array, arrow=pa.string(), select="to_jsonb({})::text", restore=restore, is_quoted=True)
    if typname == "numeric":
        return _numeric(typmod)
    return _SIMPLE.get(typname, _STRING)


def _numeric(typmod: int) -> OutType:
    precision, scale = UNBOUNDED
    if typmod >= 4:  # PostgreSQL keeps both in one number, behind a header of four bytes; the scale may be negative
        precision, scale = (typmod - 4) >> 16, (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    if not (0 <= scale <= precision <= MAX_DIGITS):
        precision, scale = UNBOUNDED
    select = f"NULLIF({{}}, 'NaN')::numeric({precision}, {scale})"
    return OutType(spark=st.DecimalType(precision, scale), arrow=pa.decimal128(precision, scale), select=select)


# --- into the database

_INTEGERS: Final = ("int2", "int4", "int8")
_FLOATS: Final = ("float4", "float8")
_TEXTS: Final = (TEXT, "varchar", "bpchar", "citext")
_JSON: Final = ("json", "jsonb")
_TIMES: Final = ("timestamptz", "timestamp")
_NOT_FROM_TEXT: Final = (*_INTEGERS, *_FLOATS, "numeric", "bool", "bytea", "date", *_TIMES, "time", "timetz")


def fits(spark: st.DataType, typname: str, *, is_array: bool) -> bool:
    """Whether values of a type of Spark's can become values of a column."""
    if is_array:
        return isinstance(spark, st.ArrayType) and _is_plain(spark.elementType)
    match spark:
        case st.ByteType() | st.ShortType() | st.IntegerType() | st.LongType():
            return typname in (*_INTEGERS, *_FLOATS, "numeric", *_TEXTS)
        case st.DecimalType():
            return typname in ("numeric", *_FLOATS, *_TEXTS) or (spark.scale == 0 and typname in _INTEGERS)
        case st.FloatType() | st.DoubleType():
            return typname in (*_FLOATS, "numeric", *_TEXTS)
        case st.BooleanType():
            return typname in ("bool", *_TEXTS)
        case st.DateType():
            return typname in ("date", *_TIMES, *_TEXTS)
        case st.TimestampType() | st.TimestampNTZType():
            return typname in (*_TIMES, *_TEXTS)
        case st.BinaryType():
            return typname == "bytea"
        case st.StructType() | st.MapType() | st.ArrayType() | st.VariantType():
            return typname in (*_JSON, *_TEXTS)
        case st.StringType():
            return typname not in _NOT_FROM_TEXT
        case _:
            return False


def _is_plain(kind: st.DataType) -> bool:
    return isinstance(kind, st.NumericType | st.StringType | st.BooleanType)


def staged(name: str, spark: st.DataType) -> str:
    """Spark's expression for a value as CSV carries it into the database."""
    column = quote_identifier(name)
    match spark:
        case st.BinaryType():
            return f"concat('\\\\x', hex({column})) AS {column}"
        case st.StructType() | st.MapType() | st.ArrayType() | st.VariantType():
            return f"to_json({column}) AS {column}"
        case _:
            return column


def suggested(spark: st.DataType) -> str:
    """The type that a column for such values might have."""
    match spark:
        case st.ByteType() | st.ShortType():
            return "smallint"
        case st.IntegerType():
            return "integer"
        case st.LongType():
            return "bigint"
        case st.DecimalType():
            return f"numeric({spark.precision},{spark.scale})"
        case st.FloatType():
            return "real"
        case st.DoubleType():
            return "double precision"
        case st.BooleanType():
            return "boolean"
        case st.DateType():
            return "date"
        case st.TimestampType():
            return "timestamptz"
        case st.TimestampNTZType():
            return "timestamp"
        case st.BinaryType():
            return "bytea"
        case st.StringType():
            return "text"
        case _:
            return "jsonb"
