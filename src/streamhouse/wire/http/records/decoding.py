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


async def take(fetched: Fetched, *, offset: int, limit: int, max_bytes: int, limit_bytes: int) -> Taken:
    """The first records from `offset` on: at most `limit`, and no more than `max_bytes` of them, but at least one."""
    if _is_heavy(fetched):
        return await asyncio.to_thread(_take, fetched, offset, limit, max_bytes, limit_bytes)
    return _take(fetched, offset, limit, max_bytes, limit_bytes)


def _is_heavy(fetched: Fetched) -> bool:
    return fetched.size_bytes > THREAD_FROM_BYTES and any(read_header(buffer).codec for buffer in fetched.records)


def _take(fetched: Fetched, offset: int, limit: int, max_bytes: int, limit_bytes: int) -> Taken:
    found: list[StoredRecord] = []
    size = 0
    for buffer in fetched.records:
        view = memoryview(buffer)
        for span in spans(buffer):
            batch = view[span.position : span.position + span.size_bytes]
            for record in decode_batch(batch, limit_bytes=limit_bytes, from_offset=offset):
                size += len(record.value or b"") + len(record.key or b"")
                if len(found) >= limit or (found and size > max_bytes):
                    return Taken(found, record.offset, size)
                found.append(record)
            offset = max(offset, span.end)
    return Taken(found, offset, size)
