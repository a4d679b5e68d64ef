"""Inferring: the columns that JSON records seem to have.

Data path   a sample of values -> **infer** -> columns, shown to the user, who may declare others
Owns        which type fits all values of a field
Leaves      taking the sample to `asking`, reading with these columns to `connectors.topic`

Types only widen: whole numbers and fractions are DOUBLE, whatever has no type in common is STRING (its JSON text).
Times stay text: what looks like one in a thousand records needn't in the next, and a record that doesn't fit is lost
to a query. `CREATE TABLE` declares them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from streamhouse.model.identifiers import quote_if_needed
from streamhouse.model.table import Column
from streamhouse.spark.connectors.topic import ABOUT

MAX_COLUMNS: Final = 500
MAX_DEPTH: Final = 10
"""Objects inside of objects; what lies deeper is JSON text."""
JSON_SHARE: Final = 0.5
"""More of a sample's values than this must be JSON objects for the topic to be one of JSON."""
_LONG: Final = range(-(2**63), 2**63)
_NUMBERS: Final = ("BIGINT", "DOUBLE")


@dataclass(frozen=True, slots=True)
class _Object:
    fields: Mapping[str, "_Kind"]


@dataclass(frozen=True, slots=True)
class _List:
    items: "_Kind"


_Kind = str | _Object | _List | None
"""None: nothing but nulls so far."""


def infer(values: Iterable[bytes | None]) -> tuple[Column, ...]:
    """The columns of values that are JSON objects, in the order of their first appearance; others are passed over."""
    kind: _Kind = _Object({})
    for found in objects_of(values):
        kind = _widened(kind, _kind_of(found, 0))
    assert isinstance(kind, _Object)
    columns: dict[str, Column] = {}
    for name, each in kind.fields.items():
        # Spark's names have no case: of two that differ in it only, the first is seen.
        if name not in ABOUT and len(columns) < MAX_COLUMNS:
            columns.setdefault(name.lower(), Column(name=name, type=_type_of(each)))
    return tuple(columns.values())


def objects_of(values: Iterable[bytes | None]) -> list[dict[str, Any]]:
    found = []
    for value in values:
        try:
            decoded = msgspec.json.decode(value) if value else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(decoded, dict):
            found.append(decoded)
    return found


def is_json(values: Sequence[bytes | None]) -> bool:
    """Whether a sample is mostly JSON objects; deleted records, which have no value, don't count."""
    present = [value for value in values if value]
    return bool(present) and len(objects_of(present)) > JSON_SHARE * len(present)


def is_text(values: Iterable[bytes | None]) -> bool:
    try:
        for value in values:
            (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _kind_of(value: Any, depth: int) -> _Kind:
    if value is None:
        return None
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if value in _LONG else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return _Object({name: _kind_of(each, depth + 1) for name, each in value.items()})
    if isinstance(value, list) and depth < MAX_DEPTH:
        items: _Kind = None
        for each in value:
            items = _widened(items, _kind_of(each, depth + 1))
        return _List(items)
    return "STRING"


def _widened(one: _Kind, other: _Kind) -> _Kind:
    """The narrowest kind that both are."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, _Object) and isinstance(other, _Object):
        names = dict.fromkeys((*one.fields, *other.fields))
        return _Object({name: _widened(one.fields.get(name), other.fields.get(name)) for name in names})
    if isinstance(one, _List) and isinstance(other, _List):
        return _List(_widened(one.items, other.items))
    return "DOUBLE" if one in _NUMBERS and other in _NUMBERS else "STRING"


def _type_of(kind: _Kind) -> str:
    if isinstance(kind, _List):
        return f"ARRAY<{_type_of(kind.items)}>"
    if isinstance(kind, _Object):
        seen: dict[str, str] = {}
        for name, each in kind.fields.items():
            seen.setdefault(name.lower(), f"{quote_if_needed(name)}: {_type_of(each)}")
        return f"STRUCT<{', '.join(seen.values())}>" if seen else "STRING"
    return kind or "STRING"
