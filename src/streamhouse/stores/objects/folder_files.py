"""The blocking file operations of the folder store.

Data path   `folder` (async) -> **folder_files** (threads) -> disk
Owns        create-only writing with the order that survives a power cut, reading ranges, walking in key order
Leaves      threads and cancellation to `folder`, temporary files to `folder_uploads`

The order of a write: temporary file, its bytes synced, its directory's own entry durable, link to the final name (which
fails when the name is taken), directory synced. A reader therefore sees all of an object or nothing of it.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from streamhouse.errors import CorruptObject, Misconfigured, Unavailable
from streamhouse.stores.local_files import SyncFailed, make_durable, sync_directory
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta, ObjectMissing, is_part
from streamhouse.stores.objects.folder_uploads import FOLDER, Uploads

MAX_KNOWN_DIRECTORIES: Final = 4096
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
_UNREADABLE: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})


@contextmanager
def failures(what: str, key: str) -> Iterator[None]:
    """Convert a disk error to `Unavailable`, `ObjectMissing`, or `CorruptObject` if the disk can't read the file (a bad
    sector), where a retry doesn't help."""
    try:
        yield
    except OSError as error:
        if what != "put" and error.errno in _ABSENT:
            raise ObjectMissing(key) from None
        name = errno.errorcode.get(error.errno or 0, "unknown")
        if what == "get" and error.errno in _UNREADABLE:
            raise CorruptObject(key, why=f"the disk can't read it: {name} {error.strerror}") from error
        raise Unavailable(f"folder can't {what}; key={key} code={name} why={error.strerror}") from error


class FolderFiles:
    """A folder as a bucket; blocking and thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._uploads: Uploads | None = None
        self._opening = Lock()
        self._durable: set[Path] = set()
        self._stopped = ""

    def put_new(self, key: str, body: Buffers, *, modified_at_ms: int) -> None:
        with failures("put", key):
            if self._stopped:
                raise Unavailable(f"folder takes no more objects; key={key} why={self._stopped}")
            temporary = self._open().write(body, modified_at_ms=modified_at_ms)
            target = self._root / key
            try:
                self._make_directories(target.parent)
                self._link(temporary, target, key)
            finally:
                temporary.unlink(missing_ok=True)
            self._sync(target.parent)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        with failures("get", key), self._reading(key) as descriptor:
            return _read(descriptor, start, min(end, os.fstat(descriptor).st_size))

    def get_suffix(self, key: str, length: int) -> bytes:
        with failures("get", key), self._reading(key) as descriptor:
            size = os.fstat(descriptor).st_size
            return _read(descriptor, max(0, size - length), size)

    def head(self, key: str) -> ObjectMeta:
        with failures("head", key):
            status = os.stat(self._root / key, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise ObjectMissing(key)
            return _meta(key, status)

    def delete(self, key: str) -> None:
        target = self._root / key
        try:
            with failures("delete", key):
                if not stat.S_ISREG(os.stat(target, follow_symlinks=False).st_mode):
                    return
                target.unlink()
                self._sync(target.parent)
        except ObjectMissing:
            return

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Objects below the prefix in key order. A directory sorts as its name and a slash, as its keys do."""
        for name in self._names(prefix):
            if name.endswith("/"):
                yield from self.walk(prefix + name)
                continue
            try:
                yield self.head(prefix + name)
            except ObjectMissing:
                continue  # deleted during the walk

    def close(self) -> None:
        with self._opening:
            if self._uploads is not None:
                self._uploads.close()
            self._uploads = None
            self._stopped = "closed"

    def _names(self, prefix: str) -> list[str]:
        """The entries of one directory, sorted; without temporary and foreign files."""
        try:
            with failures("list", prefix), os.scandir(self._root / prefix) as entries:
                return sorted(
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                    if is_part(entry.name)
                )
        except ObjectMissing:
            return []

    def _open(self) -> Uploads:
        """On first use: create the root, clean up after dead owners, and sync what they may not have synced."""
        with self._opening:
            if self._stopped:
                raise Unavailable(f"folder takes no more objects; why={self._stopped}")
            if self._uploads is None:
                make_durable(self._root)
                uploads = Uploads(self._root)
                if uploads.crashed:
                    _sync_tree(self._root)
                self._uploads = uploads
            return self._uploads

    def _make_directories(self, directory: Path) -> None:
        """The directory's entry, and those of all directories above it up to the root, are durable on return.

        Also for directories that exist already: the process that created one may have died before it synced it.
        """
        if directory == self._root or directory in self._durable:
            return
        self._make_directories(directory.parent)
        directory.mkdir(exist_ok=True)
        self._sync(directory.parent)
        if len(self._durable) >= MAX_KNOWN_DIRECTORIES:
            self._durable.clear()
        self._durable.add(directory)

    def _link(self, temporary: Path, target: Path, key: str) -> None:
        try:
            os.link(temporary, target)
        except FileExistsError:
            # The caller relies on the existing object, so its entry must be durable, even if its writer died before
            # syncing.
            self._sync(target.parent)
            raise ObjectExists(key) from None
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP):
                raise Misconfigured(
                    f"the folder's file system has no hard links; path={self._root} why={error.strerror} "
                    "do=use a folder on a local file system such as ext4 or xfs"
                ) from error
            raise

    def _sync(self, directory: Path) -> None:
        """Sync a directory; after a failure the store rejects all further writes."""
        try:
            sync_directory(directory)
        except SyncFailed as error:
            self._stopped = f"syncing a directory failed ({error.strerror}), restart to recover"
            raise

    @contextmanager
    def _reading(self, key: str) -> Iterator[int]:
        descriptor = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ObjectMissing(key)
            yield descriptor
        finally:
            os.close(descriptor)


def _read(descriptor: int, start: int, end: int) -> bytes:
    pieces: list[bytes] = []
    while start < end:
        piece = os.pread(descriptor, end - start, start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _meta(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key=key, size_bytes=status.st_size, modified_at_ms=status.st_mtime_ns // 1_000_000)


def _sync_tree(root: Path) -> None:
    """Sync all directories after a crash: a dead writer may not have synced its own."""
    for directory, below, _ in os.walk(root):
        if FOLDER in below:
            below.remove(FOLDER)
        sync_directory(Path(directory))
