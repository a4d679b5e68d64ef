"""Sweep: what is left of object logs long after their sessions ended.

Data path   none: behind the data path's back
Owns        when leftovers may go: the session has ended, and the youngest of its objects is old
Leaves      who has ended to the metadata store, how old is old to the settings

A seal is the last that goes, and only when everything of its session is old: as long as anybody may still be stalled
in a PUT, its name must be taken. An object that came late makes its whole session young again.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from streamhouse.broker.wal.object_removal import delete_all
from streamhouse.format.keys import WAL_PREFIX, parse_wal_key
from streamhouse.format.wal_object import SEAL_BYTES
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import ObjectMeta, ObjectStore

log: Final = logging.getLogger(__name__)


async def collect_leftovers(
    objects: ObjectStore, ended: Callable[[SessionId], bool], *, before_ms: int, at_once: int
) -> int:
    """Delete all objects of ended sessions that wrote nothing since `before_ms`; returns how many went."""
    gone = 0
    async for session, found in _by_session(objects):
        if not ended(session) or any(meta.modified_at_ms >= before_ms for meta in found):
            continue
        # Data first: whoever is interrupted leaves the seal.
        ordered = sorted(found, key=lambda meta: (meta.size_bytes <= SEAL_BYTES, meta.key))
        deleted = [key async for key in delete_all(objects, [meta.key for meta in ordered], at_once=at_once)]
        gone += len(deleted)
        log.info("leftovers of a session deleted", extra={"session": session, "objects": len(deleted)})
    return gone


async def _by_session(objects: ObjectStore) -> AsyncIterator[tuple[SessionId, list[ObjectMeta]]]:
    """Objects come in the order of their keys, so those of a session come together. Keys of others are passed over."""
    session: SessionId | None = None
    found: list[ObjectMeta] = []
    async for meta in objects.list(WAL_PREFIX):
        name = parse_wal_key(meta.key)
        if name is None:
            continue
        if session is not None and name.session_id != session:
            yield session, found
            found = []
        session = name.session_id
        found.append(meta)
    if session is not None:
        yield session, found
