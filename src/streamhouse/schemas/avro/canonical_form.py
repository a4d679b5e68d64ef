"""Avro types as text: canonical, which identifies a schema, and normalized, which all its spellings share.

Both texts are byte for byte what Confluent's registry makes of a schema. Whether two schemas are equal is decided by
the registry.
"""

from collections.abc import Mapping

from streamhouse.schemas.avro.types import (
    MISSING,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Union,
    parts,
)
from streamhouse.schemas.base import write_json

_LOGICAL: Mapping[str, frozenset[str]] = {
    "decimal": frozenset({"bytes", "fixed"}),
    "uuid": frozenset({"string", "fixed"}),
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    "time-micros": frozenset({"long"}),
    "timestamp-millis": frozenset({"long"}),
    "timestamp-micros": frozenset({"long"}),
    "timestamp-nanos": frozenset({"long"}),
    "local-timestamp-millis": frozenset({"long"}),
    "local-timestamp-micros": frozenset({"long"}),
    "local-timestamp-nanos": frozenset({"long"}),
    "duration": frozenset({"fixed"}),
}


def canonical_text(root: AvroType, external: frozenset[str]) -> str:
    """As Java prints it: only spaces are lost; names are relative to the enclosing namespace."""
    return write_json(_Printer(known=set(external)).type(root, ""))


def normalized_text(root: AvroType, external: frozenset[str]) -> str:
    """Names in full, words in one order, what goes without saying left out."""
    return write_json(_Normalizer(known=set(external)).type(root, ""))


def resolved(root: AvroType) -> object:
    """The schema with its references inside, for other libraries; logical types are left out."""
    return _Bare(known=set()).type(root, "")


def definition(named: Named) -> str:
    """This definition alone; other named types appear by name."""
    known = {part.name for part in parts(named) if isinstance(part, Named)}
    waiting = [part for part in parts(named) if not isinstance(part, Named)]
    while waiting:
        for part in parts(waiting.pop()):
            if isinstance(part, Named):
                known.add(part.name)
            else:
                waiting.append(part)
    return write_json(_Normalizer(known=known - {named.name}).type(named, ""))


def logical_name(kind: AvroType) -> str | None:
    """The logical type, if it makes sense on this type; otherwise its words are mere words."""
    name = kind.props.get("logicalType")
    if not isinstance(name, str) or kind.kind not in _LOGICAL.get(name, ()):
        return None
    if name == "decimal":
        return name if _is_decimal(kind) else None
    if isinstance(kind, Fixed) and name in ("uuid", "duration"):
        return name if kind.size_bytes == {"uuid": 16, "duration": 12}[name] else None
    return name


def _is_decimal(kind: AvroType) -> bool:
    precision, scale = kind.props.get("precision"), kind.props.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return False
    # A fixed of n bytes holds every number of log10(2 ** (8n - 1) - 1) digits.
    return not isinstance(kind, Fixed) or precision <= int((8 * kind.size_bytes - 1) * 0.30102999566398120)


class _Printer:
    """As Java's `Schema.toString`. A type is printed in full at its first use, then by name."""

    def __init__(self, *, known: set[str]) -> None:
        self._known = known

    def type(self, kind: AvroType, space: str) -> object:
        match kind:
            case Union():
                return [self.type(branch, space) for branch in kind.branches]
            case Named() if kind.name in self._known:
                return kind.short_name if kind.space == space else kind.name
            case Named():
                self._known.add(kind.name)
                return self._named(kind, space)
            case Array():
                return {"type": "array", "items": self.type(kind.items, space), **self._props(kind)}
            case Map():
                return {"type": "map", "values": self.type(kind.values, space), **self._props(kind)}
        props = self._props(kind)
        return {"type": kind.kind, **props} if props else kind.kind

    def _named(self, kind: Named, space: str) -> dict[str, object]:
        printed: dict[str, object] = {"type": kind.kind, "name": kind.short_name}
        if kind.space != space:
            printed["namespace"] = kind.space
        if kind.doc is not None:
            printed["doc"] = kind.doc
        match kind:
            case Record():
                printed["fields"] = [self._field(each, kind.space) for each in kind.fields]
            case Enum():
                printed["symbols"] = list(kind.symbols)
                if kind.default is not None:
                    printed["default"] = kind.default
            case Fixed():
                printed["size"] = kind.size_bytes
        printed |= self._props(kind)
        if kind.aliases:
            printed["aliases"] = [_within(alias, kind.space) for alias in kind.aliases]
        return printed

    def _field(self, field: Field, space: str) -> dict[str, object]:
        printed: dict[str, object] = {"name": field.name, "type": self.type(field.type, space)}
        if field.doc is not None:
            printed["doc"] = field.doc
        if field.default is not MISSING:
            printed["default"] = field.default
        if field.order != "ascending":
            printed["order"] = field.order
        if field.aliases:
            printed["aliases"] = list(field.aliases)
        return printed | dict(field.props)

    def _props(self, kind: AvroType) -> Mapping[str, object]:
        return kind.props


class _Bare(_Printer):
    """Without what a decoder of plain values has no use for."""

    def _props(self, kind: AvroType) -> Mapping[str, object]:
        return {}

    def _field(self, each: Field, space: str) -> dict[str, object]:
        return {"name": each.name, "type": self.type(each.type, space)}


class _Normalizer(_Printer):
    """As Confluent's registry normalizes."""

    def type(self, kind: AvroType, space: str) -> object:
        return super().type(kind, "\0")  # no type is of this namespace, so that every name is printed in full

    def _named(self, kind: Named, space: str) -> dict[str, object]:
        printed: dict[str, object] = {"name": kind.name, "type": "record" if kind.kind == "error" else kind.kind}
        match kind:
            case Record():
                printed["fields"] = [self._field(each, space) for each in kind.fields]
            case Enum():
                printed["symbols"] = list(kind.symbols)
            case Fixed():
                printed["size"] = kind.size_bytes
        if kind.doc:
            printed["doc"] = kind.doc
        if kind.aliases:
            printed["aliases"] = sorted(set(kind.aliases))
        if isinstance(kind, Enum) and kind.default is not None:
            printed["default"] = kind.default
        return printed | dict(self._props(kind))

    def _field(self, field: Field, space: str) -> dict[str, object]:
        printed: dict[str, object] = {"name": field.name, "type": self.type(field.type, space), "order": field.order}
        if field.doc is not None:
            printed["doc"] = field.doc
        if field.aliases:
            printed["aliases"] = sorted(set(field.aliases))
        if field.default is not MISSING:
            printed["default"] = _sorted(field.default)
        return printed | _sorted_props(field.props)

    def _props(self, kind: AvroType) -> Mapping[str, object]:
        """The logical type first, then the other words in order."""
        props = dict(kind.props)
        first: dict[str, object] = {}
        if logical_name(kind):
            first["logicalType"] = props.pop("logicalType")
            if first["logicalType"] == "decimal":
                first["precision"] = props.pop("precision")
                scale = props.pop("scale", 0)
                first |= {"scale": scale} if scale else {}
        return first | _sorted_props(props)


def _within(name: str, space: str) -> str:
    own, _, short = name.rpartition(".")
    return short if own == space else name


def _sorted_props(props: Mapping[str, object]) -> dict[str, object]:
    return {word: _sorted(props[word]) for word in sorted(props)}


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
