"""Decoding: messages of clients, whose elements are counted before any of them becomes an object.

Data path   grpc -> **decoding** -> calls -> services
Owns        the number of elements of a message, and which messages are decoded in a thread
Leaves      the size of a message to grpc (`grpc.max_message_bytes`), the meaning of fields to `requests`

An empty record or header is two bytes in a message and a hundred as an object, so a message of 16 MiB may become
gigabytes. Elements are those of repeated fields, at every level.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from streamhouse.errors import Rejected

Q = TypeVar("Q", bound=Message)
R = TypeVar("R")
T = TypeVar("T")

MAX_ELEMENTS: Final = 250_000
"""Elements of a message: more than the records of the largest one, each with a header."""

INLINE_ELEMENTS: Final = 2000
"""Elements up to which a message is decoded on the event loop."""

INLINE_BYTES: Final = 16 * 1024
"""Size of a message up to which its records are translated on the event loop."""

FIELDS_PER_ELEMENT: Final = 8
"""Fields of any kind that are counted for each element, which has fewer."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_LEAST_ELEMENT_BYTES: Final = 2
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}

Plan = Mapping[int, "tuple[bool, Plan | None]"]
"""By field number: whether the field is repeated, and the plan of its message. Fields without elements are left out."""


class _TooManyElementsError(Exception):
    pass


async def decode(raw: bytes, request_type: type[Q]) -> Q:
    """Decode a message; raise `Rejected` if it is malformed, or has too many elements."""
    if not is_large(raw, request_type):
        return _decode(raw, request_type)
    return await asyncio.to_thread(_decode_counted, raw, request_type)


async def translate(read: Callable[[R], T], request: R, *, size_bytes: int) -> T:
    """The result of `read`, which is called in a thread if a message of this size may have many elements."""
    if size_bytes <= INLINE_BYTES:
        return read(request)
    return await asyncio.to_thread(read, request)


def is_large(raw: bytes, request_type: type[Message]) -> bool:
    """Whether a message has more than `INLINE_ELEMENTS`."""
    return len(raw) > INLINE_ELEMENTS * _LEAST_ELEMENT_BYTES and not _has_at_most(INLINE_ELEMENTS, raw, request_type)


def _decode_counted(raw: bytes, request_type: type[Q]) -> Q:
    if not _has_at_most(MAX_ELEMENTS, raw, request_type):
        raise Rejected(
            f"the message has too many elements; type={request_type.DESCRIPTOR.full_name} limit={MAX_ELEMENTS}"
        )
    return _decode(raw, request_type)


def _decode(raw: bytes, request_type: type[Q]) -> Q:
    try:
        return request_type.FromString(raw)
    except DecodeError:
        raise Rejected(f"the message can't be read; type={request_type.DESCRIPTOR.full_name}") from None


def _has_at_most(limit: int, raw: bytes, request_type: type[Message]) -> bool:
    """Whether a message has at most so many elements, and fields in proportion; also true for malformed ones, which are
    read up to their error."""
    if sum(map(raw.count, _first_bytes(request_type.DESCRIPTOR))) <= limit:
        return True
    try:
        _walk(raw, 0, len(raw), _plan_of(request_type.DESCRIPTOR), [limit, FIELDS_PER_ELEMENT * limit])
    except _TooManyElementsError:
        return False
    except IndexError:  # it ends in the middle of a field
        return True
    return True


@cache
def _plan_of(message: Descriptor) -> Plan:
    plan: dict[int, tuple[bool, Plan | None]] = {}
    for field in message.fields:
        inner = _plan_of(field.message_type) if field.type == FieldDescriptor.TYPE_MESSAGE else None
        if field.is_repeated or inner:
            plan[field.number] = field.is_repeated, inner
    return plan


@cache
def _first_bytes(message: Descriptor) -> Sequence[int]:
    """The bytes with which elements may begin, also those whose number is written longer than it needs to be."""
    return sorted({byte for number in _repeated(_plan_of(message)) for byte in (_tag(number), _tag(number) | 0x80)})


def _repeated(plan: Plan) -> Iterator[int]:
    for number, (is_repeated, inner) in plan.items():
        if is_repeated:
            yield number
        yield from _repeated(inner or {})


def _tag(number: int) -> int:
    """The first byte of a field's tag."""
    tag = number << 3 | _LENGTH
    return tag if tag < 0x80 else tag & 0x7F | 0x80


def _walk(raw: bytes, at: int, end: int, plan: Plan, left: list[int]) -> None:
    """Count the elements and the fields of the message in [at, end) down from `left`."""
    while at < end:
        left[1] -= 1
        if min(left) < 0:
            raise _TooManyElementsError
        tag, at = _varint(raw, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(raw, at)
            size = 0
        elif kind == _LENGTH:
            size, at = _varint(raw, at)
        else:
            size = _SIZES.get(kind, 0)
        known = plan.get(tag >> 3)
        if known is not None:
            is_repeated, inner = known
            if is_repeated:
                left[0] -= 1
            if kind == _LENGTH and inner:
                _walk(raw, at, min(at + size, end), inner, left)
        at += size
    if min(left) < 0:
        raise _TooManyElementsError


def _varint(raw: Any, at: int) -> tuple[int, int]:
    byte = raw[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise IndexError
    return value, at + 1
