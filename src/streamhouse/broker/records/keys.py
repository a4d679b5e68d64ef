"""Keys: an idempotency key becomes a producer of its own, so that the log itself recognises a retry.

Data path   publishing -> **keys** -> the numbers in a batch's header -> log's `producers`, here or at another agent
Owns        which producer id a key has, which sequence the content of a call has, where records without a key go
Leaves      recognising, remembering and expiring to `broker.producers`

The id says which key it was, the sequence with what content: the same key with the same records is a duplicate and
gets the first answer; with other records it doesn't follow anything that is remembered, and is refused.
"""

import hashlib
import struct
from collections.abc import Sequence
from typing import Final

from streamhouse.broker.producers import KEYS_FROM, SEQUENCES
from streamhouse.broker.records.lanes import Identity
from streamhouse.model.record import NewRecord

_LENGTH: Final = struct.Struct(">q")
_HASH_BYTES: Final = 8
_NONE: Final = -1


class Key:
    """An idempotency key, and what came with it."""

    __slots__ = ("_hash", "_sequence")

    def __init__(self, text: str, records: Sequence[NewRecord]) -> None:
        self._hash = _hashed(b"key", text.encode("utf-8", "surrogatepass"))
        self._sequence = _content(records) % SEQUENCES

    @property
    def sticky(self) -> int:
        """Decides where records without a key go: the same for each try."""
        return self._hash

    def identity(self, part: int) -> Identity:
        """Of the batch that is the `part`-th of its partition: each has an id to itself, since a producer's last
        batches alone are remembered."""
        producer_id = KEYS_FROM + _hashed(b"part", _LENGTH.pack(self._hash), _LENGTH.pack(part)) % KEYS_FROM
        return Identity(producer_id, 0, self._sequence)


def _hashed(*parts: bytes) -> int:
    digest = hashlib.blake2b(b"".join(parts), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest) >> 1


def _content(records: Sequence[NewRecord]) -> int:
    """A hash of everything that the caller said; the time that a record is given later is no part of it."""
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
