"""The reader over memory, disk and store: the nearest tier serves, once for all readers, and never with wrong bytes."""

import asyncio
import errno
import random
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streamhouse.broker.segments.disk_cache_files import name_of
from streamhouse.config import FetchSettings
from streamhouse.errors import CorruptObject, Misconfigured, Unavailable
from streamhouse.model.names import PartitionId, TopicId
from tests.broker.conftest import MakeWorld
from tests.broker.segments.disk_cache.support import CLUSTER, MemoryFolder, open_tier
from tests.broker.segments.test_reader import KEY, Shelf
from tests.broker.support import CLICKS, ORDERS, batch, current, fetch, produce, records_of, settle
from tests.broker.wal.support import run_inline
from tests.support.depth import examples

OTHER = PartitionId(TopicId(uuid.UUID(int=2)), 0)
FORGETFUL = {"cache_bytes": 1, "readahead_blocks": 0}
"""A memory cache that keeps the last block only."""


@pytest.fixture
def folder() -> MemoryFolder:
    return MemoryFolder()


@pytest.fixture
async def shelf(folder: MemoryFolder) -> AsyncIterator[Shelf]:
    made = await shelf_on(folder)
    yield made
    await made.reader.aclose()


async def shelf_on(folder: MemoryFolder, *, disk: dict[str, Any] | None = None, **given: int) -> Shelf:
    run_inline()
    return Shelf(disk=await open_tier(folder, **(disk or {})), **{**FORGETFUL, **given})


async def test_what_memory_has_forgotten_comes_from_the_disk(shelf: Shelf) -> None:
    data = await shelf.add(0, 3, 0, 1, 2)
    first = [await shelf.read(offset, max_bytes=1) for offset in range(3)]
    got = shelf.objects.count("get_range")
    again = [await shelf.read(offset, max_bytes=1) for offset in range(3)]
    assert first == again == data
    assert shelf.objects.count("get_range") == got
    assert shelf.reader.disk is not None
    assert (shelf.reader.disk.hits, shelf.reader.disk.misses) == (3, 3)


async def test_what_memory_has_does_not_come_from_the_disk(shelf: Shelf, folder: MemoryFolder) -> None:
    data = await shelf.add(0, 1, 0)
    assert [await shelf.read(0) for _ in range(3)] == data * 3
    assert folder.calls.count("read") == 0


async def test_a_block_is_looked_for_once_in_both_tiers_however_many_want_it(
    shelf: Shelf, folder: MemoryFolder
) -> None:
    data = await shelf.add(0, 2, 0, 1)
    await asyncio.gather(*(shelf.read(0, max_bytes=1) for _ in range(5)))
    assert shelf.objects.count("get_range") == 2  # the index and the block
    assert folder.calls.count("write") == 1
    await shelf.read(1)
    assert await asyncio.gather(*(shelf.read(0, max_bytes=1) for _ in range(5))) == [data[0]] * 5
    assert folder.calls.count("read") == 1
    assert shelf.objects.count("get_range") == 3


async def test_a_damaged_file_is_got_from_the_store_and_written_anew(shelf: Shelf, folder: MemoryFolder) -> None:
    data = await shelf.add(0, 2, 0, 1)
    await shelf.read(0)
    entry = (await shelf.reader.index(shelf.rows.rows[0])).blocks[0]
    name = name_of((KEY, entry.position))
    good = folder.files[name]
    folder.files[name] = good[:-1] + bytes([good[-1] ^ 1])
    assert await shelf.read(0, max_bytes=1) == data[0]
    await settle()
    assert folder.files[name] == good


async def test_a_block_that_is_corrupt_in_the_store_never_comes_to_the_disk(shelf: Shelf, folder: MemoryFolder) -> None:
    data = await shelf.add(0, 3, 0, 1, 2)
    await shelf.damage(shelf.rows.rows[0], 1)
    assert await shelf.read(0) == data[0]
    with pytest.raises(CorruptObject):
        await shelf.read(1)
    assert await shelf.read(2) == data[2]
    assert len(folder.files) == 2


async def test_what_is_on_the_disk_does_not_wait_for_a_slow_store(folder: MemoryFolder) -> None:
    shelf = await shelf_on(folder, concurrent_reads=1)
    data = await shelf.add(0, 4, *range(4))
    await shelf.read(0, max_bytes=1)
    await shelf.read(1, max_bytes=1)
    resume = shelf.objects.hold("get_range")
    stuck = [asyncio.ensure_future(shelf.read(offset)) for offset in (2, 3)]
    await settle()
    async with asyncio.timeout(5):
        assert await shelf.read(0, max_bytes=1) == data[0]
    resume.set()
    await asyncio.gather(*stuck)


async def test_reads_go_on_when_the_disk_is_full(shelf: Shelf, folder: MemoryFolder) -> None:
    data = await shelf.add(0, 3, 0, 1, 2)
    await shelf.read(0, max_bytes=1)
    folder.failing["write"] = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(2):
        assert [await shelf.read(offset, max_bytes=1) for offset in range(3)] == data
    assert shelf.reader.disk is not None
    assert not shelf.reader.disk.is_on


async def test_the_next_agent_finds_what_this_one_has_cached(folder: MemoryFolder) -> None:
    first = await shelf_on(folder)
    data = await first.add(0, 3, 0, 1, 2)
    await first.read(0)
    await first.reader.aclose()
    second = await shelf_on(folder)
    assert await second.add(0, 3, 0, 1, 2) == data
    assert await second.read(0) == b"".join(data)
    assert second.objects.count("get_range") == 1  # the index


async def test_a_broker_that_can_not_start_gives_its_disk_cache_back(make_world: MakeWorld, tmp_path: Path) -> None:
    world = await make_world(fetch=FetchSettings(disk_cache_path=str(tmp_path / "cache")))
    world.metadata.refuse("open_session")
    with pytest.raises(Unavailable):
        await world.start()
    broker = await world.start()
    with pytest.raises(Misconfigured, match="another agent uses the disk cache"):
        await world.start()
    await broker.reader.aclose()


# --- fair turns


async def test_a_partition_with_a_long_backlog_does_not_keep_others_from_the_store(folder: MemoryFolder) -> None:
    shelf = await shelf_on(folder, concurrent_reads=1)
    await shelf.add(0, 20, *range(20))
    (one,) = await shelf.add(0, 1, 0, key="segments/two", partition=OTHER)
    for run in shelf.rows.rows:
        await shelf.reader.index(run)
    resume = shelf.objects.hold("get_range")
    greedy = [asyncio.ensure_future(shelf.read(offset, max_bytes=1)) for offset in range(20)]
    await settle()
    modest = asyncio.ensure_future(shelf.read(0, partition=OTHER))
    await settle()
    before = shelf.objects.count("get_range")
    resume.set()
    assert await modest == one
    # The one under way, one more of the other partition, and its own.
    assert shelf.objects.count("get_range") - before <= 3
    assert all(await asyncio.gather(*greedy))


async def test_cold_readers_do_not_slow_a_reader_of_the_tail(make_world: MakeWorld) -> None:
    world = await make_world(fetch=FetchSettings(concurrent_reads=1, cache_bytes=1))
    broker = await world.start_with(ORDERS, CLICKS)
    for _ in range(10):
        await produce(broker, batch(b"old" * 50))
    await current(broker).flusher.flush_all()
    resume = world.objects.hold("get_range")
    cold = [asyncio.ensure_future(fetch(broker, offset)) for offset in range(10)]
    await settle()
    async with asyncio.timeout(5):
        for offset in range(10):
            await produce(broker, batch(b"new"), CLICKS)
            assert [record.value for record in records_of((await fetch(broker, offset, CLICKS)).records)] == [b"new"]
        await produce(broker, batch(b"new"))
        assert records_of((await fetch(broker, 10)).records)[0].value == b"new"
    assert not any(task.done() for task in cold)
    resume.set()
    assert all(response.error is None and response.records for response in await asyncio.gather(*cold))


# --- whatever happens

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read"] * 6 + ["burst", "flip", "cut", "zero", "swap", "lose", "restart", "fail", "heal"]),
        st.integers(0, 2**16),
    ),
    max_size=60,
)


DAMAGED_FILE_THAT_STAYS = [("read", 1), ("read", 0), ("flip", 0), ("fail", 230), ("burst", 3)]


@hypothesis_settings(max_examples=examples(150), deadline=None)
@given(steps=STEPS, blocks=st.integers(1, 6), cache_bytes=st.sampled_from([1, 200, 10_000]))
@example(steps=DAMAGED_FILE_THAT_STAYS, blocks=2, cache_bytes=1)
def test_whatever_happens_to_the_disk_readers_get_the_right_bytes(
    steps: list[tuple[str, int]], blocks: int, cache_bytes: int
) -> None:
    asyncio.run(_scenario(steps, blocks, cache_bytes))


async def _scenario(steps: list[tuple[str, int]], blocks: int, cache_bytes: int) -> None:
    folder, limits = MemoryFolder(), {"disk_cache_bytes": blocks * CLUSTER, "disk_cache_waiting_writes": 2}
    shelf = await shelf_on(folder, disk=limits, cache_bytes=cache_bytes)
    data = await shelf.add(0, 8, *range(8))
    for step, number in steps:
        if step == "read":
            assert await shelf.read(number % 8, max_bytes=1) == data[number % 8]
        elif step == "burst":
            got = await asyncio.gather(*(shelf.read(offset % 8, max_bytes=1) for offset in range(number % 20)))
            assert got == [data[offset % 8] for offset in range(number % 20)]
        elif step == "restart":
            await shelf.reader.aclose()
            folder.failing.clear()
            shelf = await shelf_on(folder, disk=limits, cache_bytes=cache_bytes)
            await shelf.add(0, 8, *range(8))
        elif step == "fail":
            call = ("read", "write", "remove")[number % 3]
            folder.failing[call] = OSError((errno.EIO, errno.ENOSPC, errno.EROFS)[number % 3], "trouble")
        elif step == "heal":
            folder.failing.clear()
        else:
            _hurt(folder, step, random.Random(number))
        await settle()
        assert folder.most_bytes <= blocks * CLUSTER
    assert shelf.reader.disk is not None
    if shelf.reader.disk.is_on:
        assert folder.size_bytes <= shelf.reader.disk.weight
    await shelf.reader.aclose()


def _hurt(folder: MemoryFolder, how: str, chance: random.Random) -> None:
    """What a power cut, a bad disk or a person does to a file."""
    if not folder.files:
        return
    name = chance.choice(sorted(folder.files))
    data = bytearray(folder.files[name])
    if how == "flip" and data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del data[chance.randrange(len(data) + 1) :]
    elif how == "zero":
        data = bytearray(len(data))
    elif how == "swap":
        data = bytearray(folder.files[chance.choice(sorted(folder.files))])
    if how == "lose":
        del folder.files[name]
    else:
        folder.files[name] = bytes(data)
