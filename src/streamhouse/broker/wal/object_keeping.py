"""Keeping of object logs: a damaged log stays in the store, with a report, until an operator discards it.

Data path   none: recovery of a damaged log -> **keeping** -> doctor, an operator's commands
Owns        reports in the store, which logs they are on, deleting both
Leaves      what a report says to `cluster.recovery`, whether a log may be discarded to `cluster.damaged_logs`

The objects stay where they are. The report stands under a prefix of its own: whoever deletes objects of logs looks
there first.
"""

from collections.abc import Sequence
from contextlib import suppress

from streamhouse.broker.wal.base import KeptLog
from streamhouse.broker.wal.object_removal import delete_all
from streamhouse.format.keys import (
    DAMAGED_PREFIX,
    damage_report_key,
    damage_report_prefix,
    parse_damage_report_key,
    wal_prefix,
)
from streamhouse.format.wal_object import SEAL_BYTES
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing, ObjectStore


async def keep_log(objects: ObjectStore, session: SessionId, report: bytes, *, number: int) -> None:
    with suppress(ObjectExists):  # our own, whose answer was lost
        await objects.put_new(damage_report_key(session, number), [report])


async def is_kept(objects: ObjectStore, session: SessionId) -> bool:
    async for _ in objects.list(damage_report_prefix(session)):
        return True
    return False


async def kept_sessions(objects: ObjectStore) -> Sequence[SessionId]:
    names = [parse_damage_report_key(meta.key) async for meta in objects.list(DAMAGED_PREFIX)]
    return list(dict.fromkeys(name.session_id for name in names if name is not None))


async def kept_logs(objects: ObjectStore) -> Sequence[KeptLog]:
    return [await _kept_log(objects, session) for session in await kept_sessions(objects)]


async def _kept_log(objects: ObjectStore, session: SessionId) -> KeptLog:
    reports = [meta async for meta in objects.list(damage_report_prefix(session))]
    report = b""
    with suppress(ObjectMissing, IndexError):  # discarded meanwhile
        report = await objects.get_range(reports[-1].key, 0, reports[-1].size_bytes)
    found = [meta async for meta in objects.list(wal_prefix(session)) if meta.size_bytes != SEAL_BYTES]
    return KeptLog(
        session_id=session,
        kind="object",
        where=wal_prefix(session),
        files=len(found),
        size_bytes=sum(meta.size_bytes for meta in found),
        report=report,
    )


async def discard_log(objects: ObjectStore, session: SessionId, *, at_once: int) -> int:
    """Data first, reports last: whoever is interrupted finds the log again. Seals stay."""
    if not await is_kept(objects, session):
        return 0
    data = [meta.key async for meta in objects.list(wal_prefix(session)) if meta.size_bytes != SEAL_BYTES]
    reports = [meta.key async for meta in objects.list(damage_report_prefix(session))]
    gone = [key async for key in delete_all(objects, data, at_once=at_once)]
    if len(gone) == len(data):
        gone += [key async for key in delete_all(objects, reports, at_once=at_once)]
    return len(gone)
