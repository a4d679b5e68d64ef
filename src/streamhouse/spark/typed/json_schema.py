"""JSON Schema's types as Spark's.

Data path   JSON schema -> **fields_of** -> columns
Owns        the table of types; null beside one other type is that type; what has no one type is JSON text
Leaves      validation to whoever wrote the records
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType

from streamhouse.schemas.json_schema import JsonSchema
from streamhouse.spark.typed.kinds import JSON_TEXT, MAX_DEPTH, Field, Kind, list_of, map_of, struct_of

_PLAIN: Final = {
    "string": Kind(StringType()),
    "integer": Kind(LongType(), int),
    "number": Kind(DoubleType(), float),
    "boolean": Kind(BooleanType()),
}


def fields_of(schema: JsonSchema) -> list[Field] | None:
    """The columns of an object; None where the schema is of something else."""
    root = json.loads(schema.text)
    return _fields(_resolved(root, root, 0), root, 0) if _is_object(_resolved(root, root, 0)) else None


def kind_of(schema: JsonSchema) -> Kind:
    root = json.loads(schema.text)
    return _kind(root, root, 0)


def _is_object(node: Any) -> bool:
    return isinstance(node, Mapping) and bool(node.get("properties")) and _type(node) in ("object", None)


def _fields(node: Mapping[str, Any], root: Any, depth: int) -> list[Field]:
    return [Field(name, name, _kind(each, root, depth + 1)) for name, each in node["properties"].items()]


def _kind(node: Any, root: Any, depth: int) -> Kind:
    node = _resolved(node, root, depth)
    if depth > MAX_DEPTH or not isinstance(node, Mapping):
        return JSON_TEXT
    for word in ("oneOf", "anyOf"):
        if word in node:
            others = [each for each in node[word] if not (isinstance(each, Mapping) and each.get("type") == "null")]
            return _kind(others[0], root, depth + 1) if len(others) == 1 else JSON_TEXT
    if _is_object(node):
        return struct_of(_fields(node, root, depth))
    kind = _type(node)
    if kind == "array" and isinstance(node.get("items"), Mapping):
        return list_of(_kind(node["items"], root, depth + 1))
    if kind == "object" and isinstance(node.get("additionalProperties"), Mapping):
        return map_of(_kind(node["additionalProperties"], root, depth + 1))
    return _PLAIN.get(kind or "", JSON_TEXT)


def _type(node: Mapping[str, Any]) -> str | None:
    """The one type that a value has if it isn't null; None where there is none or more than one."""
    told = node.get("type")
    kinds = [each for each in (told if isinstance(told, list) else [told]) if each != "null"]
    return str(kinds[0]) if len(kinds) == 1 and kinds[0] is not None else None


def _resolved(node: Any, root: Any, depth: int) -> Any:
    """What a reference within the same text means; other ones are not followed."""
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
