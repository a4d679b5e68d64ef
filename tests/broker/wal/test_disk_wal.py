"""Disk WAL on a simulated disk: order, groups, policies, failures, truncation."""

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from streamhouse.broker.wal.base import DamageReport, Wal
from streamhouse.broker.wal.disk_files import file_name, parse_file_name
from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.broker.wal.disk_wal import INLINE_PAUSE_S, SLOW_WRITE_S, SLOW_WRITES, STALLED_WRITE_S
from streamhouse.errors import AppendFailed, Misconfigured, Overloaded
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, FILE_HEADER_BYTES, WalEntry
from streamhouse.model.names import Epoch, PartitionId, SessionId
from tests.broker.wal.support import (
    CLICKS,
    ORDERS,
    ROOT,
    SESSION,
    ManualClock,
    entry,
    flushed,
    open_wal,
    plain,
    read_all,
    run_inline,
    settle,
)
from tests.simulation.files import SimFiles
from tests.support.depth import scaled

POLICIES = ["always", "interval", "never"]


@pytest.fixture
def files() -> SimFiles:
    return SimFiles(random.Random(1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Checkpoint:
    """Holds calls of one kind in their worker thread until it is opened."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, what: str) -> None:
        if what == self._what:
            self.reached.set()
            assert self._open.wait(10)

    def open(self) -> None:
        self._open.set()


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 10)


# --- appending


@pytest.mark.parametrize("fsync", POLICIES)
async def test_what_was_appended_is_read_back_in_order(files: SimFiles, fsync: str) -> None:
    wal: Wal = await open_wal(files, fsync=fsync)
    entries = [entry(n, bytes([n]) * n, CLICKS if n % 3 else ORDERS, epoch=2**40) for n in range(50)]
    for some in (entries[:1], entries[1:10], entries[10:]):
        await wal.append(some)
    await wal.aclose(remove=False)
    assert await read_all(files) == entries


async def test_an_append_is_done_only_when_it_is_synced(files: SimFiles) -> None:
    resume = Checkpoint("sync")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="always")
    commit = wal.append([entry(0)])
    await until(resume.reached)
    assert not commit.done()
    resume.open()
    await commit
    assert files.syncs == 1
    await wal.aclose(remove=True)


async def test_appends_of_one_turn_of_the_loop_share_a_write_and_a_sync(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always")
    commits = [wal.append([entry(n)]) for n in range(1000)]
    assert len(set(map(id, commits))) == 1
    await commits[0]
    assert (files.writes, files.syncs) == (1, 1)
    await wal.aclose(remove=True)


async def test_appends_during_a_write_form_the_next_group() -> None:
    resume = Checkpoint("write")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="never")
    first = wal.append([entry(0)])
    await until(resume.reached)
    later = [wal.append([entry(n)]) for n in range(1, 100)]
    assert not first.done()
    resume.open()
    await asyncio.wait({first, *later})
    assert files.writes == 2
    await wal.aclose(remove=False)
    assert [each.base for each in await read_all(files)] == list(range(100))


async def test_a_group_is_bounded(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="never", max_group_bytes=1000)
    commits = [wal.append([entry(n, bytes(400))]) for n in range(10)]
    await asyncio.wait(set(commits))
    assert files.writes == 5
    await wal.aclose(remove=True)


async def test_many_appenders_each_find_their_entries_in_their_order(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always", file_bytes=20_000)

    async def appender(number: int) -> None:
        partition = PartitionId(ORDERS.topic_id, number)
        for offset in range(30):
            await asyncio.shield(wal.append([entry(offset, b"%d" % number, partition)]))

    await asyncio.gather(*(appender(number) for number in range(100)))
    await wal.aclose(remove=False)
    result = await read_all(files)
    for number in range(100):
        assert [e.base for e in result if e.partition.partition == number] == list(range(30))
    assert len(result) == 3000


async def test_a_waiter_that_is_cancelled_takes_the_commit_from_nobody() -> None:
    resume = Checkpoint("write")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="never")
    commit = wal.append([entry(0)])
    shielded = asyncio.create_task(_wait_shielded(commit))
    careless = asyncio.create_task(_wait(commit))
    await until(resume.reached)
    shielded.cancel()
    careless.cancel()
    await asyncio.wait({shielded})
    assert shielded.cancelled()
    assert not commit.done()
    resume.open()
    await commit
    await wal.aclose(remove=True)


async def _wait(commit: asyncio.Future[None]) -> None:
    await commit


async def _wait_shielded(commit: asyncio.Future[None]) -> None:
    await asyncio.shield(commit)


async def test_more_than_the_limit_may_not_wait() -> None:
    resume = Checkpoint("write")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="never", max_pending_bytes=1000)
    commit = wal.append([entry(0, bytes(600))])
    with pytest.raises(Overloaded):
        wal.append([entry(1, bytes(600))])
    resume.open()
    await commit
    assert wal.pending_bytes == 0
    await wal.append([entry(1, bytes(600))])
    await wal.aclose(remove=False)
    assert [each.base for each in await read_all(files)] == [0, 1]


async def test_an_append_above_the_limit_passes_when_nothing_waits(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="never", max_pending_bytes=1000)
    await wal.append([entry(0, bytes(5000))])
    await wal.aclose(remove=True)


async def test_a_session_can_not_begin_twice(files: SimFiles) -> None:
    wal = await open_wal(files)
    with pytest.raises(Misconfigured, match="must not be reused"):
        await open_wal(files.another_process())
    await wal.aclose(remove=True)


@pytest.mark.parametrize("session", ["", ".", "..", "../up", "a/b", ".hidden", "x" * 256])
async def test_a_session_id_that_is_no_plain_name_is_refused(files: SimFiles, session: str) -> None:
    with pytest.raises(Misconfigured, match="can't name a directory"):
        await open_wal(files, session=SessionId(session))


# --- small groups of an idle log


class Jobs:
    """Counts what the loop gives to worker threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        loop = asyncio.get_running_loop()
        plain_call = loop.run_in_executor

        def counted(executor: Any, call: Callable[..., Any], *args: Any) -> Any:
            self.count += 1
            return plain_call(executor, call, *args)

        monkeypatch.setattr(loop, "run_in_executor", counted)


@pytest.mark.parametrize(
    ("settings", "batch", "is_inline"),
    [
        ({"fsync": "never"}, b"small", True),
        ({"fsync": "interval"}, b"small", True),
        ({"fsync": "always"}, b"small", False),
        ({"fsync": "never"}, bytes(70_000), False),
        ({"fsync": "never", "inline_bytes": 0}, b"small", False),
    ],
)
async def test_a_small_group_of_an_idle_log_needs_no_thread_unless_it_is_synced(
    files: SimFiles, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], batch: bytes, is_inline: bool
) -> None:
    wal = await open_wal(files, **settings)
    await wal.append([entry(0)])
    jobs = Jobs(monkeypatch)
    for number in range(1, 4):
        await wal.append([entry(number, batch)])
    assert jobs.count == (0 if is_inline else 3)
    await wal.aclose(remove=False)
    assert [each.base for each in await read_all(files)] == [0, 1, 2, 3]


async def test_while_a_sync_is_under_way_the_loop_writes_nothing_itself(clock: ManualClock) -> None:
    resume = Checkpoint("sync")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="interval", clock=clock)
    await wal.append([entry(0)])
    await clock.advance(0.1)
    await until(resume.reached)
    writers: list[str] = []
    files._slow = lambda what: writers.append(threading.current_thread().name) if what == "write" else None
    await wal.append([entry(1)])
    assert writers
    assert writers[0].startswith("wal")
    resume.open()
    await wal.aclose(remove=True)


async def test_after_slow_writes_on_the_loop_the_worker_writes_for_a_while(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    took_s = 0.0

    def slow(what: str) -> None:
        clock._now += took_s if what == "write" else 0

    wal = await open_wal(SimFiles(random.Random(1), slow=slow), fsync="never", clock=clock)
    await wal.append([entry(0)])
    jobs = Jobs(monkeypatch)
    # A process that had to wait for a core once in a while says nothing about the disk.
    for number in range(1, 2 * SLOW_WRITES):
        took_s = SLOW_WRITE_S if number % SLOW_WRITES else 0.0
        await wal.append([entry(number)])
    assert jobs.count == 0
    took_s = SLOW_WRITE_S
    await wal.append([entry(6)])
    took_s = 0.0
    await wal.append([entry(7)])
    assert jobs.count == 1
    await clock.advance(INLINE_PAUSE_S)
    took_s = STALLED_WRITE_S
    await wal.append([entry(8)])
    assert jobs.count == 1
    took_s = 0.0
    await wal.append([entry(9)])
    assert jobs.count == 2
    await clock.advance(INLINE_PAUSE_S)
    await wal.append([entry(10)])
    assert jobs.count == 2
    await wal.aclose(remove=True)


async def test_a_write_on_the_loop_that_fails_ends_the_log(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="never")
    await wal.append([entry(0)])
    files.fill_up_after(10)
    with pytest.raises(AppendFailed):
        await wal.append([entry(1)])
    assert wal.failed is not None
    with pytest.raises(AppendFailed):
        await wal.append([entry(2)])
    await wal.aclose(remove=False)
    assert [each.base for each in await read_all(files)] == [0]


async def test_appends_that_waited_for_a_large_group_are_acknowledged_after_it() -> None:
    resume = Checkpoint("write")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="never")
    done: list[int] = []
    first = wal.append([entry(0, bytes(100_000))])
    await until(resume.reached)
    second = wal.append([entry(1)])
    for number, commit in enumerate((first, second)):
        commit.add_done_callback(lambda _, number=number: done.append(number))  # type: ignore[misc]
    resume.open()
    await asyncio.wait({first, second})
    await settle()
    assert done == [0, 1]
    await wal.aclose(remove=True)


# --- the policy in between


async def test_interval_syncs_once_per_interval_while_dirty_and_never_when_idle(
    files: SimFiles, clock: ManualClock
) -> None:
    run_inline()
    wal = await open_wal(files, fsync="interval", fsync_interval_ms=100, clock=clock)
    for n in range(5):
        await wal.append([entry(n)])
    assert files.syncs == 0
    await clock.advance(0.1)
    assert files.syncs == 1
    for _ in range(10):
        await clock.advance(1)
    assert files.syncs == 1
    assert clock.sleeps == 1
    await wal.append([entry(5)])
    await clock.advance(0.1)
    assert files.syncs == 2
    await wal.aclose(remove=True)


async def test_interval_syncs_a_finished_file_before_the_next(files: SimFiles, clock: ManualClock) -> None:
    run_inline()
    wal = await open_wal(files, fsync="interval", clock=clock, file_bytes=FILE_HEADER_BYTES + 1000)
    for n in range(3):
        await wal.append([entry(n, bytes(800))])
    await clock.advance(0.1)
    assert files.syncs == 3
    after = files.power_cut()
    assert [each.base for each in await read_all(after)] == [0, 1, 2]


async def test_a_slow_sync_in_the_background_holds_up_no_append(clock: ManualClock) -> None:
    resume = Checkpoint("sync")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="interval", clock=clock)
    await wal.append([entry(0)])
    await clock.advance(0.1)
    await until(resume.reached)
    await wal.append([entry(1)])
    assert files.syncs == 0
    resume.open()
    await wal.aclose(remove=True)


async def test_closing_syncs_what_the_interval_had_not(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="interval")
    await wal.append([entry(0)])
    await wal.aclose(remove=False)
    assert [each.base for each in await read_all(files.power_cut())] == [0]


async def test_closing_during_a_sync_waits_for_its_outcome(clock: ManualClock) -> None:
    resume = Checkpoint("sync")
    files = SimFiles(random.Random(1), slow=resume)
    files.fail_next_sync()
    wal = await open_wal(files, fsync="interval", clock=clock)
    await wal.append([entry(0)])
    await clock.advance(0.1)
    await until(resume.reached)
    closing = asyncio.create_task(wal.aclose(remove=False))
    await settle()
    resume.open()
    await closing
    assert isinstance(wal.failed, OSError)
    assert files.syncs == 1


# --- failing


@pytest.mark.parametrize("fsync", POLICIES)
@pytest.mark.parametrize("room", [0, 1, FILE_HEADER_BYTES, FILE_HEADER_BYTES + 50, FILE_HEADER_BYTES + 400])
async def test_a_full_disk_ends_the_log(files: SimFiles, fsync: str, room: int) -> None:
    wal = await open_wal(files, fsync=fsync)
    files.fill_up_after(room)
    commits = [wal.append([entry(n, bytes(100))]) for n in range(5)]
    for commit in commits:
        with pytest.raises(AppendFailed, match="no space left"):
            await commit
    files.make_room()
    later = wal.append([entry(5)])
    assert later.done()
    with pytest.raises(AppendFailed):
        await later
    assert isinstance(await wal.wait_failed(), OSError)
    await wal.aclose(remove=False)
    after = files.kill()
    result = await read_all(after)
    assert result == [entry(n, bytes(100)) for n in range(len(result))]


async def test_what_was_acked_before_the_disk_was_full_is_kept(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always")
    await wal.append([entry(0)])
    files.fill_up_after(10)
    with pytest.raises(AppendFailed):
        await wal.append([entry(1)])
    await wal.aclose(remove=False)
    assert await read_all(files.power_cut()) == [entry(0)]


async def test_a_failed_sync_ends_the_log_and_is_never_tried_again(files: SimFiles) -> None:
    # SimFiles asserts that a file whose sync failed is not synced again.
    wal = await open_wal(files, fsync="always")
    await wal.append([entry(0)])
    files.fail_next_sync()
    with pytest.raises(AppendFailed, match="input/output error"):
        await wal.append([entry(1)])
    with pytest.raises(AppendFailed):
        await wal.append([entry(2)])
    await wal.aclose(remove=False)
    assert files.syncs == 2
    result = await read_all(files.power_cut())
    assert result == [entry(0)]


async def test_a_failed_sync_in_the_background_ends_the_log_though_nobody_appends(
    files: SimFiles, clock: ManualClock
) -> None:
    wal = await open_wal(files, fsync="interval", clock=clock)
    files.fail_next_sync()
    await wal.append([entry(0)])
    assert wal.failed is None
    failing = asyncio.create_task(wal.wait_failed())
    await clock.advance(0.1)
    assert isinstance(await failing, OSError)
    with pytest.raises(AppendFailed):
        await wal.append([entry(1)])
    await wal.aclose(remove=False)
    assert files.syncs == 1


async def test_a_sync_that_fails_fails_the_group_that_is_being_written(clock: ManualClock) -> None:
    resume = Checkpoint("write")
    files = SimFiles(random.Random(1))
    wal = await open_wal(files, fsync="interval", clock=clock)
    await wal.append([entry(0)])
    files.fail_next_sync()
    files._slow = resume
    writing, queued = wal.append([entry(1)]), None
    await until(resume.reached)
    queued = wal.append([entry(2)])
    await clock.advance(0.1)
    for commit in (writing, queued):
        with pytest.raises(AppendFailed):
            await commit
    resume.open()
    await wal.aclose(remove=False)
    assert wal.pending_bytes == 0


async def test_a_final_sync_that_fails_is_raised_when_the_log_closes(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="interval")
    await wal.append([entry(0)])
    files.fail_next_sync()
    with pytest.raises(AppendFailed, match="did not close"):
        await wal.aclose(remove=False)
    assert await read_all(files.another_process()) == [entry(0)]  # the lock is free all the same


async def test_a_failed_append_that_nobody_awaits_is_not_reported_as_forgotten(files: SimFiles) -> None:
    results: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: results.append(context))
    files.fill_up_after(0)
    wal = await open_wal(files, fsync="never")
    commit = wal.append([entry(0)])
    await asyncio.wait({commit})
    del commit
    wal.append([entry(1)])
    await wal.aclose(remove=True)
    assert results == []


# --- truncating


async def test_a_file_goes_when_all_its_partitions_are_flushed(files: SimFiles) -> None:
    wal = await open_wal(files, file_bytes=FILE_HEADER_BYTES + 1000, fsync="always")
    await wal.append([entry(0, bytes(300)), entry(0, bytes(300), CLICKS)])
    await wal.append([entry(1, bytes(800))])
    await wal.append([entry(2, bytes(800))])
    assert len(wal_files(files)) == 3
    await wal.truncate(flushed(orders=1))
    assert len(wal_files(files)) == 3
    await wal.truncate(flushed(orders=2))
    assert [each.base for each in await read_unlocked(files)] == [0, 0, 2]
    await wal.truncate(flushed(clicks=1))
    assert [each.base for each in await read_unlocked(files)] == [2]
    await wal.aclose(remove=True)


async def test_truncating_below_what_a_file_holds_keeps_it(files: SimFiles) -> None:
    wal = await open_wal(files, file_bytes=FILE_HEADER_BYTES + 1000, fsync="never")
    await wal.append([WalEntry(ORDERS, Epoch(1), 0, 10, bytes(800))])
    await wal.append([WalEntry(ORDERS, Epoch(1), 10, 20, bytes(800))])
    await wal.truncate(flushed(orders=9))
    assert len(wal_files(files)) == 2
    await wal.aclose(remove=False)
    assert [each.base for each in await read_all(files)] == [0, 10]


async def test_the_highest_offset_of_a_partition_holds_a_file(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="never", renew_bytes=1)
    await wal.append([entry(0), entry(1)])
    await wal.append([entry(2)])
    await wal.truncate(flushed(orders=2))
    await wal.aclose(remove=False)
    assert [each.base for each in await read_all(files)] == [0, 1, 2]


@pytest.mark.parametrize("fsync", POLICIES)
async def test_the_log_stays_bounded_while_everything_is_flushed(files: SimFiles, fsync: str) -> None:
    run_inline()
    clock = ManualClock()
    wal = await open_wal(files, fsync=fsync, file_bytes=50_000, renew_bytes=20_000, clock=clock)
    largest = 0
    for offset in range(300):
        await wal.append([entry(offset, bytes(1000)), entry(offset, bytes(1000), CLICKS)])
        if offset % 5 == 4:
            await wal.truncate(flushed(orders=offset + 1, clicks=offset + 1))
            await clock.advance(0.1)
        largest = max(largest, wal.size_bytes)
        assert wal.size_bytes == sum(len(files.read(ROOT / SESSION / name)) for name in wal_files(files))
    assert largest < 50_000
    await wal.aclose(remove=True)


async def test_a_quiet_partition_holds_back_one_file_only(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="never", file_bytes=20_000)
    await wal.append([entry(0, b"quiet", CLICKS)])
    for offset in range(100):
        await wal.append([entry(offset, bytes(1000))])
        await wal.truncate(flushed(orders=offset + 1))
    assert len(wal_files(files)) <= 2
    await wal.aclose(remove=False)
    assert (await read_all(files))[0] == entry(0, b"quiet", CLICKS)


async def test_the_active_file_is_kept_until_it_is_worth_replacing(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always", renew_bytes=FILE_HEADER_BYTES + 1000)
    await wal.append([entry(0, bytes(500))])
    await wal.truncate(flushed(orders=1))
    assert wal_files(files) == ["00000000000000000000.wal"]
    await wal.append([entry(1, bytes(500))])
    await wal.truncate(flushed(orders=2))
    assert wal_files(files) == []
    assert wal.size_bytes == 0
    await wal.append([entry(2)])
    assert wal_files(files) == ["00000000000000000001.wal"]
    await wal.aclose(remove=False)
    assert await read_all(files) == [entry(2)]


async def test_a_file_with_a_write_under_way_is_not_removed(files: SimFiles) -> None:
    resume = Checkpoint("write")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="never", renew_bytes=1)
    commit = wal.append([entry(0)])
    await until(resume.reached)
    await wal.truncate(flushed(orders=2**62))
    resume.open()
    await commit
    await wal.aclose(remove=False)
    assert await read_all(files) == [entry(0)]


async def test_a_file_that_can_not_be_removed_is_tried_again(
    files: SimFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("busy")

    wal = await open_wal(files, fsync="never", renew_bytes=1)
    await wal.append([entry(0)])
    with monkeypatch.context() as patch:
        patch.setattr(files, "remove", refuse)
        await wal.truncate(flushed(orders=1))
    assert "wal files not removed" in caplog.messages
    assert wal.failed is None
    await wal.truncate({})
    assert wal_files(files) == []
    await wal.aclose(remove=True)


# --- recycled files


async def test_a_flushed_file_is_written_over_by_a_later_one(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always", renew_bytes=1, spare_files=1)
    await wal.append([entry(0, b"old" * 1000)])
    await wal.truncate(flushed(orders=1))
    assert files.list(ROOT / SESSION) == ["00000000000000000000.spare", "lock"]
    await wal.append([entry(1, b"new")])
    await wal.append([entry(2, b"newer")])
    assert files.list(ROOT / SESSION) == ["00000000000000000001.wal", "lock"]
    after = files.kill()
    async with DiskWalRecovery(ROOT, after).read(SESSION) as reading:
        assert [plain(each) async for each in reading.entries()] == [entry(1, b"new"), entry(2, b"newer")]
        assert reading.damage == DamageReport(files=1, entries=2)


async def test_no_more_files_are_kept_than_allowed_and_none_that_is_much_too_large(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="never", file_bytes=20_000, spare_files=2)
    for offset in range(60):
        await wal.append([entry(offset, bytes(4000))])
    await wal.append([entry(60, bytes(100_000))])
    await wal.append([entry(61)])
    await wal.truncate(flushed(orders=61))
    spares = [name for name in files.list(ROOT / SESSION) if name.endswith(".spare")]
    assert len(spares) == 2
    assert all(files.size(ROOT / SESSION / name) <= 20_000 for name in spares)
    assert wal_files(files) == [file_name(parse_file_name(name) or 0) for name in wal_files(files)][-1:]
    await wal.aclose(remove=True)
    assert files.list(ROOT) == []


async def test_files_that_wait_to_be_renamed_count_as_kept() -> None:
    resume = Checkpoint("rename")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="interval", renew_bytes=1, spare_files=1)
    await wal.append([entry(0)])
    first = asyncio.create_task(wal.truncate(flushed(orders=1)))
    await until(resume.reached)
    await wal.append([entry(1)])
    await wal.truncate(flushed(orders=2))
    resume.open()
    await first
    assert [name for name in files.list(ROOT / SESSION) if name != "lock"] == ["00000000000000000000.spare"]
    await wal.aclose(remove=True)


async def test_a_recycled_file_to_which_nothing_was_written_is_no_damage(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always", renew_bytes=1, spare_files=1)
    await wal.append([entry(0)])
    await wal.truncate(flushed(orders=1))
    files.rename(ROOT / SESSION / "00000000000000000000.spare", ROOT / SESSION / "00000000000000000001.wal")
    async with DiskWalRecovery(ROOT, files.kill()).read(SESSION) as reading:
        assert [plain(each) async for each in reading.entries()] == []
        assert reading.damage == DamageReport(files=1)


async def test_damage_in_a_recycled_file_is_not_taken_for_its_end(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always", renew_bytes=1, spare_files=1)
    await wal.append([entry(0, bytes(9000))])
    await wal.truncate(flushed(orders=1))
    for offset in range(1, 6):
        await wal.append([entry(offset)])
    path = ROOT / SESSION / "00000000000000000001.wal"
    data = bytearray(files.read(path))
    data[FILE_HEADER_BYTES + 2 * (ENTRY_HEADER_BYTES + 5)] ^= 1
    after = files.kill()
    after.overwrite(path, bytes(data))
    async with DiskWalRecovery(ROOT, after).read(SESSION) as reading:
        assert [each.base async for each in reading.entries()] == [1, 2, 4, 5]
        assert (reading.damage.skipped, reading.damage.cut, reading.damage.losses) == (1, 0, 1)


@pytest.mark.parametrize("fsync", POLICIES)
@pytest.mark.parametrize("seed", range(scaled(quick=15, nightly=300)))
async def test_a_kill_loses_nothing_of_files_that_are_written_over(seed: int, fsync: str) -> None:
    run = await _run_until_cut(seed, fsync, power=False, spare_files=2)
    async with DiskWalRecovery(ROOT, run.after).read(SESSION) as reading:
        result = [plain(each) async for each in reading.entries()]
        assert (reading.damage.skipped, reading.damage.cut, reading.damage.losses) == (0, 0, 0)
    assert [e for e in run.appended if e in result] == result
    assert [e for e in run.acked if e.end > run.flushed and e not in result] == []


@pytest.mark.parametrize("seed", range(scaled(quick=50, nightly=750)))
async def test_a_power_cut_loses_nothing_synced_of_files_that_are_written_over(seed: int) -> None:
    run = await _run_until_cut(seed, "always", power=True, spare_files=2)
    result = await read_all(run.after)
    assert [e for e in run.appended if e in result] == result
    assert [e for e in run.acked if e.end > run.flushed and e not in result] == []


@pytest.mark.parametrize("seed", range(scaled(quick=20, nightly=300)))
async def test_a_power_cut_never_brings_back_what_a_file_contained_before(seed: int) -> None:
    run = await _run_until_cut(seed, "interval", power=True, spare_files=2)
    result = await read_all(run.after)
    assert [e for e in run.appended if e in result] == result


# --- closing


async def test_closing_finishes_the_queue(files: SimFiles) -> None:
    wal = await open_wal(files, fsync="always", max_group_bytes=200)
    commits = [wal.append([entry(n)]) for n in range(20)]
    await wal.aclose(remove=False)
    assert all(commit.done() for commit in commits)
    with pytest.raises(AppendFailed, match="closed"):
        await wal.append([entry(20)])
    assert [each.base for each in await read_all(files)] == list(range(20))


@pytest.mark.parametrize("fsync", POLICIES)
async def test_closing_can_remove_the_whole_log(files: SimFiles, fsync: str) -> None:
    wal = await open_wal(files, fsync=fsync, file_bytes=FILE_HEADER_BYTES + 100)
    for n in range(3):
        await wal.append([entry(n)])
    await wal.aclose(remove=True)
    await wal.aclose(remove=True)
    assert files.list(ROOT) == []


async def test_closing_waits_for_a_removal_whose_caller_gave_up() -> None:
    resume = Checkpoint("remove")
    files = SimFiles(random.Random(1), slow=resume)
    wal = await open_wal(files, fsync="interval", renew_bytes=1)
    await wal.append([entry(0)])
    truncating = asyncio.create_task(wal.truncate(flushed(orders=1)))
    await until(resume.reached)
    truncating.cancel()
    closing = asyncio.create_task(wal.aclose(remove=True))
    await settle()
    assert not closing.done()
    resume.open()
    await closing
    assert files.list(ROOT) == []


# --- power cuts and kills, many


@pytest.mark.parametrize("seed", range(scaled(quick=50, nightly=750)))
async def test_what_was_acked_survives_a_power_cut_when_every_group_is_synced(seed: int) -> None:
    run = await _run_until_cut(seed, "always", power=True)
    result = await read_all(run.after)
    assert [e for e in result if e in run.acked] == run.acked
    assert [e for e in run.appended if e in result] == result


@pytest.mark.parametrize("fsync", POLICIES)
@pytest.mark.parametrize("seed", range(scaled(quick=10, nightly=150)))
async def test_what_was_acked_survives_a_kill_under_every_policy(seed: int, fsync: str) -> None:
    run = await _run_until_cut(seed, fsync, power=False)
    result = await read_all(run.after)
    assert result[: len(run.acked)] == run.acked
    assert result == run.appended[: len(result)]


@pytest.mark.parametrize("seed", range(scaled(quick=20, nightly=300)))
async def test_what_a_power_cut_leaves_of_unsynced_entries_is_never_wrong(seed: int) -> None:
    run = await _run_until_cut(seed, "interval", power=True)
    result = await read_all(run.after)
    assert [e for e in run.appended if e in result] == result


class Cut:
    """Ends the process inside one of its calls to the disk, chosen by the seed."""

    def __init__(self, chance: random.Random, *, power: bool) -> None:
        self._chance = chance
        self._power = power
        self.files = SimFiles(chance, slow=self)
        self.after: SimFiles | None = None

    def __call__(self, what: str) -> None:
        if what in ("create", "write", "sync", "rename", "write_over") and self._chance.random() < 0.03:
            self.now()

    def now(self) -> SimFiles:
        if self.after is None:
            self.files._slow = None
            self.after = self.files.power_cut() if self._power else self.files.kill()
        return self.after


class Run(NamedTuple):
    """What was appended and acknowledged until the process died, and the disk after it."""

    appended: list[WalEntry]
    acked: list[WalEntry]
    flushed: int
    after: SimFiles


async def _run_until_cut(seed: int, fsync: str, *, power: bool, spare_files: int | None = None) -> Run:
    """Append for a while, now and then letting time pass, and die in the middle. With `spare_files`, some entries are
    flushed meanwhile."""
    run_inline()
    chance = random.Random(seed)
    cut, clock = Cut(chance, power=power), ManualClock()
    file_bytes = chance.choice([9000, 12_000, 1 << 20] if spare_files is None else [9000, 12_000])
    wal = await open_wal(
        cut.files, fsync=fsync, clock=clock, file_bytes=file_bytes, seed=seed, spare_files=spare_files or 0
    )
    appended: list[WalEntry] = []
    commits: list[asyncio.Future[None]] = []
    truncations: list[asyncio.Task[None]] = []
    flushed_end = 0
    for _ in range(chance.randrange(60)):
        sizes = chance.choices([0, 10, 700, 3000], k=chance.randint(1, 3))
        some = [entry(len(appended) + n, chance.randbytes(size)) for n, size in enumerate(sizes)]
        appended += some
        commits += [wal.append(some)] * len(some)
        for _ in range(chance.choice([0, 0, 1, 2, 3, 8])):
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            await clock.advance(0.1)
        if spare_files is not None and chance.random() < 0.2 and cut.after is None:
            acked = [commit.done() and commit.exception() is None for commit in commits]
            flushed_end = max(flushed_end, chance.randint(0, (*acked, False).index(False)))
            truncations.append(asyncio.create_task(wal.truncate(flushed(orders=flushed_end))))
    after = cut.now()
    acks = [e for e, commit in zip(appended, commits, strict=True) if commit.done() and commit.exception() is None]
    with suppress(AppendFailed):
        await wal.aclose(remove=False)
    await asyncio.gather(*truncations)
    return Run(appended, acks, flushed_end, after)


def wal_files(files: SimFiles) -> list[str]:
    return [name for name in files.list(ROOT / SESSION) if name.endswith(".wal")]


async def read_unlocked(files: SimFiles) -> list[WalEntry]:
    """What a crash now would leave: read from a copy, because the owner lives and holds the lock."""
    copy = SimFiles(random.Random(0))
    copy.make_dir(ROOT / SESSION)
    for name in wal_files(files):
        copy.overwrite(ROOT / SESSION / name, files.read(ROOT / SESSION / name))
    async with DiskWalRecovery(ROOT, copy).read(SESSION) as reading:
        return [plain(each) async for each in reading.entries()]
