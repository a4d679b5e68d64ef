"""Refusals: whether an answer says no and nothing else.

Data path   handler -> answer -> **refusals** -> connection, which holds refusals back from who asks without end
Owns        where the error codes of an answer are; that one part that succeeded makes an answer a success
Leaves      how long to hold back to `wire.failures`

A success is found at its first part, so that answers about many partitions cost no more than others.
"""

from functools import cache
from typing import Any, NamedTuple

from streamhouse.wire.kafka.schema import Response, fields_of

CODE = "error_code"


class _Shape(NamedTuple):
    """Whether a struct has a code of its own, and which of its fields are lists of structs that say more."""

    has_code: bool
    parts: tuple[str, ...]


def is_refusal(response: Response) -> bool:
    return _is_refused(response) is True


def _is_refused(struct: Any) -> bool | None:
    """None: it says neither."""
    kind: type = type(struct)
    has_code, parts = _shape(kind)
    if has_code and struct.error_code:
        return True
    refused: bool | None = None
    for part in parts:
        for each in getattr(struct, part) or ():
            told = _is_refused(each)
            if told is False:
                return False
            refused = told or refused
    return False if has_code and refused is None else refused


@cache
def _shape(struct: type) -> _Shape:
    fields = fields_of(struct)
    lists = [(each.name, each.type[0]) for each in fields if isinstance(each.type, list)]
    parts = tuple(name for name, kind in lists if isinstance(kind, type) and any(_shape(kind)))
    return _Shape(any(each.name == CODE for each in fields), parts)
