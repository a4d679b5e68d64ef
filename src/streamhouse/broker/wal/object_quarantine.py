"""Quarantine of object logs: distinguishes damage from the end of a log, and retains damaged logs.

Data path   object recovery, at a missing number -> **quarantine** -> damage or end of the log; reports -> doctor
Owns        what the objects above a missing number prove; the reports in the store, and deleting them with their log
Leaves      reading and sealing to `object_recovery`, the content of a report to `session.recovery`

Several PUTs of a session are in flight, so objects above a missing number prove nothing by themselves. But each object
carries the number below which all objects were durable when it was sent. A missing number below that was acknowledged
and has been lost since.

The objects of a damaged log stay where they are, until an operator discards them. The report stands under a prefix of
its own, which is checked before objects of logs are deleted.
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
    """`durable_below`: every lower number was durable. `is_complete`: False if an object above was written by an
    earlier release, or its header can't be read."""

    durable_below: int = 0
    is_complete: bool = True


async def objects_above(objects: ObjectStore, session: SessionId, sequence: int) -> ObjectsAbove:
    """Read the durable mark from the session's objects with a number above `sequence`."""
    numbers = [
        name.sequence
        async for meta in objects.list(wal_prefix(session))
        if meta.size_bytes != SEAL_BYTES and (name := parse_wal_key(meta.key)) is not None and name.sequence > sequence
    ]
    is_complete = True
    # The mark never decreases from number to number, so the highest readable object is enough.
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
    with suppress(ObjectExists):  # our own write, whose response was lost
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
    metas = [meta async for meta in objects.list(wal_prefix(session)) if meta.size_bytes != SEAL_BYTES]
    return QuarantinedWal(
        session_id=session,
        kind="object",
        where=wal_prefix(session),
        files=len(metas),
        size_bytes=sum(meta.size_bytes for meta in metas),
        report=report,
    )


async def discard_wal(objects: ObjectStore, session: SessionId, *, at_once: int) -> int:
    """Delete data first and reports last, so that an interrupted deletion is found again. Seals are kept."""
    if not await is_quarantined(objects, session):
        return 0
    data = [meta.key async for meta in objects.list(wal_prefix(session)) if meta.size_bytes != SEAL_BYTES]
    reports = [meta.key async for meta in objects.list(damage_report_prefix(session))]
    gone = [key async for key in delete_all(objects, data, at_once=at_once)]
    if len(gone) == len(data):
        gone += [key async for key in delete_all(objects, reports, at_once=at_once)]
    return len(gone)
