"""FolderObjectStore: a local folder as a bucket (decision 0003).

Data path   the object store of an embedded agent
Owns        the threads for blocking work; a cancelled caller gets its buffers back only when they are unused
Leaves      files and their durability to `folder_files`
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from streamhouse.clock import Clock
from streamhouse.errors import Unavailable
from streamhouse.stores.objects.base import Buffers, ObjectMeta, check_key, check_length, check_prefix, check_range
from streamhouse.stores.objects.folder_files import FolderFiles

T = TypeVar("T")

READ_THREADS: Final = 8
WRITE_THREADS: Final = 4
_PAGE: Final = 1000  # objects listed per visit to a thread


class FolderObjectStore:
    """An `ObjectStore`. The first put creates the folder and cleans up leftovers of a crash. Reads and writes have
    separate threads, so that they don't wait for each other."""

    def __init__(
        self, root: Path, clock: Clock, *, read_threads: int = READ_THREADS, write_threads: int = WRITE_THREADS
    ) -> None:
        self._root = root
        self._clock = clock
        self._files = FolderFiles(root)
        self._readers = ThreadPoolExecutor(max_workers=read_threads, thread_name_prefix="folder-read")
        self._writers = ThreadPoolExecutor(max_workers=write_threads, thread_name_prefix="folder-write")
        self._closed = False

    def __repr__(self) -> str:
        return f"<FolderObjectStore {self._root}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        check_key(key)
        work = partial(self._files.put_new, key, body, modified_at_ms=self._clock.now_ms())
        await _finish(self._submit(self._writers, work))

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        check_key(key)
        check_range(start, end)
        return await self._read(partial(self._files.get_range, key, start, end))

    async def get_suffix(self, key: str, length: int) -> bytes:
        check_key(key)
        check_length(length)
        return await self._read(partial(self._files.get_suffix, key, length))

    async def head(self, key: str) -> ObjectMeta:
        check_key(key)
        return await self._read(partial(self._files.head, key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        check_prefix(prefix)
        walk = self._files.walk(prefix)
        while page := await self._read(lambda: tuple(islice(walk, _PAGE))):
            for meta in page:
                yield meta

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._write(partial(self._files.delete, key))

    async def aclose(self) -> None:
        if self._closed:
            return
        await self._write(self._files.close)
        self._closed = True
        self._readers.shutdown(wait=False)
        self._writers.shutdown(wait=False)

    async def _read(self, work: Callable[[], T]) -> T:
        return await self._submit(self._readers, work)

    async def _write(self, work: Callable[[], T]) -> T:
        return await self._submit(self._writers, work)

    def _submit(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._closed:
            raise Unavailable(f"folder is closed; path={self._root}")
        return asyncio.get_running_loop().run_in_executor(threads, work)


async def _finish(writing: asyncio.Future[None]) -> None:
    """Await a write in a thread. A cancellation is raised only after the thread is done, because the caller may reuse
    its buffers then."""
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        while not writing.done():
            try:
                await asyncio.wait([writing])
            except asyncio.CancelledError:
                continue
        if not writing.cancelled():
            writing.exception()  # retrieved, so that asyncio doesn't report it
        raise
