"""Compaction kernel: hashes of the keys of a batch, and removal of records by offset, without an object per record.

Both exist twice, here and in `_compaction_kernel.c`, which is used where it could be built. `format.compaction` decides
which offsets stay and writes the header.

The hash is a cryptographic one: with a weaker hash, a client could create collisions and delete keys of other clients.
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.record_scanner import FieldError, Place, append_varint, record_positions_in_python
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

    flaw: FieldError
    record: int
    keys: Keys


NO_KEYS: Final = Keys(bytearray(), bytearray(), bytearray())


def key_hash(key: Buffer) -> KeyHash:
    """A 16-byte hash of a key, as in Kafka: two keys with the same hash count as one."""
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
    return KeysRead(FieldError(flaw), record, Keys(*columns))


def keys_in_python(payload: Buffer, count: int, base_offset: int) -> KeysRead:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    flaw, places = record_positions_in_python(payload, count)
    view = memoryview(payload)
    hashes, tombstones, offsets = bytearray(), bytearray(), array("q")
    for record, (*_, offset_delta, key, key_length, value_length) in enumerate(places):
        offset = base_offset + offset_delta
        if not _MIN_LONG <= offset <= _MAX_LONG:
            flaw, places = FieldError.RANGE, places[:record]
            break
        if key_length >= 0:
            hashes += key_hash(view[key : key + key_length])
            tombstones.append(value_length < 0)
            offsets.append(offset)
    return KeysRead(flaw, len(places), Keys(hashes, bytearray(offsets.tobytes()), tombstones))


try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "filter")
except ImportError:  # built without a compiler
    IS_COMPILED = False


class RecordFilter(NamedTuple):
    """What stays: `offsets` is int64 numbers in the machine's order, ascending; records without a key never do.

    With `retime_by`, timestamp deltas grow by that, provided that a tombstone stays. Both are numbers of 64 bits, and
    so is the sum: whatever it loses above them was lost by `retime_by` before.
    """

    offsets: Buffer
    drop_tombstones: bool = False
    retime_by: int | None = None


class FilteredRecords(NamedTuple):
    """What stays of a payload; `records` is None where none does, and where all do as they are."""

    flaw: FieldError
    record: int
    kept: int
    latest_delta: int
    is_retimed: bool
    records: Buffer | None


def wrapped(number: int) -> int:
    """The number's lowest 64 bits as a signed number."""
    return (number + 2**63) % 2**64 - 2**63


def filter_records(payload: Buffer, header: BatchHeader, wanted: RecordFilter) -> FilteredRecords:
    """What stays of a batch whose records were decompressed; raises `CorruptBatch` where they are none."""
    act = filter_in_c if IS_COMPILED else filter_in_python
    found = act(payload, header.record_count, header.base_offset, wanted)
    if found.flaw:
        raise malformed(found.flaw, found.record)
    return found


def shift_timestamps(payload: Buffer, header: BatchHeader, *, by_ms: int) -> bytes:
    """All records of a batch, which are few, with timestamp deltas that are larger by that."""
    flaw, places = record_positions_in_python(payload, header.record_count)
    if flaw:
        raise malformed(flaw, len(places))
    return _shift_timestamps(memoryview(payload), places, by_ms=by_ms)


def filter_in_c(payload: Buffer, count: int, base_offset: int, wanted: RecordFilter) -> FilteredRecords:
    flaw, record, kept, latest, is_retimed, records = _records.filter(payload, count, base_offset, *wanted)
    return FilteredRecords(FieldError(flaw), record, kept, latest, bool(is_retimed), records)


def filter_in_python(payload: Buffer, count: int, base_offset: int, wanted: RecordFilter) -> FilteredRecords:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    flaw, places = record_positions_in_python(payload, count)
    if flaw:
        return FilteredRecords(flaw, len(places), 0, 0, False, None)
    kept = _kept(places, base_offset, wanted)
    is_retimed = wanted.retime_by is not None and any(place[8] < 0 for place in kept)
    latest = max((place[4] for place in kept), default=0)
    if not kept or (len(kept) == count and not is_retimed):
        return FilteredRecords(FieldError.NONE, count, len(kept), latest, is_retimed, None)
    view = memoryview(payload)
    if is_retimed:
        records: Buffer = _shift_timestamps(view, kept, by_ms=wanted.retime_by or 0)
    else:
        records = b"".join([view[place[0] : place[3]] for place in kept])
    return FilteredRecords(FieldError.NONE, count, len(kept), latest, is_retimed, records)


def _kept(places: list[Place], base_offset: int, wanted: RecordFilter) -> list[Place]:
    ends = base_offset + max((place[5] for place in places), default=0)
    offsets = {each for each in memoryview(wanted.offsets).cast("B").cast("q") if base_offset <= each <= ends}
    return [
        place
        for place in places
        if place[7] >= 0 and base_offset + place[5] in offsets and not (wanted.drop_tombstones and place[8] < 0)
    ]


def _shift_timestamps(payload: memoryview, kept: list[Place], *, by_ms: int) -> bytes:
    """The records with other timestamp deltas, because they are counted from another base."""
    records = bytearray()
    for _, body, rest, end, timestamp_delta, *_ in kept:
        head = bytearray(payload[body : body + 1])
        append_varint(head, wrapped(timestamp_delta + by_ms))
        append_varint(records, len(head) + end - rest)
        records += head
        records += payload[rest:end]
    return bytes(records)
