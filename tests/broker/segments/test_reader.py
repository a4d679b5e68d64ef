"""Flushed records, read back from segments: the same bytes, whatever the gaps, and damage stays where it is."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from streamhouse.broker.segments.disk_cache import DiskBlockCache
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.clock import SystemClock
from streamhouse.config import FetchSettings
from streamhouse.errors import CorruptObject, MissingRecords, Unavailable
from streamhouse.format.batch import assign_offset
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.broker.segments.test_run_index import Rows
from tests.broker.support import MANY_BYTES, ORDERS, Faulty, World, batch, current, fetch, produce, records_of, settle
from tests.broker.wal.support import run_inline

PARTITION = PartitionId(TopicId(uuid.UUID(int=1)), 0)
KEY = "segments/one"


class Shelf:
    """A reader over segments that the test writes."""

    def __init__(self, disk: DiskBlockCache | None = None, **settings: int) -> None:
        run_inline()
        self.bucket = MemoryObjectStore(SystemClock())
        self.objects = Faulty(self.bucket)
        self.rows = Rows()
        self.reader = SegmentReader(
            FetchSettings(**cast(dict[str, Any], settings)),
            objects=cast(ObjectStore, self.objects),
            metadata=cast(MetadataStore, self.rows),
            disk=disk,
        )

    async def add(
        self,
        base: int,
        end: int,
        *offsets: int,
        key: str = KEY,
        block_bytes: int = 1,
        partition: PartitionId = PARTITION,
    ) -> list[bytes]:
        """A run [base, end) with a batch of one record at each offset; small blocks hold one batch each."""
        data = [_placed(offset) for offset in offsets]
        run = RunInput(partition=partition, epoch=Epoch(1), base=base, end=end, batches=data, producers=b"")
        encoded = encode_segment([run], block_bytes=block_bytes)
        await self.bucket.put_new(key, encoded.body)
        self.rows.rows.append(encoded.layouts[0].run(key))
        return data

    async def damage(self, run: Run, block: int) -> None:
        """Flip a bit in a block, behind everybody's back."""
        entry = (await self.reader.index(run)).blocks[block]
        body = bytearray(await self.bucket.get_range(run.object_key, 0, MANY_BYTES))
        body[entry.position + entry.stored_bytes // 2] ^= 1
        await self._rewrite(run.object_key, bytes(body))

    async def cut(self, run: Run, length: int) -> None:
        await self._rewrite(run.object_key, await self.bucket.get_range(run.object_key, 0, length))

    async def _rewrite(self, key: str, body: bytes) -> None:
        await self.bucket.delete(key)
        await self.bucket.put_new(key, [body])

    async def read(
        self,
        offset: int,
        *,
        max_bytes: int = MANY_BYTES,
        at_least_one: bool = True,
        partition: PartitionId = PARTITION,
    ) -> bytes:
        return b"".join(await self.reader.read(partition, offset, max_bytes=max_bytes, at_least_one=at_least_one))


def _placed(offset: int) -> bytes:
    data = batch(f"value {offset}".encode())
    assign_offset(data, base_offset=offset, leader_epoch=1)
    return bytes(data)


def joined(data: Sequence[bytes | bytearray | memoryview]) -> bytes:
    return b"".join(data)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_cold_records_equal_hot_ones_byte_for_byte(world: World, codec: int) -> None:
    broker = await world.start_with()
    for number in range(20):
        await produce(broker, batch(b"%d" % number, b"x" * 50, codec=codec, timestamp_ms=1_600_000_000_000 + number))
    hot = [bytes(joined((await fetch(broker, offset)).records)) for offset in range(40)]
    await current(broker).flusher.flush_all()
    assert (await broker.open_log(ORDERS)).tail_bytes == 0
    cold = [bytes(joined((await fetch(broker, offset)).records)) for offset in range(40)]
    assert cold == hot


async def test_a_read_goes_through_blocks_and_runs_until_it_has_enough() -> None:
    shelf = Shelf()
    first = await shelf.add(0, 3, 0, 1, 2)
    second = await shelf.add(3, 6, 3, 4, 5, key="segments/two")
    assert await shelf.read(0) == joined([*first, *second])
    assert await shelf.read(2) == joined([first[2], *second])
    size = len(first[0])
    assert await shelf.read(1, max_bytes=3 * size) == joined([*first[1:], second[0]])
    assert await shelf.read(1, max_bytes=3 * size - 1) == joined(first[1:])


async def test_at_least_one_batch_is_read_however_small_the_limit_if_requested() -> None:
    shelf = Shelf()
    data = await shelf.add(0, 2, 0, 1)
    assert await shelf.read(0, max_bytes=1) == data[0]
    assert await shelf.read(0, max_bytes=0) == data[0]
    assert await shelf.read(0, max_bytes=1, at_least_one=False) == b""


async def test_blocks_of_many_batches_are_cut_at_the_offset_and_at_the_limit() -> None:
    shelf = Shelf()
    data = await shelf.add(0, 9, *range(9), block_bytes=3 * len(_placed(0)))
    assert len((await shelf.reader.index(shelf.rows.rows[0])).blocks) == 3
    size = len(data[0])
    for offset in range(9):
        for count in range(1, 9 - offset):
            assert await shelf.read(offset, max_bytes=count * size) == joined(data[offset : offset + count])


async def test_reading_to_the_end_again_and_again_asks_the_metadata_store_once(world: World) -> None:
    broker = await world.start_with()
    for number in range(5):
        await produce(broker, batch(b"%d" % number))
    await current(broker).flusher.flush_all()
    for offset in (0, 2, 4, 0):
        assert len(records_of((await fetch(broker, offset)).records)) == 5 - offset
    assert world.metadata.count("runs") == 1


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2), (8, 2), (11, 2), (12, 3)]
)
async def test_gaps_at_the_begin_in_the_middle_and_at_the_end_of_runs_are_passed_over(
    offset: int, expected: int
) -> None:
    shelf = Shelf()
    first = await shelf.add(0, 8, 2, 5)
    second = await shelf.add(8, 20, 11, 12, key="segments/two")
    assert await shelf.read(offset) == joined([*first, *second][expected:])


async def test_behind_everything_is_nothing_also_when_the_last_run_ends_in_a_gap() -> None:
    shelf = Shelf()
    await shelf.add(0, 10, 3)
    assert await shelf.read(4) == b""
    assert await shelf.read(10) == b""


async def test_a_shifted_run_is_read_at_its_place_with_its_epoch() -> None:
    shelf = Shelf()
    await shelf.add(0, 4, 0, 1, 3)
    stored = shelf.rows.rows[0]
    shelf.rows.rows[0] = replace(stored, base=100, end=104, stored_base=0, epoch=Epoch(7))
    for offset, expected in ((100, [100, 101, 103]), (101, [101, 103]), (102, [103]), (103, [103])):
        pieces = await shelf.reader.read(PARTITION, offset, max_bytes=MANY_BYTES, at_least_one=True)
        assert [record.offset for record in records_of(pieces)] == expected
        assert {int.from_bytes(piece[12:16]) for piece in pieces} == {7}
    assert await shelf.read(104) == b""


async def test_a_damaged_block_fails_for_its_own_range_and_its_neighbours_are_served() -> None:
    shelf = Shelf(readahead_blocks=0)
    data = await shelf.add(0, 3, 0, 1, 2)
    await shelf.damage(shelf.rows.rows[0], 1)
    assert await shelf.read(0) == data[0]
    with pytest.raises(CorruptObject):
        await shelf.read(1)
    assert await shelf.read(2) == data[2]


async def test_a_damaged_block_is_not_remembered() -> None:
    shelf = Shelf(readahead_blocks=2)
    data = await shelf.add(0, 2, 0, 1)
    good = await shelf.bucket.get_range(KEY, 0, MANY_BYTES)
    await shelf.damage(shelf.rows.rows[0], 1)
    assert await shelf.read(0) == data[0]  # and reads ahead, into the damage
    await settle()
    with pytest.raises(CorruptObject):
        await shelf.read(1)
    await shelf._rewrite(KEY, good)
    assert await shelf.read(1) == data[1]


async def test_a_truncated_object_is_corrupt_where_it_is_missing_something() -> None:
    shelf = Shelf(readahead_blocks=0)
    data = await shelf.add(0, 3, 0, 1, 2)
    run = shelf.rows.rows[0]
    blocks = (await shelf.reader.index(run)).blocks
    await shelf.cut(run, blocks[2].position + 3)
    assert await shelf.read(1) == data[1]
    with pytest.raises(CorruptObject, match="ends at"):
        await shelf.read(2)


async def test_a_damaged_index_is_corrupt() -> None:
    shelf = Shelf()
    await shelf.add(0, 1, 0)
    run = shelf.rows.rows[0]
    body = bytearray(await shelf.bucket.get_range(KEY, 0, MANY_BYTES))
    body[run.index_position + 8] ^= 1
    await shelf._rewrite(KEY, bytes(body))
    with pytest.raises(CorruptObject):
        await shelf.read(0)


async def test_a_missing_object_that_a_row_names_is_called_so_and_the_runs_are_requested_again() -> None:
    shelf = Shelf()
    await shelf.add(0, 2, 0, 1)
    data = await shelf.add(2, 4, 2, 3, key="segments/two")
    await shelf.bucket.delete(KEY)
    with pytest.raises(MissingRecords, match=r"offsets=\[0,2\) key=segments/one"):
        await shelf.read(0)
    del shelf.rows.rows[0]  # retention has passed by
    assert await shelf.read(0) == joined(data)


async def test_trouble_in_the_middle_ends_the_read_with_what_there_is() -> None:
    shelf = Shelf(readahead_blocks=0)
    data = await shelf.add(0, 2, 0, 1)
    assert await shelf.read(0, max_bytes=1) == data[0]
    shelf.objects.refuse("get_range")
    assert await shelf.read(0) == data[0]
    shelf.objects.refuse("get_range")
    with pytest.raises(Unavailable):
        await shelf.read(1)
    assert await shelf.read(1) == data[1]


async def test_a_block_is_got_once_however_many_read_it() -> None:
    shelf = Shelf(readahead_blocks=0)
    data = await shelf.add(0, 1, 0)
    assert await asyncio.gather(*(shelf.read(0) for _ in range(5))) == [data[0]] * 5
    assert shelf.objects.count("get_range") == 2  # the index and the block


async def test_reading_ahead_gets_exactly_what_the_next_reads_ask_for() -> None:
    shelf = Shelf(readahead_blocks=2)
    data = await shelf.add(0, 5, *range(5))
    assert await shelf.read(0, max_bytes=1) == data[0]
    await settle()
    got = shelf.objects.count("get_range")
    assert got == 1 + 3
    assert [await shelf.read(offset, max_bytes=1) for offset in (1, 2)] == data[1:3]
    await settle()
    # Blocks 3 and 4 were read ahead; 1 and 2 were not got a second time.
    assert shelf.objects.count("get_range") == got + 2
    assert len(set(shelf.objects.arguments("get_range"))) == got + 2


async def test_cold_reads_under_way_are_limited() -> None:
    shelf = Shelf(readahead_blocks=0, concurrent_reads=2)
    await shelf.add(0, 6, *range(6))
    await shelf.reader.index(shelf.rows.rows[0])
    resume = shelf.objects.hold("get_range")
    waiting = [asyncio.ensure_future(shelf.read(offset, max_bytes=1)) for offset in range(6)]
    await settle()
    assert shelf.objects.count("get_range") == 1 + 2
    resume.set()
    assert all(await asyncio.gather(*waiting))


async def test_the_snapshot_of_producers_is_read_and_not_kept_with_the_index() -> None:
    shelf = Shelf()
    data = [_placed(0)]
    run = RunInput(partition=PARTITION, epoch=Epoch(1), base=0, end=1, batches=data, producers=b"snapshot")
    encoded = encode_segment([run])
    await shelf.bucket.put_new(KEY, encoded.body)
    row = encoded.layouts[0].run(KEY)
    assert await shelf.reader.snapshots([row]) == {PARTITION: b"snapshot"}
    assert (await shelf.reader.index(row)).producers == b""


async def test_closing_ends_reads_ahead() -> None:
    shelf = Shelf(readahead_blocks=4)
    await shelf.add(0, 5, *range(5))
    await shelf.read(0, max_bytes=1)
    shelf.objects.hold("get_range")
    await settle()
    await shelf.reader.aclose()
    assert "ahead=0" in repr(shelf.reader)
