"""Shapes: what a JSON schema allows, taken apart by kind of value.

Owns        the nouns that schemas are compared by
Leaves      taking texts apart to `json_schema.loading`; comparing to `json_schema.differences`

Confluent's registry compares schemas as its Java library takes them apart: what is said of texts is one shape, what is
said of objects another, and a schema that says both is an `allOf` of the two. Verdicts depend on it, so it is done the
same way here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from streamhouse.format.schemas.base import write_json

Criterion = Literal["allOf", "anyOf", "oneOf"]
MISSING: Final = object()


@dataclass(kw_only=True, eq=False)
class Shape:
    """Any shape; compared by identity, because schemas refer to each other in circles."""

    source: object = None
    """What of the text it was made from."""
    identifier: object = None
    title: object = None
    description: object = None
    default: object = MISSING
    connect_type: object = None

    @cached_property
    def key(self) -> tuple[type, str]:
        """Equal for shapes that were made from equal texts."""
        return type(self), write_json(self.source, sort_keys=True)


class Anything(Shape):
    """The empty schema."""


class Always(Anything):
    """`true`."""


class Never(Shape):
    """`false`."""


class Null(Shape):
    """`null` alone."""


class Boolean(Shape):
    """`true` and `false`."""


@dataclass(kw_only=True, eq=False)
class Conditional(Shape):
    """`if`, `then`, `else`: not compared."""

    parts: tuple[Shape, ...] = ()


@dataclass(kw_only=True, eq=False)
class Text(Shape):
    min_length: float | None = None
    max_length: float | None = None
    pattern: str | None = None


@dataclass(kw_only=True, eq=False)
class Number(Shape):
    is_integer: bool = False
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None


@dataclass(kw_only=True, eq=False)
class Object(Shape):
    properties: Mapping[str, Shape] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Properties that must be there when another is."""
    needs_shape: Mapping[str, Shape] = field(default_factory=dict)
    pattern_properties: Mapping[str, Shape] = field(default_factory=dict)
    allows_more: bool = True
    additional: Shape | None = None
    unevaluated: Shape | None = None
    min_properties: float | None = None
    max_properties: float | None = None
    names: Shape | None = None
    """What all names must fit: not compared."""


@dataclass(kw_only=True, eq=False)
class Array(Shape):
    all_items: Shape | None = None
    items: tuple[Shape, ...] = ()
    allows_more: bool = True
    additional: Shape | None = None
    unevaluated: Shape | None = None
    min_items: float | None = None
    max_items: float | None = None
    unique: bool = False
    min_contains: float | None = None
    max_contains: float | None = None
    contained: Shape | None = None
    """What some item must fit: not compared."""


@dataclass(kw_only=True, eq=False)
class Enum(Shape):
    values: frozenset[str]
    """Each as JSON."""


@dataclass(kw_only=True, eq=False)
class Const(Shape):
    value: str
    """As JSON."""


@dataclass(kw_only=True, eq=False)
class Not(Shape):
    inner: Shape


@dataclass(kw_only=True, eq=False)
class Combined(Shape):
    criterion: Criterion
    parts: tuple[Shape, ...]


@dataclass(kw_only=True, eq=False)
class Reference(Shape):
    """Filled in once everything is loaded."""

    target: Shape | None = None

    @cached_property
    def end(self) -> Shape:
        """The shape behind references; those that only refer to each other say nothing, so that anything goes."""
        seen: set[int] = set()
        shape: Shape | None = self
        while isinstance(shape, Reference):
            if id(shape) in seen:
                return _ANYTHING
            seen.add(id(shape))
            shape = shape.target
        return shape or _ANYTHING


_ANYTHING: Final = Always(source=True)


def followed(shape: Shape) -> Shape:
    return shape.end if isinstance(shape, Reference) else shape


def in_place(shape: Shape) -> Iterable[Shape]:
    """The shapes that must fit the same value, not a part of it."""
    match shape:
        case Reference():
            return () if shape.target is None else (shape.target,)
        case Combined() | Conditional():
            return shape.parts
        case Not():
            return (shape.inner,)
        case Object():
            return shape.needs_shape.values()
    return ()


def in_place_height(start: Shape, heights: dict[int, int]) -> int | None:
    """How many shapes one value goes through at most, from here on; None if it would go in circles.

    Walks without recursion, and keeps what it learns in `heights`.
    """
    stack = [(start, iter(in_place(start)), [0])]
    open_shapes = {id(start)}
    while stack:
        current, rest, below = stack[-1]
        part = next(rest, None)
        if part is None:
            stack.pop()
            open_shapes.discard(id(current))
            heights[id(current)] = 1 + max(below)
            if stack:
                stack[-1][2].append(heights[id(current)])
        elif id(part) in open_shapes:
            return None
        elif id(part) in heights:
            below.append(heights[id(part)])
        else:
            open_shapes.add(id(part))
            stack.append((part, iter(in_place(part)), [0]))
    return heights[id(start)]
