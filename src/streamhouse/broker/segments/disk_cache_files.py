"""The files of the disk cache: a directory with a lock, and one checksummed file per block.

Data path   disk_cache -> **disk_cache_files** -> operating system
Owns        names and bytes of cached files; atomic creation of files
Leaves      which blocks are cached to `disk_cache`; the block's own checksum to `format.block`

All calls block and run in worker threads. Nothing is fsynced: after a power cut a file may hold anything, and its
checksum shows it. A file that this version can't read is a block that isn't cached, so nothing is ever migrated.
"""

import contextlib
import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from crc32c import crc32c

from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer
from streamhouse.stores.local_files import LocalFiles, Lock

BlockKey: TypeAlias = tuple[str, int]
"""The location of a block: its object's key, and its position in the object."""

MAGIC: Final = b"SHB1"
_HEAD: Final = struct.Struct(">4sI")  # magic, CRC-32C of everything after it
_KEY_HEAD: Final = struct.Struct(">qH")  # position, length of the object's key, which follows
SUFFIX: Final = ".block"


def name_of(key: BlockKey) -> str:
    object_key, position = key
    return hashlib.blake2b(f"{object_key}@{position}".encode(), digest_size=16).hexdigest() + SUFFIX


def encode_block_file(key: BlockKey, stored: Buffer) -> list[Buffer]:
    encoded_key = _encode_key(key)
    return [_HEAD.pack(MAGIC, crc32c(stored, crc32c(encoded_key))), encoded_key, stored]


def block_file_bytes(key: BlockKey, stored_bytes: int) -> int:
    return _HEAD.size + len(_encode_key(key)) + stored_bytes


def decode_block_file(data: Buffer, key: BlockKey) -> memoryview:
    """The stored bytes of this block; raises `CorruptObject` if the file is damaged or of another block."""
    encoded_key = _encode_key(key)
    if len(data) < _HEAD.size + len(encoded_key):
        raise CorruptObject(key[0], why=f"cached block ends after {len(data)} bytes")
    view = memoryview(data)
    magic, crc = _HEAD.unpack_from(view)
    if magic != MAGIC or view[_HEAD.size : _HEAD.size + len(encoded_key)] != encoded_key:
        raise CorruptObject(key[0], why="cached block is another one")
    if crc32c(view[_HEAD.size :]) != crc:
        raise CorruptObject(key[0], why="cached block doesn't match its checksum")
    return view[_HEAD.size + len(encoded_key) :]


def _encode_key(key: BlockKey) -> bytes:
    object_key = key[0].encode()
    return _KEY_HEAD.pack(key[1], len(object_key)) + object_key


TEMPORARY_SUFFIX: Final = ".new"


class CachedFile(NamedTuple):
    name: str
    size_bytes: int
    used_at_ns: int


class CacheDirectory(Protocol):
    def take(self) -> None:
        """Create the folder if it is missing, and lock it for this agent; raises `LockedError` if another agent has
        locked it."""
        ...

    def list(self) -> Iterator[CachedFile]:
        """List the complete files; removes incomplete ones."""
        ...

    def read(self, name: str, at_most_bytes: int) -> bytes:
        """The file's first bytes; updates its time of use. Raises `FileNotFoundError`."""
        ...

    def write(self, name: str, buffers: Sequence[Buffer]) -> None:
        """Create or replace the file atomically."""
        ...

    def remove(self, name: str) -> None:
        """Remove the file; no error if it is missing."""
        ...

    def release(self) -> None: ...


class LocalCacheDirectory:
    """A directory of the local disk. Blocks are in a subfolder besides the lock, so that no other file is ever touched.
    They contain records, so only the agent's user may read them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks = path / "blocks"
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"<LocalCacheDirectory {self._path} {'taken' if self._lock else 'free'}>"

    def take(self) -> None:
        self._blocks.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._path / "disk-cache.lock"
        lock.touch(mode=0o600)  # never removed, so that a second agent locks the same file
        self._lock = LocalFiles().lock(lock)

    def list(self) -> Iterator[CachedFile]:
        with os.scandir(self._blocks) as entries:
            for entry in entries:
                if entry.name.endswith(TEMPORARY_SUFFIX):
                    self.remove(entry.name)
                elif entry.name.endswith(SUFFIX):
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        yield CachedFile(entry.name, status.st_size, status.st_mtime_ns)

    def read(self, name: str, at_most_bytes: int) -> bytes:
        with open(self._blocks / name, "rb", buffering=0) as file:
            os.utime(file.fileno())
            return file.read(at_most_bytes)

    def write(self, name: str, buffers: Sequence[Buffer]) -> None:
        unborn = self._blocks / (name + TEMPORARY_SUFFIX)
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
