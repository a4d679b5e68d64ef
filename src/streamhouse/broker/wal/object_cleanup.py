"""Cleanup of an object WAL: which objects are still needed, deleting the others, and the leftovers of ended sessions.

`RetainedObjects` decides and does no I/O. Objects are released in order only: recovery reads sequence numbers without
gaps, so one idle partition retains everything behind it until it is flushed by age.

`delete_leftovers` deletes the objects of a session that has ended, once its youngest object is old. The seal is
deleted last: while an agent may still be stalled in a PUT, the name of the seal must stay taken.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.format.object_keys import WAL_PREFIX, parse_wal_key
from streamhouse.format.wal_object import SEAL_BYTES
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.objects.base import ObjectMeta, ObjectStore


class RetainedObjects:
    def __init__(self) -> None:
        self._ends: dict[PartitionId, deque[tuple[int, int]]] = {}
        """Per partition (end, sequence) of the objects with unflushed entries of it."""
        self._holders: dict[int, int] = {}
        """Per sequence the number of partitions that retain it."""
        self._sizes: dict[int, int] = {}
        self.durable_below = 0
        self._first_retained = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return (
            f"<RetainedObjects from={self._first_retained} durable_below={self.durable_below} bytes={self.size_bytes}>"
        )

    @property
    def first_retained(self) -> int:
        return self._first_retained

    def note(self, sequence: int, partition: PartitionId, end: int) -> None:
        """Note that the object will contain entries of the partition below `end`. Sequences never decrease."""
        ends = self._ends.get(partition)
        if ends is None:
            ends = self._ends[partition] = deque()
        if ends and ends[-1][1] == sequence:
            ends[-1] = (max(end, ends[-1][0]), sequence)
            return
        ends.append((end, sequence))
        self._holders[sequence] = self._holders.get(sequence, 0) + 1

    def resize(self, sequence: int, size_bytes: int) -> None:
        self.size_bytes += size_bytes - self._sizes.get(sequence, 0)
        self._sizes[sequence] = size_bytes

    def durable(self, sequence: int) -> None:
        """Note that this object and all below it are durable."""
        self.durable_below = sequence + 1
        self._advance()

    def mark_flushed(self, flushed: Mapping[PartitionId, int]) -> None:
        """Note that entries of these partitions below these offsets are in segments."""
        for partition, offset in flushed.items():
            ends = self._ends.get(partition)
            while ends and ends[0][0] <= offset:
                self._release(ends.popleft()[1])
            if ends is not None and not ends:
                del self._ends[partition]
        self._advance()

    def deleted(self, sequence: int) -> None:
        """Note that the object was deleted."""
        self.size_bytes -= self._sizes.pop(sequence, 0)

    def _release(self, sequence: int) -> None:
        left = self._holders[sequence] - 1
        if left:
            self._holders[sequence] = left
        else:
            del self._holders[sequence]

    def _advance(self) -> None:
        # Only up to the durable end: otherwise recovery would begin after a number that may be missing.
        while self._first_retained < self.durable_below and self._first_retained not in self._holders:
            self._first_retained += 1


log: Final = logging.getLogger(__name__)


async def delete_all(objects: ObjectStore, keys: Iterable[str], *, at_once: int) -> AsyncIterator[str]:
    """Delete in order, `at_once` concurrently; yields deleted keys. Stops at the first error of the store."""
    coming = iter(keys)
    while some := list(islice(coming, at_once)):
        gone = await asyncio.gather(*(_delete(objects, key) for key in some))
        for key, is_gone in zip(some, gone, strict=True):
            if is_gone:
                yield key
        if not all(gone):
            return


async def _delete(objects: ObjectStore, key: str) -> bool:
    try:
        await objects.delete(key)
    except StreamhouseError as error:
        log.warning("wal object can't be deleted now", extra={"key": key, "why": str(error)})
        return False
    return True


async def delete_leftovers(
    objects: ObjectStore, ended: Callable[[SessionId], bool], *, before_ms: int, at_once: int
) -> int:
    """Delete all objects of ended sessions that wrote nothing since `before_ms`; returns the number of deleted
    objects."""
    gone = 0
    async for session, objects_of_session in _by_session(objects):
        if not ended(session) or any(meta.modified_at_ms >= before_ms for meta in objects_of_session):
            continue
        # Data first, so that an interrupted deletion leaves the seal.
        ordered = sorted(objects_of_session, key=lambda meta: (meta.size_bytes <= SEAL_BYTES, meta.key))
        deleted = [key async for key in delete_all(objects, [meta.key for meta in ordered], at_once=at_once)]
        gone += len(deleted)
        log.info("leftovers of a session deleted", extra={"session": session, "objects": len(deleted)})
    return gone


async def _by_session(objects: ObjectStore) -> AsyncIterator[tuple[SessionId, list[ObjectMeta]]]:
    """Group objects by session: they are listed in key order. Other keys are skipped."""
    session: SessionId | None = None
    objects_of_session: list[ObjectMeta] = []
    async for meta in objects.list(WAL_PREFIX):
        name = parse_wal_key(meta.key)
        if name is None:
            continue
        if session is not None and name.session_id != session:
            yield session, objects_of_session
            objects_of_session = []
        session = name.session_id
        objects_of_session.append(meta)
    if session is not None:
        yield session, objects_of_session
