"""Folder: the disk tier's door to the local disk, and the real disk behind it.

Data path   tier.disk -> **folder** -> operating system
Owns        the folder's lock; that a file appears under its name whole, or not at all
Leaves      which files there are to `tier.disk`, what is in them to `tier.frame`

All calls block and are made from worker threads only. Nothing is synced: after a loss of power a file may hold
anything, and its checksum will say so.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from streamhouse.broker.reading.tier.frame import SUFFIX
from streamhouse.broker.wal.files import LocalFiles, Lock
from streamhouse.format.batch import Buffer

UNBORN: Final = ".new"


class CachedFile(NamedTuple):
    name: str
    size_bytes: int
    used_at_ns: int


class Folder(Protocol):
    def take(self) -> None:
        """Make the folder where it is missing, and lock it for this agent alone; `LockedError` when somebody has it."""
        ...

    def list(self) -> Iterator[CachedFile]:
        """The whole files; what was left half-made is removed on the way."""
        ...

    def read(self, name: str, at_most_bytes: int) -> bytes:
        """The file's first bytes; it counts as used now. `FileNotFoundError` when it is missing."""
        ...

    def write(self, name: str, buffers: Sequence[Buffer]) -> None:
        """Create the file, or replace it; after an error it is as before."""
        ...

    def remove(self, name: str) -> None:
        """Remove the file; a missing one is fine."""
        ...

    def release(self) -> None: ...


class LocalFolder:
    """The real disk. Blocks have a folder of their own beside the lock, so that nothing else in it is ever touched.

    They are records: nobody but the agent's own user may read them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks = path / "blocks"
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"<LocalFolder {self._path} {'taken' if self._lock else 'free'}>"

    def take(self) -> None:
        self._blocks.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._path / "disk-cache.lock"
        lock.touch(mode=0o600)  # nobody ever removes it, so that a second agent finds it and takes it
        self._lock = LocalFiles().lock(lock)

    def list(self) -> Iterator[CachedFile]:
        with os.scandir(self._blocks) as entries:
            for entry in entries:
                if entry.name.endswith(UNBORN):
                    self.remove(entry.name)
                elif entry.name.endswith(SUFFIX):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        yield CachedFile(entry.name, found.st_size, found.st_mtime_ns)

    def read(self, name: str, at_most_bytes: int) -> bytes:
        with open(self._blocks / name, "rb", buffering=0) as file:
            os.utime(file.fileno())
            return file.read(at_most_bytes)

    def write(self, name: str, buffers: Sequence[Buffer]) -> None:
        unborn = self._blocks / (name + UNBORN)
        try:
            with open(unborn, "wb", opener=_private) as file:
                file.writelines(buffers)
            unborn.rename(self._blocks / name)
        except BaseException:
            with contextlib.suppress(OSError):
                unborn.unlink()
            raise

    def remove(self, name: str) -> None:
        (self._blocks / name).unlink(missing_ok=True)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
