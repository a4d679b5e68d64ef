"""Subscription: which topics a consumer reads, from what it joined with.

Data path   off; asked when offsets are to be deleted or expire
Owns        reading the beginning of the consumer protocol's metadata, which all its versions share
Leaves      the rest of it, which is the assignors' business, unread
"""

import struct
from typing import Final

_ARRAY: Final = struct.Struct(">hi")  # version, number of topics
_STRING: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics; None when the metadata is no consumer's."""
    try:
        _, count = _ARRAY.unpack_from(metadata)
        return _topics(metadata, count) if 0 <= count <= len(metadata) // _STRING.size else None
    except (struct.error, UnicodeDecodeError):
        return None


def _topics(metadata: bytes, count: int) -> frozenset[str] | None:
    position, topics = _ARRAY.size, set[str]()
    for _ in range(count):
        (length,) = _STRING.unpack_from(metadata, position)
        position += _STRING.size
        if not 0 <= length <= len(metadata) - position:
            return None
        topics.add(metadata[position : position + length].decode())
        position += length
    return frozenset(topics)
