"""Avro parser: the text of a schema to types, or an error that says where and why.

As strict as Avro's Java parser is with new schemas: names are checked, defaults must fit (any branch of a union will
do), a type is defined once and before it is used. An identical second definition is allowed, so that two references may
both contain a type. Invalid logical types are kept as properties, as in Java. Size and nesting are limited by
`schemas.base`.
"""

import re
from collections.abc import Mapping
from typing import Final

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.avro.canonical_form import definition
from streamhouse.schemas.avro.types import (
    MISSING,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Union,
    shape_of,
)
from streamhouse.schemas.base import References, read_json

MAX_TYPE_DEPTH: Final = 100
"""Types inside types, names followed: what a decoder may recurse without checking."""
MAX_DEFAULT_STEPS: Final = 100_000
"""Comparisons of defaults with branches of unions, before a text is taken for an attack."""
MAX_FIXED_BYTES: Final = 1 << 24
MAX_REFERENCE_ROUNDS: Final = 20
"""References that come before what they need: how often the rest is tried again."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEMA_WORDS: Final = frozenset(
    {"type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size"}
)
_ENUM_WORDS: Final = _SCHEMA_WORDS | {"default"}
_FIELD_WORDS: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)

Json = Mapping[str, object]


def read_types(text: str, references: References) -> tuple[AvroType, frozenset[str]]:
    """The schema's type, and the names of those that its references define."""
    parser = _Parser()
    parser.read_references(references)
    external = frozenset(parser.names)
    root = parser.type_of(_document(text, ""), "", "")
    height = shape_of(root).height
    if height > MAX_TYPE_DEPTH:
        raise InvalidSchema(f"types are nested too deeply; depth={height} limit={MAX_TYPE_DEPTH}")
    return root, external


def _document(text: str, where: str) -> object:
    """The text as JSON; a bare word such as `string` is a schema too, as Java has it."""
    word = text.strip()
    return word if _NAME.fullmatch(word) and word not in ("true", "false", "null") else read_json(text, where=where)


class _UnknownName(InvalidSchema):
    """A name that nothing has defined yet."""


class _Parser:
    """One schema and its references, with the names they share."""

    def __init__(self) -> None:
        self.names: dict[str, Named] = {}
        self._default_steps = 0

    def read_references(self, references: References) -> None:
        """References may need each other: those that meet an unknown name wait until the others are read."""
        waiting = {name: _document(text, f"reference {name!r} ") for name, text in references.items()}
        missing: _UnknownName | None = None
        for _ in range(MAX_REFERENCE_ROUNDS):
            missing = self._read_round(waiting)
            if missing is None:
                return
        raise missing or InvalidSchema("references need each other")

    def _read_round(self, waiting: dict[str, object]) -> "_UnknownName | None":
        missing: _UnknownName | None = None
        for name, document in list(waiting.items()):
            before = dict(self.names)
            try:
                self.type_of(document, "", f"reference {name!r} ")
                del waiting[name]
            except _UnknownName as error:
                self.names, missing = before, error
        return missing

    def type_of(self, node: object, space: str, path: str) -> AvroType:
        match node:
            case str():
                return self._by_name(node, space, path)
            case list():
                return self._union(node, space, path)
            case dict():
                return self._described(node, space, path)
        raise InvalidSchema(f"a type is a name, a list or an object, not {_kind(node)}", path=path)

    def _by_name(self, name: str, space: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(kind=name)
        full = name if "." in name or not space else f"{space}.{name}"
        named = self.names.get(full) or self.names.get(name)
        if named is None:
            raise _UnknownName(f"undefined name: {full!r}", path=path)
        return named

    def _union(self, nodes: list[object], space: str, path: str) -> Union:
        branches: dict[str, AvroType] = {}
        for index, node in enumerate(nodes):
            branch = self.type_of(node, space, f"{path}/{index}")
            if isinstance(branch, Union):
                raise InvalidSchema("a union may not hold a union directly", path=f"{path}/{index}")
            if branch.branch_name in branches:
                raise InvalidSchema(f"duplicate in union: {branch.branch_name!r}", path=f"{path}/{index}")
            branches[branch.branch_name] = branch
        return Union(branches=tuple(branches.values()))

    def _described(self, node: Json, space: str, path: str) -> AvroType:
        kind = node.get("type", MISSING)
        if kind is MISSING:
            raise InvalidSchema("no type", path=path)
        if not isinstance(kind, str):
            raise InvalidSchema(f"type is a text here, not {_kind(kind)}", path=f"{path}/type")
        match kind:
            case "record" | "error":
                return self._record(node, kind, space, path)
            case "enum":
                return self._defined(self._enum(node, space, path), path)
            case "fixed":
                return self._defined(self._fixed(node, space, path), path)
            case "array":
                items = self.type_of(_needed(node, "items", path), space, f"{path}/items")
                return Array(items=items, props=_props(node, _SCHEMA_WORDS))
            case "map":
                values = self.type_of(_needed(node, "values", path), space, f"{path}/values")
                return Map(values=values, props=_props(node, _SCHEMA_WORDS))
        named = self._by_name(kind, space, f"{path}/type")
        return AvroType(kind=kind, props=_props(node, _SCHEMA_WORDS)) if kind in PRIMITIVES else named

    def _record(self, node: Json, kind: str, space: str, path: str) -> Named:
        name, doc, aliases = _naming(node, space, path)
        record = Record(kind=kind, name=name, doc=doc, aliases=aliases, props=_props(node, _SCHEMA_WORDS))
        earlier = self.names.get(name)
        self.names[name] = record
        nodes = _needed(node, "fields", path)
        if not isinstance(nodes, list):
            raise InvalidSchema(f"fields are a list, not {_kind(nodes)}", path=f"{path}/fields")
        fields: dict[str, Field] = {}
        for index, each in enumerate(nodes):
            field = self._field(each, record, f"{path}/fields/{index}")
            if field.name in fields:
                raise InvalidSchema(f"duplicate field: {field.name!r}", path=f"{path}/fields/{index}")
            fields[field.name] = field
        record.fields, record.complete = tuple(fields.values()), True
        return record if earlier is None else self._same_again(record, earlier, path)

    def _field(self, node: object, record: Record, path: str) -> Field:
        if not isinstance(node, dict):
            raise InvalidSchema(f"a field is an object, not {_kind(node)}", path=path)
        name = _text(node, "name", path)
        if not _NAME.fullmatch(name):
            raise InvalidSchema(f"illegal field name: {name!r}", path=f"{path}/name")
        kind = self.type_of(_needed(node, "type", path), record.space, f"{path}/type")
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ("ascending", "descending", "ignore"):
            raise InvalidSchema(f"order is ascending, descending or ignore, not {order!r}", path=f"{path}/order")
        default = node.get("default", MISSING)
        if default is not MISSING and not self._fits(kind, default):
            raise InvalidSchema(
                f"invalid default for field {name!r}: {_kind(default)} is no {kind.branch_name}", path=f"{path}/default"
            )
        return Field(
            name=name,
            type=kind,
            default=default,
            doc=_doc(node),
            order=order.lower(),
            aliases=_strings(node, "aliases", path),
            props=_props(node, _FIELD_WORDS),
        )

    def _enum(self, node: Json, space: str, path: str) -> Enum:
        name, doc, aliases = _naming(node, space, path)
        _needed(node, "symbols", path)
        symbols = _strings(node, "symbols", path)
        for index, symbol in enumerate(symbols):
            if not _NAME.fullmatch(symbol):
                raise InvalidSchema(f"illegal symbol: {symbol!r}", path=f"{path}/symbols/{index}")
        if len(set(symbols)) < len(symbols):
            raise InvalidSchema("duplicate symbol", path=f"{path}/symbols")
        default = node.get("default")
        if default is not None and (not isinstance(default, str) or default not in symbols):
            raise InvalidSchema(f"the default is no symbol: {default!r}", path=f"{path}/default")
        props = _props(node, _ENUM_WORDS)
        return Enum(name=name, doc=doc, aliases=aliases, symbols=symbols, default=default, props=props)

    def _fixed(self, node: Json, space: str, path: str) -> Fixed:
        name, doc, aliases = _naming(node, space, path)
        size = _needed(node, "size", path)
        if type(size) is not int or not 0 <= size <= MAX_FIXED_BYTES:
            raise InvalidSchema(f"size is a whole number up to {MAX_FIXED_BYTES}, not {size!r}", path=f"{path}/size")
        return Fixed(name=name, doc=doc, aliases=aliases, size_bytes=size, props=_props(node, _SCHEMA_WORDS))

    def _defined(self, named: Named, path: str) -> Named:
        earlier = self.names.setdefault(named.name, named)
        return named if earlier is named else self._same_again(named, earlier, path)

    def _same_again(self, named: Named, earlier: Named, path: str) -> Named:
        unfinished = isinstance(earlier, Record) and not earlier.complete
        if unfinished or definition(named) != definition(earlier):
            raise InvalidSchema(f"can't redefine: {named.name!r}", path=path)
        self.names[named.name] = earlier
        return earlier

    def _fits(self, kind: AvroType, value: object) -> bool:
        """Whether a default is one of the type's values, checked as loosely as in Java."""
        self._default_steps += 1
        if self._default_steps > MAX_DEFAULT_STEPS:
            raise InvalidSchema("the defaults fit too many branches of unions to be checked")
        match kind:
            case Union():
                return any(self._fits(branch, value) for branch in kind.branches)
            case Array():
                return isinstance(value, list) and all(self._fits(kind.items, item) for item in value)
            case Map():
                return isinstance(value, dict) and all(self._fits(kind.values, item) for item in value.values())
            case Record():
                return isinstance(value, dict) and all(self._fits_field(each, value) for each in kind.fields)
        return _fits_scalar(kind.kind, value)

    def _fits_field(self, each: Field, value: Json) -> bool:
        # A field's own default was checked where the field was read.
        return self._fits(each.type, value[each.name]) if each.name in value else each.default is not MISSING


def _fits_scalar(kind: str, value: object) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and value in _INT
        case "long":
            return type(value) is int and value in _LONG
        case "float" | "double":
            return type(value) in (int, float)
    return isinstance(value, str)


def _naming(node: Json, space: str, path: str) -> tuple[str, str | None, tuple[str, ...]]:
    """A named type's full name, its doc and its aliases in full."""
    name = _text(node, "name", path)
    given = node.get("namespace")
    if given is not None and not isinstance(given, str):
        raise InvalidSchema(f"namespace is a text, not {_kind(given)}", path=f"{path}/namespace")
    own_space = space if given is None else given
    full = name if "." in name or not own_space else f"{own_space}.{name}"
    if full in PRIMITIVES:
        raise InvalidSchema(f"a type may not be named after a primitive one: {full!r}", path=f"{path}/name")
    if not all(_NAME.fullmatch(part) for part in full.split(".")):
        raise InvalidSchema(f"illegal name: {full!r}", path=f"{path}/name")
    home = full.rpartition(".")[0]
    aliases = _strings(node, "aliases", path)
    return full, _doc(node), tuple(a if "." in a or not home else f"{home}.{a}" for a in aliases)


def _needed(node: Json, word: str, path: str) -> object:
    if word not in node:
        raise InvalidSchema(f"no {word}", path=path)
    return node[word]


def _text(node: Json, word: str, path: str) -> str:
    value = _needed(node, word, path)
    if not isinstance(value, str):
        raise InvalidSchema(f"{word} is a text, not {_kind(value)}", path=f"{path}/{word}")
    return value


def _strings(node: Json, word: str, path: str) -> tuple[str, ...]:
    value = node.get(word)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidSchema(f"{word} are a list of texts", path=f"{path}/{word}")
    return tuple(value)


def _doc(node: Json) -> str | None:
    doc = node.get("doc")
    return doc if isinstance(doc, str) else None


def _props(node: Json, reserved: frozenset[str]) -> Json:
    return {word: value for word, value in node.items() if word not in reserved}


def _kind(value: object) -> str:
    """The JSON type name of a value."""
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
