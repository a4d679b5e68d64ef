"""Loading: a schema's text becomes shapes that can be compared.

Data path   `Documents` -> **load_shape** -> `json_schema.differences`
Owns        what each keyword of each draft says about which kind of value
Leaves      whether keywords are well formed to the meta-schemas (`json_schema.validation`)

A schema that speaks of several kinds of values, or has a list of types, becomes a combined shape. Keywords that
Confluent's comparison ignores (`contains`, `propertyNames`, `if`) are loaded for their references only.
"""

from collections.abc import Mapping
from typing import Any, Final

from streamhouse.errors import InvalidSchema
from streamhouse.format.schemas.base import write_json
from streamhouse.format.schemas.json_schema import shapes
from streamhouse.format.schemas.json_schema.documents import Documents
from streamhouse.format.schemas.json_schema.shapes import MISSING, Criterion, Shape, in_place_height

MAX_REFERENCES: Final = 20_000
MAX_PLACE: Final = 200
MAX_IN_PLACE: Final = 100
"""Schemas that one value must fit, each reached through the one before."""

_OBJECT_WORDS: Final = (
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
)
_NEW_OBJECT_WORDS: Final = (*_OBJECT_WORDS, "dependentRequired", "dependentSchemas", "unevaluatedProperties")
_ARRAY_WORDS: Final = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains")
_NEW_ARRAY_WORDS: Final = (*_ARRAY_WORDS, "prefixItems", "unevaluatedItems", "minContains", "maxContains")
_NUMBER_WORDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TEXT_WORDS: Final = ("minLength", "maxLength", "pattern", "format")
_CRITERIA: Final[tuple[Criterion, ...]] = ("allOf", "anyOf", "oneOf")

Node = Mapping[str, Any]


def load_shape(documents: Documents) -> Shape:
    """The root's shape, with every reference filled in."""
    loader = _Loader(documents)
    try:
        root = loader.shape(documents.root, "")
        loader.fill_references()
        loader.check_heights()
    except (AttributeError, TypeError):
        # Meta-schemas don't look below keywords that they don't know; references do.
        raise InvalidSchema("a reference means something that is no schema") from None
    return root


class _Loader:
    """Loads each place of the documents once, so that what refers to one thing finds one shape."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._loaded: dict[int, Shape] = {}
        self._waiting: list[tuple[shapes.Reference, str, str, str]] = []

    def fill_references(self) -> None:
        filled = 0
        while self._waiting:
            reference, uri, base, path = self._waiting.pop()
            filled += 1
            if filled > MAX_REFERENCES:
                raise InvalidSchema(f"too many references; limit={MAX_REFERENCES}")
            target = self._documents.find(uri, base, path)
            # Paths begin anew behind a reference: along a chain of them they would only grow.
            reference.target = shapes.Always() if target is None else self.shape(target, uri[:MAX_PLACE])

    def check_heights(self) -> None:
        """Refuse what would send one value in circles, or through more schemas than a validator's stack holds."""
        heights: dict[int, int] = {}
        for shape in self._loaded.values():
            height = heights.get(id(shape)) or in_place_height(shape, heights)
            if height is None:
                raise InvalidSchema("a schema must not apply itself to the same value")
            if height > MAX_IN_PLACE:
                raise InvalidSchema(f"too many schemas for the same value, one behind the other; limit={MAX_IN_PLACE}")

    def shape(self, node: object, path: str) -> Shape:
        if isinstance(node, bool):
            return shapes.Always(source=True) if node else shapes.Never(source=False)
        if not isinstance(node, dict):
            raise InvalidSchema("a schema is an object or a boolean", path=path)
        if id(node) not in self._loaded:
            self._loaded[id(node)] = self._common(self._object(node, path), node)
        return self._loaded[id(node)]

    def _is_new(self, node: Node) -> bool:
        return self._documents.draft_at(node) >= 2019

    def _object(self, node: Node, path: str) -> Shape:
        if "$ref" in node and not self._is_new(node):
            return self._reference(node, "$ref", path)
        parts = self._parts(node, path)
        if not parts:
            return shapes.Anything(source=node)
        if len(parts) == 1:
            return parts[0]
        return shapes.Combined(source=node, criterion="allOf", parts=tuple(parts))

    def _parts(self, node: Node, path: str) -> list[Shape]:
        """What a schema says, one shape for each thing it speaks of."""
        parts: list[Shape] = []
        if self._is_new(node):
            words = ("$ref", "$dynamicRef", "$recursiveRef")
            parts += [self._reference(node, word, path) for word in words if word in node]
        if "enum" in node:
            parts.append(shapes.Enum(source=node["enum"], values=frozenset(_as_json(v) for v in node["enum"])))
        for criterion in _CRITERIA:
            if criterion in node:
                parts.append(self._combined(node, criterion, path))
        if "not" in node:
            parts.append(shapes.Not(source=node["not"], inner=self.shape(node["not"], f"{path}/not")))
        if "const" in node and self._documents.draft_at(node) != 4:
            parts.append(shapes.Const(source=node["const"], value=_as_json(node["const"])))
        return parts + self._by_type(node, path)

    def _by_type(self, node: Node, path: str) -> list[Shape]:
        types = node.get("type")
        named = [types] if isinstance(types, str) else list(types or ())
        typed = [self._typed(node, name, path) for name in named]
        found = typed
        if isinstance(types, list):
            found = [shapes.Combined(source=node, criterion="anyOf", parts=tuple(typed))]
        kinds = {type(shape) for shape in typed}
        objects, arrays = (_NEW_OBJECT_WORDS, _NEW_ARRAY_WORDS) if self._is_new(node) else (_OBJECT_WORDS, _ARRAY_WORDS)
        if shapes.Array not in kinds and any(word in node for word in arrays):
            found.append(self._array(node, path))
        if shapes.Object not in kinds and any(self._says(node, word) for word in objects):
            found.append(self._members(node, path))
        if shapes.Number not in kinds and any(word in node for word in _NUMBER_WORDS):
            found.append(_number(node, is_integer=False))
        if shapes.Text not in kinds and any(word in node for word in _TEXT_WORDS):
            found.append(_text(node))
        if self._documents.draft_at(node) >= 7 and any(word in node for word in ("if", "then", "else")):
            found.append(self._conditional(node, path))
        return found

    def _conditional(self, node: Node, path: str) -> Shape:
        said = {word: node[word] for word in ("if", "then", "else") if word in node}
        parts = tuple(self.shape(part, f"{path}/{word}") for word, part in said.items())
        return shapes.Conditional(source=said, parts=parts)

    def _says(self, node: Node, word: str) -> bool:
        """Whether a keyword is there; since 2019-09, one without any property in it says nothing at all."""
        return word in node and not (
            self._is_new(node) and node[word] == {} and word in ("properties", "patternProperties")
        )

    def _typed(self, node: Node, name: str, path: str) -> Shape:
        match name:
            case "string":
                return _text(node)
            case "integer" | "number":
                return _number(node, is_integer=name == "integer")
            case "boolean":
                return shapes.Boolean(source="boolean")
            case "null":
                return shapes.Null(source="null")
            case "array":
                return self._array(node, path)
            case "object":
                return self._members(node, path)
        raise InvalidSchema(f"unknown type: {name[:50]!r}", path=f"{path}/type")

    def _reference(self, node: Node, word: str, path: str) -> shapes.Reference:
        reference = shapes.Reference(source={"$ref": node[word]})
        self._waiting.append((reference, str(node[word]), self._documents.base_of(node), f"{path}/{word}"))
        return reference

    def _combined(self, node: Node, criterion: Criterion, path: str) -> Shape:
        parts = [self.shape(part, f"{path}/{criterion}/{i}") for i, part in enumerate(node[criterion])]
        return shapes.Combined(source=node[criterion], criterion=criterion, parts=tuple(parts))

    def _shapes(self, node: Node, word: str, path: str) -> dict[str, Shape]:
        return {name: self.shape(each, f"{path}/{word}/{name}") for name, each in node.get(word, {}).items()}

    def _maybe(self, node: Node, word: str, path: str) -> Shape | None:
        return self.shape(node[word], f"{path}/{word}") if word in node else None

    def _members(self, node: Node, path: str) -> shapes.Object:
        needs, needs_shape = self._dependencies(node, path)
        additional = node.get("additionalProperties", True)
        return shapes.Object(
            source=node,
            properties=self._shapes(node, "properties", path),
            required=frozenset(node.get("required", ())),
            needs=needs,
            needs_shape=needs_shape,
            pattern_properties=self._shapes(node, "patternProperties", path),
            allows_more=additional is not False,
            additional=None if isinstance(additional, bool) else self._maybe(node, "additionalProperties", path),
            unevaluated=self._maybe(node, "unevaluatedProperties", path) if self._is_new(node) else None,
            min_properties=node.get("minProperties"),
            max_properties=node.get("maxProperties"),
            names=self._maybe(node, "propertyNames", path),
        )

    def _dependencies(self, node: Node, path: str) -> tuple[dict[str, frozenset[str]], dict[str, Shape]]:
        needs = {
            name: frozenset(names) for name, names in node.get("dependentRequired", {}).items() if self._is_new(node)
        }
        needs_shape = self._shapes(node, "dependentSchemas", path) if self._is_new(node) else {}
        for name, needed in node.get("dependencies", {}).items():
            if isinstance(needed, list):
                needs[name] = frozenset(needed)
            else:
                needs_shape[name] = self.shape(needed, f"{path}/dependencies/{name}")
        return needs, needs_shape

    def _array(self, node: Node, path: str) -> shapes.Array:
        all_items, items, allows_more, additional = self._items(node, path)
        has_contains = self._is_new(node) and "contains" in node
        return shapes.Array(
            source=node,
            all_items=all_items,
            items=items,
            allows_more=allows_more,
            additional=additional,
            unevaluated=self._maybe(node, "unevaluatedItems", path) if self._is_new(node) else None,
            min_items=node.get("minItems"),
            max_items=node.get("maxItems"),
            unique=node.get("uniqueItems") is True,
            min_contains=node.get("minContains", 1) if has_contains else None,
            max_contains=node.get("maxContains") if has_contains else None,
            contained=self._maybe(node, "contains", path),
        )

    def _items(self, node: Node, path: str) -> tuple[Shape | None, tuple[Shape, ...], bool, Shape | None]:
        """One shape for all items, or one for each of the first and what may follow them."""
        items = node.get("items", MISSING)
        if self._is_new(node) and not isinstance(items, list):
            first = [self.shape(each, f"{path}/prefixItems/{i}") for i, each in enumerate(node.get("prefixItems", ()))]
            rest = None if isinstance(items, bool) else self._maybe(node, "items", path)
            return (None if first else rest), tuple(first), items is not False, (rest if first else None)
        more = node.get("additionalItems", True)
        additional = None if isinstance(more, bool) else self._maybe(node, "additionalItems", path)
        if isinstance(items, list):
            first = [self.shape(each, f"{path}/items/{i}") for i, each in enumerate(items)]
            return None, tuple(first), more is not False, additional
        return self._maybe(node, "items", path), (), more is not False, additional

    def _common(self, shape: Shape, node: Node) -> Shape:
        shape.identifier = node.get("id" if self._documents.draft_at(node) == 4 else "$id")
        shape.title, shape.description = node.get("title"), node.get("description")
        shape.default = node.get("default", MISSING)
        shape.connect_type = node.get("connect.type")
        return shape


def _text(node: Node) -> shapes.Text:
    return shapes.Text(
        source=node, min_length=node.get("minLength"), max_length=node.get("maxLength"), pattern=node.get("pattern")
    )


def _number(node: Node, *, is_integer: bool) -> shapes.Number:
    minimum, above = _limit(node, "minimum", "exclusiveMinimum")
    maximum, below = _limit(node, "maximum", "exclusiveMaximum")
    return shapes.Number(
        source=node,
        is_integer=is_integer,
        minimum=minimum,
        maximum=maximum,
        exclusive_minimum=above,
        exclusive_maximum=below,
        multiple_of=node.get("multipleOf"),
    )


def _limit(node: Node, word: str, exclusive_word: str) -> tuple[float | None, float | None]:
    """A limit and an exclusive one; draft 4 says `true` beside a limit to make it exclusive."""
    limit, exclusive = node.get(word), node.get(exclusive_word)
    if isinstance(exclusive, bool):
        return (None, limit) if exclusive else (limit, None)
    return limit, exclusive


def _as_json(value: object) -> str:
    """Equal for values that JSON Schema takes for equal: 1.0 is 1."""
    return write_json(_plain(value), sort_keys=True)


def _plain(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
    return value
