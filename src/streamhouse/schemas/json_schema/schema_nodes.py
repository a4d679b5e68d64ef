"""Schema nodes: what a JSON schema allows, by kind of value.

Confluent's registry compares schemas as its Java library parses them: what is said of strings is one node, what is said
of objects another, and a schema that says both is an `allOf` of the two. Compatibility depends on it, so nodes are
built in the same way here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from streamhouse.schemas.base import write_json

Criterion = Literal["allOf", "anyOf", "oneOf"]
MISSING: Final = object()


@dataclass(kw_only=True, eq=False)
class SchemaNode:
    """Any node; compared by identity, because schemas refer to each other in circles."""

    source: object = None
    """The part of the text that the node was parsed from."""
    identifier: object = None
    title: object = None
    description: object = None
    default: object = MISSING
    connect_type: object = None

    @cached_property
    def key(self) -> tuple[type, str]:
        """Equal for nodes that were made from equal texts."""
        return type(self), write_json(self.source, sort_keys=True)


class Anything(SchemaNode):
    """The empty schema."""


class Always(Anything):
    """`true`."""


class Never(SchemaNode):
    """`false`."""


class Null(SchemaNode):
    """`null` alone."""


class Boolean(SchemaNode):
    """`true` and `false`."""


@dataclass(kw_only=True, eq=False)
class Conditional(SchemaNode):
    """`if`, `then`, `else`: not compared."""

    parts: tuple[SchemaNode, ...] = ()


@dataclass(kw_only=True, eq=False)
class Text(SchemaNode):
    min_length: float | None = None
    max_length: float | None = None
    pattern: str | None = None


@dataclass(kw_only=True, eq=False)
class Number(SchemaNode):
    is_integer: bool = False
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None


@dataclass(kw_only=True, eq=False)
class Object(SchemaNode):
    properties: Mapping[str, SchemaNode] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Properties that must be there when another is."""
    dependent_nodes: Mapping[str, SchemaNode] = field(default_factory=dict)
    pattern_properties: Mapping[str, SchemaNode] = field(default_factory=dict)
    allows_more: bool = True
    additional: SchemaNode | None = None
    unevaluated: SchemaNode | None = None
    min_properties: float | None = None
    max_properties: float | None = None
    names: SchemaNode | None = None
    """The schema of all property names: not compared."""


@dataclass(kw_only=True, eq=False)
class Array(SchemaNode):
    all_items: SchemaNode | None = None
    items: tuple[SchemaNode, ...] = ()
    allows_more: bool = True
    additional: SchemaNode | None = None
    unevaluated: SchemaNode | None = None
    min_items: float | None = None
    max_items: float | None = None
    unique: bool = False
    min_contains: float | None = None
    max_contains: float | None = None
    contained: SchemaNode | None = None
    """The schema that some item must match: not compared."""


@dataclass(kw_only=True, eq=False)
class Enum(SchemaNode):
    values: frozenset[str]
    """Each as JSON."""


@dataclass(kw_only=True, eq=False)
class Const(SchemaNode):
    value: str
    """As JSON."""


@dataclass(kw_only=True, eq=False)
class Not(SchemaNode):
    inner: SchemaNode


@dataclass(kw_only=True, eq=False)
class Combined(SchemaNode):
    criterion: Criterion
    parts: tuple[SchemaNode, ...]


@dataclass(kw_only=True, eq=False)
class Reference(SchemaNode):
    """Filled in once everything is loaded."""

    target: SchemaNode | None = None

    @cached_property
    def end(self) -> SchemaNode:
        """The node behind references; those that only refer to each other say nothing, so that anything goes."""
        seen: set[int] = set()
        node: SchemaNode | None = self
        while isinstance(node, Reference):
            if id(node) in seen:
                return _ANYTHING
            seen.add(id(node))
            node = node.target
        return node or _ANYTHING


_ANYTHING: Final = Always(source=True)


def resolved(node: SchemaNode) -> SchemaNode:
    return node.end if isinstance(node, Reference) else node


def in_place_parts(node: SchemaNode) -> Iterable[SchemaNode]:
    """The nodes that must fit the same value, not a part of it."""
    match node:
        case Reference():
            return () if node.target is None else (node.target,)
        case Combined() | Conditional():
            return node.parts
        case Not():
            return (node.inner,)
        case Object():
            return node.dependent_nodes.values()
    return ()


def in_place_height(start: SchemaNode, heights: dict[int, int]) -> int | None:
    """How many nodes one value goes through at most, from here on; None if it would go in circles.

    Walks without recursion, and keeps what it learns in `heights`.
    """
    stack = [(start, iter(in_place_parts(start)), [0])]
    open_nodes = {id(start)}
    while stack:
        current, rest, below = stack[-1]
        part = next(rest, None)
        if part is None:
            stack.pop()
            open_nodes.discard(id(current))
            heights[id(current)] = 1 + max(below)
            if stack:
                stack[-1][2].append(heights[id(current)])
        elif id(part) in open_nodes:
            return None
        elif id(part) in heights:
            below.append(heights[id(part)])
        else:
            open_nodes.add(id(part))
            stack.append((part, iter(in_place_parts(part)), [0]))
    return heights[id(start)]
