"""Encodes records as the payload of a batch, and decodes payloads.

Data path   broker.records -> `format.records.encode_batch` -> **encode**; stored batch -> `decode_batch` -> **decode**
Owns        encoding, decoding, and the scan for schema ids; implemented in `_record_codec.c` and, as fallback, here
Leaves      the batch's header, compression and errors to `format.records`; a record's structure to `record_scanner`

Malformed bytes result in a `FieldError` with the record's index; objects of wrong types raise `TypeError`.
"""

from collections.abc import Sequence
from types import UnionType
from typing import Final, NamedTuple

from streamhouse.format.batch import Buffer
from streamhouse.format.record_scanner import (
    FieldError,
    InvalidRecordField,
    RecordLayout,
    append_varint,
    read_position,
    read_varint,
)
from streamhouse.format.schema_id import MAGIC, PREFIX_BYTES
from streamhouse.model.record import Header, NewRecord, StoredRecord

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "find_time")
except ImportError:  # built without a compiler
    IS_COMPILED = False

_MIN_LONG: Final = -(2**63)
_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1

MAX_SCHEMA_IDS: Final = 2000
"""Maximum number of different schema ids that a scan returns; at most `MOST_IDS` in `_record_codec.c`."""


class Encoded(NamedTuple):
    """Space for a header, then the records; or the error in the record at index `record`."""

    field_error: FieldError
    record: int
    batch: bytearray
    base_timestamp_ms: int
    max_timestamp_ms: int


class Decoded(NamedTuple):
    """The records before index `record`, which is at `position` and may be malformed."""

    field_error: FieldError
    record: int
    records: list[StoredRecord]
    position: int


class Part(NamedTuple):
    """Where decoding continues, and how much of a payload is decoded at once: at least one record.

    No returned record may have more than `max_headers`; 0: no limit.
    """

    position: int = 0
    record: int = 0
    max_records: int = _MAX_INT
    max_bytes: int = _MAX_LONG
    max_headers: int = 0


ALL: Final = Part()


class TimestampMatch(NamedTuple):
    """Offset and timestamp of the match, None if there is none; or the error in the record at index `record`."""

    field_error: FieldError
    record: int
    match: tuple[int, int] | None


class Origin(NamedTuple):
    """The base values of the deltas in a payload; an append time replaces the timestamps of all records."""

    base_offset: int
    base_timestamp_ms: int
    append_time_ms: int | None


class SchemaIds(NamedTuple):
    """The schema ids at the start of keys or values, each with the index of the first record that has it.

    `unframed` is the first record that is not null and has no id; the scan ends there, or after `MAX_SCHEMA_IDS`
    different ids: then `is_cut`.
    """

    ids: dict[int, int]
    unframed: int | None
    is_cut: bool = False


class ScannedIds(NamedTuple):
    field_error: FieldError
    record: int
    ids: SchemaIds


def encode(records: Sequence[NewRecord], now_ms: int, *, room_bytes: int) -> Encoded:
    """Encode one record or more as a payload, after `room_bytes` of zeros; records without a timestamp get `now_ms`."""
    if IS_COMPILED:
        return encode_in_c(records, now_ms, room_bytes)
    return encode_in_python(records, now_ms, room_bytes)


def encode_in_c(records: Sequence[NewRecord], now_ms: int, room_bytes: int) -> Encoded:
    field_error, index, batch, base_ms, max_ms = _records.encode(records, now_ms, room_bytes)
    return Encoded(FieldError(field_error), index, batch, base_ms, max_ms)


def encode_in_python(records: Sequence[NewRecord], now_ms: int, room_bytes: int) -> Encoded:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    _is_a(list | tuple, records, "records")
    batch = bytearray(room_bytes)
    base_ms = latest_ms = 0
    for index, record in enumerate(records):
        try:
            own_ms = _time_of(record, now_ms)
            if index == 0:
                base_ms = latest_ms = own_ms
            _append_record(batch, record, index, own_ms - base_ms)
        except InvalidRecordField as invalid:
            return Encoded(invalid.field_error, index, bytearray(), 0, 0)
        latest_ms = max(latest_ms, own_ms)
    return Encoded(FieldError.NONE, len(records), batch, base_ms, latest_ms)


def decode(payload: Buffer, count: int, origin: Origin, *, from_offset: int = 0, part: Part = ALL) -> Decoded:
    """Decode a payload of exactly `count` records, from an offset on; offsets may have gaps."""
    if IS_COMPILED:
        return decode_in_c(payload, count, origin, from_offset, part)
    return decode_in_python(payload, count, origin, from_offset, part)


def decode_in_c(payload: Buffer, count: int, origin: Origin, from_offset: int, part: Part = ALL) -> Decoded:
    field_error, record, records, position = _records.decode(payload, count, *origin, from_offset, StoredRecord, *part)
    return Decoded(FieldError(field_error), record, records, position)


def decode_in_python(payload: Buffer, count: int, origin: Origin, from_offset: int, part: Part = ALL) -> Decoded:
    position, index, max_records, max_bytes, max_headers = part
    start: int | None = None  # of the first selected record
    records: list[StoredRecord] = []
    while index < count:
        if start is not None and (len(records) >= max_records or position - start >= max_bytes):
            return Decoded(FieldError.NONE, index, records, position)
        try:
            most = 0 if start is None else max_headers
            layout, offset, own_ms = _read_numbers(payload, position, origin, most)
        except InvalidRecordField as invalid:
            return Decoded(invalid.field_error, index, records, position)
        if start is None and offset >= from_offset:
            start = position
            continue
        if offset >= from_offset:
            records.append(StoredRecord(offset, own_ms, *_read_fields(payload, layout)))
        position, index = layout[3], index + 1
    return Decoded(FieldError.NONE if position == len(payload) else FieldError.LEFT_OVER, index, records, position)


def find_time(payload: Buffer, count: int, origin: Origin, *, from_offset: int, timestamp_ms: int) -> TimestampMatch:
    """Find the first record at or above an offset with this timestamp or a later one; the scan ends there."""
    act = find_time_in_c if IS_COMPILED else find_time_in_python
    return act(payload, count, origin, from_offset, timestamp_ms)


def find_time_in_c(payload: Buffer, count: int, origin: Origin, from_offset: int, timestamp_ms: int) -> TimestampMatch:
    field_error, record, is_found, *match = _records.find_time(payload, count, *origin, from_offset, timestamp_ms)
    return TimestampMatch(FieldError(field_error), record, (match[0], match[1]) if is_found else None)


def find_time_in_python(
    payload: Buffer, count: int, origin: Origin, from_offset: int, timestamp_ms: int
) -> TimestampMatch:
    position = 0
    for index in range(count):
        try:
            layout, offset, own_ms = _read_numbers(payload, position, origin)
        except InvalidRecordField as invalid:
            return TimestampMatch(invalid.field_error, index, None)
        if offset >= from_offset and own_ms >= timestamp_ms:
            return TimestampMatch(FieldError.NONE, index, (offset, own_ms))
        position = layout[3]
    return TimestampMatch(FieldError.NONE if position == len(payload) else FieldError.LEFT_OVER, max(count, 0), None)


def scan_schema_ids(payload: Buffer, count: int, *, of_key: bool) -> ScannedIds:
    """Scan the keys, or the values, of a payload for schema ids."""
    return schema_ids_in_c(payload, count, of_key) if IS_COMPILED else schema_ids_in_python(payload, count, of_key)


def schema_ids_in_c(payload: Buffer, count: int, of_key: bool) -> ScannedIds:
    field_error, record, ids, unframed, is_cut = _records.schema_ids(payload, count, of_key, MAX_SCHEMA_IDS)
    return ScannedIds(FieldError(field_error), record, SchemaIds(ids, None if unframed < 0 else unframed, is_cut))


def schema_ids_in_python(payload: Buffer, count: int, of_key: bool) -> ScannedIds:
    ids: dict[int, int] = {}
    position = 0
    for index in range(count):
        try:
            layout = read_position(payload, position)
        except InvalidRecordField as invalid:
            return ScannedIds(invalid.field_error, index, SchemaIds(ids, None))
        position = layout[3]
        start, length = (layout[6], layout[7]) if of_key else _value_range(payload, layout)
        if length < 0:
            continue
        if length < PREFIX_BYTES or payload[start] != MAGIC:
            return ScannedIds(FieldError.NONE, index, SchemaIds(ids, index))
        schema_id = int.from_bytes(payload[start + 1 : start + PREFIX_BYTES], "big", signed=True)
        if len(ids) >= MAX_SCHEMA_IDS and schema_id not in ids:
            return ScannedIds(FieldError.NONE, index, SchemaIds(ids, None, is_cut=True))
        ids.setdefault(schema_id, index)
    field_error = FieldError.NONE if position == len(payload) else FieldError.LEFT_OVER
    return ScannedIds(field_error, max(count, 0), SchemaIds(ids, None))


# --- reading -----------------------------------------------------------------------------------------------------


def _read_numbers(
    payload: Buffer, position: int, origin: Origin, max_headers: int = 0
) -> tuple[RecordLayout, int, int]:
    """Read a record's layout, offset and timestamp; raises `InvalidRecordField`."""
    layout = read_position(payload, position, None, max_headers)
    offset = origin.base_offset + layout[5]
    own_ms = origin.base_timestamp_ms + layout[4] if origin.append_time_ms is None else origin.append_time_ms
    if not (_MIN_LONG <= offset <= _MAX_LONG and _MIN_LONG <= own_ms <= _MAX_LONG):
        raise InvalidRecordField(FieldError.RANGE)
    return layout, offset, own_ms


def _value_range(payload: Buffer, layout: RecordLayout) -> tuple[int, int]:
    length, start = read_varint(payload, layout[6] + max(layout[7], 0), layout[3])
    return start, length


def _read_fields(payload: Buffer, layout: RecordLayout) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
    key_at, key_length = layout[6], layout[7]
    key = None if key_length < 0 else bytes(payload[key_at : key_at + key_length])
    value, position = _read_field(payload, key_at + max(key_length, 0), layout[3])
    count, position = read_varint(payload, position, layout[3])
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_field(payload, position, layout[3])
        header, position = _read_field(payload, position, layout[3])
        # As Java does; the stored bytes are not changed.
        headers.append(((name or b"").decode("utf-8", "replace"), header))
    return key, value, tuple(headers)


def _read_field(payload: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position, end)
    if length < 0:
        return None, position
    return bytes(payload[position : position + length]), position + length


# --- writing -----------------------------------------------------------------------------------------------------


def _time_of(record: NewRecord, now_ms: int) -> int:
    _is_a(tuple, record, "a record")
    if len(record) != len(NewRecord._fields):
        raise TypeError(f"a record has {len(NewRecord._fields)} fields, not {len(record)}")
    if record[3] is None:
        return now_ms
    _is_a(int, record[3], "a timestamp")
    if not _MIN_LONG <= record[3] <= _MAX_LONG:
        raise InvalidRecordField(FieldError.RANGE)
    return record[3]


def _append_record(batch: bytearray, record: NewRecord, offset_delta: int, timestamp_delta: int) -> None:
    if not _MIN_LONG <= timestamp_delta <= _MAX_LONG:
        raise InvalidRecordField(FieldError.RANGE)
    value, key, headers = record[:3]
    body = bytearray(1)
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_field(body, key, "a key")
    _append_field(body, value, "a value")
    _is_a(tuple, headers, "headers")
    append_varint(body, len(headers))
    for header in headers:
        _append_header(body, header)
    if len(body) > _MAX_INT:
        raise InvalidRecordField(FieldError.LENGTH)
    append_varint(batch, len(body))
    batch += body


def _append_header(body: bytearray, header: Header) -> None:
    _is_a(tuple, header, "a header")
    if len(header) != 2:
        raise TypeError(f"a header has a name and a value, not {len(header)} fields")
    name, value = header
    _is_a(str, name, "a header's name")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:  # an unpaired surrogate, as JSON may contain
        raise InvalidRecordField(FieldError.HEADER) from None
    _append_field(body, encoded, "a header's name")
    _append_field(body, value, "a header's value")


def _append_field(body: bytearray, field: bytes | None, what: str) -> None:
    if field is None:
        append_varint(body, -1)
        return
    _is_a(bytes, field, what)
    append_varint(body, len(field))
    body += field


def _is_a(kind: type | UnionType, thing: object, what: str) -> None:
    if not isinstance(thing, kind):
        raise TypeError(f"{what} can't be of type {type(thing).__name__}")
