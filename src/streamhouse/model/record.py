"""Records as clients publish and read them.

Data path   HTTP, gRPC -> **record** -> broker.records -> batches; batches -> **record** -> HTTP, gRPC
Owns        the types
Leaves      bytes of batches to `format.records`, choosing partitions to `broker.forwarding`

Tuples, not dataclasses: thousands are created, and a tuple is created in C.
"""

from enum import StrEnum
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]


class NewRecord(NamedTuple):
    """A record to publish; without a partition the key decides, without a timestamp it gets the current time."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class StoredRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Acks(StrEnum):
    """The meaning of an acknowledgement."""

    BUFFERED = "buffered"
    """The record is in the leader's memory, or in flight to it; later failures are not reported."""
    WAL = "wal"
    """The record is durable in the write-ahead log."""
    STORED = "stored"
    """The record is in a registered segment in the object store."""


class Receipt(NamedTuple):
    """Partition and offset of a record; `offset` is None if another agent buffers it."""

    partition: int
    offset: int | None
    timestamp_ms: int
