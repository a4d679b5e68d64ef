"""Gaps of an object log: whether a number that is missing was durable once.

Data path   object recovery, at a missing number -> **gaps** (one listing, one header) -> damage, or the end of the log
Owns        what the objects above a missing number say about it
Leaves      reading and sealing to `object_recovery`, the bytes of a header to `format.wal_object`

A session has several PUTs under way, so objects above a missing number are no proof: nothing above it was acknowledged
while it was missing. But each object says below which number all were durable when it was sent. A missing number below
that was acknowledged, and has been lost since.
"""

from dataclasses import dataclass

from streamhouse.errors import CorruptObject
from streamhouse.format.keys import parse_wal_key, wal_key, wal_prefix
from streamhouse.format.wal_object import COPY_BYTES, SEAL_BYTES, ObjectHeader, find_header
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import ObjectMissing, ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsAbove:
    """`durable_below`: every lower number was durable once. `is_complete`: all objects above say so much; False where
    one was written by an earlier release, or its header can't be read."""

    durable_below: int = 0
    is_complete: bool = True


async def objects_above(objects: ObjectStore, session: SessionId, sequence: int) -> ObjectsAbove:
    """What the session's objects with a higher number than `sequence` say."""
    numbers = [
        name.sequence
        async for meta in objects.list(wal_prefix(session))
        if meta.size_bytes != SEAL_BYTES and (name := parse_wal_key(meta.key)) is not None and name.sequence > sequence
    ]
    is_complete = True
    # What they say never goes down from number to number, so the highest that can be read has said it all.
    for number in reversed(numbers):
        header = await _header(objects, session, number)
        if header is not None and header.durable_below is not None:
            return ObjectsAbove(durable_below=header.durable_below, is_complete=is_complete)
        is_complete = False
    return ObjectsAbove(is_complete=is_complete)


async def _header(objects: ObjectStore, session: SessionId, number: int) -> ObjectHeader | None:
    key = wal_key(session, number)
    try:
        first = memoryview(await objects.get_range(key, 0, COPY_BYTES))
        header = find_header(first, memoryview(b""), session=session, sequence=number)
        if header is not None:
            return header
        last = memoryview(await objects.get_suffix(key, COPY_BYTES))
    except (ObjectMissing, CorruptObject):
        return None
    return find_header(first, last, session=session, sequence=number)
