"""Decoding: batches that were read become records, within a limit of records and of bytes.

Data path   broker.records -> **decoding** -> payloads
Owns        where a reader goes on after what it was given
Leaves      bytes inside a batch to `format.records`

What is compressed and not small is opened in a thread: the event loop has other things to do.
"""

import asyncio
from typing import Final, NamedTuple

from streamhouse.broker.reading.fetch import Fetched
from streamhouse.format.batch import read_header, spans
from streamhouse.format.records import decode_batch
from streamhouse.model.record import StoredRecord

THREAD_FROM_BYTES: Final = 16 * 1024


class Taken(NamedTuple):
    """Records of one partition, and the offset behind them and behind the gaps that follow them."""

    records: list[StoredRecord]
    next_offset: int
    size_bytes: int
    is_full: bool
    """Whether a limit ended it, and not the batches."""


async def take(
    fetched: Fetched, *, offset: int, limit: int, max_bytes: int, limit_bytes: int, at_least_one: bool = True
) -> Taken:
    """The first records from `offset` on: at most `limit`, and no more than `max_bytes` of them, but one if it must."""
    if _is_heavy(fetched):
        return await asyncio.to_thread(_take, fetched, offset, limit, max_bytes, limit_bytes, at_least_one)
    return _take(fetched, offset, limit, max_bytes, limit_bytes, at_least_one)


def _is_heavy(fetched: Fetched) -> bool:
    return fetched.size_bytes > THREAD_FROM_BYTES and any(read_header(buffer).codec for buffer in fetched.records)


def _take(fetched: Fetched, offset: int, limit: int, max_bytes: int, limit_bytes: int, at_least_one: bool) -> Taken:
    found: list[StoredRecord] = []
    size = 0
    for buffer in fetched.records:
        view = memoryview(buffer)
        for span in spans(buffer):
            batch = view[span.position : span.position + span.size_bytes]
            for record in decode_batch(batch, limit_bytes=limit_bytes, from_offset=offset):
                own = len(record.value or b"") + len(record.key or b"")
                if len(found) >= limit or (size + own > max_bytes and (found or not at_least_one)):
                    return Taken(found, record.offset, size, is_full=True)
                found.append(record)
                size += own
            offset = max(offset, span.end)
    return Taken(found, offset, size, is_full=False)
