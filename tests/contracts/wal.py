"""What every write-ahead log must do: written once, subclassed per kind.

A subclass gives the fixture `wals`: a way to make logs on an empty place, with these settings; whatever it makes
sees the same place.
"""

import asyncio
from collections.abc import Callable

import pytest

from streamhouse.broker.dependencies import WalFactory
from streamhouse.errors import AppendFailed, Overloaded
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, WalEntry
from streamhouse.model.names import PartitionId, SessionId
from tests.broker.wal.support import CLICKS, ORDERS, entry, flushed, plain

FIRST = SessionId("s-" + "1" * 32)
SECOND = SessionId("s-" + "2" * 32)

MakeWals = Callable[..., WalFactory]


async def read_all(wals: WalFactory, session: SessionId = FIRST, *, start: int = 0) -> list[WalEntry]:
    async with wals.read(session, start=start) as reading:
        results = [plain(each) async for each in reading.entries()]
        assert reading.damage.is_clean
        assert reading.damage.entries == len(results)
        return results


class WalContract:
    async def test_what_was_appended_is_read_back_in_order(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        written = [entry(n, bytes([n]) * n * n * 20, CLICKS if n % 3 else ORDERS, epoch=2**40) for n in range(60)]
        for some in (written[:1], written[1:10], written[10:]):
            await wal.append(some)
        await wal.aclose(remove=False)
        assert await read_all(wals()) == written

    async def test_many_appenders_each_find_their_entries_in_their_order(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)

        async def appender(number: int) -> None:
            partition = PartitionId(ORDERS.topic_id, number)
            for offset in range(20):
                await asyncio.shield(wal.append([entry(offset, b"%d" % number, partition)]))

        await asyncio.gather(*(appender(number) for number in range(50)))
        await wal.aclose(remove=False)
        result = await read_all(wals())
        assert len(result) == 1000
        for number in range(50):
            assert [e.base for e in result if e.partition.partition == number] == list(range(20))

    async def test_appends_of_one_turn_share_a_commit_that_nobody_can_cancel(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        commits = {wal.append([entry(n)]) for n in range(100)}
        assert len(commits) == 1
        (commit,) = commits
        assert not commit.cancel()
        await commit
        await wal.aclose(remove=True)

    async def test_an_empty_append_is_done_after_everything_before_it(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        await wal.append(())
        before = wal.append([entry(0)])
        await wal.append(())
        assert before.done()
        await wal.append(())
        await wal.aclose(remove=False)
        assert await read_all(wals()) == [entry(0)]

    async def test_a_log_without_appends_is_empty(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        assert (wal.pending_bytes, wal.failed, wal.first_retained) == (0, None, 0)
        await wal.aclose(remove=False)
        assert await read_all(wals()) == []

    async def test_too_much_at_once_is_refused_and_the_log_goes_on(self, wals: MakeWals) -> None:
        wal = await wals(max_pending_bytes=2 * (1100 + ENTRY_HEADER_BYTES)).open(FIRST)
        commits = [wal.append([entry(n, bytes(1000))]) for n in range(2)]
        with pytest.raises(Overloaded):
            wal.append([entry(2, bytes(1000))])
        wal.append(())
        await asyncio.gather(*set(commits))
        assert wal.pending_bytes == 0
        await wal.append([entry(2, bytes(1000))])
        await wal.aclose(remove=False)
        assert [each.base for each in await read_all(wals())] == [0, 1, 2]

    async def test_nothing_is_lost_that_was_not_flushed(self, wals: MakeWals) -> None:
        wal = await wals(file_bytes=10_000, window_bytes=300).open(FIRST)
        for offset in range(30):
            await wal.append([entry(offset, bytes(1000)), entry(offset, b"", CLICKS)])
            if offset % 4 == 0:
                await wal.truncate(flushed(orders=offset))
                await wal.delete_below(wal.first_retained)
        await wal.truncate(flushed(orders=30, clicks=20))
        start = wal.first_retained
        await wal.delete_below(start)
        await wal.aclose(remove=False)
        result = await read_all(wals(), start=start)
        assert {e.base for e in result if e.partition == CLICKS} >= set(range(20, 30))
        assert len(result) == len(set(result))

    async def test_what_is_needed_never_goes_back(self, wals: MakeWals) -> None:
        wal = await wals(window_bytes=300).open(FIRST)
        seen = [wal.first_retained]
        for offset in range(20):
            await wal.append([entry(offset, bytes(300))])
            seen.append(wal.first_retained)
            await wal.truncate(flushed(orders=offset // 2))
            seen.append(wal.first_retained)
        await wal.truncate(flushed(orders=2**63 - 1))
        assert [*seen, wal.first_retained] == sorted([*seen, wal.first_retained])
        await wal.aclose(remove=True)

    async def test_the_size_follows_what_is_appended(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        before = wal.size_bytes
        await wal.append([entry(0, bytes(100_000))])
        assert 100_000 <= wal.size_bytes - before < 120_000
        await wal.aclose(remove=True)

    async def test_a_closed_log_refuses_appends_and_may_be_closed_again(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        under_way = wal.append([entry(0)])
        await wal.aclose(remove=False)
        await under_way
        with pytest.raises(AppendFailed):
            await wal.append([entry(1)])
        await wal.aclose(remove=False)
        assert await read_all(wals()) == [entry(0)]

    async def test_a_removed_log_is_gone(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        await wal.append([entry(0)])
        await wal.aclose(remove=True)
        assert await read_all(wals()) == []

    async def test_a_log_is_read_again_until_it_is_removed(self, wals: MakeWals) -> None:
        wal = await wals().open(FIRST)
        await wal.append([entry(0)])
        await wal.aclose(remove=False)
        assert await read_all(wals()) == await read_all(wals()) == [entry(0)]
        async with wals().read(FIRST) as reading:
            assert [plain(e) async for e in reading.entries()] == [plain(e) async for e in reading.entries()]
            await reading.remove()
        assert await read_all(wals()) == []
        await wals().remove(FIRST)

    async def test_sessions_have_nothing_to_do_with_each_other(self, wals: MakeWals) -> None:
        for session, offset in ((FIRST, 1), (SECOND, 2)):
            wal = await wals().open(session)
            await wal.append([entry(offset)])
            await wal.aclose(remove=False)
        await wals().remove(FIRST)
        assert await read_all(wals(), FIRST) == []
        assert await read_all(wals(), SECOND) == [entry(2)]
        assert await wals().collect(lambda session: False, now_ms=0) == 0
