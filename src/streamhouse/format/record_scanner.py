"""Checks that a payload is exactly a number of well-formed records, and reads and writes their varints.

Data path   append -> `format.records.validate_records` -> **scanner**
Owns        the structure of a record; implemented in `_record_scanner.c` and, as fallback, here
Leaves      decompression and error texts to `format.records`

A record has an attribute byte, a timestamp delta, an offset delta, key, value and headers, each with its length. The
scan ends at the first error and names the record.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from streamhouse.format.batch import Buffer

# Maximum bytes of a varint of 32 or 64 bits, and its largest value before zigzag decoding.
VARINT: tuple[int, int] = (5, 2**32 - 1)
VARLONG: tuple[int, int] = (10, 2**64 - 1)


class BadVarint(ValueError):
    """A varint is cut off, or has too many bytes."""


def read_varint(buffer: Buffer, position: int, end: int, kind: tuple[int, int] = VARINT) -> tuple[int, int]:
    """Read the varint at `position`, below `end`; returns the number and the position after it."""
    most_bytes, largest = kind
    value = shift = 0
    for at in range(position, min(end, position + most_bytes)):
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > largest:
                raise BadVarint
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
    raise BadVarint


def append_varint(buffer: bytearray, value: int) -> None:
    """Append a number of at most 64 bits as a varint."""
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)


try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "find_time")
except ImportError:  # built without a compiler
    IS_COMPILED = False


class FieldError(IntEnum):
    """The error in a payload; same numbers as `enum flaw` in `_record_scanner.c`."""

    NONE = 0
    TOO_FEW = 1
    LEFT_OVER = 2
    NUMBER = 3
    LENGTH = 4
    OFFSET = 5
    KEY = 6
    VALUE = 7
    HEADER_COUNT = 8
    HEADER = 9
    SIZE = 10
    RANGE = 11
    HEADERS = 12


class ScanResult(NamedTuple):
    """The result of a scan. Timestamps and null keys cover all records only if there was no error."""

    field_error: FieldError
    record: int
    min_timestamp_delta: int
    max_timestamp_delta: int
    null_keys: int


RecordLayout: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""Positions in the payload and decoded numbers of a record: start (of its length), body (its attributes), rest (after
the timestamp delta), end; timestamp delta, offset delta; key, key length, value length (-1 for null). A plain tuple,
because one is made per record."""


class InvalidRecordField(Exception):
    """An invalid field; never leaves this package."""

    def __init__(self, field_error: FieldError) -> None:
        self.field_error = field_error


def scan(payload: Buffer, count: int, *, consecutive: bool = True, max_headers: int = 0) -> ScanResult:
    """Scan a payload of exactly `count` records; with `consecutive`, their offset deltas must be 0, 1, 2 and so on.

    No record may have more than `max_headers`; 0: no limit.
    """
    if IS_COMPILED:
        return scan_in_c(payload, count, consecutive, max_headers)
    return scan_in_python(payload, count, consecutive, max_headers)


def scan_in_c(payload: Buffer, count: int, consecutive: bool, max_headers: int = 0) -> ScanResult:
    field_error, record, *facts = _records.walk(payload, count, consecutive, max_headers)
    return _failed(FieldError(field_error), record) if field_error else ScanResult(FieldError.NONE, record, *facts)


def scan_in_python(payload: Buffer, count: int, consecutive: bool, max_headers: int = 0) -> ScanResult:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    least = most = null_keys = position = 0
    for index in range(count):
        try:
            layout = read_position(payload, position, index if consecutive else None, max_headers)
        except InvalidRecordField as invalid:
            return _failed(invalid.field_error, index)
        least = layout[4] if index == 0 else min(least, layout[4])
        most = layout[4] if index == 0 else max(most, layout[4])
        null_keys += layout[7] < 0
        position = layout[3]
    if position < len(payload):
        return _failed(FieldError.LEFT_OVER, max(count, 0))
    return ScanResult(FieldError.NONE, max(count, 0), least, most, null_keys)


def record_positions_in_python(payload: Buffer, count: int) -> tuple[FieldError, list[RecordLayout]]:
    """The layouts of the records up to the first error, in a payload of exactly `count` records; offsets may have
    gaps."""
    layouts: list[RecordLayout] = []
    position = 0
    for _ in range(count):
        try:
            layouts.append(read_position(payload, position))
        except InvalidRecordField as invalid:
            return invalid.field_error, layouts
        position = layouts[-1][3]
    return (FieldError.NONE if position == len(payload) else FieldError.LEFT_OVER), layouts


def read_position(payload: Buffer, position: int, expected: int | None = None, max_headers: int = 0) -> RecordLayout:
    """Read the layout of the record at `position`; raises `InvalidRecordField`, also for an offset delta other than
    `expected`."""
    if position == len(payload):
        raise InvalidRecordField(FieldError.TOO_FEW)
    try:
        return _scan_record(payload, position, len(payload), expected, max_headers)
    except BadVarint:
        raise InvalidRecordField(FieldError.NUMBER) from None


def _failed(field_error: FieldError, index: int) -> ScanResult:
    return ScanResult(field_error, index, 0, 0, 0)


def _scan_record(payload: Buffer, start: int, payload_end: int, expected: int | None, max_headers: int) -> RecordLayout:
    length, body = read_varint(payload, start, payload_end)
    if not 1 <= length <= payload_end - body:
        raise InvalidRecordField(FieldError.LENGTH)
    end = body + length
    timestamp_delta, rest = read_varint(payload, body + 1, end, VARLONG)
    offset_delta, position = read_varint(payload, rest, end)
    if expected is not None and offset_delta != expected:
        raise InvalidRecordField(FieldError.OFFSET)
    key_length, position = _skip_field(payload, position, end, least=-1, field_error=FieldError.KEY)
    key = position - max(key_length, 0)
    value_length, position = _skip_field(payload, position, end, least=-1, field_error=FieldError.VALUE)
    if _skip_headers(payload, position, end, max_headers) != end:
        raise InvalidRecordField(FieldError.SIZE)
    return start, body, rest, end, timestamp_delta, offset_delta, key, key_length, value_length


def _skip_headers(payload: Buffer, position: int, end: int, most: int) -> int:
    count, position = read_varint(payload, position, end)
    if not 0 <= count <= end - position:
        raise InvalidRecordField(FieldError.HEADER_COUNT)
    if most and count > most:
        raise InvalidRecordField(FieldError.HEADERS)
    for _ in range(count):
        _, position = _skip_field(payload, position, end, least=0, field_error=FieldError.HEADER)
        _, position = _skip_field(payload, position, end, least=-1, field_error=FieldError.HEADER)
    return position


def _skip_field(payload: Buffer, position: int, end: int, *, least: int, field_error: FieldError) -> tuple[int, int]:
    length, position = read_varint(payload, position, end)
    if not least <= length <= end - position:
        raise InvalidRecordField(field_error)
    return length, position + max(length, 0)
