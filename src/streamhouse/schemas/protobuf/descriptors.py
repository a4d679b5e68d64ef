"""Descriptors of a .proto text while it is parsed: positions of definitions, derived names, reserved ranges."""

import re
from bisect import bisect_right
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.protobuf.lexer import Cursor

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

MAX_FULL_NAME: Final = 1_000
"""Maximum characters of a full name: each definition repeats the names around it, so long names add up."""

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


def join_names(scope: str, name: str) -> str:
    """The full name of a definition in a scope; the outermost scope has no name."""
    return f"{scope}.{name}" if scope and name else scope or name


def json_name(name: str) -> str:
    """The default JSON name of a field."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def map_entry_name(field: str) -> str:
    """The entry message of a map field."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def presence_oneof_name(field: str, taken: Container[str]) -> str:
    """The synthetic oneof of an `optional` field of proto3."""
    name = field if field.startswith("_") else f"_{field}"
    while name in taken:
        name = f"X{name}"
    return name


MAX_REASON: Final = 400
"""Maximum characters of an error text: some quote their input, which may be a whole file."""


@dataclass(slots=True, kw_only=True)
class Source:
    """A file under construction. Places are kept by name inside the file: the package may come late."""

    file: FileDescriptorProto
    cursor: Cursor | None = None
    name: str = ""
    starts: dict[str, int] = field(default_factory=dict)

    @property
    def is_proto3(self) -> bool:
        return self.file.syntax == "proto3"

    @property
    def has_editions(self) -> bool:
        return self.file.syntax == "editions"

    def mark(self, scope: str, name: str, start: int) -> None:
        """Remember where a name was defined; of two equal ones the second is the one to complain about."""
        local = join_names(scope, name)
        if self.cursor is not None and len(local) > MAX_FULL_NAME:
            self.cursor.fail(f"the full name is too long; limit={MAX_FULL_NAME}", at=start)
        self.starts[local] = start

    def location(self, local: str) -> str:
        """Where a name was defined: line and column of a text, the name itself of a descriptor."""
        if self.cursor is not None and local in self.starts:
            return self.cursor.location(self.starts[local])
        return f"{self.name}{local}"

    def fail(self, why: str, local: str) -> NoReturn:
        """Raise an error about the definition of this name."""
        raise InvalidSchema(why[:MAX_REASON], path=self.location(local)[:MAX_REASON])


class Ranges:
    """Ranges that don't overlap; built once, searched for every field."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self._starts = [start for start, _ in ordered]
        self._ends = [end for _, end in ordered]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]


def extension_ranges(message: DescriptorProto) -> list[tuple[int, int]]:
    """The numbers that extensions may have."""
    return [(each.start, each.end) for each in message.extension_range]


def taken_ranges(message: DescriptorProto) -> list[tuple[int, int]]:
    """The numbers that the message's own fields may not have."""
    return [(each.start, each.end) for each in message.reserved_range] + extension_ranges(message)


_MESSAGE_META: Final[Any] = type(FileDescriptorProto)


def message_class(message: Descriptor) -> Any:
    """The class, made once for each descriptor.

    The library's own `GetMessageClass` makes those of all fields as well, and of their fields: a long chain of types
    overflows its stack.
    """
    return _MESSAGE_META(message.name, (Message,), {"DESCRIPTOR": message, "__module__": None})
