"""Support for tests of the disk cache: a folder in memory with faults."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streamhouse.broker.segments.disk_cache import DiskBlockCache
from streamhouse.broker.segments.disk_cache_files import BlockKey, CachedFile
from streamhouse.config import FetchSettings
from streamhouse.errors import CorruptObject
from streamhouse.format.batch import Buffer
from streamhouse.stores.local_files import LockedError

CLUSTER = 4096
ROOMY = 100 * CLUSTER


class MemoryFolder:
    """Files that survive the tiers which use them, one after the other."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.used: list[str] = []
        self.is_taken = False
        self.failing: dict[str, OSError] = {}
        self.before_write: Callable[[str], None] = lambda name: None
        self.most_bytes = 0
        self.calls: list[str] = []

    def __repr__(self) -> str:
        return f"<MemoryFolder {'taken' if self.is_taken else 'free'} files={len(self.files)}>"

    @property
    def size_bytes(self) -> int:
        return sum(-(-len(data) // CLUSTER) * CLUSTER for data in self.files.values())

    def _call(self, call: str) -> None:
        self.calls.append(call)
        if call in self.failing:
            raise self.failing[call]

    def take(self) -> None:
        self._call("take")
        if self.is_taken:
            raise LockedError(Path("lock"))
        self.is_taken = True

    def list(self) -> Iterator[CachedFile]:
        self._call("list")
        for name in sorted(self.files):
            yield CachedFile(name, len(self.files[name]), self.used.index(name))

    def read(self, name: str, at_most_bytes: int) -> bytes:
        self._call("read")
        if name not in self.files:
            raise FileNotFoundError(name)
        self._use(name)
        return self.files[name][:at_most_bytes]

    def write(self, name: str, buffers: Sequence[Buffer]) -> None:
        self.before_write(name)
        self._call("write")
        self.files[name] = b"".join(buffers)
        self._use(name)
        self.most_bytes = max(self.most_bytes, self.size_bytes)

    def remove(self, name: str) -> None:
        self._call("remove")
        self.files.pop(name, None)

    def release(self) -> None:
        self.is_taken = False

    def _use(self, name: str) -> None:
        if name in self.used:
            self.used.remove(name)
        self.used.append(name)


def settings(**given: Any) -> FetchSettings:
    return FetchSettings(**{"disk_cache_path": "/cache", "disk_cache_bytes": ROOMY, **given})


async def open_tier(folder: MemoryFolder, **given: Any) -> DiskBlockCache:
    tier = DiskBlockCache(settings(**given), folder)
    await tier.open()
    await tier.listed()
    return tier


def key(number: int) -> BlockKey:
    return "segments/one", number


def content(number: int, size: int = 100) -> bytes:
    return bytes([number % 251]) * size


async def read(tier: DiskBlockCache, number: int, whose: str = "p") -> bytes | None:
    return await tier.get(key(number), bytes, whose=whose)


def refuse(stored: Buffer) -> bytes:
    raise CorruptObject("segments/one", why="not what the index says")


async def put(tier: DiskBlockCache, *numbers: int, size: int = 100) -> None:
    for number in numbers:
        tier.put(key(number), content(number, size))
        await tier.settled()


async def kept(tier: DiskBlockCache, *numbers: int) -> list[int]:
    return [number for number in numbers if await read(tier, number) is not None]
