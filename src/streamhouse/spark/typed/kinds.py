"""Kinds: a type of a schema as a type of Spark, and how values get from the one to the other.

Data path   decoded value -> **kind** -> what Arrow takes
Owns        structs, lists and maps, which are the same in all languages; JSON text for what Spark has no type for
Leaves      single types to each language
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

MAX_DEPTH: Final = 20
"""Structs inside of structs; what lies deeper is JSON text."""

Convert = Callable[[Any], Any]


class Kind(NamedTuple):
    """A type of Spark, and how its values are made, None ones left out; nothing where they are right already."""

    spark: DataType
    convert: Convert | None = None
    has_text: bool = False
    """Whether JSON text stands here or inside, for what Spark has no type for."""

    def value(self, value: Any) -> Any:
        return value if value is None or self.convert is None else self.convert(value)


class Field(NamedTuple):
    """A column: `key` is its name in decoded values, `default` what it has where that is missing."""

    name: str
    key: str
    kind: Kind
    default: Any = None


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


JSON_TEXT: Final = Kind(StringType(), json_text, has_text=True)


def struct_of(fields: Sequence[Field]) -> Kind:
    spark = StructType([StructField(field.name, field.kind.spark) for field in fields])
    if all(field.name == field.key and field.kind.convert is None and field.default is None for field in fields):
        return Kind(spark)
    has_text = any(field.kind.has_text for field in fields)
    return Kind(spark, lambda value: {field.name: field_value(field, value) for field in fields}, has_text)


def field_value(field: Field, value: Any) -> Any:
    """What a decoded record, or an object in one, has for a column."""
    return field.kind.value(value.get(field.key, field.default))


def list_of(items: Kind) -> Kind:
    convert = items.convert
    if convert is None:
        return Kind(ArrayType(items.spark))
    return Kind(ArrayType(items.spark), lambda values: [items.value(value) for value in values], items.has_text)


def map_of(values: Kind, *, keys: Kind = Kind(StringType())) -> Kind:  # noqa: B008 (a tuple)
    return Kind(
        MapType(keys.spark, values.spark),
        lambda entries: [(keys.value(key), values.value(value)) for key, value in entries.items()],
        values.has_text,
    )
