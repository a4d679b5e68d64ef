"""OutboundBatch: the records for one partition, encoded again for each attempt; IdempotencyKey: a retry key of a call.

Data path   publish -> **outbound_batch** -> forwarding_producer -> a log, or another agent
Owns        the sequence numbers in a batch's header; excluding records that were rejected
Leaves      encoding to `format`; detecting duplicates to `partition.producer_state`

A log writes into the bytes that it gets, so each attempt has bytes of its own.

An idempotency key becomes a producer id, and the content of the call becomes its sequence number. The same key with
the same records is a duplicate and gets the first response. With other records it is rejected.
"""

import asyncio
import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from streamhouse.broker.forwarding.producer_ids import BatchIdentity
from streamhouse.broker.partition.producer_state import FIRST_KEY_ID, SEQUENCES
from streamhouse.errors import BadRecords, InvalidRecord, StreamhouseError
from streamhouse.format.batch import BatchHeader, check_batch, read_header, set_producer
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.model.record import NewRecord

_LENGTH: Final = struct.Struct(">q")
_HASH_BYTES: Final = 8
_NONE: Final = -1


class IdempotencyKey:
    __slots__ = ("_hash", "_sequence")

    def __init__(self, text: str, records: Sequence[NewRecord]) -> None:
        self._hash = _hashed(b"key", text.encode("utf-8", "surrogatepass"))
        self._sequence = _content(records) % SEQUENCES

    @property
    def sticky(self) -> int:
        """Selects the partition of records without a key: the same for each attempt."""
        return self._hash

    def identity(self, part: int) -> BatchIdentity:
        """The identity of the `part`-th batch of a partition. Each batch has a producer id of its own, because leaders
        remember only a producer's last batches."""
        producer_id = FIRST_KEY_ID + _hashed(b"part", _LENGTH.pack(self._hash), _LENGTH.pack(part)) % FIRST_KEY_ID
        return BatchIdentity(producer_id, 0, self._sequence)


def _hashed(*parts: bytes) -> int:
    digest = hashlib.blake2b(b"".join(parts), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest) >> 1


def _content(records: Sequence[NewRecord]) -> int:
    """A hash of the records as the client sent them; timestamps that are assigned later are no part of it."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for record in records:
        _add(digest, record.key)
        _add(digest, record.value)
        digest.update(_LENGTH.pack(len(record.headers)))
        for name, value in record.headers:
            _add(digest, name.encode("utf-8", "surrogatepass"))
            _add(digest, value)
        _add(digest, repr((record.timestamp_ms, record.partition)).encode())
    return int.from_bytes(digest.digest())


def _add(digest: "hashlib.blake2b", field: bytes | None) -> None:
    digest.update(_LENGTH.pack(_NONE if field is None else len(field)))
    if field:
        digest.update(field)


INLINE_BYTES: Final = 256 * 1024
"""Larger batches are encoded in a thread, smaller ones on the event loop."""

INLINE_ELEMENTS: Final = 2000
"""Records and headers up to which a call is translated, and a batch encoded, on the event loop."""

OnRejected = Callable[[int, StreamhouseError], None]


class OutboundBatch(Protocol):
    @property
    def count(self) -> int:
        """Number of records."""
        ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def identity(self) -> BatchIdentity | None:
        """Producer id, epoch and sequence that the client sent; a batch without gets one before it may be sent
        twice."""
        ...

    @property
    def is_keyed(self) -> bool:
        """Whether `identity` comes from an idempotency key."""
        ...

    async def batch(self, identity: BatchIdentity | None) -> bytearray: ...

    def exclude(self, error: BadRecords) -> bool:
        """Remove the invalid records; False if none is left, or the error does not name them."""
        ...


class RawBatch:
    """A whole batch, as the client has encoded it."""

    is_keyed = False

    def __init__(self, source: memoryview) -> None:
        self._source = source
        self._header: BatchHeader = read_header(source)
        if self._header.producer_id >= FIRST_KEY_ID:
            raise InvalidRecord(f"producer id is reserved for idempotency keys; from={FIRST_KEY_ID}")
        self.count = self._header.record_count
        self.size_bytes = len(source)

    @property
    def timestamp_ms(self) -> int:
        return self._header.base_timestamp_ms

    @property
    def identity(self) -> BatchIdentity | None:
        header = self._header
        if header.producer_id < 0:
            return None
        return BatchIdentity(header.producer_id, header.producer_epoch, header.base_sequence)

    async def batch(self, identity: BatchIdentity | None) -> bytearray:
        copy = bytearray(self._source)
        if identity is not None and self.identity is None:
            check_batch(copy)  # otherwise the new checksum would hide damage
            set_producer(copy, *identity)
        return copy

    def exclude(self, error: BadRecords) -> bool:
        return False


class RecordBatch:
    """Records of one partition; `positions` are their indexes in the call."""

    def __init__(
        self,
        records: Sequence[NewRecord],
        positions: Sequence[int],
        *,
        codec: Codec,
        now_ms: int,
        identity: BatchIdentity | None,
        refuse: OnRejected,
        first: bytearray,
    ) -> None:
        self._records = records
        self.positions = positions
        self._codec = codec
        self._now_ms = now_ms
        self.identity = identity
        self._refuse = refuse
        self._first: bytearray | None = first
        self.size_bytes = len(first)

    @property
    def count(self) -> int:
        return len(self._records)

    @property
    def is_keyed(self) -> bool:
        return self.identity is not None

    def timestamps_ms(self) -> list[int]:
        now_ms = self._now_ms
        return [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in self._records]

    async def batch(self, identity: BatchIdentity | None) -> bytearray:
        encoded, self._first = self._first, None
        if encoded is None:
            encoded = await encode(self._records, codec=self._codec, now_ms=self._now_ms, size_bytes=self.size_bytes)
        if (numbers := self.identity or identity) is not None:
            set_producer(encoded, *numbers)
        return encoded

    def exclude(self, error: BadRecords) -> bool:
        invalid = {index for index in error.records if 0 <= index < len(self._records)}
        if not invalid:
            return False
        for index in invalid:
            self._refuse(self.positions[index], error)
        valid = [index for index in range(len(self._records)) if index not in invalid]
        self._records = [self._records[index] for index in valid]
        self.positions = [self.positions[index] for index in valid]
        self._first = None
        return bool(valid)


def has_many_elements(records: Sequence[NewRecord]) -> bool:
    return len(records) > INLINE_ELEMENTS or sum([len(each.headers) for each in records]) > INLINE_ELEMENTS


async def encode(records: Sequence[NewRecord], *, codec: Codec, now_ms: int, size_bytes: int) -> bytearray:
    if size_bytes <= INLINE_BYTES and not has_many_elements(records):
        return encode_batch(records, codec=codec, now_ms=now_ms)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: encode_batch(records, codec=codec, now_ms=now_ms))
