"""Local files: the interface to the local disk for the WAL, the block cache, the folder store and the data lock.

Owns        durability of each call; complete writes; locks; directories with durable entries
Leaves      names and contents of files to the callers

All calls block and are made from worker threads only. Errors of the disk are the operating system's `OSError`.
Simulations implement the interface with a disk that loses power, tears writes, fills up and fails to sync.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from streamhouse.errors import Misconfigured, StreamhouseError
from streamhouse.format.batch import Buffer

# Linux and the BSDs take 1024 buffers in one call.
_MAX_BUFFERS: Final = 1024
# macOS has no fdatasync.
_datasync: Final = getattr(os, "fdatasync", os.fsync)


UNREADABLE: Final = b"\xff"
"""Fills bytes that the disk can't read; zeros would look like unwritten space."""
PAGE_BYTES: Final = 4096


class ByteRange(NamedTuple):
    """Bytes [start, end) of a file."""

    start: int
    end: int


class LockedError(StreamhouseError):
    """A live process holds this lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"locked by a live process; path={path}")


class AppendFile(Protocol):
    """A file written from its start on. At most one `write` and one `sync` run at a time, possibly concurrently."""

    def write(self, buffers: Sequence[Buffer], trailer: Buffer = b"") -> None:
        """Append all buffers completely, in order, and then `trailer`, which the next write replaces. After an error
        any prefix of them may be in the file.

        Written bytes survive a crash of the process, but not a power cut."""
        ...

    def sync(self) -> None:
        """Make bytes written before the call durable. After an error unsynced bytes never count as durable, even if a
        later call succeeds: the caller must not sync this file again."""
        ...

    def close(self) -> None:
        """Close the file without a sync."""
        ...


class Lock(Protocol):
    """A lock, held until it is released or the process dies."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    def make_dir(self, path: Path) -> None:
        """Create the directory and missing parents; their entries are durable on return."""
        ...

    def create(self, path: Path) -> AppendFile:
        """Create a file that must not exist; its entry is durable on return, its content is not."""
        ...

    def write_over(self, path: Path) -> AppendFile:
        """Open an existing file and write over its content from the start; it never becomes shorter."""
        ...

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file within its directory; durable on return."""
        ...

    def read(self, path: Path) -> bytes:
        """The whole file."""
        ...

    def read_around(self, path: Path) -> tuple[bytes, Sequence[ByteRange]]:
        """The whole file, and the ranges that the disk can't read, which are filled with `UNREADABLE`."""
        ...

    def size(self, path: Path) -> int:
        """Bytes in the file."""
        ...

    def list(self, path: Path) -> list[str]:
        """Names in the directory, sorted; `FileNotFoundError` or `NotADirectoryError` when it is none."""
        ...

    def remove(self, directory: Path, names: Sequence[str]) -> None:
        """Remove these files if they exist; durable on return. After an error any of them may be removed."""
        ...

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory; durable on return; no error if it is missing."""
        ...

    def move(self, directory: Path, names: Sequence[str], to: Path) -> None:
        """Move these files, where they exist, into another directory of the same disk; durable on return. After an
        error any of them may have been moved."""
        ...

    def create_locked(self, path: Path) -> Lock:
        """Create a lock file that must not exist. It is locked before it gets its name, so that a search for abandoned
        locks can't take it in between."""
        ...

    def lock(self, path: Path) -> Lock:
        """Lock an existing file exclusively; raises `LockedError` if any process, including this one, holds it, and
        `FileNotFoundError` if it is missing or was removed meanwhile."""
        ...


class LocalFiles:
    """The local disk."""

    def make_dir(self, path: Path) -> None:
        missing = [directory for directory in (path, *path.parents) if not directory.is_dir()]
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            _sync_dir(directory.parent)

    def create(self, path: Path) -> AppendFile:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _sync_dir(path.parent)
        except BaseException:
            os.close(fd)
            raise
        return _LocalFile(fd)

    def write_over(self, path: Path) -> AppendFile:
        return _LocalFile(os.open(path, os.O_WRONLY | os.O_CLOEXEC))

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)
        _sync_dir(to.parent)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_around(self, path: Path) -> tuple[bytes, Sequence[ByteRange]]:
        try:
            return path.read_bytes(), ()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read_pages(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def list(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def remove(self, directory: Path, names: Sequence[str]) -> None:
        for name in names:
            (directory / name).unlink(missing_ok=True)
        _sync_dir(directory)

    def move(self, directory: Path, names: Sequence[str], to: Path) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                (directory / name).rename(to / name)
        _sync_dir(to)
        _sync_dir(directory)

    def remove_dir(self, path: Path) -> None:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        _sync_dir(path.parent)

    def create_locked(self, path: Path) -> Lock:
        unborn = path.with_name(f"{path.name}.new")
        fd = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _flock(fd, path)
            # A hard link, not a rename: it never replaces an existing lock.
            os.link(unborn, path)
            os.unlink(unborn)
            _sync_dir(path.parent)
        except BaseException:
            os.close(fd)
            raise
        return _LocalLock(fd)

    def lock(self, path: Path) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _flock(fd, path)
            if os.fstat(fd).st_nlink == 0:
                raise FileNotFoundError(f"lock was removed while it was taken: {path}")
        except BaseException:
            os.close(fd)
            raise
        return _LocalLock(fd)


def _read_pages(fd: int, size: int) -> tuple[bytes, Sequence[ByteRange]]:
    """Read page by page, so that an unreadable page affects only itself."""
    data, holes = bytearray(), list[ByteRange]()
    for start in range(0, size, PAGE_BYTES):
        length = min(PAGE_BYTES, size - start)
        try:
            page = os.pread(fd, length, start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            page = UNREADABLE * length
            if holes and holes[-1].end == start:
                holes[-1] = ByteRange(holes[-1].start, start + length)
            else:
                holes.append(ByteRange(start, start + length))
        data += page
        if len(page) < length:  # the file was truncated meanwhile
            break
    return bytes(data), holes


class _LocalFile:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._position = 0

    def write(self, buffers: Sequence[Buffer], trailer: Buffer = b"") -> None:
        if trailer:
            buffers = [*buffers, trailer]
        for start in range(0, len(buffers), _MAX_BUFFERS):
            some = buffers[start : start + _MAX_BUFFERS]
            size = sum(map(len, some))
            written = os.pwritev(self._fd, some, self._position)
            if written != size:
                self._write_rest(some, written)
            self._position += size
        self._position -= len(trailer)

    def _write_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        """Write the rest after a partial write: after a signal, or on a full disk, where the next write fails."""
        position = self._position + written
        for buffer in buffers:
            view = memoryview(buffer)[written:]
            written = max(0, written - len(buffer))
            while view:
                count = os.pwrite(self._fd, view, position)
                position += count
                view = view[count:]

    def sync(self) -> None:
        _datasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class _LocalLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


def _flock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(path) from None


def _sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SyncFailed(OSError):
    """A sync failed, and the kernel may have dropped the pages: a second sync would prove nothing."""


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable; raises `SyncFailed` if they may be lost."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def make_durable(path: Path) -> None:
    """Create a directory and missing parents; their entries are durable on return."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_directory(each.parent)


async def make_durable_parent(path: str) -> None:
    """Create the folder of a file; raises `Misconfigured` if that fails."""
    parent = Path(path).parent
    try:
        await asyncio.get_running_loop().run_in_executor(None, make_durable, parent)
    except OSError as error:
        raise Misconfigured(
            f"the folder can't be made; path={parent} why={error.strerror} do=make it, or choose another place"
        ) from error
