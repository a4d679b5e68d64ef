"""Record: what people publish and read, before and after it has a place in a log.

Data path   HTTP, gRPC -> **record** -> broker.records -> batches; batches -> **record** -> HTTP, gRPC
Owns        the nouns
Leaves      bytes of batches to `format.records`, where a record goes to `broker.forwarding`

Tuples, not dataclasses: they are made by the thousand, and a tuple is made in C.
"""

from enum import StrEnum
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]


class NewRecord(NamedTuple):
    """A record that has no place yet; without a partition its key chooses one, without a time it gets the present."""

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
    """What a publisher waits for."""

    BUFFERED = "buffered"
    """It is in the memory of the partition's leader, or on its way there; nobody is told when it fails after that."""
    WAL = "wal"
    """It is durable in the write-ahead log, and never lost after that."""
    STORED = "stored"
    """A registered segment in the object store holds it."""


class Receipt(NamedTuple):
    """Where a record went; `offset` is None where it is buffered at another agent and its place isn't known."""

    partition: int
    offset: int | None
    timestamp_ms: int
