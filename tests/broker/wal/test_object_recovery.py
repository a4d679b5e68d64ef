"""Recovery of object logs: the contiguous run, seals and late PUTs in both orders, damage, what may be deleted."""

import asyncio

import pytest

from streamhouse.broker.dependencies import WalFactory
from streamhouse.broker.wal import object_recovery
from streamhouse.errors import Misconfigured, SessionSealed, Unavailable
from streamhouse.format.object_keys import wal_key
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, WalEntry
from streamhouse.format.wal_object import COPY_BYTES, SEAL_BYTES, decode_seal
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import Buffers
from tests.broker.wal.object_support import ALIVE, DEAD, Bucket, open_object_wal, recovered, wals_on
from tests.broker.wal.support import ManualClock, entry, flushed, plain, settle


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bucket(clock: ManualClock) -> Bucket:
    return Bucket(clock)


async def left_behind(bucket: Bucket, count: int, *, entries: int = 1) -> list[WalEntry]:
    """A dead session with so many objects."""
    wal = await open_object_wal(bucket)
    written = [entry(offset, b"batch %d" % offset) for offset in range(count * entries)]
    for start in range(0, len(written), entries):
        await wal.append(written[start : start + entries])
    return written


async def is_sealed(bucket: Bucket, sequence: int) -> bool:
    data = memoryview(await bucket.bytes_of(sequence))
    return decode_seal(data, session=DEAD, sequence=sequence) is not None


# --- reading to the end


async def test_what_was_acknowledged_is_read_in_order_and_the_log_is_sealed_behind_it(bucket: Bucket) -> None:
    written = await left_behind(bucket, 20, entries=3)
    assert await recovered(bucket) == written
    assert await bucket.numbers() == list(range(21))
    seal = decode_seal(memoryview(await bucket.bytes_of(20)), session=DEAD, sequence=20)
    assert seal is not None


async def test_the_seal_names_who_set_it(bucket: Bucket) -> None:
    wals: WalFactory = wals_on(bucket)
    await wals.open(ALIVE)
    async with wals.read(DEAD) as reading:
        assert [each async for each in reading.entries()] == []
    seal = decode_seal(memoryview(await bucket.bytes_of(0)), session=DEAD, sequence=0)
    assert seal is not None
    assert seal.by == ALIVE


async def test_only_the_contiguous_run_counts(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(1, "late")
    wal = await open_object_wal(bucket, clock, window_bytes=300)
    commits = [wal.append([entry(offset, bytes(300))]) for offset in range(4)]
    await settle()
    assert await bucket.numbers() == [0, 2, 3]
    assert [commit.done() for commit in commits] == [True, False, False, False]
    assert [each.base for each in await recovered(bucket)] == [0]
    await clock.advance(1)
    assert isinstance(wal.failed, SessionSealed)
    assert [commit.exception() is None for commit in commits] == [True, False, False, False]


async def test_a_log_that_never_was_is_empty_and_sealed(bucket: Bucket) -> None:
    assert await recovered(bucket) == []
    assert await is_sealed(bucket, 0)


async def test_dead_agents_are_not_listed(bucket: Bucket) -> None:
    await left_behind(bucket, 1)
    assert await wals_on(bucket).dead_sessions(ALIVE) == []


async def test_a_session_is_found_by_its_whole_id(bucket: Bucket) -> None:
    other = SessionId(DEAD[:-1] + "e")
    await left_behind(bucket, 3)
    assert await recovered(bucket, session=other) == []
    await wals_on(bucket).remove(other)
    assert await bucket.numbers() == [0, 1, 2]


async def test_little_is_read_ahead_and_nothing_is_left_running(bucket: Bucket) -> None:
    await left_behind(bucket, 30)
    tasks = asyncio.all_tasks()
    async with wals_on(bucket, read_ahead=4).read(DEAD) as reading:
        async for result in reading.entries():
            assert len(asyncio.all_tasks() - tasks) <= 4
            if result.base == 7:
                break
    assert asyncio.all_tasks() == tasks


async def test_a_large_object_is_read_in_pieces(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    wal = await open_object_wal(bucket)
    written = [entry(offset, bytes([offset]) * 1000) for offset in range(9)]
    await wal.append(written)
    size = len(await bucket.bytes_of(0))
    for piece_bytes in (SEAL_BYTES, 1000, size - 1, size, size + 1):
        monkeypatch.setattr(object_recovery, "PIECE_BYTES", piece_bytes)
        assert await recovered(bucket) == written


# --- seals and late PUTs


class Race(Bucket):
    """The zombie's late PUT lands just before, or just after, the recoverer's seal."""

    put_first = True

    async def put_new(self, key: str, body: Buffers) -> None:
        is_seal = len(body) == 1
        if is_seal and self.put_first:
            await self.land(1)
        await super().put_new(key, body)
        if is_seal and not self.put_first:
            await self.land(1)


@pytest.mark.parametrize("put_first", [True, False])
async def test_a_late_put_and_a_seal_race_for_a_number_and_one_wins(clock: ManualClock, put_first: bool) -> None:
    bucket = Race(clock)
    bucket.put_first = put_first
    bucket.outcome(1, "late")
    wal = await open_object_wal(bucket, clock)
    await wal.append([entry(0)])
    commit = wal.append([entry(1)])
    await settle()
    result = await recovered(bucket)
    assert [each.base for each in result] == ([0, 1] if put_first else [0])
    assert await is_sealed(bucket, 2 if put_first else 1)
    await clock.advance(1)
    # Acknowledged or not, the zombie's answer is what the recoverer found, and its next append learns the rest.
    assert (commit.exception() is None) == put_first
    if put_first:
        with pytest.raises(SessionSealed):
            await wal.append([entry(2)])


async def test_the_recoverer_of_a_dead_recoverer_ends_at_the_same_seal(bucket: Bucket) -> None:
    written = await left_behind(bucket, 3)
    assert await recovered(bucket) == written
    assert await recovered(bucket) == written
    assert await bucket.numbers() == [0, 1, 2, 3]


async def test_objects_behind_a_seal_are_not_part_of_the_log(bucket: Bucket, clock: ManualClock) -> None:
    written = await left_behind(bucket, 2)
    assert await recovered(bucket) == written
    later = await open_object_wal(bucket)
    later._next_sequence = 3
    later.append([entry(99)])
    await settle()
    assert await bucket.numbers() == [0, 1, 2, 3]
    assert await recovered(bucket) == written


async def test_a_seal_whose_answer_was_lost_is_found_to_be_a_seal(bucket: Bucket) -> None:
    written = await left_behind(bucket, 2)
    bucket.outcome(2, "lost")
    with pytest.raises(Unavailable):
        await recovered(bucket)
    assert await recovered(bucket) == written
    assert await bucket.numbers() == [0, 1, 2]


async def test_a_seal_that_lands_late_seals_nothing_that_was_read_since(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(0, "refused")
    wal = await open_object_wal(bucket, clock)
    commit = wal.append([entry(0)])
    await settle()
    bucket.outcome(0, "late")
    with pytest.raises(Unavailable):
        await recovered(bucket)
    await clock.advance(1)
    await commit
    await bucket.land(0)
    assert [each.base for each in await recovered(bucket)] == [0]


async def test_a_store_that_is_away_ends_the_reading_with_an_error_and_not_with_a_seal(bucket: Bucket) -> None:
    written = await left_behind(bucket, 3)
    bucket.is_away = True
    with pytest.raises(Unavailable):
        await recovered(bucket)
    bucket.is_away = False
    assert await recovered(bucket) == written


# --- the mark


async def test_reading_begins_at_the_mark_and_ignores_what_was_created_again_below_it(
    bucket: Bucket, clock: ManualClock
) -> None:
    bucket.outcome(1, "late")
    wal = await open_object_wal(bucket, clock)
    for offset in range(5):
        wal.append([entry(offset)])
        await clock.advance(1)
    await wal.truncate(flushed(orders=3))
    await wal.delete_below(3)
    await settle()
    await bucket.land(1)  # the first try of a PUT whose second one succeeded long ago
    assert await bucket.numbers() == [1, 3, 4]
    assert [each.base for each in await recovered(bucket, start=wal.first_retained)] == [3, 4]


async def test_a_mark_at_the_end_is_where_the_seal_goes(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket)
    await wal.append([entry(0)])
    await wal.truncate(flushed(orders=1))
    await wal.delete_below(wal.first_retained)
    await settle()
    assert await recovered(bucket, start=1) == []
    with pytest.raises(SessionSealed):
        await wal.append([entry(1)])


# --- damage


async def test_a_damaged_entry_costs_itself_and_no_other(bucket: Bucket) -> None:
    written = await left_behind(bucket, 4, entries=3)
    data = bytearray(await bucket.bytes_of(1))
    data[COPY_BYTES + ENTRY_HEADER_BYTES + 2] ^= 1
    await bucket.replace(1, bytes(data))
    async with wals_on(bucket).read(DEAD) as reading:
        results = [plain(each) async for each in reading.entries()]
        assert results == [*written[:3], *written[4:]]
        assert (reading.damage.files, reading.damage.entries, reading.damage.skipped) == (4, 11, 1)
        assert reading.damage.places == (f"1@{COPY_BYTES}+{ENTRY_HEADER_BYTES + len(written[3].batch)}",)
    assert await is_sealed(bucket, 4)


@pytest.mark.parametrize("junk", [b"", b"junk", bytes(484), bytes(SEAL_BYTES)])
async def test_an_object_that_is_none_is_counted_and_reading_goes_on_behind_it(bucket: Bucket, junk: bytes) -> None:
    written = await left_behind(bucket, 4)
    await bucket.replace(1, junk)
    async with wals_on(bucket).read(DEAD) as reading:
        assert [plain(each) async for each in reading.entries()] == [written[0], *written[2:]]
        assert (reading.damage.skipped, reading.damage.skipped_bytes) == (1, len(junk))
        assert not reading.damage.is_clean
    assert await is_sealed(bucket, 4)


async def test_an_object_or_a_seal_under_a_wrong_name_is_not_believed(bucket: Bucket) -> None:
    written = await left_behind(bucket, 4)
    assert await recovered(bucket) == written
    await bucket.replace(1, await bucket.bytes_of(2))
    await bucket.replace(3, await bucket.bytes_of(4))
    async with wals_on(bucket).read(DEAD) as reading:
        assert [plain(each) async for each in reading.entries()] == [written[0], written[2]]
        assert reading.damage.skipped == 2


async def test_a_wrong_bit_on_the_way_costs_nothing(bucket: Bucket) -> None:
    written = await left_behind(bucket, 3)
    assert await recovered(bucket) == written
    for position in (0, 10, COPY_BYTES, COPY_BYTES + ENTRY_HEADER_BYTES):
        # Reads come as 0 1 2 3 ..., read ahead, then those that are read again.
        bucket.wrong_bits.extend([-1, position, -1, min(position, SEAL_BYTES - 1)])
        assert await recovered(bucket) == written
        bucket.wrong_bits.clear()


async def test_an_object_of_a_later_version_stops_recovery(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamhouse.format.wal_object.VERSION", 2)
    await left_behind(bucket, 1)
    monkeypatch.undo()
    with pytest.raises(Misconfigured, match="upgrade"):
        await recovered(bucket)


# --- removing


async def test_removing_a_log_leaves_its_seal_and_nothing_else(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(2, "late")
    wal = await open_object_wal(bucket, clock, window_bytes=300)
    for offset in range(4):
        wal.append([entry(offset, bytes(300))])
    await settle()
    async with wals_on(bucket).read(DEAD) as reading:
        assert [each.base async for each in reading.entries()] == [0, 1]
        await reading.remove()
    assert await bucket.numbers() == [2]
    assert await is_sealed(bucket, 2)
    await clock.advance(1)
    assert isinstance(wal.failed, SessionSealed)


async def test_removing_is_left_for_later_when_the_store_is_away(bucket: Bucket) -> None:
    await left_behind(bucket, 3)
    bucket.is_away = True
    await wals_on(bucket).remove(DEAD)
    bucket.is_away = False
    assert await bucket.numbers() == [0, 1, 2]
    await wals_on(bucket).remove(DEAD)
    assert await bucket.numbers() == []


async def test_a_zombie_whose_object_was_removed_under_its_retry_acknowledges_only_what_was_recovered(
    bucket: Bucket, clock: ManualClock
) -> None:
    bucket.outcome(1, "lost")
    wal = await open_object_wal(bucket, clock)
    await wal.append([entry(0)])
    commit = wal.append([entry(1)])
    await settle()
    async with wals_on(bucket).read(DEAD) as reading:
        assert [each.base async for each in reading.entries()] == [0, 1]
        await reading.remove()
    await clock.advance(1)
    await commit  # true: the recoverer has it
    with pytest.raises(SessionSealed):
        await wal.append([entry(2)])


# --- sweeping


async def test_leftovers_go_when_the_session_has_ended_and_all_of_them_are_old(
    bucket: Bucket, clock: ManualClock
) -> None:
    wals = wals_on(bucket, clock, seal_retention_s=1000.0)
    await left_behind(bucket, 3)
    await recovered(bucket)
    await (await open_object_wal(bucket, session=ALIVE)).append([entry(0)])
    await bucket.inner.put_new("wal/README", [b"not ours"])
    await clock.advance(999)
    assert await wals.collect(lambda session: session == DEAD, now_ms=clock.now_ms()) == 0
    await bucket.inner.put_new(wal_key(DEAD, 4), [bytes(1000)])  # a late PUT: its writer may not be gone
    await clock.advance(500)
    assert await wals.collect(lambda session: session == DEAD, now_ms=clock.now_ms()) == 0
    await clock.advance(501)
    assert await wals.collect(lambda session: False, now_ms=clock.now_ms()) == 0
    assert await wals.collect(lambda session: session == DEAD, now_ms=clock.now_ms()) == 5
    assert bucket.deleted[-1] == wal_key(DEAD, 3)  # the seal is the last to go
    assert await bucket.numbers() == []
    assert await bucket.numbers(ALIVE) == [0]
    assert await bucket.inner.get_range("wal/README", 0, 3) == b"not"


async def test_a_sweep_can_have_another_age(bucket: Bucket, clock: ManualClock) -> None:
    await left_behind(bucket, 2)
    await clock.advance(60)
    assert await wals_on(bucket, clock).collect(lambda session: True, now_ms=clock.now_ms(), older_than_s=59.0) == 2


async def test_a_sweep_uses_the_given_time_not_the_agents_clock(bucket: Bucket, clock: ManualClock) -> None:
    await left_behind(bucket, 2)
    agreed_ms = clock.now_ms()
    await clock.advance(365 * 86_400)
    assert await wals_on(bucket, clock).collect(lambda session: True, now_ms=agreed_ms) == 0
