"""Checks that a payload is exactly a number of well-formed records, and reads and writes their varints.

Data path   append -> `format.records.validate_records` -> **scanner**
Owns        the structure of a record, twice: here, and faster in `_record_scanner.c` where it could be built
Leaves      decompression and error texts to `format.records`

A record has an attribute byte, a timestamp delta, an offset delta, key, value and headers, each with its length. The
scan ends at the first error and names the record.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from streamhouse.format.batch import Buffer

# Most bytes that a number of 32 or 64 bits may take, and the largest number before zigzag.
VARINT: tuple[int, int] = (5, 2**32 - 1)
VARLONG: tuple[int, int] = (10, 2**64 - 1)


class BadVarint(ValueError):
    """The bytes end inside a number, or the number has too many of them."""


def read_varint(buffer: Buffer, position: int, end: int, kind: tuple[int, int] = VARINT) -> tuple[int, int]:
    """The number at `position`, and the position behind it; nothing at or above `end` is looked at."""
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
    """Write a number of at most 64 bits."""
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
    """What is wrong; the numbers are those of `enum flaw` in `_record_scanner.c`."""

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
    """How a walk ended. The timestamps and null keys are those of all records only if there was no flaw."""

    flaw: FieldError
    record: int
    min_timestamp_delta: int
    max_timestamp_delta: int
    null_keys: int


Place: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""Where a record's parts stand in its payload: start (of its length), body (its attributes), rest (behind the timestamp
delta), end; timestamp delta, offset delta; key, key length, value length (-1 for null). A plain tuple: one is made per
record."""


class InvalidRecordField(Exception):
    """A flaw on its way from a field to the walk; never leaves the modules of this package."""

    def __init__(self, flaw: FieldError) -> None:
        self.flaw = flaw


def scan(payload: Buffer, count: int, *, consecutive: bool = True, max_headers: int = 0) -> ScanResult:
    """Walk `count` records that fill the payload; `consecutive` ones have the offset deltas 0, 1, 2 and so on.

    None may have more than `max_headers`; 0: as many as it has room for.
    """
    if IS_COMPILED:
        return scan_in_c(payload, count, consecutive, max_headers)
    return scan_in_python(payload, count, consecutive, max_headers)


def scan_in_c(payload: Buffer, count: int, consecutive: bool, max_headers: int = 0) -> ScanResult:
    flaw, record, *facts = _records.walk(payload, count, consecutive, max_headers)
    return _failed(FieldError(flaw), record) if flaw else ScanResult(FieldError.NONE, record, *facts)


def scan_in_python(payload: Buffer, count: int, consecutive: bool, max_headers: int = 0) -> ScanResult:
    """The same in plain Python: the fallback, and the oracle for the one in C."""
    least = most = null_keys = position = 0
    for index in range(count):
        try:
            place = read_position(payload, position, index if consecutive else None, max_headers)
        except InvalidRecordField as found:
            return _failed(found.flaw, index)
        least = place[4] if index == 0 else min(least, place[4])
        most = place[4] if index == 0 else max(most, place[4])
        null_keys += place[7] < 0
        position = place[3]
    if position < len(payload):
        return _failed(FieldError.LEFT_OVER, max(count, 0))
    return ScanResult(FieldError.NONE, max(count, 0), least, most, null_keys)


def record_positions_in_python(payload: Buffer, count: int) -> tuple[FieldError, list[Place]]:
    """Where each of `count` records that fill the payload stands, up to the first flaw; offsets may have gaps."""
    places: list[Place] = []
    position = 0
    for _ in range(count):
        try:
            places.append(read_position(payload, position))
        except InvalidRecordField as found:
            return found.flaw, places
        position = places[-1][3]
    return (FieldError.NONE if position == len(payload) else FieldError.LEFT_OVER), places


def read_position(payload: Buffer, position: int, expected: int | None = None, max_headers: int = 0) -> Place:
    """Where the parts of the record at `position` stand; its offset delta must be the `expected` one, if there is one.

    Raises `InvalidRecordField`.
    """
    if position == len(payload):
        raise InvalidRecordField(FieldError.TOO_FEW)
    try:
        return _scan_record(payload, position, len(payload), expected, max_headers)
    except BadVarint:
        raise InvalidRecordField(FieldError.NUMBER) from None


def _failed(flaw: FieldError, index: int) -> ScanResult:
    return ScanResult(flaw, index, 0, 0, 0)


def _scan_record(payload: Buffer, start: int, payload_end: int, expected: int | None, max_headers: int) -> Place:
    length, body = read_varint(payload, start, payload_end)
    if not 1 <= length <= payload_end - body:
        raise InvalidRecordField(FieldError.LENGTH)
    end = body + length
    timestamp_delta, rest = read_varint(payload, body + 1, end, VARLONG)
    offset_delta, position = read_varint(payload, rest, end)
    if expected is not None and offset_delta != expected:
        raise InvalidRecordField(FieldError.OFFSET)
    key_length, position = _skip_field(payload, position, end, least=-1, flaw=FieldError.KEY)
    key = position - max(key_length, 0)
    value_length, position = _skip_field(payload, position, end, least=-1, flaw=FieldError.VALUE)
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
        _, position = _skip_field(payload, position, end, least=0, flaw=FieldError.HEADER)
        _, position = _skip_field(payload, position, end, least=-1, flaw=FieldError.HEADER)
    return position


def _skip_field(payload: Buffer, position: int, end: int, *, least: int, flaw: FieldError) -> tuple[int, int]:
    length, position = read_varint(payload, position, end)
    if not least <= length <= end - position:
        raise InvalidRecordField(flaw)
    return length, position + max(length, 0)
