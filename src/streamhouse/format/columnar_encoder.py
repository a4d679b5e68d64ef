"""Encodes rows of Arrow columns as record batches, without an object per record.

Data path   Arrow arrays of the caller -> **partition_rows** -> **encode_columns** -> `segment.encode_segment`
Owns        the partition of a row, the rows of a batch, their bytes; implemented in `_columnar_encoder.c` and, as
            fallback, here
Leaves      arrays, schemas and offsets to the caller (Arrow is not imported here), compression to `format.compression`

Columns are Arrow's buffers in native byte order; `first` is the row of the buffers with which a column begins, because
arrays may be slices.
"""

from array import array
from typing import Final, NamedTuple

from streamhouse.errors import InvalidRecord
from streamhouse.format.batch import HEADER_BYTES, BatchHeader, Buffer, pack_batch, write_header
from streamhouse.format.compression import Codec, compress
from streamhouse.format.partitioner import partition_for
from streamhouse.format.record_scanner import FieldError, append_varint

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "encode_columns")
except ImportError:  # built without a compiler
    IS_COMPILED = False

_MIN_LONG: Final = -(2**63)
_MAX_LONG: Final = 2**63 - 1
# The maximum size of a record's fields: 2 GiB, less its integers.
_MAX_FIELDS: Final = 2**31 - 1 - 32
_LOG_APPEND_TIME: Final = 0x08

_FIELD_ERROR_TEXTS: Final = {
    FieldError.KEY: "the column of keys is damaged",
    FieldError.VALUE: "the column of values is damaged",
    FieldError.HEADER_COUNT: "the column of headers is damaged",
    FieldError.HEADER: "a header has no name",
    FieldError.LENGTH: "it is too large for any batch",
}


class BytesColumn(NamedTuple):
    """Bytes or text: a validity bit per row (None: no nulls), int32 positions (one more than rows), data."""

    first: int
    validity: Buffer | None
    offsets: Buffer
    data: Buffer


class NumberColumn(NamedTuple):
    """Integers of a fixed width: int64 for timestamps in milliseconds, int32 for partitions."""

    first: int
    validity: Buffer | None
    data: Buffer


class HeadersColumn(NamedTuple):
    """A list per row, null or empty if the row has no headers: positions into all names and values."""

    first: int
    validity: Buffer | None
    offsets: Buffer
    names: BytesColumn
    values: BytesColumn


class RecordColumns(NamedTuple):
    """The columns of records; a missing column is null in every row."""

    rows: int
    key: BytesColumn | None
    value: BytesColumn | None
    timestamp_ms: NumberColumn | None = None
    headers: HeadersColumn | None = None


class RowPartitions(NamedTuple):
    """An int32 per row; `next` is the partition of the next row without a key; `refused` is the first row whose
    requested partition doesn't exist."""

    refused: int | None
    partitions: bytearray
    next: int


class ColumnBatch(NamedTuple):
    """Records of one partition: space for a header, then the uncompressed records."""

    partition: int
    records: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    batch: bytearray


class EncodedColumns(NamedTuple):
    """Batches by partition, with the rows in their order; or no batches and the error in a row."""

    field_error: FieldError
    row: int
    batches: list[ColumnBatch]


def partition_rows(
    rows: int, key: BytesColumn | None, given: NumberColumn | None, *, count: int, start: int
) -> RowPartitions:
    """The partition of each row: the given one, else by its key, else round robin."""
    choose = partition_rows_in_c if IS_COMPILED else partition_rows_in_python
    return choose(rows, key, given, count, start)


def encode_columns(
    columns: RecordColumns, partitions: Buffer, *, count: int, now_ms: int, batch_bytes: int
) -> list[ColumnBatch]:
    """Encode all rows as batches of at most `batch_bytes` before compression, unless one record is larger.

    `partitions` has an int32 for each row, below `count`. Rows without a timestamp get `now_ms`. Raises
    `InvalidRecord`.
    """
    encode = encode_columns_in_c if IS_COMPILED else encode_columns_in_python
    field_error, row, batches = encode(columns, partitions, count, now_ms, batch_bytes - HEADER_BYTES)
    if field_error:
        raise InvalidRecord(f"no batch can hold a row; row={row} why={_FIELD_ERROR_TEXTS[field_error]}", records=[row])
    return batches


def finished(encoded: ColumnBatch, *, codec: Codec, base_offset: int, append_time_ms: int | None = None) -> bytearray:
    """The batch as stored: compressed, with header and checksum; an append time replaces the timestamps of all
    records."""
    attributes = int(codec) if append_time_ms is None else codec | _LOG_APPEND_TIME
    header = BatchHeader(
        base_offset=base_offset,
        size_bytes=0,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=encoded.records - 1,
        base_timestamp_ms=encoded.base_timestamp_ms,
        max_timestamp_ms=encoded.max_timestamp_ms if append_time_ms is None else append_time_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=encoded.records,
    )
    if codec == Codec.NONE:
        write_header(encoded.batch, header)
        return encoded.batch
    return pack_batch(header, compress(codec, memoryview(encoded.batch)[HEADER_BYTES:]))


def partition_rows_in_c(
    rows: int, key: BytesColumn | None, given: NumberColumn | None, count: int, start: int
) -> RowPartitions:
    refused, partitions, following = _records.partition_rows(rows, key, given, count, start)
    return RowPartitions(None if refused < 0 else refused, partitions, following)


def encode_columns_in_c(
    columns: RecordColumns, partitions: Buffer, count: int, now_ms: int, payload_bytes: int
) -> EncodedColumns:
    field_error, row, batches = _records.encode_columns(
        columns.rows, columns[1:], partitions, count, now_ms, payload_bytes, HEADER_BYTES
    )
    return EncodedColumns(FieldError(field_error), row, [ColumnBatch(*batch) for batch in batches])


# --- the fallback in Python, and the oracle for tests of the C extension ---------------------------------------------


class _Scanned(Exception):
    """An invalid field; never leaves this module."""

    def __init__(self, field_error: FieldError) -> None:
        self.field_error = field_error


def partition_rows_in_python(
    rows: int, key: BytesColumn | None, given: NumberColumn | None, count: int, start: int
) -> RowPartitions:
    chosen = array("i", bytes(4 * rows))
    for row in range(rows):
        requested = _number(given, row, "i")
        try:
            own = _field(key, row, FieldError.KEY)
        except _Scanned:
            own = None
            if requested is None:
                return RowPartitions(row, bytearray(chosen.tobytes()), start)
        if requested is not None:
            chosen[row] = requested
            if not 0 <= requested < count:
                return RowPartitions(row, bytearray(chosen.tobytes()), start)
        elif own is None:
            chosen[row] = start
            start = (start + 1) % count
        else:
            chosen[row] = partition_for(own, count)
    return RowPartitions(None, bytearray(chosen.tobytes()), start)


def encode_columns_in_python(
    columns: RecordColumns, partitions: Buffer, count: int, now_ms: int, payload_bytes: int
) -> EncodedColumns:
    chosen = _ints(partitions)[: columns.rows]
    if len(chosen) < columns.rows or not all(0 <= number < count for number in chosen):
        raise ValueError("a row's partition is out of range")
    encoded: list[ColumnBatch] = []
    for row in sorted(range(columns.rows), key=chosen.__getitem__):
        is_new = not encoded or encoded[-1].partition != chosen[row]
        try:
            fields, own_ms = _fields(columns, row), _number(columns.timestamp_ms, row, "q")
        except _Scanned as invalid:
            return EncodedColumns(invalid.field_error, row, [])
        timestamp_ms = now_ms if own_ms is None else own_ms
        if is_new or not _fits(encoded[-1], fields, timestamp_ms, payload_bytes):
            encoded.append(ColumnBatch(chosen[row], 0, timestamp_ms, timestamp_ms, bytearray(HEADER_BYTES)))
        last = encoded[-1]
        last.batch.extend(_record(last, fields, timestamp_ms))
        latest_ms = max(last.max_timestamp_ms, timestamp_ms)
        encoded[-1] = last._replace(records=last.records + 1, max_timestamp_ms=latest_ms)
    return EncodedColumns(FieldError.NONE, columns.rows, encoded)


def _fits(batch: ColumnBatch, fields: bytearray, timestamp_ms: int, payload_bytes: int) -> bool:
    if not _MIN_LONG <= timestamp_ms - batch.base_timestamp_ms <= _MAX_LONG:
        return False
    return len(batch.batch) - HEADER_BYTES + len(_record(batch, fields, timestamp_ms)) <= payload_bytes


def _record(batch: ColumnBatch, fields: bytearray, timestamp_ms: int) -> bytearray:
    """Encode the next record of the batch."""
    body = bytearray(1)
    append_varint(body, timestamp_ms - batch.base_timestamp_ms)
    append_varint(body, batch.records)
    body += fields
    record = bytearray()
    append_varint(record, len(body))
    return record + body


def _fields(columns: RecordColumns, row: int) -> bytearray:
    """Encode key, value and headers of a record."""
    fields = bytearray()
    _append(fields, _field(columns.key, row, FieldError.KEY))
    _append(fields, _field(columns.value, row, FieldError.VALUE))
    _append_headers(fields, columns.headers, row)
    if len(fields) > _MAX_FIELDS:
        raise _Scanned(FieldError.LENGTH)
    return fields


def _append(to: bytearray, field: bytes | None) -> None:
    append_varint(to, -1 if field is None else len(field))
    to += field or b""


def _append_headers(to: bytearray, column: HeadersColumn | None, row: int) -> None:
    start = end = 0
    if column is not None and _is_valid(column.validity, column.first + row):
        start, end = _ints(column.offsets)[column.first + row : column.first + row + 2]
        if not 0 <= start <= end <= min(_rows(column.names), _rows(column.values)):
            raise _Scanned(FieldError.HEADER_COUNT)
    append_varint(to, end - start)
    for at in range(start, end):
        assert column is not None
        name = _field(column.names, at, FieldError.HEADER)
        if name is None:
            raise _Scanned(FieldError.HEADER)
        _append(to, name)
        _append(to, _field(column.values, at, FieldError.HEADER))


def _rows(column: BytesColumn) -> int:
    return max(0, len(_ints(column.offsets)) - column.first - 1)


def _field(column: BytesColumn | None, row: int, field_error: FieldError) -> bytes | None:
    if column is None or not _is_valid(column.validity, column.first + row):
        return None
    start, end = _ints(column.offsets)[column.first + row : column.first + row + 2]
    if not 0 <= start <= end <= len(column.data):
        raise _Scanned(field_error)
    return bytes(column.data[start:end])


def _number(column: NumberColumn | None, row: int, kind: str) -> int | None:
    if column is None or not _is_valid(column.validity, column.first + row):
        return None
    numbers = memoryview(column.data).cast("B").cast(kind)  # type: ignore[call-overload]
    return int(numbers[column.first + row])


def _ints(buffer: Buffer) -> "memoryview[int]":
    return memoryview(buffer).cast("B").cast("i")


def _is_valid(validity: Buffer | None, at: int) -> bool:
    return validity is None or bool(validity[at >> 3] >> (at & 7) & 1)
