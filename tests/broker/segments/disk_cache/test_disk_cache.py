"""The disk tier: what is on the disk is served, limits hold, damage is a miss, and trouble turns it off."""

import errno
import logging

import pytest

from streamhouse.broker.segments.disk_cache import DiskBlockCache, divide, open_disk_cache
from streamhouse.broker.segments.disk_cache_files import CachedFile, name_of
from streamhouse.errors import Misconfigured
from tests.broker.segments.disk_cache.support import (
    CLUSTER,
    MemoryFolder,
    content,
    kept,
    key,
    open_tier,
    put,
    read,
    refuse,
    settings,
)
from tests.broker.support import settle
from tests.broker.wal.support import run_inline


@pytest.fixture
def folder() -> MemoryFolder:
    return MemoryFolder()


@pytest.fixture(autouse=True)
async def _inline() -> None:
    run_inline()


async def test_a_block_that_was_put_is_found_and_others_are_not(folder: MemoryFolder) -> None:
    tier = await open_tier(folder)
    await put(tier, 1)
    assert await read(tier, 1) == content(1)
    assert await read(tier, 2) is None
    assert (tier.hits, tier.misses, len(tier), tier.weight) == (1, 1, 1, CLUSTER)


async def test_a_miss_does_not_touch_the_disk(folder: MemoryFolder) -> None:
    tier = await open_tier(folder)
    folder.calls.clear()
    assert await read(tier, 1) is None
    assert folder.calls == []


async def test_the_least_recently_used_goes_first_and_the_limit_is_never_passed(folder: MemoryFolder) -> None:
    tier = await open_tier(folder, disk_cache_bytes=3 * CLUSTER)
    await put(tier, 1, 2, 3)
    await read(tier, 1)
    await put(tier, 4)
    assert await kept(tier, 1, 2, 3, 4) == [1, 3, 4]
    await put(tier, 5, size=CLUSTER)  # with its head, two pieces of the disk
    assert await kept(tier, 1, 3, 4, 5) == [4, 5]
    assert tier.evictions == 3
    assert folder.most_bytes <= 3 * CLUSTER
    assert tier.weight == folder.size_bytes


async def test_the_number_of_blocks_is_limited_too(folder: MemoryFolder) -> None:
    tier = await open_tier(folder, disk_cache_blocks=2)
    await put(tier, 1, 2, 3)
    assert await kept(tier, 1, 2, 3) == [2, 3]
    assert len(folder.files) == 2


async def test_a_block_larger_than_the_whole_tier_pushes_nothing_out(folder: MemoryFolder) -> None:
    tier = await open_tier(folder, disk_cache_bytes=3 * CLUSTER)
    await put(tier, 1)
    await put(tier, 2, size=3 * CLUSTER)
    assert await kept(tier, 1, 2) == [1]
    assert tier.dropped == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "zeros", "other"])
async def test_a_damaged_file_is_a_miss_that_is_counted_and_removed(folder: MemoryFolder, damage: str) -> None:
    tier = await open_tier(folder)
    await put(tier, 1, 2)
    name, good = name_of(key(1)), folder.files[name_of(key(1))]
    flipped = bytearray(good)
    flipped[-5] ^= 4
    folder.files[name] = {
        "flip": bytes(flipped),
        "cut": good[:-1],
        "empty": b"",
        "zeros": bytes(len(good)),
        "other": folder.files[name_of(key(2))],
    }[damage]
    assert await read(tier, 1) is None
    await settle()
    assert name not in folder.files
    assert (tier.damaged, tier.misses, tier.is_on) == (1, 1, True)
    assert await read(tier, 1) is None
    assert tier.damaged == 1
    await put(tier, 1)
    assert await kept(tier, 1, 2) == [1, 2]
    assert tier.weight == folder.size_bytes


async def test_bytes_that_the_runs_index_does_not_vouch_for_are_a_miss(folder: MemoryFolder) -> None:
    """As after the folder was given to an agent of another cluster."""
    tier = await open_tier(folder)
    await put(tier, 1)
    assert await tier.get(key(1), refuse, whose="p") is None
    await settle()
    assert (tier.damaged, folder.files) == (1, {})


async def test_a_file_that_someone_removed_is_a_miss(folder: MemoryFolder) -> None:
    tier = await open_tier(folder)
    await put(tier, 1)
    folder.files.clear()
    assert await read(tier, 1) is None
    assert (tier.damaged, tier.errors, tier.weight, tier.is_on) == (0, 0, 0, True)


# --- restarts


async def test_what_an_earlier_agent_left_is_found_again_in_its_order_of_use(folder: MemoryFolder) -> None:
    first = await open_tier(folder)
    await put(first, 1, 2, 3)
    await read(first, 1)
    await first.aclose()
    second = await open_tier(folder, disk_cache_bytes=3 * CLUSTER)
    assert second.weight == 3 * CLUSTER
    await put(second, 4)
    assert await kept(second, 1, 2, 3, 4) == [1, 3, 4]


async def test_what_no_longer_fits_is_removed_at_the_start(folder: MemoryFolder) -> None:
    first = await open_tier(folder)
    await put(first, *range(9))
    await first.aclose()
    second = await open_tier(folder, disk_cache_blocks=2)
    assert await kept(second, *range(9)) == [7, 8]
    assert len(folder.files) == 2
    await second.aclose()
    third = await open_tier(folder, disk_cache_bytes=CLUSTER)
    assert len(folder.files) == 1
    assert third.weight == CLUSTER


def test_files_are_divided_by_use_bytes_and_number() -> None:
    files = [CachedFile(name, 5000, used) for name, used in (("a", 3), ("b", 1), ("c", 2))]
    a, b, c = files
    assert divide(files, limit_bytes=10**6, limit_blocks=10) == ([b, c, a], [])
    assert divide(files, limit_bytes=10**6, limit_blocks=2) == ([c, a], [b])
    assert divide(files, limit_bytes=3 * CLUSTER, limit_blocks=2) == ([a], [c, b])
    assert divide([], limit_bytes=1, limit_blocks=1) == ([], [])


async def test_until_the_listing_is_done_everything_is_missing_and_nothing_is_written(folder: MemoryFolder) -> None:
    first = await open_tier(folder)
    await put(first, 1)
    await first.aclose()
    tier = DiskBlockCache(settings(), folder)
    await tier.open()
    assert await read(tier, 1) is None
    tier.put(key(2), content(2))
    await tier.listed()
    assert await kept(tier, 1, 2) == [1]


async def test_closing_before_the_listing_is_done_gives_the_folder_back(folder: MemoryFolder) -> None:
    tier = DiskBlockCache(settings(), folder)
    await tier.open()
    await tier.aclose()
    assert not folder.is_taken
    assert not tier.is_on
    assert await read(tier, 1) is None


# --- trouble


async def test_a_second_agent_on_the_folder_is_refused_with_what_to_do(folder: MemoryFolder) -> None:
    await open_tier(folder)
    with pytest.raises(Misconfigured, match=r"another agent uses the disk cache /cache.*fetch\.disk_cache_path"):
        await open_tier(folder)


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), NotADirectoryError(errno.ENOTDIR, "file")])
async def test_a_place_where_no_folder_can_be_is_refused(folder: MemoryFolder, error: OSError) -> None:
    folder.failing["take"] = error
    with pytest.raises(Misconfigured, match="can't be used"):
        await open_tier(folder)


@pytest.mark.parametrize("call", ["take", "list", "write", "remove", "read"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
async def test_an_error_of_the_disk_turns_the_tier_off_with_one_line(
    folder: MemoryFolder, call: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    folder.failing[call] = OSError(number, "trouble")
    tier = await open_tier(folder, disk_cache_bytes=2 * CLUSTER)
    await put(tier, 1, 2)
    await read(tier, 1)
    await put(tier, 3, 4)
    assert await kept(tier, 1, 2, 3, 4) == []
    assert not tier.is_on
    assert tier.errors == 1
    assert (len(tier), tier.weight) == (0, 0)
    assert [record.message for record in caplog.records] == ["disk cache turned off until the next start"]
    folder.failing.clear()
    await tier.aclose()
    assert not folder.is_taken


def test_without_a_path_there_is_no_tier() -> None:
    assert open_disk_cache(settings(disk_cache_path="")) is None
