"""Record schema: the columns of records, with the names and types that Spark's Kafka source gives them.

Data path   none; Spark needs it before anything is read
Owns        names and types; which narrower schemas there can be
Leaves      filling them, and columns of values with a schema, to the other modules of `columns`
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamhouse.errors import Misconfigured

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
_MAY_BE_NULL: Final = frozenset({"key", "value", "headers"})
"""Nullable columns; the others are never null."""


def record_schema(*, include_headers: bool) -> StructType:
    """Spark's Kafka source has the same columns, the headers only with includeHeaders."""
    return StructType(
        [
            StructField(name, kind, nullable=name in _MAY_BE_NULL)
            for name, kind in TYPES.items()
            if include_headers or name != "headers"
        ]
    )


def check_schema(schema: StructType) -> None:
    """Raise `Misconfigured` unless these are columns that records have; fewer of them are read faster."""
    for field in schema.fields:
        kind = TYPES.get(field.name)
        if kind is None:
            columns = ",".join(TYPES)
            raise Misconfigured(
                f"records have no such column; column={field.name} do=name some of {columns}, or set schema=registry"
            )
        if not _same(field.dataType, kind):
            expected = kind.simpleString()
            raise Misconfigured(
                f"a column has another type; column={field.name} type={expected} do=read it so, then cast"
            )


def _same(given: DataType, kind: DataType) -> bool:
    return given.simpleString() == kind.simpleString()
