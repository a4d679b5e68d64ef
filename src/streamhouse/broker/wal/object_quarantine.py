"""Gaps of an object log: whether a number that is missing was durable once.

Data path   object recovery, at a missing number -> **gaps** (one listing, one header) -> damage, or the end of the log
Owns        what the objects above a missing number say about it
Leaves      reading and sealing to `object_recovery`, the bytes of a header to `format.wal_object`

A session has several PUTs under way, so objects above a missing number are no proof: nothing above it was acknowledged
while it was missing. But each object says below which number all were durable when it was sent. A missing number below
that was acknowledged, and has been lost since.

Keeping of object logs: a damaged log stays in the store, with a report, until an operator discards it.

Data path   none: recovery of a damaged log -> **keeping** -> doctor, an operator's commands
Owns        reports in the store, which logs they are on, deleting both
Leaves      what a report says to `cluster.recovery`, whether a log may be discarded to `cluster.damaged_logs`

The objects stay where they are. The report stands under a prefix of its own: whoever deletes objects of logs looks
there first.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from streamhouse.broker.wal.base import QuarantinedWal
from streamhouse.broker.wal.object_cleanup import delete_all
from streamhouse.errors import CorruptObject
from streamhouse.format.object_keys import (
    DAMAGED_PREFIX,
    damage_report_key,
    damage_report_prefix,
    parse_damage_report_key,
    parse_wal_key,
    wal_key,
    wal_prefix,
)
from streamhouse.format.wal_object import COPY_BYTES, SEAL_BYTES, ObjectHeader, find_header
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing, ObjectStore


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


async def quarantine_wal(objects: ObjectStore, session: SessionId, report: bytes, *, number: int) -> None:
    with suppress(ObjectExists):  # our own, whose answer was lost
        await objects.put_new(damage_report_key(session, number), [report])


async def is_quarantined(objects: ObjectStore, session: SessionId) -> bool:
    async for _ in objects.list(damage_report_prefix(session)):
        return True
    return False


async def quarantined_sessions(objects: ObjectStore) -> Sequence[SessionId]:
    names = [parse_damage_report_key(meta.key) async for meta in objects.list(DAMAGED_PREFIX)]
    return list(dict.fromkeys(name.session_id for name in names if name is not None))


async def quarantined_wals(objects: ObjectStore) -> Sequence[QuarantinedWal]:
    return [await _quarantined_wal(objects, session) for session in await quarantined_sessions(objects)]


async def _quarantined_wal(objects: ObjectStore, session: SessionId) -> QuarantinedWal:
    reports = [meta async for meta in objects.list(damage_report_prefix(session))]
    report = b""
    with suppress(ObjectMissing, IndexError):  # discarded meanwhile
        report = await objects.get_range(reports[-1].key, 0, reports[-1].size_bytes)
    found = [meta async for meta in objects.list(wal_prefix(session)) if meta.size_bytes != SEAL_BYTES]
    return QuarantinedWal(
        session_id=session,
        kind="object",
        where=wal_prefix(session),
        files=len(found),
        size_bytes=sum(meta.size_bytes for meta in found),
        report=report,
    )


async def discard_wal(objects: ObjectStore, session: SessionId, *, at_once: int) -> int:
    """Data first, reports last: whoever is interrupted finds the log again. Seals stay."""
    if not await is_quarantined(objects, session):
        return 0
    data = [meta.key async for meta in objects.list(wal_prefix(session)) if meta.size_bytes != SEAL_BYTES]
    reports = [meta.key async for meta in objects.list(damage_report_prefix(session))]
    gone = [key async for key in delete_all(objects, data, at_once=at_once)]
    if len(gone) == len(data):
        gone += [key async for key in delete_all(objects, reports, at_once=at_once)]
    return len(gone)
