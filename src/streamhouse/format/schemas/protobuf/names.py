"""Names: how Protobuf makes one name out of another, and which words are types.

Owns        names in JSON, of map entries and of the one-field oneofs behind `optional`; the scalar types
Leaves      finding what a name stands for to `linking`
"""

import re
from collections.abc import Container
from typing import Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

MAX_FULL_NAME: Final = 1_000
"""Letters of a full name: every definition carries all names around it, so that long ones add up."""

SCALARS: Final["dict[str, FieldDescriptorProto.Type.ValueType]"] = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "sfixed32": FieldDescriptorProto.TYPE_SFIXED32,
    "sfixed64": FieldDescriptorProto.TYPE_SFIXED64,
    "sint32": FieldDescriptorProto.TYPE_SINT32,
    "sint64": FieldDescriptorProto.TYPE_SINT64,
}
SCALAR_NAMES: Final[dict[int, str]] = {number: name for name, number in SCALARS.items()}

_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_UINT32: Final = (0, 2**32 - 1)
_UINT64: Final = (0, 2**64 - 1)
INTEGER_RANGES: Final[dict[int, tuple[int, int]]] = {
    FieldDescriptorProto.TYPE_INT32: _INT32,
    FieldDescriptorProto.TYPE_SINT32: _INT32,
    FieldDescriptorProto.TYPE_SFIXED32: _INT32,
    FieldDescriptorProto.TYPE_INT64: _INT64,
    FieldDescriptorProto.TYPE_SINT64: _INT64,
    FieldDescriptorProto.TYPE_SFIXED64: _INT64,
    FieldDescriptorProto.TYPE_UINT32: _UINT32,
    FieldDescriptorProto.TYPE_FIXED32: _UINT32,
    FieldDescriptorProto.TYPE_UINT64: _UINT64,
    FieldDescriptorProto.TYPE_FIXED64: _UINT64,
}


def joined(scope: str, name: str) -> str:
    """The full name of what stands in a scope; the outermost scope has no name."""
    return f"{scope}.{name}" if scope and name else scope or name


def json_name(name: str) -> str:
    """What a field is called in JSON unless it says otherwise."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def map_entry_name(field: str) -> str:
    """The message that stands behind a map field."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def presence_oneof_name(field: str, taken: Container[str]) -> str:
    """The oneof that stands behind an `optional` field of proto3."""
    name = field if field.startswith("_") else f"_{field}"
    while name in taken:
        name = f"X{name}"
    return name
