"""Types of schemas as Spark types, and the conversion of values.

Owns        structs, lists and maps, which all schema languages share; the types of JSON Schema
Leaves      the scalar types of Avro and Protobuf to `avro_columns` and `protobuf_columns`

In JSON Schema, null beside one other type is that type. What Spark has no type for becomes JSON text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from streamhouse.model.identifiers import quote_if_needed
from streamhouse.schemas.json_schema import JsonSchema

MAX_DEPTH: Final = 20
"""Maximum nesting of structs; deeper values are JSON text."""

Convert = Callable[[Any], Any]


class ColumnType(NamedTuple):
    """A type of Spark, and how its values are made, None ones left out; nothing where they are right already."""

    spark: DataType
    convert: Convert | None = None
    has_text: bool = False
    """Whether this type or one inside it is JSON text, because Spark has no type for it."""

    def value(self, value: Any) -> Any:
        return value if value is None or self.convert is None else self.convert(value)


class Field(NamedTuple):
    """A column: `key` is its name in decoded values, `default` what it has where that is missing."""

    name: str
    key: str
    kind: ColumnType
    default: Any = None


def type_text(kind: DataType) -> str:
    """Spark's text of a type, which can be parsed whatever fields of structs are called; `simpleString` quotes none."""
    match kind:
        case StructType():
            fields = (f"{quote_if_needed(each.name)}:{type_text(each.dataType)}" for each in kind.fields)
            return f"struct<{','.join(fields)}>"
        case ArrayType():
            return f"array<{type_text(kind.elementType)}>"
        case MapType():
            return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
        case _:
            return str(kind.simpleString())


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


JSON_TEXT: Final = ColumnType(StringType(), json_text, has_text=True)


def struct_of(fields: Sequence[Field]) -> ColumnType:
    spark = StructType([StructField(field.name, field.kind.spark) for field in fields])
    if all(field.name == field.key and field.kind.convert is None and field.default is None for field in fields):
        return ColumnType(spark)
    has_text = any(field.kind.has_text for field in fields)
    return ColumnType(spark, lambda value: {field.name: field_value(field, value) for field in fields}, has_text)


def field_value(field: Field, value: Any) -> Any:
    """The value of a column in a decoded record, or in an object of one."""
    return field.kind.value(value.get(field.key, field.default))


def list_of(items: ColumnType) -> ColumnType:
    convert = items.convert
    if convert is None:
        return ColumnType(ArrayType(items.spark))
    return ColumnType(ArrayType(items.spark), lambda values: [items.value(value) for value in values], items.has_text)


def map_of(values: ColumnType, *, keys: ColumnType = ColumnType(StringType())) -> ColumnType:  # noqa: B008 (a tuple)
    return ColumnType(
        MapType(keys.spark, values.spark),
        lambda entries: [(keys.value(key), values.value(value)) for key, value in entries.items()],
        values.has_text,
    )


_PLAIN: Final = {
    "string": ColumnType(StringType()),
    "integer": ColumnType(LongType(), int),
    "number": ColumnType(DoubleType(), float),
    "boolean": ColumnType(BooleanType()),
}


def fields_of(schema: JsonSchema) -> list[Field] | None:
    """The columns of an object; None where the schema is of something else."""
    root = json.loads(schema.text)
    return _fields(_resolved(root, root, 0), root, 0) if _is_object(_resolved(root, root, 0)) else None


def column_type(schema: JsonSchema) -> ColumnType:
    root = json.loads(schema.text)
    return _column_type(root, root, 0)


def _is_object(node: Any) -> bool:
    return isinstance(node, Mapping) and bool(node.get("properties")) and _type(node) in ("object", None)


def _fields(node: Mapping[str, Any], root: Any, depth: int) -> list[Field]:
    return [Field(name, name, _column_type(each, root, depth + 1)) for name, each in node["properties"].items()]


def _column_type(node: Any, root: Any, depth: int) -> ColumnType:
    node = _resolved(node, root, depth)
    if depth > MAX_DEPTH or not isinstance(node, Mapping):
        return JSON_TEXT
    for word in ("oneOf", "anyOf"):
        if word in node:
            others = [each for each in node[word] if not (isinstance(each, Mapping) and each.get("type") == "null")]
            return _column_type(others[0], root, depth + 1) if len(others) == 1 else JSON_TEXT
    if _is_object(node):
        return struct_of(_fields(node, root, depth))
    kind = _type(node)
    if kind == "array" and isinstance(node.get("items"), Mapping):
        return list_of(_column_type(node["items"], root, depth + 1))
    if kind == "object" and isinstance(node.get("additionalProperties"), Mapping):
        return map_of(_column_type(node["additionalProperties"], root, depth + 1))
    return _PLAIN.get(kind or "", JSON_TEXT)


def _type(node: Mapping[str, Any]) -> str | None:
    """The one type that a value has if it isn't null; None where there is none or more than one."""
    declared = node.get("type")
    kinds = [each for each in (declared if isinstance(declared, list) else [declared]) if each != "null"]
    return str(kinds[0]) if len(kinds) == 1 and kinds[0] is not None else None


def _resolved(node: Any, root: Any, depth: int) -> Any:
    """The target of a reference within the same document; others are not followed."""
    for _ in range(MAX_DEPTH):
        reference = node.get("$ref") if isinstance(node, Mapping) else None
        if not isinstance(reference, str):
            return node
        if not reference.startswith("#"):
            return None
        node = root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                step = step.replace("~1", "/").replace("~0", "~")
                node = node.get(step) if isinstance(node, Mapping) else None
    return None
