"""Integers: whole numbers that JSON writes with a fraction of nothing, as in `3.0`.

Data path   bodies that were refused for one -> **integers** -> endpoint, which reads them once more
Owns        finding such numbers where a type has an integer, and nowhere else: values of records stay as they are
Leaves      reading to msgspec

JSON Schema calls 3.0 an integer, and some languages write all their numbers so; msgspec does not take it for one.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, inspect

_WHOLE: Final = re.compile(rb"(-?[0-9]{1,19})\.0{1,20}")

Rewrite = Callable[[Raw], Raw]


def whole_numbers(data: bytes, kind: Any) -> bytes:
    """The same JSON, with integers written as such; raises what msgspec raises where it isn't of this kind."""
    return bytes(_rewriter(inspect.type_info(kind))(Raw(data)))


def _rewriter(kind: inspect.Type) -> Rewrite:
    if isinstance(kind, inspect.Metadata):
        return _rewriter(kind.type)
    if isinstance(kind, inspect.UnionType):
        # Of these at most one is an object, a list or a number: the only ones that anything is done to.
        others = [_rewriter(each) for each in kind.types if _can_hold(each)]
        return others[0] if others else _as_it_is
    if isinstance(kind, inspect.IntType):
        return _whole
    if isinstance(kind, inspect.ListType):
        return _of_list(_rewriter(kind.item_type)) if _can_hold(kind.item_type) else _as_it_is
    if isinstance(kind, inspect.StructType):
        return _of_struct({each.encode_name: _rewriter(each.type) for each in kind.fields if _can_hold(each.type)})
    return _as_it_is


def _can_hold(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _can_hold(kind.type)
    return isinstance(kind, inspect.UnionType | inspect.IntType | inspect.ListType | inspect.StructType)


def _as_it_is(raw: Raw) -> Raw:
    return raw


def _whole(raw: Raw) -> Raw:
    match = _WHOLE.fullmatch(bytes(raw))
    return raw if match is None else Raw(match[1])


def _of_list(rewrite: Rewrite) -> Rewrite:
    def of_list(raw: Raw) -> Raw:
        if bytes(raw)[:1] != b"[":
            return raw
        return Raw(msgspec.json.encode([rewrite(each) for each in msgspec.json.decode(raw, type=list[Raw])]))

    return of_list


def _of_struct(fields: dict[str, Rewrite]) -> Rewrite:
    def of_struct(raw: Raw) -> Raw:
        if bytes(raw).lstrip()[:1] != b"{":
            return raw
        found = msgspec.json.decode(raw, type=dict[str, Raw])
        return Raw(msgspec.json.encode({name: fields.get(name, _as_it_is)(each) for name, each in found.items()}))

    return of_struct
