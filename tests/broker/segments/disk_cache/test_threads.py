"""The disk tier with real threads: bounded writes, a disk that hangs, closing, and the real disk."""

import asyncio
import contextlib
import errno
import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamhouse.broker.segments.disk_cache import DiskBlockCache, open_disk_cache
from streamhouse.broker.segments.disk_cache_files import LocalCacheDirectory, name_of
from streamhouse.errors import Misconfigured
from streamhouse.format.batch import Buffer
from tests.broker.segments.disk_cache.support import MemoryFolder, content, kept, key, open_tier, read, settings
from tests.broker.support import settle


class SlowFolder(MemoryFolder):
    """Reads and writes wait, in their threads, until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.writing = threading.Event(), threading.Event()

    def read(self, name: str, at_most_bytes: int) -> bytes:
        assert self.reading.wait(30)
        return super().read(name, at_most_bytes)

    def write(self, name: str, buffers: Sequence[Buffer]) -> None:
        assert self.writing.wait(30)
        super().write(name, buffers)


async def test_writes_beyond_the_queue_are_dropped() -> None:
    folder = SlowFolder()
    tier = await open_tier(folder, disk_cache_waiting_writes=3)
    for number in range(10):
        tier.put(key(number), content(number))
    assert (len(tier), tier.dropped) == (3, 7)
    folder.writing.set()
    folder.reading.set()
    await tier.settled()
    assert await kept(tier, *range(10)) == [0, 1, 2]
    await tier.aclose()


async def test_a_disk_that_does_not_answer_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    folder = SlowFolder()
    folder.writing.set()
    tier = await open_tier(folder, disk_cache_timeout_s=0.01)
    tier.put(key(1), content(1))
    await tier.settled()
    assert await read(tier, 1) is None
    assert not tier.is_on
    assert "no answer within 0.01 s" in caplog.records[-1].__dict__["why"]
    folder.reading.set()
    await tier.aclose()


async def test_waiting_for_others_to_read_does_not_count_as_the_disks_slowness() -> None:
    folder = SlowFolder()
    folder.writing.set()
    tier = await open_tier(folder, disk_cache_threads=1, disk_cache_timeout_s=30)
    for number in range(5):
        tier.put(key(number), content(number))
    await tier.settled()
    reads = [asyncio.ensure_future(read(tier, number)) for number in range(5)]
    await settle()
    assert folder.calls.count("read") == 0
    folder.reading.set()
    assert await asyncio.gather(*reads) == [content(number) for number in range(5)]
    await tier.aclose()


async def test_closing_waits_for_the_write_that_has_begun_and_drops_the_others() -> None:
    folder = SlowFolder()
    begun = threading.Event()
    folder.writing.set()
    go = threading.Event()

    def hold(name: str) -> None:
        begun.set()
        assert go.wait(30)

    folder.before_write = hold
    tier = await open_tier(folder)
    for number in range(3):
        tier.put(key(number), content(number))
    await asyncio.to_thread(begun.wait, 30)
    closing = asyncio.ensure_future(tier.aclose())
    await settle()
    assert "taken" in repr(folder)
    go.set()
    await closing
    assert "free" in repr(folder)
    assert list(folder.files) == [name_of(key(0))]


async def test_the_real_disk_keeps_blocks_over_a_restart_and_finds_flipped_bits(tmp_path: Path) -> None:
    given = settings(disk_cache_path=str(tmp_path / "cache"))
    for _ in range(2):
        tier = open_disk_cache(given)
        assert tier is not None
        await tier.open()
        await tier.listed()
        for number in range(5):
            tier.put(key(number), content(number, 50_000))
        await tier.settled()
        assert [await read(tier, number) for number in range(5)] == [content(n, 50_000) for n in range(5)]
        with pytest.raises(Misconfigured, match="another agent"):
            await DiskBlockCache(given, LocalCacheDirectory(tmp_path / "cache")).open()
        await tier.aclose()
    path = tmp_path / "cache" / "blocks" / name_of(key(3))
    damaged = bytearray(path.read_bytes())
    damaged[20_000] ^= 1
    path.write_bytes(damaged)
    tier = DiskBlockCache(given, LocalCacheDirectory(tmp_path / "cache"))
    await tier.open()
    await tier.listed()
    assert await kept(tier, *range(5)) == [0, 1, 2, 4]
    await tier.settled()  # closing drops what waits, removals too
    await tier.aclose()
    assert not path.exists()


async def test_a_block_on_its_way_to_the_disk_is_not_written_twice() -> None:
    folder = SlowFolder()
    tier = await open_tier(folder)
    for _ in range(3):
        tier.put(key(1), content(1))
    assert (len(tier), tier.dropped) == (1, 0)
    folder.writing.set()
    folder.reading.set()
    await tier.settled()
    assert folder.calls.count("write") == 1
    assert await kept(tier, 1) == [1]
    await tier.aclose()


async def test_of_many_writes_that_fail_one_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    folder = SlowFolder()
    folder.failing["write"] = OSError(errno.ENOSPC, "No space left on device")
    tier = await open_tier(folder)
    for number in range(5):
        tier.put(key(number), content(number))
    folder.writing.set()
    await tier.settled()
    assert (tier.errors, tier.weight, tier.is_on) == (5, 0, False)
    assert [record.message for record in caplog.records] == ["disk cache turned off until the next start"]
    await tier.aclose()


async def test_many_readers_and_writers_at_once_on_a_disk_that_is_being_damaged(tmp_path: Path) -> None:
    """Bytes are right or missing, and the files never take more than their limit."""
    chance, limit, blocks = random.Random(7), 6 * 8192, tmp_path / "blocks"
    tier = DiskBlockCache(settings(disk_cache_bytes=limit), LocalCacheDirectory(tmp_path))
    await tier.open()
    await tier.listed()

    async def reader(numbers: range) -> None:
        for _ in range(30):
            number = chance.choice(numbers)
            result = await read(tier, number, whose=str(numbers))
            assert result in (None, content(number, 5000))
            if result is None:
                tier.put(key(number), content(number, 5000))
            await asyncio.sleep(0)

    def damage() -> None:
        for path in sorted(blocks.glob("*.block")):
            with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
                file.seek(chance.randrange(5000))
                file.write(b"?!")
                break

    async def vandal() -> None:
        for _ in range(10):
            await asyncio.to_thread(damage)
            assert sum(_size(path) for path in blocks.glob("*")) <= limit

    for _ in range(4):
        # Each has blocks of its own, as one flight per block gives them to readers.
        await asyncio.gather(*(reader(range(first, first + 4)) for first in range(0, 20, 4)), vandal())
        await tier.settled()
        assert tier.weight == sum(map(_size, blocks.glob("*.block"))) <= limit
    assert tier.is_on
    assert tier.evictions > 0
    await tier.aclose()


def _size(path: Path) -> int:
    try:
        return -(-path.stat().st_size // 4096) * 4096
    except FileNotFoundError:
        return 0
