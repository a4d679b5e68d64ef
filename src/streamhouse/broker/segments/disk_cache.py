"""DiskBlockCache: an LRU cache of blocks on a local disk, between memory and the object store.

It holds blocks that were evicted from memory.

Data path   reader -> memory cache -> **disk cache** -> object store
Owns        which blocks are on the disk, their size, and turning itself off on disk errors
Leaves      sharing reads to the memory cache in front of it; files and their bytes to `disk_cache_files`
Invariant   bytes that don't match their checksums are never returned; the files never exceed their limit

The index is in memory and changes on the event loop only. One thread writes and removes files in the order of the
loop's decisions, so that a removal never hits a file written after it. Reads have their own threads.

Blocks never change, so files of an earlier agent are valid: the index is rebuilt by listing the folder. The start
doesn't wait for it; until it is done, all lookups miss.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from streamhouse.broker.segments.disk_cache_files import (
    BlockKey,
    CachedFile,
    CacheDirectory,
    LocalCacheDirectory,
    block_file_bytes,
    decode_block_file,
    encode_block_file,
    name_of,
)
from streamhouse.config import FetchSettings
from streamhouse.errors import CorruptObject, Misconfigured
from streamhouse.format.batch import Buffer
from streamhouse.format.encryption import KEY_BYTES, aes_gcm
from streamhouse.limits import FairLimiter
from streamhouse.stores.local_files import LockedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger(__name__)

V = TypeVar("V")

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16

CLUSTER_BYTES: Final = 4096
"""Allocation unit of most file systems."""

_UNUSABLE_DIRECTORY: Final = (PermissionError, NotADirectoryError, FileExistsError)


class DiskBlockCache:
    """The disk cache. Besides the usual counters it counts `damaged` files, and blocks `dropped` because the write
    queue was full."""

    def __init__(self, settings: FetchSettings, folder: CacheDirectory, *, encrypts: bool = False) -> None:
        """With `encrypts`, files are encrypted with a key that is only in memory, so the cache begins empty."""
        self._settings = settings
        self._folder = folder
        self._cipher = aes_gcm(os.urandom(KEY_BYTES)) if encrypts else None
        self._index: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._writes: dict[str, int] = {}
        self._under_way: set[asyncio.Future[None]] = set()
        self._listing: asyncio.Task[None] | None = None
        self._readers = ThreadPoolExecutor(settings.disk_cache_threads, thread_name_prefix="disk-cache-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="disk-cache-write")
        self._turns = FairLimiter(settings.disk_cache_threads)
        self._failure: Exception | None = None
        self._is_closed = False
        self.is_on = False
        self.hits = self.misses = self.evictions = self.damaged = self.dropped = self.errors = 0

    def __repr__(self) -> str:
        state = "on" if self.is_on else "off"
        return f"<DiskBlockCache {state} blocks={len(self)} bytes={self.weight} writes={len(self._writes)}>"

    def __len__(self) -> int:
        return len(self._index) + len(self._writes)

    @property
    def weight(self) -> int:
        """Bytes on the disk, including queued writes."""
        return self._bytes + sum(self._writes.values())

    # --- lifecycle

    async def open(self) -> None:
        """Lock the folder; raises `Misconfigured` if another agent uses it, or it can't be created."""
        path = self._settings.disk_cache_path
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._folder.take)
        except LockedError:
            raise Misconfigured(
                f"another agent uses the disk cache {path}; stop it, or choose another folder in fetch.disk_cache_path"
            ) from None
        except _UNUSABLE_DIRECTORY as error:
            raise Misconfigured(
                f"the disk cache {path} can't be used: {error.strerror}; choose another folder in fetch.disk_cache_path"
            ) from None
        except OSError as error:  # an agent without disk cache is better than none
            self._turn_off(error)
        else:
            self._listing = asyncio.get_running_loop().create_task(self._list(), name="disk-cache-listing")

    async def listed(self) -> None:
        """Wait until the files of an earlier agent are listed."""
        if self._listing is not None:
            await asyncio.shield(self._listing)

    async def settled(self) -> None:
        """Wait until all queued writes and removals are done."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _list(self) -> None:
        try:
            files = await asyncio.get_running_loop().run_in_executor(self._writer, self._scan)
        except OSError as error:
            self._turn_off(error)
            return
        self._index.update((file.name, _on_disk(file.size_bytes)) for file in files)
        self._bytes = sum(self._index.values())
        self.is_on = not self._is_closed
        log.info("disk cache is ready", extra={"blocks": len(self._index), "bytes": self._bytes})

    def _scan(self) -> list[CachedFile]:
        """The files to use, least recently used first; others are removed. Has at most twice the limit in memory."""
        files: list[CachedFile] = []
        for file in self._folder.list():
            if self._cipher is not None:  # of an earlier process, whose key is gone
                self._folder.remove(file.name)
                continue
            files.append(file)
            if self._is_closed:
                return []
            if len(files) >= 2 * self._settings.disk_cache_blocks:
                files = self._cut(files)
        return self._cut(files)

    def _cut(self, files: Iterable[CachedFile]) -> list[CachedFile]:
        settings = self._settings
        retained, surplus = divide(
            files, limit_bytes=settings.disk_cache_bytes, limit_blocks=settings.disk_cache_blocks
        )
        for file in surplus:
            self._folder.remove(file.name)
        return retained

    async def aclose(self) -> None:
        """Finish the running write, drop queued ones, and unlock the folder."""
        self._is_closed = True
        self._empty()
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.gather(self._listing, return_exceptions=True)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=False, cancel_futures=True)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=self._settings.disk_cache_timeout_s)
        self._folder.release()

    def _turn_off(self, error: BaseException) -> None:
        """Turn the cache off until the next start; reads continue without it."""
        self.errors += 1
        if self.is_on or self.errors == 1:
            why = str(error) or f"no answer within {self._settings.disk_cache_timeout_s:g} s"
            log.warning(
                "disk cache turned off until the next start",
                extra={"path": self._settings.disk_cache_path, "why": why},
            )
        self._empty()

    def _empty(self) -> None:
        self.is_on = False
        self._index.clear()
        self._bytes = 0

    # --- reading

    async def get(self, key: BlockKey, decode: Callable[[Buffer], V], *, whose: Hashable) -> V | None:
        """Read a block and run `decode` on its bytes in a thread; None if it is missing or damaged. Reads are queued
        fairly by partition (`whose`)."""
        data, name = None, name_of(key)
        if name in self._index:
            async with self._turns.slot(whose):
                data = await self._read(name, key, decode)
        if data is None:
            self.misses += 1
        else:
            self.hits += 1
        return data

    async def _read(self, name: str, key: BlockKey, decode: Callable[[Buffer], V]) -> V | None:
        if name not in self._index:
            return None  # evicted, or the cache was turned off, while the read was queued
        self._index.move_to_end(name)
        load = partial(self._load, name, self._index[name], key, decode)
        try:
            async with asyncio.timeout(self._settings.disk_cache_timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._readers, load)
        except FileNotFoundError:
            self._forget(name)
        except CorruptObject as error:
            self.damaged += 1
            log.warning("damaged file in the disk cache", extra={"file": name, "why": str(error)})
            self._forget(name)
            self._begin(partial(self._folder.remove, name))
        except OSError as error:
            self._turn_off(error)
        return None

    def _load(self, name: str, size_bytes: int, key: BlockKey, decode: Callable[[Buffer], V]) -> V:
        stored = decode_block_file(self._folder.read(name, size_bytes), key)
        return decode(stored if self._cipher is None else _decrypted(stored, self._cipher, name))

    def _forget(self, name: str) -> None:
        self._bytes -= self._index.pop(name, 0)

    # --- writing

    def put(self, key: BlockKey, stored: Buffer) -> None:
        """Write a checked block. Never waits: if the write queue is full, the block is dropped."""
        name = name_of(key)
        if not self.is_on or name in self._index or name in self._writes:
            return
        size = _on_disk(block_file_bytes(key, len(stored)) + (_NONCE_BYTES + _TAG_BYTES if self._cipher else 0))
        reserved = sum(self._writes.values())
        has_turn = len(self._writes) < min(self._settings.disk_cache_waiting_writes, self._settings.disk_cache_blocks)
        if not has_turn or reserved + size > self._settings.disk_cache_bytes:
            self.dropped += 1
            return
        victims = self._make_room(size)
        self._writes[name] = size
        writing = self._begin(partial(self._write, victims, name, key, stored))
        writing.add_done_callback(partial(self._written, name))

    def _make_room(self, size: int) -> list[str]:
        victims: list[str] = []
        settings = self._settings
        while self._index and (
            self.weight + size > settings.disk_cache_bytes or len(self) + 1 > settings.disk_cache_blocks
        ):
            name, freed = self._index.popitem(last=False)
            self._bytes -= freed
            victims.append(name)
        self.evictions += len(victims)
        return victims

    def _write(self, victims: Sequence[str], name: str, key: BlockKey, stored: Buffer) -> None:
        for victim in victims:
            self._folder.remove(victim)
        if self._cipher is not None:
            nonce = os.urandom(_NONCE_BYTES)
            stored = nonce + self._cipher.encrypt(nonce, stored, name.encode())
        self._folder.write(name, encode_block_file(key, stored))

    def _written(self, name: str, writing: "asyncio.Future[None]") -> None:
        size = self._writes.pop(name)
        if self.is_on and not writing.cancelled() and writing.exception() is None:
            self._index[name] = size
            self._bytes += size

    def _begin(self, change: Callable[[], None]) -> "asyncio.Future[None]":
        """Queue a change for the thread that changes files."""
        changing = asyncio.get_running_loop().run_in_executor(self._writer, self._change, change)
        self._under_way.add(changing)
        changing.add_done_callback(self._changed)
        return changing

    def _change(self, change: Callable[[], None]) -> None:
        """Runs in the thread: after a failure no further change is made, so that the limit is never exceeded."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        try:
            change()
        except Exception as error:
            self._failure = error
            raise

    def _changed(self, changing: "asyncio.Future[None]") -> None:
        self._under_way.discard(changing)
        if not changing.cancelled() and (error := changing.exception()) is not None:
            self._turn_off(error)


def open_disk_cache(settings: FetchSettings, *, encrypts: bool = False) -> DiskBlockCache | None:
    """The disk cache if settings enable it; call `open` before use."""
    if not settings.disk_cache_path:
        return None
    folder = LocalCacheDirectory(Path(settings.disk_cache_path).absolute())
    return DiskBlockCache(settings, folder, encrypts=encrypts)


def _decrypted(stored: memoryview, cipher: "AESGCM", name: str) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(bytes(stored[:_NONCE_BYTES]), stored[_NONCE_BYTES:], name.encode())
    except InvalidTag:
        raise CorruptObject(name, why="the cached block doesn't authenticate") from None


def divide(
    files: Iterable[CachedFile], *, limit_bytes: int, limit_blocks: int
) -> tuple[list[CachedFile], list[CachedFile]]:
    """The most recently used files that fit, oldest first, and the others. A pure function."""
    newest = sorted(files, key=lambda file: (file.used_at_ns, file.name), reverse=True)
    size = count = 0
    while count < min(len(newest), limit_blocks):
        size += _on_disk(newest[count].size_bytes)
        if size > limit_bytes:
            break
        count += 1
    return newest[:count][::-1], newest[count:]


def _on_disk(size_bytes: int) -> int:
    return -(-size_bytes // CLUSTER_BYTES) * CLUSTER_BYTES
