"""Consumer protocol: the subscriptions and assignments of consumers, which Kafka's brokers forward as opaque bytes.

Data path   none; used by the group coordinator (offsets to delete or expire), the HTTP API and the client
Owns        the only reader of ConsumerProtocolSubscription and ConsumerProtocolAssignment
Leaves      the user data of assignors unread

The bytes come from clients. Every length is compared with the remaining bytes before it is used, and a message has at
most `MAX_ELEMENTS` array elements. All versions of both messages begin with the fields read here.
"""

import struct
from collections.abc import Container
from typing import Final

MAX_ELEMENTS: Final = 1_000_000
"""Maximum array elements of a message, as in Kafka."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def subscribed_topics(subscription: bytes, *, among: Container[str] | None = None) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription, or those of them that are in `among`; None for other bytes."""
    try:
        message = _Bytes(subscription)
        message.integer(_INT16)  # the version
        topics = (message.string() for _ in range(message.count(least_bytes=_INT16.size)))
        return frozenset(topics if among is None else (topic for topic in topics if topic in among))
    except ValueError:
        return None


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]] | None:
    """The partitions of a ConsumerProtocolAssignment, by topic and number, each once; None for other bytes."""
    topics = assigned_numbers(assignment)
    if topics is None:
        return None
    return [(topic, number) for topic in sorted(topics) for number in sorted(topics[topic])]


def assigned_numbers(assignment: bytes) -> dict[str, set[int]] | None:
    """The numbers of the assigned partitions of each topic; None for other bytes."""
    topics: dict[str, set[int]] = {}
    try:
        message = _Bytes(assignment)
        message.integer(_INT16)
        for _ in range(message.count(least_bytes=_INT16.size + _INT32.size)):
            topic = message.string()
            topics.setdefault(topic, set()).update(message.integers(message.count(least_bytes=_INT32.size)))
    except ValueError:
        return None
    return topics


class _Bytes:
    """A reader of bytes; raises `ValueError` for malformed ones."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._elements_left = MAX_ELEMENTS

    @property
    def _left(self) -> int:
        return len(self._data) - self._position

    def integer(self, layout: struct.Struct) -> int:
        if self._left < layout.size:
            raise ValueError("the message ends too early")
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def integers(self, count: int) -> tuple[int, ...]:
        """`count` integers of 32 bits; `count` was compared with the remaining bytes."""
        found = struct.unpack_from(f">{count}i", self._data, self._position)
        self._position += count * _INT32.size
        return found

    def count(self, *, least_bytes: int) -> int:
        """The length of an array whose elements have at least `least_bytes` each."""
        count = self.integer(_INT32)
        self._elements_left -= count
        if not 0 <= count <= self._left // least_bytes or self._elements_left < 0:
            raise ValueError("an array is longer than the message")
        return count

    def string(self) -> str:
        length = self.integer(_INT16)
        if not 0 <= length <= self._left:
            raise ValueError("a string is longer than the message")
        start, self._position = self._position, self._position + length
        return self._data[start : self._position].decode()
