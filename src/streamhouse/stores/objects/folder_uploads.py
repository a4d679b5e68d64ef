"""Uploads: temporary files of a folder store, and what a crash leaves of them.

Data path   put_new -> **upload** -> link to the final name
Owns        the folder of temporary files, who owns which of them, cleaning up after owners that died
Leaves      final names and their durability to `folder`

Each open store has a mark: a file that it keeps locked. The lock goes with the process, however it dies, so a mark that
can be locked belongs to nobody, and its temporary files are garbage. Locks, not process ids: those come back.
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

FOLDER: Final = "~uploads"  # `~` is in no key, so that no object can ever stand here
_MARK: Final = ".mark"
_MAX_BUFFERS: Final = os.sysconf("SC_IOV_MAX") if os.sysconf("SC_IOV_MAX") > 0 else 1024


class Uploads:
    """Temporary files of one open store. Blocking; threads may share it."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        make_durable(self._folder)
        self.crashed = _clean(self._folder)
        self._owner, self._mark = _make_mark(self._folder)
        self._numbers = count()

    def write(self, body: Buffers, *, modified_at_ms: int) -> Path:
        """A new temporary file with this body, its bytes durable; it is gone again when anything fails."""
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
    """Write every byte, however many buffers there are and however few bytes the system takes at a time."""
    waiting = [view for view in (memoryview(buffer).cast("B") for buffer in body) if view.nbytes]
    first = 0
    while first < len(waiting):
        written = os.writev(descriptor, waiting[first : first + _MAX_BUFFERS])
        if not written:
            raise OSError(errno.EIO, "the system takes no more bytes")
        first = _skip(waiting, first, written)


def _skip(waiting: list[memoryview], first: int, written: int) -> int:
    """Take what was written off the front; returns which buffer is next."""
    while first < len(waiting) and written >= waiting[first].nbytes:
        written -= waiting[first].nbytes
        first += 1
    if written:
        waiting[first] = waiting[first][written:]
    return first


def _make_mark(folder: Path) -> tuple[str, int]:
    """A mark of our own, locked. Another store may clean it away before it is locked: then the next number."""
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
    """Remove what dead owners left; returns whether there was any, so somebody crashed."""
    names = sorted(entry.name for entry in os.scandir(folder))
    crashed = False
    for mark in (name for name in names if name.endswith(_MARK)):
        crashed |= _clean_after(folder, mark.removesuffix(_MARK), names)
    for name in names:
        if not (folder / f"{name.partition('.')[0]}{_MARK}").exists():
            (folder / name).unlink(missing_ok=True)  # an owner without a mark has closed, and writes no more
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
