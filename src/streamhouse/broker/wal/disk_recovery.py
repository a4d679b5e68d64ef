"""Disk WALs of an agent: opening new ones, and reading those of dead sessions.

Data path   start -> **disk_recovery** (lock, read, scan) -> session.recovery publishes the entries -> remove
Owns        which sessions are dead (their lock can be taken), reading a log under its lock, the damage report
Leaves      entries and damage to `format.wal_file`, epochs and offsets to the broker, damaged logs to `disk_quarantine`
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from streamhouse.broker.wal.base import DamageReport, QuarantinedWal, at_once
from streamhouse.broker.wal.disk_files import LOCK_NAME, is_session_name, parse_file_name, remove_directory, session_dir
from streamhouse.broker.wal.disk_quarantine import (
    discard_wal,
    is_quarantined,
    move_to_quarantine,
    quarantined_wals,
    write_report,
)
from streamhouse.broker.wal.disk_wal import DiskWal, open_disk_wal
from streamhouse.clock import Clock, Ids
from streamhouse.config import WalSettings
from streamhouse.errors import DataKeyUnavailable
from streamhouse.format.encryption import EntryCipher
from streamhouse.format.wal_file import (
    FILE_HEADER_BYTES,
    CorruptRange,
    FileHeader,
    ScannedEntry,
    WalEntry,
    decode_file_header,
    scan,
)
from streamhouse.model.names import SessionId
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.local_files import ByteRange, FileSystem, Lock, LockedError

log: Final = logging.getLogger(__name__)

_ENTRIES_AT_A_TIME: Final = 1000
_MAX_POSITIONS: Final = 100

T = TypeVar("T")


class DiskWalRecovery:
    """The logs below one root; implements `WalRecovery`."""

    def __init__(self, root: Path, files: FileSystem, keys: DataKeys | None = None) -> None:
        self._root = root
        self._files = files
        self._keys = keys

    async def dead_sessions(self, own: SessionId) -> list[SessionId]:
        return await _in_thread(lambda: self._dead_sessions(own))

    def _dead_sessions(self, own: SessionId) -> list[SessionId]:
        try:
            names = self._files.list(self._root)
        except FileNotFoundError:
            return []
        sessions = [SessionId(name) for name in names if is_session_name(name) and name != own]
        return [session for session in sessions if self._is_dead(session)]

    def _is_dead(self, session: SessionId) -> bool:
        try:
            lock = self._take(session)
        except (LockedError, NotADirectoryError):
            return False
        if lock is None:
            return False
        lock.release()
        return True

    @asynccontextmanager
    async def read(
        self, session: SessionId, *, start: int = 0, durable_below: int = 0
    ) -> AsyncIterator["DiskWalReader"]:
        session_dir(self._root, session)  # raises for an invalid session id
        lock = await _in_thread(lambda: self._take(session))
        try:
            yield DiskWalReader(session, self._root, self._files, exists=lock is not None, keys=self._keys)
        finally:
            if lock is not None:
                await _in_thread(lock.release)

    async def remove(self, session: SessionId) -> None:
        async with self.read(session) as reading:
            await reading.remove()

    async def collect(self, ended: Callable[[SessionId], bool], *, now_ms: int) -> int:
        """Does nothing: a disk WAL is always removed completely."""
        return 0

    async def kept(self) -> Sequence[QuarantinedWal]:
        return await _in_thread(lambda: quarantined_wals(self._files, self._root))

    async def discard(self, session: SessionId) -> int:
        session_dir(self._root, session)
        return await _in_thread(lambda: discard_wal(self._files, self._root, session))

    def _take(self, session: SessionId) -> Lock | None:
        """Lock the session's log; None if there is none: a directory without lock and files is being created."""
        directory = session_dir(self._root, session)
        try:
            return self._files.lock(directory / LOCK_NAME)
        except FileNotFoundError:
            pass
        try:
            is_log = any(parse_file_name(name) is not None for name in self._files.list(directory))
        except FileNotFoundError:
            return None
        # Files without a lock were copied here by hand.
        return self._files.create_locked(directory / LOCK_NAME) if is_log else None


class DiskWalReader:
    """A dead session's log under our lock; implements `WalReader`."""

    def __init__(
        self, session: SessionId, root: Path, files: FileSystem, *, exists: bool, keys: DataKeys | None = None
    ) -> None:
        self._keys = keys
        self._session = session
        self._root = root
        self._directory = session_dir(root, session)
        self._files = files
        self._exists = exists
        self._damage = DamageReport()
        self._damaged: set[str] = set()

    @property
    def damage(self) -> DamageReport:
        return self._damage

    async def entries(self) -> AsyncIterator[WalEntry]:
        self._damage = DamageReport()
        for name in await self.files():
            async for entry in self.entries_in(name):
                yield entry

    async def files(self) -> list[str]:
        """The log's files, in order."""
        return await _in_thread(self._file_names)

    def is_damaged(self, name: str) -> bool:
        """Whether a file that was read has damage."""
        return name in self._damaged

    async def entries_in(self, name: str) -> AsyncIterator[WalEntry]:
        """The valid entries of one file."""
        before = self._damage
        async for entry in self._entries_of(name):
            yield entry
        self._damage = replace(self._damage, files=self._damage.files + 1)
        self._report(name, before)

    async def remove_file(self, name: str) -> None:
        """Delete one file durably: everything in it is in segments. A damaged one is quarantined."""
        if name in self._damaged:
            await _in_thread(lambda: move_to_quarantine(self._files, self._root, self._session, [name]))
        else:
            await _in_thread(lambda: self._files.remove(self._directory, [name]))

    async def _entries_of(self, name: str) -> AsyncIterator[WalEntry]:
        """Read entries with one file at a time in memory, and a bounded list of its entries."""
        data, holes = await _in_thread(lambda: self._files.read_around(self._directory / name))
        unreadable = sum(hole.end - hole.start for hole in holes)
        self._damage = replace(self._damage, unreadable_bytes=self._damage.unreadable_bytes + unreadable)
        view = memoryview(data)
        header = decode_file_header(view)
        if header is not None and self._is_unwritten(name, header):
            return
        scanned = scan(view, header, await self._cipher(name, header))
        while some := await _in_thread(lambda: list(islice(scanned, _ENTRIES_AT_A_TIME))):
            self._damage = _add(self._damage, name, some)
            for item in some:
                if isinstance(item, ScannedEntry):
                    yield item.entry
                elif _is_loss(item, holes):
                    self._damage = replace(self._damage, losses=self._damage.losses + 1)

    def _is_unwritten(self, name: str, header: FileHeader) -> bool:
        """Whether this is a recycled file that got its name, but nothing that was written to it since is durable."""
        sequence = parse_file_name(name)
        return header.session == self._session and sequence is not None and sequence > header.sequence

    async def _cipher(self, name: str, header: FileHeader | None) -> EntryCipher | None:
        """The cipher of the file; None if it isn't encrypted. Raises `DataKeyUnavailable`."""
        if header is None or header.envelope is None:
            return None
        where = f"{self._session}/{name}"
        if self._keys is None:
            raise DataKeyUnavailable(
                where, key_id=header.envelope.key_id, why="the log is encrypted, and encryption.kms is none"
            )
        data_key = await self._keys.unwrap(header.envelope, where=where)
        return EntryCipher(data_key, header.salt, session=header.session, sequence=header.sequence)

    def _file_names(self) -> list[str]:
        if not self._exists:
            return []
        return [name for name in self._files.list(self._directory) if parse_file_name(name) is not None]

    def _report(self, name: str, before: DamageReport) -> None:
        now = self._damage
        if (now.skipped, now.cut) == (before.skipped, before.cut):
            return
        fields = {
            "session": self._session,
            "file": name,
            "entries": now.entries - before.entries,
            "skipped": now.skipped - before.skipped,
            "skipped_bytes": now.skipped_bytes - before.skipped_bytes,
            "cut_bytes": now.cut_bytes - before.cut_bytes,
            "unreadable_bytes": now.unreadable_bytes - before.unreadable_bytes,
            "places": ",".join(now.places[len(before.places) :]),
        }
        self._damaged.add(name)
        log.log(logging.ERROR if now.losses > before.losses else logging.WARNING, "wal file damaged", extra=fields)

    async def keep(self, report: bytes, *, number: int) -> None:
        await _in_thread(lambda: write_report(self._files, self._root, self._session, report, number=number))

    async def remove(self) -> None:
        if self._exists:
            self._exists = False
            await _in_thread(self._remove)

    def _remove(self) -> None:
        if self._damaged or is_quarantined(self._files, self._root, self._session):
            names = [name for name in self._files.list(self._directory) if parse_file_name(name) is not None]
            move_to_quarantine(self._files, self._root, self._session, names)
        remove_directory(self._files, self._directory)


def _is_loss(damage: CorruptRange, holes: Sequence[ByteRange]) -> bool:
    """Whether acknowledged entries may be lost. A power cut may tear the end of a file, also of one with a successor,
    but not the beginning of one with entries, and it causes no read errors. Nothing was acknowledged from a file that
    is shorter than its header: header and first entries are written at once."""
    end = damage.position + damage.length
    is_unreadable = any(hole.start < end and damage.position < hole.end for hole in holes)
    has_no_header = damage.position == 0 and damage.length > FILE_HEADER_BYTES
    return not damage.tail or has_no_header or is_unreadable


def _add(report: DamageReport, name: str, items: list[ScannedEntry | CorruptRange]) -> DamageReport:
    damages = [item for item in items if isinstance(item, CorruptRange)]
    skipped = [damage.length for damage in damages if not damage.tail]
    cut = [damage.length for damage in damages if damage.tail]
    places = (f"{name}@{damage.position}+{damage.length}" for damage in damages)
    return replace(
        report,
        entries=report.entries + len(items) - len(damages),
        skipped=report.skipped + len(skipped),
        skipped_bytes=report.skipped_bytes + sum(skipped),
        cut=report.cut + len(cut),
        cut_bytes=report.cut_bytes + sum(cut),
        places=(*report.places, *islice(places, _MAX_POSITIONS - len(report.places))),
    )


async def _in_thread(call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, call)


class DiskWalFactory(DiskWalRecovery):
    kind: Final = "disk"

    def __init__(
        self,
        root: Path,
        settings: WalSettings,
        *,
        files: FileSystem,
        clock: Clock,
        ids: Ids,
        keys: DataKeys | None = None,
    ) -> None:
        super().__init__(root, files, keys)
        self._settings = settings
        self._clock = clock
        self._ids = ids

    async def open(self, session: SessionId, *, before_removal: Callable[[], Awaitable[None]] = at_once) -> DiskWal:
        return await open_disk_wal(
            self._root,
            session,
            self._settings,
            files=self._files,
            clock=self._clock,
            ids=self._ids,
            before_removal=before_removal,
            keys=self._keys if self._keys is not None and self._keys.settings.new_objects else None,
        )
