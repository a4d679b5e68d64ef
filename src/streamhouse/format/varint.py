"""Varint: the zigzag numbers of variable length inside a record.

Owns        reading and writing one number in plain Python
Leaves      the fast walk over many records to `format/_records.c`, which reads them by the same rules
"""

from streamhouse.format.batch import Buffer

# Most bytes that a number of 32 or 64 bits may take, and the largest number before zigzag.
VARINT: tuple[int, int] = (5, 2**32 - 1)
VARLONG: tuple[int, int] = (10, 2**64 - 1)


class BadVarint(ValueError):
    """The bytes end inside a number, or the number has too many of them."""


def read_varint(buffer: Buffer, position: int, end: int, kind: tuple[int, int] = VARINT) -> tuple[int, int]:
    """The number at `position`, and the position behind it; nothing at or above `end` is looked at."""
    most_bytes, largest = kind
    value = shift = 0
    for at in range(position, min(end, position + most_bytes)):
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > largest:
                raise BadVarint
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise BadVarint


def append_varint(buffer: bytearray, value: int) -> None:
    """Write a number of at most 64 bits."""
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)
