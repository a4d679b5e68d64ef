"""Decoding: batches that were read become records, within a limit of records and of bytes.

Data path   broker.records -> **decoding** -> payloads
Owns        where a reader goes on after what it was given
Leaves      bytes inside a batch to `format.records`, threads and memory to `broker.decoder`
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from streamhouse.broker.decoder import Decoder, stored_in
from streamhouse.broker.reading.fetch import Fetched
from streamhouse.format.batch import read_header
from streamhouse.format.records import iterate_batch
from streamhouse.format.rewriting import batches_of
from streamhouse.model.record import StoredRecord

INLINE_BYTES: Final = 16 * 1024
"""So much that isn't compressed becomes records on the event loop."""

MAX_HEADERS: Final = 100_000
"""Headers of all records that are given at once; those of one record may be more."""


class Taken(NamedTuple):
    """Records of one partition, and the offset behind them and behind the gaps that follow them."""

    records: list[StoredRecord]
    next_offset: int
    size_bytes: int
    is_full: bool
    """Whether a limit ended it, and not the batches."""


class Limits(NamedTuple):
    """At most `records`, and no more than `size_bytes` of them, but one if it must."""

    records: int
    size_bytes: int
    at_least_one: bool = True


async def take(decoder: Decoder, fetched: Fetched, *, offset: int, limits: Limits) -> Taken:
    """The first records from `offset` on. Raises `Overloaded` where they can't be decompressed now."""
    batches = [batch for buffer in fetched.records for batch in batches_of(buffer)]
    work = partial(_take, batches, offset, limits, decoder.max_headers)
    return await decoder.run(stored_in(batches), work, inline_bytes=INLINE_BYTES)


def _take(batches: Sequence[memoryview], offset: int, limits: Limits, max_headers: int, limit_bytes: int) -> Taken:
    found: list[StoredRecord] = []
    size = headers = 0
    for batch in batches:
        records = iterate_batch(batch, limit_bytes=limit_bytes, from_offset=offset, max_headers=max_headers)
        for record in records:
            own = size_of(record)
            headers += len(record.headers)
            is_beyond = size + own > limits.size_bytes or headers > MAX_HEADERS
            if len(found) >= limits.records or (is_beyond and (found or not limits.at_least_one)):
                return Taken(found, record.offset, size, is_full=True)
            found.append(record)
            size += own
        offset = max(offset, read_header(batch).end)
    return Taken(found, offset, size, is_full=False)


def size_of(record: StoredRecord) -> int:
    """The bytes of a record's key, value and headers."""
    _, _, key, value, headers = record
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in headers) if headers else size
