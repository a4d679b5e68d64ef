"""Damage of object logs: lost objects are distinguished from those that never existed, and none is deleted."""

from dataclasses import replace

import pytest

from streamhouse.broker.wal.object_quarantine import objects_above
from streamhouse.broker.wal.object_recovery import ObjectWalReader
from streamhouse.errors import CorruptObject, SessionSealed
from streamhouse.format import wal_object
from streamhouse.format.object_keys import wal_key
from streamhouse.format.wal_object import COPY_BYTES, ObjectHeader, encode_header
from tests.broker.wal.object_support import DEAD, Bucket, open_object_wal, recovered, wals_on
from tests.broker.wal.support import ManualClock, entry, settle


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bucket(clock: ManualClock) -> Bucket:
    return Bucket(clock)


async def left_behind(bucket: Bucket, count: int) -> None:
    wal = await open_object_wal(bucket)
    for offset in range(count):
        await wal.append([entry(offset)])


async def read(bucket: Bucket, *, start: int = 0) -> tuple[list[int], ObjectWalReader]:
    async with wals_on(bucket).read(DEAD, start=start) as reading:
        return [each.base async for each in reading.entries()], reading


async def lose(bucket: Bucket, *numbers: int) -> None:
    for number in numbers:
        await bucket.inner.delete(wal_key(DEAD, number))


async def test_one_object_above_a_gap_is_enough_to_know_that_it_is_damage(bucket: Bucket) -> None:
    await left_behind(bucket, 3)
    await lose(bucket, 1)
    result, reading = await read(bucket)
    assert result == [0, 2]
    assert (reading.damage.missing, reading.damage.losses, reading.damage.places) == (1, 1, ("1@missing",))
    assert await bucket.numbers() == [0, 2, 3]  # the seal stands at the end, not in the gap


async def test_an_object_that_can_not_be_read_is_damage_and_what_lies_behind_it_is_recovered(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    await left_behind(bucket, 3)
    whole = bucket.inner.get_range

    async def unreadable(key: str, start: int, end: int) -> bytes:
        if key == wal_key(DEAD, 1):
            raise CorruptObject(key, why="the disk can't read it: EIO")
        return await whole(key, start, end)

    monkeypatch.setattr(bucket.inner, "get_range", unreadable)
    result, reading = await read(bucket)
    assert result == [0, 2]
    assert reading.damage.places
    assert reading.damage.losses == 1
    assert await bucket.numbers() == [0, 1, 2, 3]


@pytest.mark.parametrize("gap", [1, 5, 30])
async def test_a_gap_may_be_wider_than_what_is_read_ahead(bucket: Bucket, gap: int) -> None:
    await left_behind(bucket, gap + 2)
    await lose(bucket, *range(1, gap + 1))
    result, reading = await read(bucket)
    assert result == [0, gap + 1]
    assert reading.damage.missing == gap


async def test_the_first_object_above_the_mark_may_be_the_lost_one(bucket: Bucket) -> None:
    await left_behind(bucket, 6)
    await lose(bucket, 0, 1, 2)
    assert (await read(bucket, start=2))[0] == [3, 4, 5]


async def test_damage_below_an_end_with_objects_on_their_way_ends_the_log_at_the_first_that_never_was(
    bucket: Bucket, clock: ManualClock
) -> None:
    bucket.outcome(4, "late")
    wal = await open_object_wal(bucket, clock, window_bytes=300)
    for offset in range(4):
        await wal.append([entry(offset, bytes(300))])
        await clock.advance(1)
    commits = [wal.append([entry(offset, bytes(300))]) for offset in range(4, 7)]
    await settle()
    assert await bucket.numbers() == [0, 1, 2, 3, 5, 6]
    await lose(bucket, 2)
    result, reading = await read(bucket)
    assert result == [0, 1, 3]
    assert reading.damage.places == ("2@missing",)
    await clock.advance(1)
    assert isinstance(wal.failed, SessionSealed)
    assert all(commit.exception() is not None for commit in commits)


async def test_a_late_object_that_was_read_ahead_as_missing_is_not_taken_for_lost(
    bucket: Bucket, clock: ManualClock
) -> None:
    """It lands, and others that were sent after it, between two reads."""
    bucket.outcome(1, "late")
    wal = await open_object_wal(bucket, clock)
    await wal.append([entry(0)])
    late = wal.append([entry(1)])
    await settle()
    async with wals_on(bucket).read(DEAD) as reading:
        entries = reading.entries()
        assert (await anext(entries)).base == 0
        await settle()
        await bucket.land(1)
        await clock.advance(1)
        await late
        await wal.append([entry(2)])
        assert [each.base async for each in entries] == [1, 2]
        assert reading.damage.is_clean


async def test_a_seal_that_stands_in_the_place_of_a_lost_object_does_not_end_the_log(bucket: Bucket) -> None:
    await left_behind(bucket, 4)
    lost = await bucket.bytes_of(3)
    await lose(bucket, 1, 2, 3)
    assert await recovered(bucket) == [entry(0)]  # nothing told this recoverer that there was more
    await bucket.inner.put_new(wal_key(DEAD, 3), [lost])  # a store that finds it again
    result, reading = await read(bucket)
    assert result == [0, 3]
    assert reading.damage.missing == 2


async def test_nothing_of_a_damaged_log_is_removed_or_collected_until_it_is_discarded(
    bucket: Bucket, clock: ManualClock
) -> None:
    await left_behind(bucket, 5)
    await lose(bucket, 2)
    wals = wals_on(bucket, clock, seal_retention_s=10.0)
    async with wals.read(DEAD) as reading:
        assert [each.base async for each in reading.entries()] == [0, 1, 3, 4]
        await reading.keep(b"{}", number=1)
        await reading.remove()
    await wals.remove(DEAD)
    await clock.advance(1000)
    assert await wals.collect(lambda session: True, now_ms=clock.now_ms()) == 0
    assert await bucket.numbers() == [0, 1, 3, 4, 5]
    (kept,) = await wals.kept()
    assert (kept.session_id, kept.files, kept.report) == (DEAD, 4, b"{}")
    assert await wals.discard(DEAD) == 5
    assert await bucket.numbers() == [5]  # seals are for `collect`
    assert await wals.kept() == []
    assert await wals.discard(DEAD) == 0
    assert await wals.collect(lambda session: True, now_ms=clock.now_ms()) == 1


async def rewritten_as_before(bucket: Bucket, number: int) -> None:
    """The object as an earlier release wrote it: it does not say below which number all were durable."""
    data = await bucket.bytes_of(number)
    header = wal_object.decode_header(memoryview(data[:COPY_BYTES]))
    assert isinstance(header, ObjectHeader)
    copy = encode_header(replace(header, durable_below=None))
    await bucket.replace(number, copy + data[COPY_BYTES:-COPY_BYTES] + copy)


async def test_objects_of_an_earlier_release_above_a_gap_are_not_part_of_the_log_and_are_left(bucket: Bucket) -> None:
    await left_behind(bucket, 5)
    for number in range(5):
        await rewritten_as_before(bucket, number)
    await lose(bucket, 2)
    async with wals_on(bucket).read(DEAD) as reading:
        assert [each.base async for each in reading.entries()] == [0, 1]
        assert reading.damage.is_clean
        await reading.remove()
    assert await bucket.numbers() == [2, 3, 4]  # the seal, and what can't say whether it was acknowledged


async def test_one_object_of_an_earlier_release_above_a_gap_is_enough_for_the_rest_to_be_left(bucket: Bucket) -> None:
    await left_behind(bucket, 5)
    await rewritten_as_before(bucket, 4)
    above = await objects_above(bucket, DEAD, 2)
    assert (above.durable_below, above.is_complete) == (3, False)
    assert (await objects_above(bucket, DEAD, 4)).is_complete
