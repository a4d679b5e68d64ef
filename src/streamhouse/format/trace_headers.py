"""Trace headers: which records of a batch carry a `traceparent`.

A client decides how many records and headers a batch has, and what its payload expands to, so records are decoded a few
at a time, and only the first ones.
"""

from collections.abc import Iterator
from typing import Final

from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.record_codec import Origin, Part, decode
from streamhouse.model.record import StoredRecord

NAME: Final = "traceparent"
VALUE_BYTES: Final = 55
MAX_SEARCHED: Final = 10_000
"""Records of a batch that are looked at, the first."""

MAX_HEADERS: Final = 100_000
"""Headers of a batch that are looked at, about: a header of two bytes becomes an object of sixty."""

_ENCODED: Final = bytes([2 * len(NAME)]) + NAME.encode() + bytes([2 * VALUE_BYTES])
"""The name and the value's length as a record has them; what a batch without traces does not contain."""
_RECORDS_AT_ONCE: Final = 1000
_BYTES_AT_ONCE: Final = 64 * 1024
_ORIGIN: Final = Origin(0, 0, None)


def find_traceparents(payload: Buffer, header: BatchHeader, *, limit: int) -> list[tuple[int, str]]:
    """Offset deltas and header values of the first `limit` records with a trace, of decompressed and valid records."""
    if header.is_control or _ENCODED not in bytes(payload):
        return []
    found: list[tuple[int, str]] = []
    headers = 0
    for record in _first_records(payload, header.record_count):
        headers += len(record.headers)
        if (text := _traceparent_of(record)) is not None:
            found.append((record.offset, text))
        if len(found) == limit or headers > MAX_HEADERS:
            break
    return found


def _first_records(payload: Buffer, count: int) -> Iterator[StoredRecord]:
    """The first `MAX_SEARCHED` records, decoded a few at a time; their offsets are deltas."""
    index = position = 0
    while index < min(count, MAX_SEARCHED):
        part = Part(position, index, min(_RECORDS_AT_ONCE, MAX_SEARCHED - index), _BYTES_AT_ONCE)
        field_error, index, records, position = decode(payload, count, _ORIGIN, from_offset=0, part=part)
        yield from records
        if field_error:
            return


def _traceparent_of(record: StoredRecord) -> str | None:
    for name, value in record.headers:
        if name == NAME and value is not None and len(value) == VALUE_BYTES:
            return value.decode("latin-1")
    return None
