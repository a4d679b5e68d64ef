"""Batches that are small as they are sent, and large once they are opened."""

from typing import Final

from streamhouse.format.batch import BatchHeader, pack_batch
from streamhouse.format.compression import Codec, compress
from streamhouse.format.record_scanner import append_varint

MANY_HEADERS: Final = "headers"
"""One record of empty headers, two bytes each."""
MANY_RECORDS: Final = "records"
"""Records without anything."""
ONE_VALUE: Final = "value"
"""One record with one large value."""


def hostile_batch(codec: Codec, kind: str, *, size_bytes: int, timestamp_ms: int = 0) -> bytearray:
    """A batch of about so many bytes once it is decompressed."""
    payload, count = _records(size_bytes) if kind == MANY_RECORDS else (_one_record(kind, size_bytes), 1)
    header = BatchHeader(
        base_offset=0,
        size_bytes=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return pack_batch(header, compress(codec, payload))


def _one_record(kind: str, size_bytes: int) -> bytes:
    body = bytearray(1)
    numbers = (0, 0, -1, -1, size_bytes // 2) if kind == MANY_HEADERS else (0, 0, -1, size_bytes)
    for number in numbers:
        append_varint(body, number)
    body += bytes(size_bytes // 2 * 2 if kind == MANY_HEADERS else size_bytes + 1)
    record = bytearray()
    append_varint(record, len(body))
    return bytes(record + body)


def _records(size_bytes: int) -> tuple[bytes, int]:
    payload = bytearray()
    count = 0
    while len(payload) < size_bytes:
        body = bytearray(2)
        append_varint(body, count)
        body += b"\x01\x01\x00"  # no key, no value, no headers
        append_varint(payload, len(body))
        payload += body
        count += 1
    return bytes(payload), count
