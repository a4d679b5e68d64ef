"""Avro types: a parsed schema, with every name resolved."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MISSING: Final = object()
"""The default of a field that has none; None is JSON's null."""


@dataclass(slots=True, kw_only=True, eq=False)
class AvroType:
    """Any type; compared by identity, because recursive types are graphs."""

    kind: str
    props: Mapping[str, object] = field(default_factory=dict)
    """Attributes beyond the type itself: logical types, and attributes of other tools."""

    @property
    def branch_name(self) -> str:
        """The name of this type as a branch of a union."""
        return self.kind


@dataclass(slots=True, kw_only=True, eq=False)
class Array(AvroType):
    items: AvroType
    kind: str = "array"


@dataclass(slots=True, kw_only=True, eq=False)
class Map(AvroType):
    values: AvroType
    kind: str = "map"


@dataclass(slots=True, kw_only=True, eq=False)
class Union(AvroType):
    branches: tuple[AvroType, ...]
    kind: str = "union"


@dataclass(slots=True, kw_only=True, eq=False)
class Named(AvroType):
    name: str
    """With its namespace."""
    doc: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def branch_name(self) -> str:
        return self.name

    @property
    def space(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(slots=True, kw_only=True, eq=False)
class Fixed(Named):
    size_bytes: int
    kind: str = "fixed"


@dataclass(slots=True, kw_only=True, eq=False)
class Enum(Named):
    symbols: tuple[str, ...]
    default: str | None = None
    kind: str = "enum"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    name: str
    type: AvroType
    default: object = MISSING
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    props: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Record(Named):
    """Its fields come after it: they may speak of it."""

    fields: tuple[Field, ...] = ()
    complete: bool = False
    kind: str = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaShape:
    """Properties of a whole type: how deeply its types are nested, and whether one is recursive."""

    height: int
    recursive: bool


def parts(whole: AvroType) -> Iterator[AvroType]:
    """The types directly inside a type."""
    match whole:
        case Array():
            yield whole.items
        case Map():
            yield whole.values
        case Union():
            yield from whole.branches
        case Record():
            yield from (each.type for each in whole.fields)


def everything_in(root: AvroType) -> list[AvroType]:
    """The type and all types inside it, each once."""
    types = {id(root): root}
    waiting = [root]
    while waiting:
        for part in parts(waiting.pop()):
            if id(part) not in types:
                types[id(part)] = part
                waiting.append(part)
    return list(types.values())


def shape_of(root: AvroType) -> SchemaShape:
    """Walk without recursion: a chain of names can be as long as a text allows."""
    heights: dict[int, int] = {}
    open_types: set[int] = {id(root)}
    recursive = False
    stack = [(root, parts(root), [0])]
    while stack:
        current, rest, below = stack[-1]
        part = next(rest, None)
        if part is None:
            stack.pop()
            open_types.discard(id(current))
            heights[id(current)] = 1 + max(below)
            if stack:
                stack[-1][2].append(heights[id(current)])
        elif id(part) in open_types:
            recursive = True
        elif id(part) in heights:
            below.append(heights[id(part)])
        else:
            open_types.add(id(part))
            stack.append((part, parts(part), [0]))
    return SchemaShape(height=heights[id(root)], recursive=recursive)
