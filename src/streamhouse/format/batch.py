"""Record batch: the header of Kafka's record batch v2.

Data path   wire -> **check_batch** -> broker assigns offsets -> **assign_offset** -> WAL, tail, segment -> fetch
Owns        the 61-byte header: reading, checking, writing base offset, leader epoch and append time
Leaves      the records after the header to `format.records`, their codecs to `format.compression`
Invariant   base offset and leader epoch are not covered by the CRC, so assigning offsets never changes the checksum

`check_batch` rejects what Apache Kafka's broker rejects before it checks single records.
"""

import struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from streamhouse.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedCompression,
    UnsupportedFormat,
)

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
MAX_CODEC: Final = 4
KEEP_GIL: Final = 0
"""For checksums on the event loop: one of a mebibyte takes 30 µs, and another thread may keep the GIL much longer."""
MAX_OFFSET_DELTA: Final = 2**31 - 1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_SPAN: Final = struct.Struct(">qi11xi8xq")
_BASE: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_PRODUCER: Final = struct.Struct(">qhi")

# Not counted by the length field: base offset and the length itself.
_PREFIX_BYTES: Final = 12
_LENGTH_AT: Final = 8
_EPOCH_AT: Final = 12
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_AT: Final = 43

_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class BatchHeader(NamedTuple):
    """The header's fields. A tuple, not a dataclass: one is made per produced batch, and a tuple is made in C."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp field has the delete horizon (KIP-534), as in compacted batches."""
        return bool(self.attributes & _DELETE_HORIZON)

    def with_delete_horizon(self, horizon_ms: int) -> "BatchHeader":
        """A header with the delete horizon as base timestamp."""
        return self._replace(attributes=self.attributes | _DELETE_HORIZON, base_timestamp_ms=horizon_ms)

    @property
    def end(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    def appended_at(self, base_offset: int, leader_epoch: int) -> "BatchHeader":
        """The header with what a leader writes into it. For every appended batch, so faster than `_replace`."""
        return tuple.__new__(BatchHeader, (base_offset, self[1], leader_epoch, *self[3:]))

    @property
    def last_sequence(self) -> int:
        """The last record's sequence; after 2**31 - 1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK


class BatchSpan(NamedTuple):
    """The position of a batch in a buffer of consecutive batches, and its offsets [base, end)."""

    position: int
    size_bytes: int
    base: int
    end: int
    max_timestamp_ms: int


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`; the whole batch must be present, bytes after it are ignored."""
    available = len(buffer) - position
    # Checked first: messages of magic 0 and 1 have their magic at the same position and may be shorter than our header.
    if available > _MAGIC_AT and buffer[position + _MAGIC_AT] != 2:
        raise UnsupportedFormat(f"record batch is not of magic 2; magic={buffer[position + _MAGIC_AT]}")
    if available < HEADER_BYTES:
        raise CorruptBatch(f"record batch is cut off in its header; bytes={available} header={HEADER_BYTES}")
    fields = _HEADER.unpack_from(buffer, position)
    size_bytes = fields[1] + _PREFIX_BYTES
    if not HEADER_BYTES <= size_bytes <= available:
        raise CorruptBatch(f"record batch has an impossible length; declared={size_bytes} available={available}")
    # Straight from a tuple: the constructor with its thirteen arguments takes three times as long.
    return tuple.__new__(BatchHeader, (fields[0], size_bytes, *fields[2:]))


def codec_of(batch: Buffer) -> int:
    """The codec of a batch with a complete header."""
    attributes: int = batch[_ATTRIBUTES_AT + 1]
    return attributes & _CODEC_MASK


def pack_batch(header: BatchHeader, stored: Buffer) -> bytearray:
    """A batch with these fields followed by `stored`; computes size and checksum."""
    batch = bytearray(HEADER_BYTES)
    batch += stored
    write_header(batch, header)
    return batch


def empty_batch(base_offset: int, end: int, *, leader_epoch: int) -> bytearray:
    """A batch without records, by which readers skip offsets without records: up to `end`, or to the maximum of one
    batch."""
    header = BatchHeader(
        base_offset=base_offset,
        size_bytes=HEADER_BYTES,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=min(end - base_offset - 1, MAX_OFFSET_DELTA),
        base_timestamp_ms=-1,
        max_timestamp_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return pack_batch(header, b"")


def write_header(batch: bytearray, header: BatchHeader) -> None:
    """Write the header in front of the records, in place; computes size and checksum."""
    _HEADER.pack_into(batch, 0, header.base_offset, len(batch) - _PREFIX_BYTES, *header[2:])
    update_crc(batch)


def check_batch(buffer: Buffer) -> BatchHeader:
    """Check a produced buffer of one partition: it must be exactly one complete, undamaged, consistent batch."""
    if not buffer:
        raise InvalidRecord("no record batch; expected=1")
    header = _read_from_client(buffer)
    if header.size_bytes != len(buffer):
        raise _trailing(buffer, header.size_bytes)
    actual = crc32c(memoryview(buffer)[_ATTRIBUTES_AT:], gil_release_mode=KEEP_GIL)
    if actual != header.crc:
        raise CorruptBatch(f"record batch has a wrong checksum; declared={header.crc:08x} actual={actual:08x}")
    _check_counts(header)
    _check_attributes(header)
    _check_producer(header)
    return header


def _read_from_client(buffer: Buffer) -> BatchHeader:
    try:
        return read_header(buffer)
    except UnsupportedFormat:
        # 0 and 1 are earlier formats; any other magic is damage.
        if buffer[_MAGIC_AT] > 2:
            raise CorruptBatch(f"record batch has an unknown magic; magic={buffer[_MAGIC_AT]}") from None
        raise


def _trailing(buffer: Buffer, position: int) -> CorruptBatch | InvalidRecord:
    """The error for bytes after the batch: a second complete batch violates a rule, anything else is damage."""
    rest = len(buffer) - position
    if rest > _MAGIC_AT and buffer[position + _MAGIC_AT] <= 2:
        (length,) = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)
        if 0 < length + _PREFIX_BYTES <= rest:
            return InvalidRecord("more than one record batch for a partition; expected=1")
    return CorruptBatch(f"record batch is followed by other bytes; batch={position} trailing={rest}")


def _check_counts(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset of a produced batch must be 0; base={header.base_offset}")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"record count and offsets disagree; count={header.record_count} last_delta={header.last_offset_delta}"
        )


def _check_attributes(header: BatchHeader) -> None:
    if header.codec > MAX_CODEC:
        raise UnsupportedCompression(f"unknown compression codec; codec={header.codec}")
    if header.is_control:
        raise InvalidRecord("clients can't write control batches")
    if header.is_log_append_time:
        raise InvalidTimestamp("only agents write the append time; attribute=log_append_time")


def _check_producer(header: BatchHeader) -> None:
    # Without a producer id, epoch and sequence are meaningless, and clients send various values.
    if header.producer_id > NO_PRODUCER_ID:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise InvalidRecord(
                "batch of an idempotent producer needs epoch and sequence; "
                f"producer={header.producer_id} epoch={header.producer_epoch} sequence={header.base_sequence}"
            )
    elif header.producer_id < NO_PRODUCER_ID:
        raise InvalidRecord(f"producer id is negative; producer={header.producer_id}")
    elif header.is_transactional:
        raise InvalidRecord("transactional batch has no producer id")


def assign_offset(buffer: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a batch, in place."""
    _BASE.pack_into(buffer, 0, base_offset)
    _LENGTH.pack_into(buffer, _EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, now_ms: int) -> None:
    """Set the timestamps of all records to the append time (LogAppendTime), in place."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(buffer, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_AT, now_ms)
    update_crc(buffer)


def correct_max_timestamp(buffer: bytearray | memoryview, max_timestamp_ms: int) -> BatchHeader:
    """Replace a maximum timestamp that doesn't match the records, as Kafka does, in place; returns the new header."""
    _TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    update_crc(buffer)
    return read_header(buffer)


def set_producer(buffer: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write the fields of an idempotent producer, in place."""
    _PRODUCER.pack_into(buffer, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    update_crc(buffer)


def without_log_fields(batch: Buffer) -> bytearray:
    """A copy of a stored batch without offset, producer and append time, for records that are appended a second
    time."""
    header = read_header(batch)
    fresh = header._replace(
        base_offset=0,
        leader_epoch=-1,
        attributes=header.attributes & ~(_LOG_APPEND_TIME | _TRANSACTIONAL),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
    )
    return pack_batch(fresh, memoryview(batch)[HEADER_BYTES:])


def update_crc(buffer: bytearray | memoryview) -> None:
    """Recompute the checksum in place; the buffer contains exactly one batch."""
    _CRC.pack_into(buffer, _CRC_AT, crc32c(memoryview(buffer)[_ATTRIBUTES_AT:], gil_release_mode=KEEP_GIL))


def iter_batches(buffer: Buffer) -> list[BatchSpan]:
    """Iterate over consecutive batches that were checked before; raises `CorruptBatch` on inconsistent lengths."""
    spans: list[BatchSpan] = []
    position, size = 0, len(buffer)
    unpack = _SPAN.unpack_from
    while position < size:
        if size - position < HEADER_BYTES:
            raise CorruptBatch(f"batches end inside a header; position={position} size={size}")
        base, length, last_delta, max_timestamp_ms = unpack(buffer, position)
        batch_bytes = length + _PREFIX_BYTES
        if not HEADER_BYTES <= batch_bytes <= size - position:
            raise CorruptBatch(f"batches end inside a batch; position={position} declared={batch_bytes} size={size}")
        spans.append(BatchSpan(position, batch_bytes, base, base + last_delta + 1, max_timestamp_ms))
        position += batch_bytes
    return spans


def shift_offsets(buffer: Buffer, *, by: int, leader_epoch: int) -> bytes:
    """A copy of consecutive batches with offsets increased by `by`, under the given leader epoch."""
    copy = bytearray(buffer)
    for span in iter_batches(copy):
        _BASE.pack_into(copy, span.position, span.base + by)
        _LENGTH.pack_into(copy, span.position + _EPOCH_AT, leader_epoch)
    return bytes(copy)
