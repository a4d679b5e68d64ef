"""Columns: the records of many batches as Arrow's buffers, without an object per record.

Data path   segment -> blocks of batches -> **read_columns** -> Arrow arrays of the caller
Owns        selecting records, and the bytes of every column; implemented in `_columnar_decoder.c` and, as fallback,
            here
Leaves      arrays and schemas to the caller (Arrow is not imported here); decompression and error texts to `records`

The buffers have Arrow's memory layout in native byte order: 32-bit positions, one validity bit per row (lowest bit
first), no validity buffer for columns without nulls. Arrow can use them without a copy.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntFlag
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from streamhouse.errors import InvalidRecord
from streamhouse.format.batch import BatchHeader, Buffer, read_header
from streamhouse.format.record_codec import Origin, decode_in_python
from streamhouse.format.record_scanner import FieldError
from streamhouse.format.records import malformed, stored_payload
from streamhouse.model.record import Header, StoredRecord

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "columns")
except ImportError:  # built without a compiler
    IS_COMPILED = False

_MIN_LONG: Final = -(2**63)
_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1


class Column(IntFlag):
    """The columns of a record; same numbers as in `_columnar_decoder.c`."""

    OFFSET = 1
    TIMESTAMP = 2
    TIMESTAMP_TYPE = 4
    KEY = 8
    VALUE = 16
    HEADERS = 32


ALL_COLUMNS: Final = Column(63)

PART_BYTES: Final = 64 * 1024 * 1024
"""Size of one part, in decompressed bytes, for reads in parts."""

Payload: TypeAlias = tuple[Buffer, int, int, int, int | None]
"""Decompressed records, their number, and the fields of their `Origin`."""


Bounds: TypeAlias = tuple[int, int, int, int]
"""First and last offset, first and last timestamp, both inclusive."""


class Selection(NamedTuple):
    """The columns and records to read: offsets [from, end) and timestamps [from, until); None: unbounded."""

    columns: Column = ALL_COLUMNS
    from_offset: int | None = None
    end_offset: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def bounds(self) -> Bounds:
        return (
            _MIN_LONG if self.from_offset is None else self.from_offset,
            _MAX_LONG if self.end_offset is None else self.end_offset - 1,
            _MIN_LONG if self.from_ms is None else self.from_ms,
            _MAX_LONG if self.until_ms is None else self.until_ms - 1,
        )


class Binary(NamedTuple):
    """A column of bytes: a validity bit per row (None: no nulls), int32 positions (one more than rows), data."""

    rows: int
    nulls: int
    validity: bytearray | None
    offsets: bytearray
    data: bytearray


class Headers(NamedTuple):
    """A list per row: int32 positions (one more than rows) into the names (UTF-8) and values of all headers."""

    offsets: bytearray
    names: Binary
    values: Binary


class Columns(NamedTuple):
    """The requested columns; the others are None. Offset and timestamp are int64, the timestamp type is int32."""

    rows: int
    offset: bytearray | None
    timestamp_ms: bytearray | None
    timestamp_type: bytearray | None
    key: Binary | None
    value: Binary | None
    headers: Headers | None


class ColumnsRead(NamedTuple):
    """The columns, or None and the error in a record of a payload."""

    field_error: FieldError
    payload: int
    record: int
    columns: Columns | None


def read_columns(blocks: Iterable[Buffer], selection: Selection, *, limit_bytes: int) -> Columns:
    """Read the selected records of blocks, each of which is consecutive whole batches; control batches are skipped.

    Raises `CorruptBatch` for damaged batches, and `InvalidRecord` if a batch has more than `limit_bytes` decompressed,
    or if a column would exceed 2 GiB: then read fewer blocks at once.
    """
    return _read_columns(tuple(_payloads(blocks, selection, limit_bytes)), selection)


def read_columns_in_parts(
    blocks: Iterable[Buffer], selection: Selection, *, limit_bytes: int, part_bytes: int = PART_BYTES
) -> Iterator[Columns]:
    """Like `read_columns`, in parts of at most `part_bytes` of decompressed records, or of one larger batch: a few
    blocks may decompress to gigabytes. Parts without rows are skipped."""
    part: list[Payload] = []
    size_bytes = 0
    for payload in _payloads(blocks, selection, limit_bytes):
        if part and size_bytes + len(payload[0]) > part_bytes:
            if (columns := _read_columns(part, selection)).rows:
                yield columns
            part, size_bytes = [], 0
        part.append(payload)
        size_bytes += len(payload[0])
    if part and (columns := _read_columns(part, selection)).rows:
        yield columns


def _read_columns(payloads: Sequence[Payload], selection: Selection) -> Columns:
    try:
        read = columns_in_c(payloads, selection) if IS_COMPILED else columns_in_python(payloads, selection)
    except OverflowError as error:
        raise InvalidRecord(f"records are too large for columns; why={error}") from None
    if read.columns is None:
        raise malformed(read.field_error, read.record)
    return read.columns


def _payloads(blocks: Iterable[Buffer], selection: Selection, limit_bytes: int) -> Iterator[Payload]:
    bounds = selection.bounds
    for block in blocks:
        view, position = memoryview(block), 0
        while position < len(view):
            header = read_header(view, position)
            if _may_hold(header, bounds):
                payload = stored_payload(view[position:], header, limit_bytes)
                append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
                yield payload, header.record_count, header.base_offset, header.base_timestamp_ms, append_time_ms
            position += header.size_bytes


def _may_hold(header: BatchHeader, bounds: Bounds) -> bool:
    """Whether any record of a batch may be selected; appending ensures that no record is later than the header's
    maximum timestamp."""
    first, last, earliest, _ = bounds
    return (
        first < header.end
        and header.base_offset <= last
        and earliest <= header.max_timestamp_ms
        and header.record_count != 0
        and not header.is_control
    )


def columns_in_c(payloads: Sequence[Payload], selection: Selection) -> ColumnsRead:
    field_error, payload, record, rows, counts, buffers = _records.columns(
        tuple(payloads), selection.columns, *selection.bounds
    )
    if field_error:
        return ColumnsRead(FieldError(field_error), payload, record, None)
    offset, timestamp_ms, timestamp_type, *rest = buffers
    null_keys, null_values, headers, null_header_values = counts
    key = _binary(rows, null_keys, rest[0:3])
    value = _binary(rows, null_values, rest[3:6])
    names, header_values = _binary(headers, 0, rest[7:10]), _binary(headers, null_header_values, rest[10:13])
    lists = None if rest[6] is None or not names or not header_values else Headers(rest[6], names, header_values)
    return ColumnsRead(
        FieldError.NONE, payload, record, Columns(rows, offset, timestamp_ms, timestamp_type, key, value, lists)
    )


def _binary(rows: int, nulls: int, buffers: Sequence[bytearray | None]) -> Binary | None:
    validity, offsets, data = buffers
    return None if offsets is None or data is None else Binary(rows, nulls, validity, offsets, data)


# --- the fallback in Python, and the oracle for tests of the C extension ---------------------------------------------


def columns_in_python(payloads: Sequence[Payload], selection: Selection) -> ColumnsRead:
    first, last, earliest, latest = selection.bounds
    records: list[StoredRecord] = []
    types: list[int] = []
    at = 0
    for index, (payload, count, base_offset, base_ms, append_ms) in enumerate(payloads):
        field_error, at, decoded, _ = decode_in_python(
            payload, count, Origin(base_offset, base_ms, append_ms), _MIN_LONG
        )
        if field_error:
            return ColumnsRead(field_error, index, at, None)
        chosen = [r for r in decoded if first <= r.offset <= last and earliest <= r.timestamp_ms <= latest]
        records += chosen
        types += [CREATE_TIME if append_ms is None else LOG_APPEND_TIME] * len(chosen)
    return ColumnsRead(FieldError.NONE, len(payloads), at, _columns(records, types, selection.columns))


def _columns(records: Sequence[StoredRecord], types: Sequence[int], selected: Column) -> Columns:
    return Columns(
        len(records),
        _fixed("q", [r.offset for r in records]) if Column.OFFSET in selected else None,
        _fixed("q", [r.timestamp_ms for r in records]) if Column.TIMESTAMP in selected else None,
        _fixed("i", types) if Column.TIMESTAMP_TYPE in selected else None,
        _bytes_column([r.key for r in records]) if Column.KEY in selected else None,
        _bytes_column([r.value for r in records]) if Column.VALUE in selected else None,
        _headers_column([r.headers for r in records]) if Column.HEADERS in selected else None,
    )


def _fixed(kind: str, numbers: Iterable[int]) -> bytearray:
    return bytearray(array(kind, numbers).tobytes())


def _positions(lengths: Iterable[int]) -> bytearray:
    positions = list(accumulate(lengths, initial=0))
    if positions[-1] > _MAX_INT:
        raise OverflowError("a column would have more than 2 GiB")
    return _fixed("i", positions)


def _bytes_column(fields: Sequence[bytes | None]) -> Binary:
    nulls = sum(field is None for field in fields)
    offsets = _positions(len(field or b"") for field in fields)
    validity = _bits([field is not None for field in fields]) if nulls else None
    return Binary(len(fields), nulls, validity, offsets, bytearray().join(field or b"" for field in fields))


def _headers_column(lists: Sequence[Sequence[Header]]) -> Headers:
    names = [name.encode() for headers in lists for name, _ in headers]
    values = [value for headers in lists for _, value in headers]
    return Headers(_positions(len(headers) for headers in lists), _bytes_column(names), _bytes_column(values))


def _bits(flags: Sequence[bool]) -> bytearray:
    bits = bytearray((len(flags) + 7) // 8)
    for at, flag in enumerate(flags):
        bits[at >> 3] |= flag << (at & 7)
    return bits
