"""Key hashes: which keys a batch has, as 16 bytes each, without an object per record.

Data path   none: segments -> batches -> **read_keys** -> who compacts them
Owns        the hash that stands for a key, twice: here, and in `_compaction.c` where that could be built
Leaves      which offset of a key is the latest to `format.compaction` and Spark; decompression and texts to `records`

A hash that somebody could find collisions of would let one client delete another's keys: so it is a cryptographic one.
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.record_walk import Flaw, locate_in_python
from streamhouse.format.records import malformed

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "key_hashes")
except ImportError:  # built without a compiler
    IS_COMPILED = False

KeyHash: TypeAlias = bytes

HASH_BYTES: Final = 16

_HASH: Final = Struct(f"{HASH_BYTES}s")
_MIN_LONG: Final = -(2**63)
_MAX_LONG: Final = 2**63 - 1


class Keys(NamedTuple):
    """The records of a batch that have a key: 16 bytes of hash, an int64 offset and one byte (1: no value) for each."""

    hashes: bytearray
    offsets: bytearray
    tombstones: bytearray

    @property
    def rows(self) -> int:
        return len(self.tombstones)

    def each(self) -> Iterator[tuple[KeyHash, int]]:
        return zip((key for (key,) in _HASH.iter_unpack(self.hashes)), memoryview(self.offsets).cast("q"), strict=True)


class KeysRead(NamedTuple):
    """The keys up to the first flaw, and the record that has it."""

    flaw: Flaw
    record: int
    keys: Keys


NO_KEYS: Final = Keys(bytearray(), bytearray(), bytearray())


def key_hash(key: Buffer) -> KeyHash:
    """16 bytes that stand for a key, as in Kafka: two keys of one hash would be taken for one."""
    return blake2b(key, digest_size=HASH_BYTES).digest()


def read_keys(payload: Buffer, header: BatchHeader) -> Keys:
    """The keys of a batch whose records were decompressed; raises `CorruptBatch` where they are none."""
    read = keys_in_c if IS_COMPILED else keys_in_python
    flaw, record, keys = read(payload, header.record_count, header.base_offset)
    if flaw:
        raise malformed(flaw, record)
    return keys


def keys_in_c(payload: Buffer, count: int, base_offset: int) -> KeysRead:
    flaw, record, *columns = _records.key_hashes(payload, count, base_offset)
    return KeysRead(Flaw(flaw), record, Keys(*columns))


def keys_in_python(payload: Buffer, count: int, base_offset: int) -> KeysRead:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    flaw, places = locate_in_python(payload, count)
    view = memoryview(payload)
    hashes, tombstones, offsets = bytearray(), bytearray(), array("q")
    for record, (*_, offset_delta, key, key_length, value_length) in enumerate(places):
        offset = base_offset + offset_delta
        if not _MIN_LONG <= offset <= _MAX_LONG:
            flaw, places = Flaw.RANGE, places[:record]
            break
        if key_length >= 0:
            hashes += key_hash(view[key : key + key_length])
            tombstones.append(value_length < 0)
            offsets.append(offset)
    return KeysRead(flaw, len(places), Keys(hashes, bytearray(offsets.tobytes()), tombstones))
