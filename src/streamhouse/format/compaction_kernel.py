"""Compaction kernel: hashes of the keys of a batch, and removal of records by offset, without an object per record.

Both are implemented in `_compaction_kernel.c` and, as fallback, here. `format.compaction` decides which offsets are
retained and writes the header.

The hash is cryptographic: with a weaker one, a client could create collisions and so delete records of other clients.
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.record_scanner import FieldError, RecordLayout, append_varint, record_positions_in_python
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
    """The records of a batch that have a key: for each a 16-byte hash, an int64 offset and one byte (1: no value)."""

    hashes: bytearray
    offsets: bytearray
    tombstones: bytearray

    @property
    def rows(self) -> int:
        return len(self.tombstones)

    def each(self) -> Iterator[tuple[KeyHash, int]]:
        return zip((key for (key,) in _HASH.iter_unpack(self.hashes)), memoryview(self.offsets).cast("q"), strict=True)


class KeysRead(NamedTuple):
    """The keys up to the first invalid record, its error and its index."""

    field_error: FieldError
    record: int
    keys: Keys


NO_KEYS: Final = Keys(bytearray(), bytearray(), bytearray())


def key_hash(key: Buffer) -> KeyHash:
    """A 16-byte hash of a key, as in Kafka: two keys with the same hash count as one."""
    return blake2b(key, digest_size=HASH_BYTES).digest()


def read_keys(payload: Buffer, header: BatchHeader) -> Keys:
    """The keys of a batch's decompressed records; raises `CorruptBatch` if they are malformed."""
    read = keys_in_c if IS_COMPILED else keys_in_python
    field_error, record, keys = read(payload, header.record_count, header.base_offset)
    if field_error:
        raise malformed(field_error, record)
    return keys


def keys_in_c(payload: Buffer, count: int, base_offset: int) -> KeysRead:
    field_error, record, *columns = _records.key_hashes(payload, count, base_offset)
    return KeysRead(FieldError(field_error), record, Keys(*columns))


def keys_in_python(payload: Buffer, count: int, base_offset: int) -> KeysRead:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    field_error, layouts = record_positions_in_python(payload, count)
    view = memoryview(payload)
    hashes, tombstones, offsets = bytearray(), bytearray(), array("q")
    for record, (*_, offset_delta, key, key_length, value_length) in enumerate(layouts):
        offset = base_offset + offset_delta
        if not _MIN_LONG <= offset <= _MAX_LONG:
            field_error, layouts = FieldError.RANGE, layouts[:record]
            break
        if key_length >= 0:
            hashes += key_hash(view[key : key + key_length])
            tombstones.append(value_length < 0)
            offsets.append(offset)
    return KeysRead(field_error, len(layouts), Keys(hashes, bytearray(offsets.tobytes()), tombstones))


try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "filter")
except ImportError:  # built without a compiler
    IS_COMPILED = False


class RecordFilter(NamedTuple):
    """The records to retain: `offsets` are ascending int64 numbers in native byte order; records without a key are
    removed.

    `retime_by` is added to the timestamp deltas if a tombstone is retained. All are 64-bit numbers that wrap around;
    the sum is right, because `retime_by` wraps alike.
    """

    offsets: Buffer
    drop_tombstones: bool = False
    retime_by: int | None = None


class FilteredRecords(NamedTuple):
    """The retained records of a payload; `records` is None if none are retained, or all of them unchanged."""

    field_error: FieldError
    record: int
    kept: int
    latest_delta: int
    is_retimed: bool
    records: Buffer | None


def wrapped(number: int) -> int:
    """The number's lowest 64 bits as a signed number."""
    return (number + 2**63) % 2**64 - 2**63


def filter_records(payload: Buffer, header: BatchHeader, rules: RecordFilter) -> FilteredRecords:
    """Filter a batch's decompressed records; raises `CorruptBatch` if they are malformed."""
    implementation = filter_in_c if IS_COMPILED else filter_in_python
    result = implementation(payload, header.record_count, header.base_offset, rules)
    if result.field_error:
        raise malformed(result.field_error, result.record)
    return result


def shift_timestamps(payload: Buffer, header: BatchHeader, *, by_ms: int) -> bytes:
    """Add `by_ms` to the timestamp deltas of all records; in Python, so only for batches of few records."""
    field_error, layouts = record_positions_in_python(payload, header.record_count)
    if field_error:
        raise malformed(field_error, len(layouts))
    return _shift_timestamps(memoryview(payload), layouts, by_ms=by_ms)


def filter_in_c(payload: Buffer, count: int, base_offset: int, rules: RecordFilter) -> FilteredRecords:
    field_error, record, kept, latest, is_retimed, records = _records.filter(payload, count, base_offset, *rules)
    return FilteredRecords(FieldError(field_error), record, kept, latest, bool(is_retimed), records)


def filter_in_python(payload: Buffer, count: int, base_offset: int, rules: RecordFilter) -> FilteredRecords:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    field_error, layouts = record_positions_in_python(payload, count)
    if field_error:
        return FilteredRecords(field_error, len(layouts), 0, 0, False, None)
    kept = _kept(layouts, base_offset, rules)
    is_retimed = rules.retime_by is not None and any(layout[8] < 0 for layout in kept)
    latest = max((layout[4] for layout in kept), default=0)
    if not kept or (len(kept) == count and not is_retimed):
        return FilteredRecords(FieldError.NONE, count, len(kept), latest, is_retimed, None)
    view = memoryview(payload)
    if is_retimed:
        records: Buffer = _shift_timestamps(view, kept, by_ms=rules.retime_by or 0)
    else:
        records = b"".join([view[layout[0] : layout[3]] for layout in kept])
    return FilteredRecords(FieldError.NONE, count, len(kept), latest, is_retimed, records)


def _kept(layouts: list[RecordLayout], base_offset: int, rules: RecordFilter) -> list[RecordLayout]:
    ends = base_offset + max((layout[5] for layout in layouts), default=0)
    offsets = {each for each in memoryview(rules.offsets).cast("B").cast("q") if base_offset <= each <= ends}
    return [
        layout
        for layout in layouts
        if layout[7] >= 0 and base_offset + layout[5] in offsets and (layout[8] >= 0 or not rules.drop_tombstones)
    ]


def _shift_timestamps(payload: memoryview, kept: list[RecordLayout], *, by_ms: int) -> bytes:
    """Encode the records with changed timestamp deltas."""
    records = bytearray()
    for _, body, rest, end, timestamp_delta, *_ in kept:
        head = bytearray(payload[body : body + 1])
        append_varint(head, wrapped(timestamp_delta + by_ms))
        append_varint(records, len(head) + end - rest)
        records += head
        records += payload[rest:end]
    return bytes(records)
