"""Loader: the text of a JSON schema to nodes that can be compared.

A schema about several kinds of values, or with a list of types, becomes a combined node. Keywords that Confluent's
comparison ignores (`contains`, `propertyNames`, `if`) are loaded for their references only. Whether keywords are well
formed is checked by the meta-schemas (`json_schema.validator`).
"""

from collections.abc import Mapping
from typing import Any, Final

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.base import write_json
from streamhouse.schemas.json_schema import schema_nodes
from streamhouse.schemas.json_schema.references import Documents
from streamhouse.schemas.json_schema.schema_nodes import MISSING, Criterion, SchemaNode, in_place_height

MAX_REFERENCES: Final = 20_000
MAX_URI_CHARS: Final = 200
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

Keywords = Mapping[str, Any]


def load_node(documents: Documents) -> SchemaNode:
    """The root's node, with every reference filled in."""
    loader = _Loader(documents)
    try:
        root = loader.node(documents.root, "")
        loader.fill_references()
        loader.check_heights()
    except (AttributeError, TypeError):
        # Meta-schemas don't look below keywords that they don't know; references do.
        raise InvalidSchema("a reference means something that is no schema") from None
    return root


class _Loader:
    """Loads each place of the documents once, so that what refers to one thing finds one node."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._loaded: dict[int, SchemaNode] = {}
        self._waiting: list[tuple[schema_nodes.Reference, str, str, str]] = []

    def fill_references(self) -> None:
        filled = 0
        while self._waiting:
            reference, uri, base, path = self._waiting.pop()
            filled += 1
            if filled > MAX_REFERENCES:
                raise InvalidSchema(f"too many references; limit={MAX_REFERENCES}")
            target = self._documents.find(uri, base, path)
            # Paths start over behind a reference: along a chain of them they would only grow.
            reference.target = schema_nodes.Always() if target is None else self.node(target, uri[:MAX_URI_CHARS])

    def check_heights(self) -> None:
        """Refuse what would send one value in circles, or through more schemas than a validator's stack holds."""
        heights: dict[int, int] = {}
        for node in self._loaded.values():
            height = heights.get(id(node)) or in_place_height(node, heights)
            if height is None:
                raise InvalidSchema("a schema must not apply itself to the same value")
            if height > MAX_IN_PLACE:
                raise InvalidSchema(f"too many schemas for the same value, one behind the other; limit={MAX_IN_PLACE}")

    def node(self, keywords: object, path: str) -> SchemaNode:
        if isinstance(keywords, bool):
            return schema_nodes.Always(source=True) if keywords else schema_nodes.Never(source=False)
        if not isinstance(keywords, dict):
            raise InvalidSchema("a schema is an object or a boolean", path=path)
        if id(keywords) not in self._loaded:
            self._loaded[id(keywords)] = self._common(self._object(keywords, path), keywords)
        return self._loaded[id(keywords)]

    def _is_new(self, keywords: Keywords) -> bool:
        return self._documents.draft_at(keywords) >= 2019

    def _object(self, keywords: Keywords, path: str) -> SchemaNode:
        if "$ref" in keywords and not self._is_new(keywords):
            return self._reference(keywords, "$ref", path)
        parts = self._parts(keywords, path)
        if not parts:
            return schema_nodes.Anything(source=keywords)
        if len(parts) == 1:
            return parts[0]
        return schema_nodes.Combined(source=keywords, criterion="allOf", parts=tuple(parts))

    def _parts(self, keywords: Keywords, path: str) -> list[SchemaNode]:
        """The nodes of a schema, one for each subschema."""
        parts: list[SchemaNode] = []
        if self._is_new(keywords):
            words = ("$ref", "$dynamicRef", "$recursiveRef")
            parts += [self._reference(keywords, word, path) for word in words if word in keywords]
        if "enum" in keywords:
            parts.append(
                schema_nodes.Enum(source=keywords["enum"], values=frozenset(_as_json(v) for v in keywords["enum"]))
            )
        for criterion in _CRITERIA:
            if criterion in keywords:
                parts.append(self._combined(keywords, criterion, path))
        if "not" in keywords:
            parts.append(schema_nodes.Not(source=keywords["not"], inner=self.node(keywords["not"], f"{path}/not")))
        if "const" in keywords and self._documents.draft_at(keywords) != 4:
            parts.append(schema_nodes.Const(source=keywords["const"], value=_as_json(keywords["const"])))
        return parts + self._by_type(keywords, path)

    def _by_type(self, keywords: Keywords, path: str) -> list[SchemaNode]:
        types = keywords.get("type")
        named = [types] if isinstance(types, str) else list(types or ())
        typed = [self._typed(keywords, name, path) for name in named]
        nodes = typed
        if isinstance(types, list):
            nodes = [schema_nodes.Combined(source=keywords, criterion="anyOf", parts=tuple(typed))]
        kinds = {type(node) for node in typed}
        objects, arrays = (
            (_NEW_OBJECT_WORDS, _NEW_ARRAY_WORDS) if self._is_new(keywords) else (_OBJECT_WORDS, _ARRAY_WORDS)
        )
        if schema_nodes.Array not in kinds and any(word in keywords for word in arrays):
            nodes.append(self._array(keywords, path))
        if schema_nodes.Object not in kinds and any(self._says(keywords, word) for word in objects):
            nodes.append(self._members(keywords, path))
        if schema_nodes.Number not in kinds and any(word in keywords for word in _NUMBER_WORDS):
            nodes.append(_number(keywords, is_integer=False))
        if schema_nodes.Text not in kinds and any(word in keywords for word in _TEXT_WORDS):
            nodes.append(_text(keywords))
        if self._documents.draft_at(keywords) >= 7 and any(word in keywords for word in ("if", "then", "else")):
            nodes.append(self._conditional(keywords, path))
        return nodes

    def _conditional(self, keywords: Keywords, path: str) -> SchemaNode:
        conditions = {word: keywords[word] for word in ("if", "then", "else") if word in keywords}
        parts = tuple(self.node(part, f"{path}/{word}") for word, part in conditions.items())
        return schema_nodes.Conditional(source=conditions, parts=parts)

    def _says(self, keywords: Keywords, word: str) -> bool:
        """Whether a keyword is there; since 2019-09, one without any property in it says nothing at all."""
        return word in keywords and not (
            self._is_new(keywords) and keywords[word] == {} and word in ("properties", "patternProperties")
        )

    def _typed(self, keywords: Keywords, name: str, path: str) -> SchemaNode:
        match name:
            case "string":
                return _text(keywords)
            case "integer" | "number":
                return _number(keywords, is_integer=name == "integer")
            case "boolean":
                return schema_nodes.Boolean(source="boolean")
            case "null":
                return schema_nodes.Null(source="null")
            case "array":
                return self._array(keywords, path)
            case "object":
                return self._members(keywords, path)
        raise InvalidSchema(f"unknown type: {name[:50]!r}", path=f"{path}/type")

    def _reference(self, keywords: Keywords, word: str, path: str) -> schema_nodes.Reference:
        reference = schema_nodes.Reference(source={"$ref": keywords[word]})
        self._waiting.append((reference, str(keywords[word]), self._documents.base_of(keywords), f"{path}/{word}"))
        return reference

    def _combined(self, keywords: Keywords, criterion: Criterion, path: str) -> SchemaNode:
        parts = [self.node(part, f"{path}/{criterion}/{i}") for i, part in enumerate(keywords[criterion])]
        return schema_nodes.Combined(source=keywords[criterion], criterion=criterion, parts=tuple(parts))

    def _nodes(self, keywords: Keywords, word: str, path: str) -> dict[str, SchemaNode]:
        return {name: self.node(each, f"{path}/{word}/{name}") for name, each in keywords.get(word, {}).items()}

    def _maybe(self, keywords: Keywords, word: str, path: str) -> SchemaNode | None:
        return self.node(keywords[word], f"{path}/{word}") if word in keywords else None

    def _members(self, keywords: Keywords, path: str) -> schema_nodes.Object:
        needs, dependent_nodes = self._dependencies(keywords, path)
        additional = keywords.get("additionalProperties", True)
        return schema_nodes.Object(
            source=keywords,
            properties=self._nodes(keywords, "properties", path),
            required=frozenset(keywords.get("required", ())),
            needs=needs,
            dependent_nodes=dependent_nodes,
            pattern_properties=self._nodes(keywords, "patternProperties", path),
            allows_more=additional is not False,
            additional=None if isinstance(additional, bool) else self._maybe(keywords, "additionalProperties", path),
            unevaluated=self._maybe(keywords, "unevaluatedProperties", path) if self._is_new(keywords) else None,
            min_properties=keywords.get("minProperties"),
            max_properties=keywords.get("maxProperties"),
            names=self._maybe(keywords, "propertyNames", path),
        )

    def _dependencies(self, keywords: Keywords, path: str) -> tuple[dict[str, frozenset[str]], dict[str, SchemaNode]]:
        needs = {
            name: frozenset(names)
            for name, names in keywords.get("dependentRequired", {}).items()
            if self._is_new(keywords)
        }
        dependent_nodes = self._nodes(keywords, "dependentSchemas", path) if self._is_new(keywords) else {}
        for name, needed in keywords.get("dependencies", {}).items():
            if isinstance(needed, list):
                needs[name] = frozenset(needed)
            else:
                dependent_nodes[name] = self.node(needed, f"{path}/dependencies/{name}")
        return needs, dependent_nodes

    def _array(self, keywords: Keywords, path: str) -> schema_nodes.Array:
        all_items, items, allows_more, additional = self._items(keywords, path)
        has_contains = self._is_new(keywords) and "contains" in keywords
        return schema_nodes.Array(
            source=keywords,
            all_items=all_items,
            items=items,
            allows_more=allows_more,
            additional=additional,
            unevaluated=self._maybe(keywords, "unevaluatedItems", path) if self._is_new(keywords) else None,
            min_items=keywords.get("minItems"),
            max_items=keywords.get("maxItems"),
            unique=keywords.get("uniqueItems") is True,
            min_contains=keywords.get("minContains", 1) if has_contains else None,
            max_contains=keywords.get("maxContains") if has_contains else None,
            contained=self._maybe(keywords, "contains", path),
        )

    def _items(
        self, keywords: Keywords, path: str
    ) -> tuple[SchemaNode | None, tuple[SchemaNode, ...], bool, SchemaNode | None]:
        """One node for all items, or one for each of the first and what may follow them."""
        items = keywords.get("items", MISSING)
        if self._is_new(keywords) and not isinstance(items, list):
            first = [
                self.node(each, f"{path}/prefixItems/{i}") for i, each in enumerate(keywords.get("prefixItems", ()))
            ]
            rest = None if isinstance(items, bool) else self._maybe(keywords, "items", path)
            return (None if first else rest), tuple(first), items is not False, (rest if first else None)
        more = keywords.get("additionalItems", True)
        additional = None if isinstance(more, bool) else self._maybe(keywords, "additionalItems", path)
        if isinstance(items, list):
            first = [self.node(each, f"{path}/items/{i}") for i, each in enumerate(items)]
            return None, tuple(first), more is not False, additional
        return self._maybe(keywords, "items", path), (), more is not False, additional

    def _common(self, node: SchemaNode, keywords: Keywords) -> SchemaNode:
        node.identifier = keywords.get("id" if self._documents.draft_at(keywords) == 4 else "$id")
        node.title, node.description = keywords.get("title"), keywords.get("description")
        node.default = keywords.get("default", MISSING)
        node.connect_type = keywords.get("connect.type")
        return node


def _text(keywords: Keywords) -> schema_nodes.Text:
    return schema_nodes.Text(
        source=keywords,
        min_length=keywords.get("minLength"),
        max_length=keywords.get("maxLength"),
        pattern=keywords.get("pattern"),
    )


def _number(keywords: Keywords, *, is_integer: bool) -> schema_nodes.Number:
    minimum, above = _limit(keywords, "minimum", "exclusiveMinimum")
    maximum, below = _limit(keywords, "maximum", "exclusiveMaximum")
    return schema_nodes.Number(
        source=keywords,
        is_integer=is_integer,
        minimum=minimum,
        maximum=maximum,
        exclusive_minimum=above,
        exclusive_maximum=below,
        multiple_of=keywords.get("multipleOf"),
    )


def _limit(keywords: Keywords, word: str, exclusive_word: str) -> tuple[float | None, float | None]:
    """A limit and an exclusive one; draft 4 says `true` beside a limit to make it exclusive."""
    limit, exclusive = keywords.get(word), keywords.get(exclusive_word)
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
