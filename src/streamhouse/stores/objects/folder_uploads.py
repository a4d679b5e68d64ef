"""Temporary files of a folder store, and cleaning up after a crash.

Data path   put_new -> **folder_uploads** -> link to the final name
Owns        the folder of temporary files, their owners, cleaning up after dead owners
Leaves      final names and their durability to `folder`

Each open store has a mark: a file that it keeps locked. The lock ends with the process, so a mark that can be locked
has no owner, and its temporary files are garbage. Locks instead of process ids, because those are reused.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from streamhouse.stores.local_files import make_durable
from streamhouse.stores.objects.base import Buffers

FOLDER: Final = "~uploads"  # `~` is in no key, so no object can have this name
_MARK: Final = ".mark"
_MAX_BUFFERS: Final = os.sysconf("SC_IOV_MAX") if os.sysconf("SC_IOV_MAX") > 0 else 1024


class Uploads:
    """Temporary files of one open store. Blocking and thread-safe."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        make_durable(self._folder)
        self.crashed = _clean(self._folder)
        self._owner, self._mark = _make_mark(self._folder)
        self._numbers = count()

    def write(self, body: Buffers, *, modified_at_ms: int) -> Path:
        """Create a temporary file with this body, durably; it is removed if anything fails."""
        path = self._folder / f"{self._owner}.{next(self._numbers)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                write_all(descriptor, body)
                os.utime(descriptor, ns=(modified_at_ms * 1_000_000, modified_at_ms * 1_000_000))
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def close(self) -> None:
        (self._folder / f"{self._owner}{_MARK}").unlink(missing_ok=True)
        os.close(self._mark)


def write_all(descriptor: int, body: Buffers) -> None:
    """Write all buffers completely, with as many system calls as needed."""
    waiting = [view for view in (memoryview(buffer).cast("B") for buffer in body) if view.nbytes]
    first = 0
    while first < len(waiting):
        written = os.writev(descriptor, waiting[first : first + _MAX_BUFFERS])
        if not written:
            raise OSError(errno.EIO, "the file system accepts no more bytes")
        first = _skip(waiting, first, written)


def _skip(waiting: list[memoryview], first: int, written: int) -> int:
    """Skip written bytes; returns the index of the next buffer."""
    while first < len(waiting) and written >= waiting[first].nbytes:
        written -= waiting[first].nbytes
        first += 1
    if written:
        waiting[first] = waiting[first][written:]
    return first


def _make_mark(folder: Path) -> tuple[str, int]:
    """Create and lock our mark. Another store may remove it before it is locked: then the next number is tried."""
    for number in count():
        owner = f"{os.getpid()}-{number}"
        path = folder / f"{owner}{_MARK}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        if _lock(descriptor) and _is_at(descriptor, path):
            return owner, descriptor
        os.close(descriptor)
    raise AssertionError("unreachable: numbers do not end")


def _clean(folder: Path) -> bool:
    """Remove files of dead owners; returns whether there were any, as after a crash."""
    names = sorted(entry.name for entry in os.scandir(folder))
    crashed = False
    for mark in (name for name in names if name.endswith(_MARK)):
        crashed |= _clean_after(folder, mark.removesuffix(_MARK), names)
    for name in names:
        if not (folder / f"{name.partition('.')[0]}{_MARK}").exists():
            (folder / name).unlink(missing_ok=True)  # an owner without a mark has closed the store
    return crashed


def _clean_after(folder: Path, owner: str, names: Sequence[str]) -> bool:
    path = folder / f"{owner}{_MARK}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if not (_lock(descriptor) and _is_at(descriptor, path)):
            return False
        for name in names:
            if name.startswith(f"{owner}.") and not name.endswith(_MARK):
                (folder / name).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
