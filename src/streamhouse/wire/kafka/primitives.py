"""Primitives: functions for elements of Kafka's wire format that compiled codecs call instead of inlining them.

Data path   codec -> compiler (generates functions that call these) -> **primitives**
Owns        widths of fixed types; unsigned varints; unknown tagged fields; uuids
Leaves      messages and fields to `compiler`; naming the invalid field to `codec`

Invalid input raises `ValueError` here (or `IndexError` or `struct.error` from Python).
"""

from functools import lru_cache
from typing import Final
from uuid import UUID

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
UUID_BYTES: Final = 16
MAX_STRING_BYTES: Final = 0x7FFF
UUID_CACHE_ENTRIES: Final = 4096  # the same topic ids occur in every request, and creating a UUID is slow

_MAX_VARINT_SHIFT: Final = 28


def long_uvarint(view: memoryview, offset: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned 32-bit varint of more than one byte, whose first byte was read."""
    value, shift = first & 0x7F, 7
    while True:
        byte = view[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        if shift == _MAX_VARINT_SHIFT:
            raise ValueError("varint longer than 5 bytes")
        shift += 7
    if value > 0xFFFFFFFF:
        raise ValueError("varint above 32 bits")
    return value, offset


def read_uvarint(view: memoryview, offset: int) -> tuple[int, int]:
    first = view[offset]
    return (first, offset + 1) if first < 0x80 else long_uvarint(view, offset + 1, first)


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def long_string(length: int) -> bytes:
    """The compact prefix (length + 1) of a string that needs more than one byte for it."""
    if length - 1 > MAX_STRING_BYTES:
        raise ValueError(f"string of {length - 1} bytes, above {MAX_STRING_BYTES}")
    return uvarint(length)


def skip_tags(view: memoryview, offset: int, size: int, count: int) -> int:
    """Skip tagged fields that this version of the message does not have."""
    for _ in range(count):
        _, offset = read_uvarint(view, offset)
        length, offset = read_uvarint(view, offset)
        offset += length
        if offset > size:
            raise bad_length(length, size - offset + length)
    return offset


class TooManyElements(ValueError):
    """A message has more array elements than allowed."""


def bad_length(length: int, left: int) -> ValueError:
    return ValueError(f"length {length} with {left} bytes left")


@lru_cache(maxsize=UUID_CACHE_ENTRIES)
def uuid_of(raw: bytes) -> UUID:
    return UUID(bytes=raw)
