"""Disk WAL: append-only local files, written by group commit.

Data path   log -> **append** (queue, on the loop) -> worker thread: writev, fsync by policy -> future of the group
            a small group of an idle log is written on the loop itself (decision 0030)
Owns        the session's directory and its lock; groups and their order; when a file is synced; the end of the log
Leaves      entry bytes to `format.wal_file`, the choice of files and blocking steps to `disk_files`

Policies    always    an append is done when it is written and synced
            interval  done when it is written; dirty files are synced every `fsync_interval_ms`, in order
            never     done when it is written; syncing is left to the operating system
Invariants  one group is written at a time, in the order of the appends; a group never spans two files
            after any failed write or sync the log is over, and the file is never synced again: the kernel may have
            dropped the dirty pages, so that a second sync would succeed without having written them
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from streamhouse.broker.wal.base import GroupCommit, WalRequestStats, WalState, at_once, fail_quietly
from streamhouse.broker.wal.disk_files import (
    FileEncryption,
    WalFile,
    WalFileSet,
    close_file,
    lock_directory,
    remove_directory,
    session_dir,
    spare_name,
    sync_and_close,
)
from streamhouse.clock import Clock, Ids
from streamhouse.errors import AppendFailed, Misconfigured, Overloaded
from streamhouse.format.batch import Buffer
from streamhouse.format.encryption import SALT_BYTES, TAG_BYTES, EntryCipher
from streamhouse.format.wal_file import (
    ENTRY_HEADER_BYTES,
    MARK_BYTES,
    VERSION,
    FileHeader,
    WalEntry,
    encode_end,
    encode_entry,
    encode_file_header,
)
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.local_files import AppendFile, FileSystem, Lock

log: Final = logging.getLogger(__name__)

MAX_GROUP_BYTES: Final = 8 * 1024 * 1024
RENEW_BYTES: Final = 4 * 1024 * 1024
SLOW_WRITE_S: Final = 0.002
SLOW_WRITES: Final = 3
STALLED_WRITE_S: Final = 0.02
INLINE_PAUSE_S: Final = 1.0
"""After `SLOW_WRITES` writes on the event loop, one after the other, that took `SLOW_WRITE_S` each, or one that took
`STALLED_WRITE_S`, the worker thread writes everything for this long. A single slow one says little about the disk: on a
busy machine the loop had to let another process run."""
_RETRY_AFTER_S: Final = 0.1
_POLICIES: Final = ("always", "interval", "never")


class DiskWalSettings(Protocol):
    """The part of `config.WalSettings` that is used here."""

    @property
    def fsync(self) -> str: ...
    @property
    def fsync_interval_ms(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def spare_files(self) -> int: ...
    @property
    def max_pending_bytes(self) -> int: ...
    @property
    def inline_bytes(self) -> int: ...


class _Group:
    """Appends that are written and acknowledged together."""

    __slots__ = ("buffers", "commit", "end_position", "entries", "file", "size_bytes")

    def __init__(self, file: WalFile, commit: GroupCommit) -> None:
        self.file = file
        self.commit = commit
        self.buffers: list[Buffer] = []
        self.entries: list[tuple[WalEntry, int]] = []
        """With their positions; only of files that the worker encrypts."""
        self.size_bytes = 0
        self.end_position = 0
        """Where the group ends in its file."""

    def end(self) -> bytes:
        """The bytes after the group until the next one: the end marker of a recycled file."""
        return b"" if self.file.spare is None else encode_end(mark=self.file.mark, position=self.end_position)


class DiskWal:
    """One session's log. Created by `open_disk_wal`."""

    def __init__(
        self,
        directory: Path,
        session: SessionId,
        settings: DiskWalSettings,
        *,
        files: FileSystem,
        lock: Lock,
        executor: Executor,
        clock: Clock,
        ids: Ids,
        max_group_bytes: int = MAX_GROUP_BYTES,
        renew_bytes: int = RENEW_BYTES,
        before_removal: Callable[[], Awaitable[None]] = at_once,
        keys: DataKeys | None = None,
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._entry_bytes = ENTRY_HEADER_BYTES + (TAG_BYTES if keys is not None else 0)
        """The overhead of an entry besides its batch."""
        self._before_removal = before_removal
        self._session = session
        self._settings = settings
        self._files = files
        self._lock = lock
        self._executor = executor
        self._clock = clock
        self._max_group_bytes = max_group_bytes
        self._loop = asyncio.get_running_loop()
        self._ledger = WalFileSet(
            file_bytes=settings.file_bytes,
            renew_bytes=min(renew_bytes, settings.file_bytes),
            new_mark=lambda: bytes.fromhex(ids.token())[:MARK_BYTES],
            encrypt=self._encrypt_file if keys is not None else None,
            max_spares=settings.spare_files,
            envelope=(lambda: keys.current().envelope) if keys is not None else None,
        )
        self._queue: deque[_Group] = deque()
        self._queued_bytes = 0
        self._writing: _Group | None = None
        self._job: asyncio.Future[None] | None = None
        self._is_due = False
        # With `always` every group waits for a sync, which only the worker may do.
        self._inline_bytes = settings.inline_bytes if settings.fsync != "always" and keys is None else 0
        self._slow_writes = 0
        """Slow writes on the event loop, one after the other."""
        self._inline_from = 0.0
        """Monotonic time from which groups may be written on the event loop."""
        self._current: WalFile | None = None
        """The file written last; it is open."""
        self._retired: list[WalFile] = []
        """Complete files that the next sync closes; only with `interval`."""
        self._leftover: list[str] = []
        """Unneeded files that could not be removed."""
        self._removals: list[asyncio.Future[None]] = []
        self._dirty = asyncio.Event()
        self._sync_job: asyncio.Future[None] | None = None
        self._syncer: asyncio.Task[None] | None = None
        self._ending = WalState(session)
        if settings.fsync == "interval":
            self._syncer = self._loop.create_task(self._sync_dirty_files(), name="wal-sync")
            self._syncer.add_done_callback(self._syncer_ended)

    def __repr__(self) -> str:
        return (
            f"<DiskWal {self._session} {self._ending.state} fsync={self._settings.fsync} "
            f"files={len(self._ledger.files)} bytes={self.size_bytes} pending={self._queued_bytes}>"
        )

    @property
    def failed(self) -> Exception | None:
        return self._ending.error

    async def wait_failed(self) -> Exception:
        return await self._ending.wait_failed()

    @property
    def size_bytes(self) -> int:
        return self._ledger.size_bytes

    @property
    def pending_bytes(self) -> int:
        return self._queued_bytes

    @property
    def costs(self) -> WalRequestStats:
        return WalRequestStats()

    @property
    def first_retained(self) -> int:
        return 0

    @property
    def durable_below(self) -> int:
        return 0

    @property
    def needed_objects(self) -> int:
        return 0

    async def delete_below(self, sequence: int) -> None:
        """Does nothing: `truncate` removes files, and a reader lists the directory."""

    # --- appending

    def append(self, entries: Sequence[WalEntry]) -> asyncio.Future[None]:
        if self._ending.is_over:
            return self._ending.refused()
        size = sum([len(entry[4]) for entry in entries]) + self._entry_bytes * len(entries)
        limit = self._settings.max_pending_bytes
        # An empty append completes after all earlier ones.
        if size and self._queued_bytes and self._queued_bytes + size > limit:
            raise Overloaded("write-ahead log", limit_bytes=limit, retry_after_s=_RETRY_AFTER_S)
        group = self._group_for(size)
        self._add(group, entries)
        self._queued_bytes += size
        if self._job is None and not self._is_due:
            # Not at once, so that other appends of this turn of the event loop join the group.
            self._is_due = True
            self._loop.call_soon(self._write_next)
        return group.commit

    def _group_for(self, size: int) -> _Group:
        """The current group, or a new one if it is full or the file changes."""
        file = self._ledger.file_for(size)
        if self._queue:
            group = self._queue[-1]
            if group.file is file and group.size_bytes + size <= self._max_group_bytes:
                return group
        group = _Group(file, GroupCommit(loop=self._loop))
        file.groups += 1
        self._queue.append(group)
        return group

    def _add(self, group: _Group, entries: Sequence[WalEntry]) -> None:
        # Here, not in the worker, which may wait for the GIL each time it runs Python code.
        file, ends, buffers = group.file, group.file.ends, group.buffers
        start = position = file.size_bytes
        for entry in entries:
            if file.encryption is None:
                buffers += encode_entry(entry, mark=file.mark, position=position)
            else:
                group.entries.append((entry, position))
            partition, _, _, end, batch = entry
            position += self._entry_bytes + len(batch)
            if end > ends.get(partition, -1):
                ends[partition] = end
        file.size_bytes = group.end_position = position
        group.size_bytes += position - start

    def _encrypt_file(self, sequence: int) -> FileEncryption:
        assert self._keys is not None
        data_key, salt = self._keys.current(), os.urandom(SALT_BYTES)
        cipher = EntryCipher(data_key.key, salt, session=self._session, sequence=sequence)
        return FileEncryption(salt, data_key.envelope, cipher)

    # --- writing, one group at a time

    def _write_next(self) -> None:
        self._is_due = False
        if self._job is not None or not self._queue:
            return
        group = self._queue.popleft()
        if self._may_write_inline(group):
            self._write_inline(group)
            return
        self._writing = group
        finished = self._finished_before(group.file)
        self._job = self._loop.run_in_executor(self._executor, self._write, group, finished)
        self._job.add_done_callback(partial(self._written, group))

    def _may_write_inline(self, group: _Group) -> bool:
        """Whether writing the group now costs less than waking the worker and is unlikely to block: it is small, the
        last of the queue and for the open file, and no sync is in progress."""
        return (
            group.size_bytes <= self._inline_bytes
            and not self._queue
            and group.file is self._current
            and group.file.handle is not None
            and self._sync_job is None
            and self._clock.monotonic() >= self._inline_from
        )

    def _write_inline(self, group: _Group) -> None:
        """Write on the event loop. A disk that turns out to be slow is left to the worker for a while."""
        assert group.file.handle is not None
        began = self._clock.monotonic()
        try:
            group.file.handle.write(group.buffers, group.end())
        except Exception as error:  # noqa: BLE001 - as in the worker, whatever it is ends the log
            self._finish_group(group, error)
            return
        ended = self._clock.monotonic()
        took_s = ended - began
        self._slow_writes = self._slow_writes + 1 if took_s >= SLOW_WRITE_S else 0
        if self._slow_writes >= SLOW_WRITES or took_s >= STALLED_WRITE_S:
            self._inline_from = ended + INLINE_PAUSE_S
        self._finish_group(group, None)

    def _finished_before(self, file: WalFile) -> WalFile | None:
        """The previous file if the worker must close it."""
        before, self._current = self._current, file
        if before is None or before is file:
            return None
        if self._syncer is None:
            return before
        self._retired.append(before)
        self._dirty.set()
        return None

    def _write(self, group: _Group, finished: WalFile | None) -> None:
        """Runs in the worker thread."""
        file = group.file
        if finished is not None:
            close_file(finished)
        if file.encryption is not None:
            for entry, position in group.entries:
                group.buffers += encode_entry(entry, mark=file.mark, position=position, cipher=file.encryption.cipher)
        if file.handle is None:
            file.handle = self._open_file(file)
            group.buffers.insert(0, encode_file_header(_header_of(file, self._session)))
        file.handle.write(group.buffers, group.end())
        if self._settings.fsync == "always":
            file.handle.sync()

    def _open_file(self, file: WalFile) -> AppendFile:
        path = self._directory / file.name
        if file.spare is None:
            return self._files.create(path)
        # The new name first: a file that is cut off from its old name is never read as what it was.
        self._files.rename(self._directory / file.spare, path)
        return self._files.write_over(path)

    def _written(self, group: _Group, job: asyncio.Future[None]) -> None:
        self._job = self._writing = None
        self._finish_group(group, _error_of(job))
        if self._ending.error is None:
            self._write_next()

    def _finish_group(self, group: _Group, error: Exception | None) -> None:
        """The group is written, or the log has failed."""
        group.file.groups -= 1
        self._queued_bytes -= group.size_bytes
        if error is not None:
            self._fail(error, group)
            return
        self._dirty.set()
        if not group.commit.done():
            group.commit.set_result(None)

    def _fail(self, error: Exception, *groups: _Group) -> None:
        """End the log: all waiting appends fail, and nothing is retried."""
        self._ending.fail(error)
        waiting = [*groups, *([self._writing] if self._writing else []), *self._queue]
        self._queue.clear()
        self._queued_bytes = self._writing.size_bytes if self._writing else 0
        why = AppendFailed(f"write-ahead log failed; session={self._session} why={error}")
        for group in waiting:
            if not group.commit.done():
                fail_quietly(group.commit, why)

    # --- syncing in the background

    async def _sync_dirty_files(self) -> None:
        while True:
            await self._dirty.wait()
            await self._clock.sleep(self._settings.fsync_interval_ms / 1000)
            if self._ending.error is not None:
                return
            self._dirty.clear()
            # In a separate job that outlives a cancelled syncer: `aclose` needs the sync's outcome.
            self._sync_job = job = self._loop.run_in_executor(self._executor, sync_and_close, *self._to_sync())
            job.add_done_callback(self._synced)
            await asyncio.wait((job,))
            if _error_of(job) is not None:
                return  # no file is synced again after a failure

    def _to_sync(self) -> tuple[list[WalFile], WalFile | None]:
        """Files to sync and close, and the file to sync only; a file without a handle has no data."""
        retired, self._retired = self._retired, []
        current = self._current
        return retired, current if current is not None and current.handle is not None else None

    def _synced(self, job: asyncio.Future[None]) -> None:
        self._sync_job = None
        if (error := _error_of(job)) is not None:
            self._fail(error)

    def _syncer_ended(self, syncer: asyncio.Task[None]) -> None:
        if not syncer.cancelled() and (error := syncer.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    # --- truncating and closing

    async def truncate(self, flushed: Mapping[PartitionId, int]) -> None:
        dropped = self._ledger.mark_flushed(flushed)
        if self._ending.is_closing or not (dropped or self._leftover):
            return
        to_close = [file for file in dropped if self._let_go(file)]
        spares = self._ledger.choose_spares(dropped)
        names = [*self._leftover, *(file.name for file in dropped if file not in spares)]
        self._leftover = []
        removal = self._loop.create_task(self._remove_registered(to_close, names, spares), name="wal-remove")
        self._removals.append(removal)
        removal.add_done_callback(partial(self._removed, names, spares))
        await asyncio.wait((removal,))

    async def _remove_registered(
        self, to_close: Sequence[WalFile], names: Sequence[str], spares: Sequence[WalFile]
    ) -> None:
        try:
            await self._before_removal()
        except BaseException:
            await self._loop.run_in_executor(self._executor, self._remove, to_close, (), ())
            raise
        await self._loop.run_in_executor(self._executor, self._remove, to_close, names, spares)

    def _removed(self, names: list[str], spares: Sequence[WalFile], removal: asyncio.Future[None]) -> None:
        self._removals.remove(removal)
        error = _error_of(removal)
        self._ledger.settle_spares(spares, renamed=error is None)
        if error is not None:
            # A remaining file is harmless, so the log continues; the next call retries.
            self._leftover += names
            for file in spares:
                self._leftover += [file.name, spare_name(file.sequence)]
            log.warning("wal files not removed", extra={"session": self._session, "files": names, "why": str(error)})

    def _let_go(self, file: WalFile) -> bool:
        """Whether the caller must close a removed file, because neither the writer nor the syncer will."""
        file.is_gone = True
        if file is not self._current:
            return False
        self._current = None
        if self._syncer is None:
            return True
        self._retired.append(file)
        self._dirty.set()
        return False

    def _remove(self, to_close: Sequence[WalFile], names: Sequence[str], spares: Sequence[WalFile]) -> None:
        for file in to_close:
            close_file(file)
        for file in spares:
            self._files.rename(self._directory / file.name, self._directory / spare_name(file.sequence))
        if names:
            self._files.remove(self._directory, names)

    async def aclose(self, *, remove: bool) -> None:
        if self._ending.is_closing:
            return
        self._ending.close()
        self._write_next()
        while jobs := [*self._removals, *([self._job] if self._job else [])]:
            await asyncio.wait(jobs)
        await self._stop_syncing()
        must_sync = self._settings.fsync == "interval" and self._ending.error is None and not remove
        retired, current = self._retired, self._current
        try:
            await self._loop.run_in_executor(self._executor, self._finish, retired, current, must_sync, remove)
        except OSError as error:
            self._fail(error)
            raise AppendFailed(f"write-ahead log did not close; session={self._session} why={error}") from error
        finally:
            self._executor.shutdown(wait=False)

    async def _stop_syncing(self) -> None:
        if self._syncer is not None:
            self._syncer.cancel()
            await asyncio.wait((self._syncer,))
        if (job := self._sync_job) is not None:
            await asyncio.wait((job,))
            self._synced(job)  # before the caller reads `failed`

    def _finish(self, retired: list[WalFile], current: WalFile | None, must_sync: bool, remove: bool) -> None:
        """Runs in the worker thread as its last job."""
        files = [*retired, current] if current is not None else retired
        try:
            if must_sync:
                sync_and_close(files, None)
            for file in files:
                close_file(file)
            if remove:
                remove_directory(self._files, self._directory)
        finally:
            self._lock.release()


def _header_of(file: WalFile, session: SessionId) -> FileHeader:
    header = FileHeader(session=session, sequence=file.sequence, mark=file.mark)
    if file.encryption is None:
        return header
    return replace(header, version=VERSION, salt=file.encryption.salt, envelope=file.encryption.envelope)


async def open_disk_wal(
    root: Path,
    session: SessionId,
    settings: DiskWalSettings,
    *,
    files: FileSystem,
    clock: Clock,
    ids: Ids,
    max_group_bytes: int = MAX_GROUP_BYTES,
    renew_bytes: int = RENEW_BYTES,
    before_removal: Callable[[], Awaitable[None]] = at_once,
    keys: DataKeys | None = None,
) -> DiskWal:
    """Create the log of a new session in `{root}/{session}/`; its id must be unused. With `keys`, batches are
    encrypted."""
    if settings.fsync not in _POLICIES:
        raise Misconfigured(f"unknown fsync policy; fsync={settings.fsync!r} known={','.join(_POLICIES)}")
    directory = session_dir(root, session)
    # A writer thread and, if acks don't wait for syncs, a syncer thread, so that syncs don't delay writes.
    executor = ThreadPoolExecutor(2 if settings.fsync == "interval" else 1, thread_name_prefix="wal")
    try:
        lock = await asyncio.get_running_loop().run_in_executor(executor, lock_directory, files, directory)
    except BaseException:
        executor.shutdown(wait=False)
        raise
    return DiskWal(
        directory,
        session,
        settings,
        files=files,
        lock=lock,
        executor=executor,
        clock=clock,
        ids=ids,
        max_group_bytes=max_group_bytes,
        renew_bytes=renew_bytes,
        before_removal=before_removal,
        keys=keys,
    )


def _error_of(job: asyncio.Future[None]) -> Exception | None:
    if job.cancelled():
        return RuntimeError("worker was stopped")
    error = job.exception()
    return error if error is None or isinstance(error, Exception) else RuntimeError(repr(error))
