"""Records of a batch: validation, encoding, decoding, and searches.

Data path   wire -> check_batch -> **validate_records** -> broker; Kafka's fetch never comes here broker.records ->
            **encode_batch** -> append; stored batch -> **iterate_batch** -> HTTP, gRPC
Owns        validating, reading and building the records of a batch; finding a record by time
Leaves      the header to `format.batch`, codecs to `format.compression` and `format.decompression`, the scan to
            `format.record_scanner`, the bytes of records to `format.record_codec`

Records are decoded lazily, a few at a time: a header of two bytes in the payload takes a hundred as an object.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple

from streamhouse.errors import CorruptBatch, InvalidRecord
from streamhouse.format.batch import HEADER_BYTES, BatchHeader, Buffer, pack_batch, read_header, update_crc
from streamhouse.format.compression import Codec, compress
from streamhouse.format.decompression import decompress
from streamhouse.format.record_codec import Origin, Part, SchemaIds, decode, encode, find_time, scan_schema_ids
from streamhouse.format.record_scanner import FieldError, scan
from streamhouse.model.record import NewRecord, StoredRecord

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1

MAX_RECORD_HEADERS: Final = 10_000
"""Default limit of a record's headers when it is read."""

MAX_BATCH_RECORDS: Final = 1_000_000
"""Default limit of the records of a produced batch."""

JUDGED_HEADERS: Final = 100_000
"""Maximum number of headers that `find_records` decodes in one batch."""

CHUNK_RECORDS: Final = 1000
CHUNK_BYTES: Final = 64 * 1024
"""Payload bytes that are decoded at a time; at least one record."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_MAGIC: Final = 2
_PREFIX_BYTES: Final = 12
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_MIN_LONG: Final = -(2**63)
_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1

_NEW_FIELD_ERROR_TEXTS: Final = {
    FieldError.LENGTH: "a record is too large for any batch",
    FieldError.HEADER: "a header's name is not Unicode text",
    FieldError.RANGE: "its timestamp leaves 64 bits, or is too far from the first one's",
}

_FIELD_ERROR_TEXTS: Final = {
    FieldError.TOO_FEW: "fewer records than the header says",
    FieldError.LEFT_OVER: "more bytes than the records take",
    FieldError.NUMBER: "a number is cut off or too long",
    FieldError.LENGTH: "a record's length is impossible",
    FieldError.OFFSET: "offset deltas are not 0, 1, 2",
    FieldError.KEY: "a key's length is impossible",
    FieldError.VALUE: "a value's length is impossible",
    FieldError.HEADER_COUNT: "the number of headers is impossible",
    FieldError.HEADER: "a header's length is impossible",
    FieldError.SIZE: "a record's fields don't fill it",
    FieldError.RANGE: "an offset or a timestamp leaves 64 bits",
    FieldError.HEADERS: "more headers than a record may have",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A decoded record. `build_batch` assigns offsets itself and ignores this one's."""

    offset: int = 0
    timestamp_ms: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordsSummary(NamedTuple):
    """Properties of the actual records, which the header may state wrongly."""

    min_timestamp_ms: int
    max_timestamp_ms: int
    null_keys: int


def validate_records(
    batch: Buffer,
    header: BatchHeader,
    *,
    limit_bytes: int,
    max_records: int = MAX_BATCH_RECORDS,
    max_headers: int = MAX_RECORD_HEADERS,
) -> RecordsSummary:
    """Validate the records of a produced batch; raises `CorruptBatch` or `InvalidRecord` unless they match the header
    and are at most `max_records` with at most `max_headers` each."""
    check_record_count(header, max_records)
    return validate_payload(stored_payload(batch, header, limit_bytes), header, max_headers=max_headers)


def check_record_count(header: BatchHeader, max_records: int) -> None:
    """Raise `InvalidRecord` for a batch of too many records."""
    if header.record_count > max_records:
        raise InvalidRecord(f"too many records in a batch; records={header.record_count} limit={max_records}")


def validate_payload(payload: Buffer, header: BatchHeader, *, max_headers: int) -> RecordsSummary:
    """Like `validate_records`, for decompressed records."""
    walked = scan(payload, header.record_count, max_headers=max_headers)
    if walked.field_error:
        raise _refused(walked.field_error, walked.record, max_headers)
    if header.is_log_append_time:
        return RecordsSummary(header.max_timestamp_ms, header.max_timestamp_ms, walked.null_keys)
    earliest = header.base_timestamp_ms + walked.min_timestamp_delta
    latest = header.base_timestamp_ms + walked.max_timestamp_delta
    if earliest < _MIN_LONG or latest > _MAX_LONG:
        raise InvalidRecord(f"a record's timestamp leaves 64 bits; earliest={earliest} latest={latest}")
    return RecordsSummary(earliest, latest, walked.null_keys)


def encode_batch(
    records: Sequence[NewRecord],
    *,
    codec: Codec,
    now_ms: int,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Encode records as a batch, as a Java producer would send it; records without a timestamp get `now_ms`.

    Raises `InvalidRecord` with the position of a record that no batch can hold, and `TypeError` for fields of wrong
    types.
    """
    if not records:
        raise InvalidRecord("a batch needs a record; records=0")
    field_error, index, batch, base_ms, max_ms = encode(records, now_ms, room_bytes=HEADER_BYTES)
    if field_error:
        raise InvalidRecord(
            f"no batch can hold a record; record={index} why={_NEW_FIELD_ERROR_TEXTS[field_error]}", records=[index]
        )
    if codec != Codec.NONE:
        packed = compress(codec, memoryview(batch)[HEADER_BYTES:])
        batch = bytearray(HEADER_BYTES) + packed
    length, last = len(batch) - _PREFIX_BYTES, len(records) - 1
    if length > _MAX_INT:
        raise InvalidRecord(f"records are too large for one batch; bytes={length} records={len(records)}")
    ids = (producer_id, producer_epoch, base_sequence)
    _HEADER.pack_into(batch, 0, 0, length, NO_EPOCH, _MAGIC, 0, codec, last, base_ms, max_ms, *ids, len(records))
    update_crc(batch)
    return batch


def iterate_batch(
    batch: Buffer, *, limit_bytes: int, from_offset: int = 0, max_headers: int = MAX_RECORD_HEADERS
) -> Iterator[StoredRecord]:
    """Iterate over the records of a stored batch from an offset on, none for control batches; bytes after the batch are
    ignored.

    The batch is decompressed for the first record. Raises `CorruptBatch` at the first record that is malformed or
    doesn't match the header, and `InvalidRecord` above the limits.
    """
    header = read_header(batch)
    if header.is_control or not header.record_count:
        return
    yield from _decoded(batch, header, limit_bytes, from_offset, max_headers)


def iterate_payload(
    payload: Buffer, header: BatchHeader, *, from_offset: int = 0, max_headers: int = MAX_RECORD_HEADERS
) -> Iterator[StoredRecord]:
    """Like `iterate_batch`, for decompressed records."""
    if header.is_control or not header.record_count:
        return
    yield from _decoded_payload(payload, header, from_offset, max_headers)


def decode_batch(batch: Buffer, *, limit_bytes: int, from_offset: int = 0) -> list[StoredRecord]:
    """Like `iterate_batch`, as a list."""
    return list(iterate_batch(batch, limit_bytes=limit_bytes, from_offset=from_offset))


def schema_ids(batch: Buffer, header: BatchHeader, *, limit_bytes: int, part: Literal["key", "value"]) -> SchemaIds:
    """The schema ids of the keys or the values of a produced batch; nulls have none."""
    return schema_ids_in(stored_payload(batch, header, limit_bytes), header, part=part)


def schema_ids_in(payload: Buffer, header: BatchHeader, *, part: Literal["key", "value"]) -> SchemaIds:
    """Like `schema_ids`, for decompressed records."""
    field_error, index, ids = scan_schema_ids(payload, header.record_count, of_key=part == "key")
    if field_error:
        raise _refused(field_error, index)
    return ids


def read_records(batch: Buffer, *, limit_bytes: int) -> list[Record]:
    """All records of a batch, also of a control batch."""
    return [_seen(record) for record in _decoded(batch, read_header(batch), limit_bytes)]


def find_records(
    batch: Buffer,
    header: BatchHeader,
    matches: Callable[[Record], bool],
    *,
    among: int,
    limit_bytes: int,
    max_headers: int = MAX_RECORD_HEADERS,
) -> list[int]:
    """Positions of the matching records among the first ones of a batch. Slow.

    The search ends after `JUDGED_HEADERS` headers, because each of them becomes an object.
    """
    positions: list[int] = []
    headers = 0
    for position, record in enumerate(islice(_decoded(batch, header, limit_bytes, max_headers=max_headers), among)):
        headers += len(record.headers)
        if headers > JUDGED_HEADERS:
            break
        if matches(_seen(record)):
            positions.append(position)
    return positions


def first_record_at(
    batch: Buffer, timestamp_ms: int, *, from_offset: int = 0, limit_bytes: int
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record at or above an offset with `timestamp_ms` or a later timestamp."""
    header = read_header(batch)
    if header.is_log_append_time and header.record_count == header.last_offset_delta + 1:
        at_or_after = header.max_timestamp_ms >= timestamp_ms and from_offset < header.end
        return (max(header.base_offset, from_offset), header.max_timestamp_ms) if at_or_after else None
    payload = stored_payload(batch, header, limit_bytes)
    field_error, index, match = find_time(
        payload, header.record_count, _origin(header), from_offset=from_offset, timestamp_ms=timestamp_ms
    )
    if field_error:
        raise malformed(field_error, index)
    return match


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    is_log_append_time: bool = False,
) -> bytearray:
    """A batch of these records with consecutive offsets, as a Java producer would send it."""
    new = [NewRecord(record.value, record.key, record.headers, record.timestamp_ms) for record in records]
    batch = encode_batch(
        new,
        codec=Codec(codec),
        now_ms=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    marks = _LOG_APPEND_TIME * is_log_append_time | _TRANSACTIONAL * is_transactional | _CONTROL * is_control
    header = read_header(batch)._replace(base_offset=base_offset, leader_epoch=leader_epoch, attributes=codec | marks)
    return pack_batch(header, memoryview(batch)[HEADER_BYTES:])


def stored_payload(batch: Buffer, header: BatchHeader, limit_bytes: int) -> Buffer:
    """The decompressed records of a batch; raises `InvalidRecord` above the limit."""
    stored = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.codec == Codec.NONE and len(stored) <= limit_bytes:
        return stored
    return decompress(header.codec, stored, limit_bytes=limit_bytes)


def malformed(field_error: FieldError, index: int) -> CorruptBatch:
    """The error for a stored batch whose record `index` is malformed."""
    return CorruptBatch(f"records are malformed; record={index} why={_FIELD_ERROR_TEXTS[field_error]}")


def _refused(field_error: FieldError, index: int, max_headers: int = 0) -> InvalidRecord:
    """The error for a produced batch whose record `index` is malformed."""
    limit = f" limit={max_headers}" if field_error is FieldError.HEADERS else ""
    return InvalidRecord(f"records are malformed; record={index} why={_FIELD_ERROR_TEXTS[field_error]}{limit}")


def _origin(header: BatchHeader) -> Origin:
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    return Origin(header.base_offset, header.base_timestamp_ms, append_time_ms)


def _decoded(
    batch: Buffer,
    header: BatchHeader,
    limit_bytes: int,
    from_offset: int = _MIN_LONG,
    max_headers: int = MAX_RECORD_HEADERS,
) -> Iterator[StoredRecord]:
    yield from _decoded_payload(stored_payload(batch, header, limit_bytes), header, from_offset, max_headers)


def _decoded_payload(
    payload: Buffer, header: BatchHeader, from_offset: int, max_headers: int
) -> Iterator[StoredRecord]:
    origin, count = _origin(header), header.record_count
    index = position = 0
    while True:
        part = Part(position, index, CHUNK_RECORDS, CHUNK_BYTES, max_headers)
        field_error, index, records, position = decode(payload, count, origin, from_offset=from_offset, part=part)
        yield from records
        if field_error is FieldError.HEADERS:
            raise InvalidRecord(f"a record has too many headers to be read; record={index} limit={max_headers}")
        if field_error:
            raise malformed(field_error, index)
        if index >= count:
            return


def _seen(record: StoredRecord) -> Record:
    offset, timestamp_ms, key, value, headers = record
    return Record(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
