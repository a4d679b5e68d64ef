"""Recovery of object WALs: reading the objects of a dead session, and the seal that ends its log.

Data path   dead session -> **object_recovery** (read numbers in order, seal the first missing one) -> session.recovery
Owns        reading a log to its end; sealing that end; which objects may be deleted
Leaves      dead sessions, claims and the start of reading to the metadata store; bytes to `format.wal_object`; retained
            logs to `object_quarantine`

Fencing by collision: objects are written create-only, so at the first missing number either the seal is written, and
every later PUT of the session fails there, or a late PUT is first and is part of the log. One seal is enough, because
the session acknowledges in the order of its numbers. A seal must outlive every process that could write below its
prefix: only `collect` deletes it (decision 0009).

A missing number that was durable (`object_quarantine`) is not the end but damage: reading continues after it, and
nothing of the log is deleted until an operator discards it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from streamhouse.broker.wal.base import DamageReport, QuarantinedWal, at_once
from streamhouse.broker.wal.object_cleanup import delete_all, delete_leftovers
from streamhouse.broker.wal.object_quarantine import (
    discard_wal,
    is_quarantined,
    objects_above,
    quarantine_wal,
    quarantined_sessions,
    quarantined_wals,
)
from streamhouse.broker.wal.object_wal import ObjectWal
from streamhouse.clock import Clock, Ids
from streamhouse.config import WalSettings
from streamhouse.errors import CorruptObject, StreamhouseError, Unavailable
from streamhouse.format.object_keys import parse_wal_key, wal_key, wal_prefix
from streamhouse.format.wal_file import ScannedEntry, WalEntry
from streamhouse.format.wal_object import SEAL_BYTES, Seal, WalObject, decode_seal, encode_seal, read_object
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing, ObjectStore

log: Final = logging.getLogger(__name__)

PIECE_BYTES: Final = 4 * 1024 * 1024
"""Objects above this size are only partly read ahead, so that memory stays bounded."""
_READS: Final = 3
"""Reads of a damaged object before the damage is accepted: it may have happened in transit."""
_SEAL_ATTEMPTS: Final = 5
_LOST: Final = WalObject(items=())
"""Marks an object that was durable and is missing."""
_MAX_POSITIONS: Final = 100


class ObjectWalFactory:
    """The logs in one object store; implements `WalFactory`."""

    kind: Final = "object"

    def __init__(self, objects: ObjectStore, settings: WalSettings, *, clock: Clock, ids: Ids) -> None:
        self.objects = objects
        self.by = "nobody"
        """The name in seals: the session that was opened last."""
        self._settings = settings
        self._clock = clock
        self._ids = ids

    def __repr__(self) -> str:
        return f"<ObjectWalFactory by={self.by} {self.objects!r}>"

    @property
    def read_ahead(self) -> int:
        return self._settings.read_ahead

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def open(self, session: SessionId, *, before_removal: Callable[[], Awaitable[None]] = at_once) -> ObjectWal:
        """Create the log of a new session; its id must be unused. `truncate` deletes nothing here."""
        self.by = session
        return ObjectWal(self.objects, session, self._settings, clock=self._clock, ids=self._ids)

    async def dead_sessions(self, own: SessionId) -> list[SessionId]:
        """Always empty: only the metadata store knows dead sessions of object WALs."""
        return []

    @asynccontextmanager
    async def read(
        self, session: SessionId, *, start: int = 0, durable_below: int = 0
    ) -> AsyncIterator["ObjectWalReader"]:
        reading = ObjectWalReader(self, session, start=start, durable_below=durable_below)
        try:
            yield reading
        finally:
            await reading.aclose()

    async def remove(self, session: SessionId, *, below: int | None = None) -> None:
        """Delete the session's data below `below`, never its seals, and nothing of a retained log. The rest, and failed
        deletions, are left to `collect`."""
        try:
            if await is_quarantined(self.objects, session):
                return
            keys = [
                meta.key
                async for meta in self.objects.list(wal_prefix(session))
                if meta.size_bytes > SEAL_BYTES
                and (below is None or (name := parse_wal_key(meta.key)) is None or name.sequence < below)
            ]
        except StreamhouseError as error:
            log.warning("wal objects not removed", extra={"session": session, "why": str(error)})
            return
        async for _ in delete_all(self.objects, keys, at_once=self._settings.deletes):
            pass

    async def collect(
        self, ended: Callable[[SessionId], bool], *, now_ms: int, older_than_s: float | None = None
    ) -> int:
        """Delete everything, including seals, of ended sessions that have written nothing for `older_than_s`; returns
        the number of deleted objects. `ended` must be true only for sessions that the metadata store knows as ended for
        good. Retained logs are skipped."""
        age_s = self._settings.seal_retention_s if older_than_s is None else older_than_s
        before_ms = now_ms - round(age_s * 1000)
        quarantined = await quarantined_sessions(self.objects)
        return await delete_leftovers(
            self.objects,
            lambda session: session not in quarantined and ended(session),
            before_ms=before_ms,
            at_once=self._settings.deletes,
        )

    async def kept(self) -> Sequence[QuarantinedWal]:
        return await quarantined_wals(self.objects)

    async def discard(self, session: SessionId) -> int:
        """Delete a retained log except its seals, which `collect` deletes."""
        return await discard_wal(self.objects, session, at_once=self._settings.deletes)


class ObjectWalReader:
    """A dead session's log from `start` on; implements `WalReader`."""

    def __init__(self, wals: ObjectWalFactory, session: SessionId, *, start: int, durable_below: int = 0) -> None:
        self._wals = wals
        self._objects = wals.objects
        self._session = session
        self._start = start
        self._ahead: deque[asyncio.Task[bytes | None]] = deque()
        self._damage = DamageReport()
        self._durable_below = max(start, durable_below)
        """All numbers below were durable, according to what was read."""
        self._end: int | None = None
        """Objects above may not be deleted: it is unknown whether they were acknowledged."""

    def __repr__(self) -> str:
        return f"<ObjectWalReader {self._session} start={self._start} read={self._damage.files}>"

    @property
    def damage(self) -> DamageReport:
        return self._damage

    async def keep(self, report: bytes, *, number: int) -> None:
        await quarantine_wal(self._objects, self._session, report, number=number)

    async def remove(self) -> None:
        """Delete the log's data; a damaged log is kept in place."""
        if self._damage.is_clean:
            await self._wals.remove(self._session, below=self._end)

    async def aclose(self) -> None:
        """Stop reading ahead."""
        ahead, self._ahead = self._ahead, deque()
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)

    async def entries(self) -> AsyncIterator[WalEntry]:
        await self.aclose()
        self._damage = DamageReport()
        sequence = self._start
        while (wal_object := await self._next(sequence)) is not None:
            self._count(sequence, wal_object)
            for item in wal_object.items:
                if isinstance(item, ScannedEntry):
                    yield item.entry
                else:
                    self._damage = replace(self._damage, losses=self._damage.losses + 1)
            sequence += 1

    async def _next(self, sequence: int) -> WalObject | None:
        """The object of this number; `_LOST` if it was durable and is missing; None if the log is sealed before it."""
        for number in range(sequence + len(self._ahead), sequence + self._wals.read_ahead + 1):
            self._ahead.append(asyncio.create_task(self._first_piece(number), name=f"wal-read-{number}"))
        piece = await self._ahead.popleft()
        if piece is None:
            # A read-ahead may be out of date: only a create shows that the name is free, and only another read that a
            # durable object is missing.
            is_lost = await self._was_durable(sequence)
            piece = await (self._first_piece(sequence) if is_lost else self._seal(sequence))
            if piece is None:
                return _LOST if is_lost else None
        wal_object = await self._read(sequence, piece)
        if isinstance(wal_object, Seal):
            if await self._was_durable(sequence):
                return _LOST  # an earlier recovery treated the gap as the end
            log.info(
                "wal was sealed before", extra={"session": self._session, "sequence": sequence, "by": wal_object.by}
            )
            return None
        return wal_object

    async def _was_durable(self, sequence: int) -> bool:
        """Whether the object of this number was durable and may have been acknowledged."""
        if sequence >= self._durable_below:
            above = await objects_above(self._objects, self._session, sequence)
            self._durable_below = max(self._durable_below, above.durable_below)
            if not above.is_complete and sequence >= self._durable_below:
                self._end = sequence
                fields = {"session": self._session, "sequence": sequence}
                log.warning(
                    "wal objects after a gap are kept: it is unknown whether they were acknowledged", extra=fields
                )
        return sequence < self._durable_below

    async def _seal(self, sequence: int) -> bytes | None:
        """Seal the log here; if the name is taken, return the first part of that object."""
        seal = Seal(session=self._session, sequence=sequence, by=self._wals.by, at_ms=self._wals.now_ms())
        key = wal_key(self._session, sequence)
        for _ in range(_SEAL_ATTEMPTS):
            try:
                await self._objects.put_new(key, [encode_seal(seal)])
            except ObjectExists:
                if (piece := await self._first_piece(sequence)) is not None:
                    return piece  # a late PUT, the seal of an earlier recovery, or our own whose response was lost
            else:
                log.info("wal sealed", extra={"session": self._session, "sequence": sequence})
                return None
        raise Unavailable(f"object store says both that a key is taken and that it is not; key={key}")

    async def _first_piece(self, sequence: int) -> bytes | None:
        try:
            return await self._objects.get_range(wal_key(self._session, sequence), 0, PIECE_BYTES)
        except ObjectMissing:
            return None
        except CorruptObject as error:
            return self._unreadable(sequence, error)

    def _unreadable(self, sequence: int, error: CorruptObject) -> bytes:
        """Count an unreadable object as damage."""
        fields = {"session": self._session, "sequence": sequence, "why": error.why}
        log.error("a wal object can't be read", extra=fields)
        return b""

    async def _read(self, sequence: int, piece: bytes) -> WalObject | Seal:
        """The content of an object; a damaged one is read again, and the best read counts."""
        best = await self._decode(sequence, piece)
        for _ in range(_READS - 1):
            if isinstance(best, Seal) or not best.damage:
                break
            again = await self._first_piece(sequence)
            if again is None:
                break
            wal_object = await self._decode(sequence, again)
            if isinstance(wal_object, Seal) or len(wal_object.entries) > len(best.entries) or not wal_object.damage:
                best = wal_object
        return best

    async def _decode(self, sequence: int, piece: bytes) -> WalObject | Seal:
        pieces = [piece]
        while len(pieces[-1]) == PIECE_BYTES:
            position = len(pieces) * PIECE_BYTES
            key = wal_key(self._session, sequence)
            try:
                pieces.append(await self._objects.get_range(key, position, position + PIECE_BYTES))
            except CorruptObject as error:
                pieces.append(self._unreadable(sequence, error))
        data = memoryview(b"".join(pieces) if len(pieces) > 1 else piece)
        seal = decode_seal(data, session=self._session, sequence=sequence)
        if seal is not None:
            return seal
        read = partial(read_object, data, session=self._session, sequence=sequence)
        return await asyncio.get_running_loop().run_in_executor(None, read)

    def _count(self, sequence: int, wal_object: WalObject) -> None:
        report, is_lost = self._damage, wal_object is _LOST
        places = [f"{sequence}@{damage.position}+{damage.length}" for damage in wal_object.damage]
        if is_lost:
            places.append(f"{sequence}@missing")
        self._damage = replace(
            report,
            files=report.files + (not is_lost),
            entries=report.entries + len(wal_object.entries),
            skipped=report.skipped + len(wal_object.damage),
            skipped_bytes=report.skipped_bytes + sum(damage.length for damage in wal_object.damage),
            missing=report.missing + is_lost,
            losses=report.losses + is_lost,
            places=(*report.places, *islice(places, _MAX_POSITIONS - len(report.places))),
        )
        if places:
            fields = {"session": self._session, "sequence": sequence, "entries": len(wal_object.entries)}
            what = "wal object missing" if is_lost else "wal object damaged"
            log.error(what, extra={**fields, "places": ",".join(places[:_MAX_POSITIONS])})
