"""Object WAL: windows, the order of acknowledgement, ambiguous PUTs, seals, truncation, closing."""

import asyncio
import logging

import pytest

from streamhouse.broker.wal.base import Wal, WalRequestStats
from streamhouse.broker.wal.object_upload import COPIED_BELOW_BYTES, FRAME_BYTES
from streamhouse.errors import AppendFailed, Internal, Overloaded, SessionSealed
from streamhouse.format.object_keys import wal_key
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES
from streamhouse.format.wal_object import Seal, encode_seal
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import Buffers
from tests.broker.wal.object_support import ALIVE, DEAD, Bucket, open_object_wal, recovered
from tests.broker.wal.support import CLICKS, ORDERS, ManualClock, entry, flushed, settle


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bucket(clock: ManualClock) -> Bucket:
    return Bucket(clock)


async def fill(wal: Wal, count: int) -> None:
    """So many objects, with one entry each."""
    for offset in range(count):
        await wal.append([entry(offset)])


# --- windows


async def test_an_idle_log_sends_at_once(bucket: Bucket, clock: ManualClock) -> None:
    wal = await open_object_wal(bucket, clock, window_ms=50)
    await wal.append([entry(0)])
    await clock.advance(0.05)
    await wal.append([entry(1)])
    assert clock.sleeps == 0
    assert await bucket.numbers() == [0, 1]


async def test_appends_of_one_turn_of_the_loop_share_an_object_whatever_their_partitions(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket)
    commits = [wal.append([entry(n, partition=CLICKS if n % 2 else ORDERS)]) for n in range(1000)]
    assert len(set(map(id, commits))) == 1
    await commits[0]
    assert len(bucket.puts) == 1
    assert [each.base for each in await recovered(bucket)] == list(range(1000))


async def test_while_a_put_is_under_way_appends_are_collected_until_the_window_is_over(
    bucket: Bucket, clock: ManualClock
) -> None:
    bucket.outcome(0, "held")
    wal = await open_object_wal(bucket, clock, window_ms=50)
    wal.append([entry(0)])
    await settle()
    for offset in range(1, 10):
        wal.append([entry(offset)])
        await clock.advance(0.005)
    assert len(bucket.puts) == 1
    await clock.advance(0.006)
    assert len(bucket.puts) == 2
    await bucket.release(0)
    assert [each.base for each in await recovered(bucket)] == list(range(10))


async def test_objects_are_a_window_apart_however_quick_the_store_and_many_the_appends(
    bucket: Bucket, clock: ManualClock
) -> None:
    wal = await open_object_wal(bucket, clock, window_ms=50)
    for offset in range(100):
        wal.append([entry(offset)])
        await clock.advance(0.002)
    assert len(bucket.puts) == 5  # at 0, 50, 100, 150 and 200 ms
    await clock.advance(0.05)
    assert [each.base for each in await recovered(bucket)] == list(range(100))


async def test_a_full_window_does_not_wait(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(0, "held")
    wal = await open_object_wal(bucket, clock, window_ms=50, window_bytes=1000)
    wal.append([entry(0)])
    await settle()
    wal.append([entry(1, bytes(400))])
    await settle()
    assert len(bucket.puts) == 1
    wal.append([entry(2, bytes(600))])  # does not fit: what is there goes, and this one waits
    await settle()
    assert len(bucket.puts) == 2
    wal.append([entry(3, bytes(10_000))])  # larger than any window
    await settle()
    assert len(bucket.puts) == 4


async def test_no_more_puts_are_under_way_than_allowed(bucket: Bucket, clock: ManualClock) -> None:
    for sequence in range(10):
        bucket.outcome(sequence, "held")
    wal = await open_object_wal(bucket, clock, window_bytes=300, uploads=3)
    for offset in range(10):
        wal.append([entry(offset, bytes(300))])
    await clock.advance(1)
    assert len(bucket.puts) == 3
    await bucket.release(1)
    assert len(bucket.puts) == 4


async def test_a_window_whose_time_is_over_goes_as_soon_as_a_put_ends(bucket: Bucket, clock: ManualClock) -> None:
    for sequence in range(3):
        bucket.outcome(sequence, "held")
    wal = await open_object_wal(bucket, clock, window_ms=50, uploads=2)
    for offset in range(3):
        wal.append([entry(offset)])
        await clock.advance(0.06)
    wal.append([entry(3)])
    await settle()
    assert len(bucket.puts) == 2
    await bucket.release(1)
    assert len(bucket.puts) == 3
    await bucket.release(2)
    await bucket.release(0)
    assert [each.base for each in await recovered(bucket)] == [0, 1, 2, 3]


async def test_large_batches_are_not_copied_and_small_ones_are_handed_over_together(bucket: Bucket) -> None:
    sent: list[object] = []
    put_new = bucket.put_new

    async def spy(key: str, body: Buffers) -> None:
        sent.extend(body)
        await put_new(key, body)

    bucket.put_new = spy  # type: ignore[method-assign]
    wal = await open_object_wal(bucket)
    large = bytes(COPIED_BELOW_BYTES)
    await wal.append([*(entry(n) for n in range(500)), entry(500, large), *(entry(n) for n in range(501, 999))])
    assert any(piece is large for piece in sent)
    assert len(sent) == 5
    bucket.put_new = put_new  # type: ignore[method-assign]
    assert [each.base for each in await recovered(bucket)] == list(range(999))


# --- the order of acknowledgement


async def test_puts_that_end_out_of_order_are_acknowledged_in_order(bucket: Bucket, clock: ManualClock) -> None:
    done: list[int] = []
    for sequence in range(4):
        bucket.outcome(sequence, "held")
    wal = await open_object_wal(bucket, clock, window_bytes=300)
    for offset in range(4):
        commit = wal.append([entry(offset, bytes(300))])
        commit.add_done_callback(lambda _, offset=offset: done.append(offset))  # type: ignore[misc]
    await settle()
    for sequence, expected in ((3, []), (1, []), (0, [0, 1]), (2, [0, 1, 2, 3])):
        await bucket.release(sequence)
        assert done == expected
    assert wal.pending_bytes == 0


async def test_an_empty_append_is_done_after_everything_before_it_and_writes_nothing(
    bucket: Bucket, clock: ManualClock
) -> None:
    bucket.outcome(0, "held")
    wal = await open_object_wal(bucket, clock)
    await wal.append(())
    wal.append([entry(0)])
    await settle()
    under_way = wal.append(())
    queued = wal.append([entry(1)])
    after = wal.append(())
    await clock.advance(0.06)
    assert not under_way.done()
    assert not after.done()
    await bucket.release(0)
    assert under_way.done()
    await after
    assert queued.done()
    assert len(bucket.puts) == 2


async def test_a_waiter_that_is_cancelled_takes_the_commit_from_nobody(bucket: Bucket) -> None:
    bucket.outcome(0, "held")
    wal = await open_object_wal(bucket)
    commit = wal.append([entry(0)])
    waiter = asyncio.ensure_future(asyncio.shield(commit))
    await settle()
    waiter.cancel()
    commit.cancel()
    await bucket.release(0)
    assert commit.done()
    assert commit.result() is None


# --- ambiguous PUTs


async def test_a_put_that_happened_but_answered_an_error_is_found_to_be_ours(
    bucket: Bucket, clock: ManualClock
) -> None:
    bucket.outcome(0, "lost")
    wal = await open_object_wal(bucket, clock)
    commit = wal.append([entry(0)])
    await settle()
    assert not commit.done()
    await clock.advance(1)
    await commit
    assert bucket.puts == [wal_key(DEAD, 0)] * 2
    assert [each.base for each in await recovered(bucket)] == [0]


async def test_a_put_that_lands_after_its_time_out_is_found_to_be_ours(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(0, "late", "refused")
    wal = await open_object_wal(bucket, clock)
    commit = wal.append([entry(0)])
    await clock.advance(1)
    await bucket.land(0)
    assert not commit.done()
    await clock.advance(1)
    await commit


async def test_while_the_store_is_away_appends_wait_with_growing_pauses_and_then_go_on(
    bucket: Bucket, clock: ManualClock
) -> None:
    wal = await open_object_wal(bucket, clock, retry_s=0.1, retry_max_s=3.0)
    bucket.is_away = True
    commits = [wal.append([entry(0)])]
    for offset in range(1, 600):
        await clock.advance(0.1)
        commits.append(wal.append([entry(offset)]))
    assert not any(commit.done() for commit in commits)
    assert 60 / 3 < len(bucket.puts) < 4 * (60 / 1.5 + 6)
    bucket.is_away = False
    for _ in range(4):
        await clock.advance(3)
    await asyncio.wait_for(asyncio.gather(*set(commits)), 5)
    assert [each.base for each in await recovered(bucket)] == list(range(600))
    assert wal.costs.retries > 10


async def test_too_much_that_waits_is_refused_and_nothing_of_it_is_kept(bucket: Bucket, clock: ManualClock) -> None:
    size = 1000 + ENTRY_HEADER_BYTES
    wal = await open_object_wal(bucket, clock, max_pending_bytes=2 * size)
    bucket.is_away = True
    commits = [wal.append([entry(0, bytes(1000))]), wal.append([entry(1, bytes(1000))])]
    with pytest.raises(Overloaded):
        wal.append([entry(2, b"")])
    assert wal.pending_bytes == 2 * size
    bucket.is_away = False
    await clock.advance(1)
    await asyncio.gather(*commits)
    await wal.append([entry(3, bytes(10_000))])  # one that is too large for any limit goes when nothing else waits
    assert [each.base for each in await recovered(bucket)] == [0, 1, 3]


async def test_a_wrong_bit_on_the_way_back_is_no_reason_to_die(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(0, "lost")
    bucket.wrong_bits.extend([0, 200])
    wal = await open_object_wal(bucket, clock)
    commit = wal.append([entry(0)])
    await clock.advance(1)
    await commit


# --- the end of a session


async def seal(bucket: Bucket, sequence: int) -> None:
    stamp = Seal(session=DEAD, sequence=sequence, by=ALIVE, at_ms=7)
    await bucket.inner.put_new(wal_key(DEAD, sequence), [encode_seal(stamp)])


async def test_a_zombie_whose_next_put_hits_a_seal_is_over(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket)
    await wal.append([entry(0)])
    await seal(bucket, 1)
    with pytest.raises(SessionSealed, match=f"the session was sealed.*by={ALIVE}"):
        await wal.append([entry(1)])
    assert isinstance(await wal.wait_failed(), SessionSealed)
    with pytest.raises(AppendFailed, match="the session was sealed"):
        await wal.append([entry(2)])
    with pytest.raises(AppendFailed):
        await wal.append(())
    assert len(bucket.puts) == 2
    assert wal.pending_bytes == 0


async def test_a_seal_fails_everything_that_is_queued_or_under_way(bucket: Bucket, clock: ManualClock) -> None:
    await seal(bucket, 1)
    for sequence in (0, 2):
        bucket.outcome(sequence, "held")
    wal = await open_object_wal(bucket, clock, window_bytes=300, uploads=3)
    commits = [wal.append([entry(offset, bytes(300))]) for offset in range(5)]
    await settle()
    assert all(isinstance(commit.exception(), SessionSealed) for commit in commits)
    await wal.aclose(remove=False)
    assert await bucket.numbers() == [1]


async def test_a_seal_that_beats_a_late_put_ends_the_session(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(0, "late")
    wal = await open_object_wal(bucket, clock)
    commit = wal.append([entry(0)])
    await settle()
    assert await recovered(bucket) == []
    await bucket.land(0)
    await clock.advance(1)
    assert isinstance(commit.exception(), SessionSealed)


async def test_what_another_agent_wrote_under_our_name_ends_the_session(bucket: Bucket) -> None:
    await bucket.inner.put_new(wal_key(DEAD, 0), [b"what is this?"])
    wal = await open_object_wal(bucket)
    with pytest.raises(SessionSealed, match="another writer"):
        await wal.append([entry(0)])
    assert await bucket.bytes_of(0) == b"what is this?"


async def test_a_bug_in_the_store_ends_the_log_instead_of_hanging_it(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket, session=SessionId("s-" + "b" * 32))

    async def broken(key: str, body: object) -> None:
        raise Internal("object is too large for one put")

    bucket.put_new = broken  # type: ignore[method-assign]
    with pytest.raises(AppendFailed, match="too large"):
        await wal.append([entry(0)])
    assert isinstance(wal.failed, Internal)


# --- letting go


async def test_objects_are_needed_until_all_their_partitions_are_flushed(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket)
    await wal.append([entry(0), entry(0, partition=CLICKS)])
    await wal.append([entry(1)])
    await wal.append([entry(1, partition=CLICKS)])
    assert wal.first_retained == 0
    await wal.truncate(flushed(orders=2))
    assert wal.first_retained == 0
    await wal.truncate(flushed(clicks=1))
    assert wal.first_retained == 2
    await wal.truncate(flushed(clicks=2))
    assert wal.first_retained == 3
    assert await bucket.numbers() == [0, 1, 2]  # nothing goes before the mark is stored


async def test_what_is_not_durable_is_needed_though_nobody_wants_its_entries(bucket: Bucket) -> None:
    bucket.outcome(1, "held")
    wal = await open_object_wal(bucket)
    await wal.append([entry(0)])
    wal.append([entry(1)])
    await settle()
    await wal.truncate(flushed(orders=2**63 - 1))
    assert wal.first_retained == 1
    await bucket.release(1)
    assert wal.first_retained == 2


async def test_entries_that_were_given_up_before_their_window_was_sent_hold_nothing_back(
    bucket: Bucket, clock: ManualClock
) -> None:
    bucket.outcome(0, "held")
    wal = await open_object_wal(bucket, clock)
    wal.append([entry(0)])
    await settle()
    wal.append([entry(1)])
    await wal.truncate(flushed(orders=2**63 - 1))
    await bucket.release(0)
    assert wal.first_retained == 2


async def test_objects_below_the_mark_are_deleted_and_no_others(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket, deletes=2)
    await fill(wal, 10)
    await wal.truncate(flushed(orders=7))
    await wal.delete_below(5)
    await settle()
    assert await bucket.numbers() == [5, 6, 7, 8, 9]
    await wal.delete_below(2)
    await wal.delete_below(100)  # never more than nobody needs
    await settle()
    assert await bucket.numbers() == [7, 8, 9]
    assert len(bucket.deleted) == 7
    assert wal.size_bytes == 3 * (FRAME_BYTES + ENTRY_HEADER_BYTES + len(b"batch"))
    assert [each.base for each in await recovered(bucket, start=7)] == [7, 8, 9]


async def test_a_deletion_that_fails_is_tried_again_by_a_later_call(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket)
    await fill(wal, 5)
    await wal.truncate(flushed(orders=5))
    bucket.is_away = True
    await wal.delete_below(3)
    await settle()
    bucket.is_away = False
    assert await bucket.numbers() == [0, 1, 2, 3, 4]
    await wal.delete_below(3)
    await settle()
    assert await bucket.numbers() == [3, 4]


# --- closing


async def test_a_closed_log_whose_session_ended_leaves_nothing(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket)
    await fill(wal, 20)
    await wal.truncate(flushed(orders=3))
    await wal.delete_below(3)
    await wal.aclose(remove=True)
    assert await bucket.numbers() == []
    with pytest.raises(AppendFailed, match="closed"):
        await wal.append([entry(20)])


async def test_closing_sends_what_is_queued(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(0, "held")
    wal = await open_object_wal(bucket, clock)
    commits = [wal.append([entry(0)])]
    await settle()
    commits.append(wal.append([entry(1)]))
    closing = asyncio.ensure_future(wal.aclose(remove=False))
    await settle()
    assert len(bucket.puts) == 2
    await bucket.release(0)
    await closing
    assert all(commit.done() and commit.exception() is None for commit in commits)
    assert await bucket.numbers() == [0, 1]
    await wal.aclose(remove=False)


async def test_closing_gives_up_on_a_store_that_is_away(
    bucket: Bucket, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    wal = await open_object_wal(bucket, clock, close_s=5)
    await wal.append([entry(0)])
    bucket.is_away = True
    commit = wal.append([entry(1)])
    closing = asyncio.ensure_future(wal.aclose(remove=True))
    await clock.advance(4)
    assert not closing.done()
    await clock.advance(2)
    await closing
    assert isinstance(commit.exception(), AppendFailed)
    puts = len(bucket.puts)
    await clock.advance(60)
    assert len(bucket.puts) == puts
    assert [line for line in caplog.records if line.levelno >= logging.ERROR] == [], "an incomplete close is no failure"


async def test_closing_that_is_cancelled_leaves_nobody_waiting_and_nothing_running(bucket: Bucket) -> None:
    bucket.outcome(0, "held")
    wal = await open_object_wal(bucket)
    tasks = asyncio.all_tasks()
    commits = [wal.append([entry(0)])]
    await settle()
    commits.append(wal.append([entry(1)]))
    closing = asyncio.ensure_future(wal.aclose(remove=True))
    await settle()
    closing.cancel()
    await asyncio.wait({closing})
    assert all(isinstance(commit.exception(), AppendFailed) for commit in commits)
    assert asyncio.all_tasks() == tasks


async def test_a_log_that_failed_removes_no_object_that_may_be_a_seal(bucket: Bucket) -> None:
    wal = await open_object_wal(bucket)
    await fill(wal, 2)
    await seal(bucket, 2)
    with pytest.raises(SessionSealed):
        await wal.append([entry(2)])
    await wal.aclose(remove=True)
    assert await bucket.numbers() == [2]


# --- cost


async def test_costs_count_every_request_and_every_byte(bucket: Bucket, clock: ManualClock) -> None:
    bucket.outcome(1, "lost", "refused")
    wal = await open_object_wal(bucket, clock)
    await wal.append([entry(0, bytes(100)), entry(1, bytes(50))])
    commit = wal.append([entry(2, bytes(10))])
    await clock.advance(1)
    await clock.advance(1)
    await commit
    await wal.truncate(flushed(orders=2))
    await wal.delete_below(1)
    await settle()
    size = sum([len(await bucket.bytes_of(1)), 2 * (FRAME_BYTES // 2 + ENTRY_HEADER_BYTES) + 150])
    assert wal.costs == WalRequestStats(windows=2, puts=4, retries=2, deletes=1, object_bytes=size, batch_bytes=160)
