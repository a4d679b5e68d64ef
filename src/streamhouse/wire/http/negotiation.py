"""Negotiation: media types, of what is sent and of what is wanted.

Data path   Content-Type and Accept headers -> **negotiation** -> one of the types that an operation has
Owns        reading both headers, refusing with 415 and 406
Leaves      which types there are to the operations
"""

from collections.abc import Sequence
from typing import NamedTuple

from streamhouse.wire.http.errors import NotAcceptable, UnsupportedMediaType

MAX_NAMED = 200


class _Wish(NamedTuple):
    type: str
    weight: float


def sent_type(header: str | None, allowed: Sequence[str]) -> str:
    """The media type of a body; raises `UnsupportedMediaType` unless it is one of those allowed, in UTF-8."""
    media_type, _, parameters = (header or "").partition(";")
    media_type = media_type.strip().lower()
    charset = _parameter(parameters, "charset")
    if media_type not in allowed or charset not in (None, "utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(
            f"the body's media type is not supported; content-type={(header or '')[:MAX_NAMED]!r} "
            f"wanted={' or '.join(allowed)}"
        )
    return media_type


def wanted_type(header: str | None, offered: Sequence[str]) -> str:
    """The type to answer with: the client's favourite among those offered; without a wish the first one."""
    if not header or not offered or header == "*/*":
        return offered[0] if offered else ""
    wishes = [_wish(part) for part in header.split(",")]
    weights = {each: _weight(each, wishes) for each in offered}
    best = max(offered, key=lambda each: weights[each])  # the first of equals
    if weights[best] <= 0:
        raise NotAcceptable(f"no acceptable media type; accept={header[:MAX_NAMED]!r} offered={' or '.join(offered)}")
    return best


def _wish(part: str) -> _Wish:
    media_type, _, parameters = part.partition(";")
    try:
        weight = float(_parameter(parameters, "q") or 1.0)
    except ValueError:
        weight = 0.0
    return _Wish(media_type.strip().lower(), weight)


def _weight(offered: str, wishes: Sequence[_Wish]) -> float:
    """How much a type is wanted; what names it most exactly decides."""
    for pattern in (offered, offered.partition("/")[0] + "/*", "*/*"):
        found = [wish.weight for wish in wishes if wish.type == pattern]
        if found:
            return max(found)
    return 0.0


def _parameter(parameters: str, name: str) -> str | None:
    for each in parameters.split(";"):
        key, _, value = each.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"').lower()
    return None
