"""Group commit of SQLite: writes that wait share a transaction, and each is done or undone by itself."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any

import pytest

from streamhouse.errors import Internal, Rejected, Unavailable
from streamhouse.stores.metadata.sqlite.database import Database, SqliteSettings, Transaction
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_changes import EVERYTHING

COUNT = "INSERT INTO counters VALUES (:name, 1)"
Work = Callable[[Transaction], Any]


class Held:
    """A database whose thread is held, so that calls wait; its statements are written down."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.executor = ThreadPoolExecutor(max_workers=1)
        self.database = Database(
            ":memory:", clock=self.clock, settings=SqliteSettings(**settings), executor=self.executor
        )
        self.statements: list[str] = []

    async def open(self) -> "Held":
        await self.database.open()
        assert self.database._connection is not None
        self.database._connection.set_trace_callback(self.statements.append)
        return self

    async def together(self, *works: Work) -> list[Any]:
        """The results or errors of writes that all wait before the first begins."""
        release = Event()
        held = self.executor.submit(release.wait)
        calls = [asyncio.create_task(self.database.write(work)) for work in works]
        await asyncio.sleep(0)
        self.statements.clear()
        release.set()
        held.result()
        return await asyncio.gather(*calls, return_exceptions=True)

    @property
    def commits(self) -> int:
        return self.statements.count("COMMIT")

    async def names(self) -> set[str]:
        rows = await self.database.read(lambda tx: tx.rows("SELECT name FROM counters WHERE name LIKE 'w%'"))
        return {row["name"] for row in rows}


@pytest.fixture
async def held() -> AsyncIterator[Held]:
    held = await Held().open()
    yield held
    await held.database.aclose()
    held.executor.shutdown()


def counts(name: str, *, tells: bool = False) -> Work:
    def work(tx: Transaction) -> str:
        tx.change(COUNT, {"name": name})
        if tells:
            tx.changes[EVERYTHING] = None
        return name

    return work


def rejected(tx: Transaction) -> None:
    tx.change(COUNT, {"name": "w-rejected"})
    raise Rejected("not like this")


def breaks_a_rule(tx: Transaction) -> None:
    tx.change(COUNT, {"name": "w-rule"})
    tx.change(COUNT, {"name": "w-rule"})


async def test_writes_that_wait_share_one_commit(held: Held) -> None:
    names = [f"w{number}" for number in range(20)]
    assert await held.together(*map(counts, names)) == names
    assert held.commits == 1
    assert await held.names() == set(names)


async def test_a_write_sees_what_those_before_it_did(held: Held) -> None:
    seen: Work = lambda tx: tx.rows("SELECT value FROM counters WHERE name = 'w1'")[0][0]  # noqa: E731
    assert await held.together(counts("w1"), seen) == ["w1", 1]


async def test_a_write_that_waits_for_nobody_has_its_own_commit(held: Held) -> None:
    for name in ("w1", "w2"):
        await held.database.write(counts(name))
    assert held.commits == 2


@pytest.mark.parametrize(("bad", "error"), [(rejected, Rejected), (breaks_a_rule, Internal)])
async def test_one_that_fails_is_undone_alone(held: Held, bad: Work, error: type[Exception]) -> None:
    results = await held.together(counts("w1"), bad, counts("w2"))
    assert (results[0], results[2]) == ("w1", "w2")
    assert type(results[1]) is error
    assert held.commits == 1
    assert await held.names() == {"w1", "w2"}


async def test_where_the_whole_transaction_is_undone_each_is_tried_alone(held: Held) -> None:
    def undoes_all(tx: Transaction) -> None:
        tx.change(COUNT, {"name": "w-undone"})
        tx.rows("ROLLBACK")
        raise _error(sqlite3.SQLITE_FULL, "SQLITE_FULL")

    results = await held.together(counts("w1"), undoes_all, counts("w2"))
    assert (results[0], results[2]) == ("w1", "w2")
    assert isinstance(results[1], Unavailable)
    assert await held.names() == {"w1", "w2"}


@pytest.mark.parametrize("group_calls", [1, 64])
async def test_one_whose_caller_has_gone_does_not_happen(group_calls: int) -> None:
    held = await Held(group_calls=group_calls).open()
    release = Event()
    blocked = held.executor.submit(release.wait)
    calls = [asyncio.create_task(held.database.write(counts(f"w{number}"))) for number in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    with suppress(asyncio.CancelledError):
        await calls[1]
    release.set()
    blocked.result()
    assert [await calls[0], await calls[2]] == ["w0", "w2"]
    assert await held.names() == {"w0", "w2"}
    await held.database.aclose()
    held.executor.shutdown()


async def test_one_that_waited_past_its_deadline_does_not_happen(held: Held) -> None:
    def late(tx: Transaction) -> None:
        held.clock.advance(ms=60_000)

    results = await held.together(late, counts("w1"))
    assert results[0] is None
    assert isinstance(results[1], Unavailable)
    assert await held.names() == set()


async def test_no_further_write_joins_after_a_while(held: Held) -> None:
    def takes_time(tx: Transaction) -> None:
        held.clock.advance(ms=20)

    assert await held.together(takes_time, counts("w1"), counts("w2")) == [None, "w1", "w2"]
    assert held.commits == 2


async def test_a_group_has_a_limit() -> None:
    held = await Held(group_calls=4).open()
    await held.together(*(counts(f"w{number}") for number in range(10)))
    assert held.commits == 3
    await held.database.aclose()
    held.executor.shutdown()


async def test_a_heartbeat_goes_before_the_writes_that_have_not_begun(held: Held) -> None:
    order: list[str] = []
    begun, go_on = Event(), Event()

    def first(tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(10)
        order.append("first")

    calls = [asyncio.create_task(held.database.write(first))]
    calls += [asyncio.create_task(held.database.write(lambda tx: order.append("other"))) for _ in range(3)]
    await asyncio.to_thread(begun.wait, 10)
    urgent = asyncio.create_task(held.database.write_urgent(lambda tx: order.append("urgent")))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*calls, urgent)
    assert order == ["first", "urgent", "other", "other", "other"]


class LosesTheSync:
    """A connection whose COMMIT fails as a failed fsync does."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def execute(self, statement: str, *params: Any) -> Any:
        if statement == "COMMIT":
            raise _error(sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC")
        return self._inner.execute(statement, *params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _error(code: int, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return error


async def test_a_failed_fsync_fails_all_of_the_group_and_ends_the_store(held: Held) -> None:
    database = held.database
    plain = database._connection
    assert plain is not None
    database._connection = LosesTheSync(plain)  # type: ignore[assignment]
    results = await held.together(counts("w1"), counts("w2"), counts("w3"))
    assert [type(result) for result in results] == [Unavailable] * 3
    with pytest.raises(Unavailable, match="restart"):
        await database.write(counts("w4"))
    assert plain.execute("SELECT COUNT(*) FROM counters WHERE name LIKE 'w%'").fetchone()[0] == 0


async def test_listeners_hear_of_what_was_committed_only(held: Held) -> None:
    received: list[object] = []
    held.database.listeners.add(received.append)

    def tells_and_fails(tx: Transaction) -> None:
        tx.changes[EVERYTHING] = None
        raise Rejected("no")

    await held.together(counts("w1", tells=True), tells_and_fails, counts("w2"))
    await asyncio.sleep(0)
    assert received == [EVERYTHING]
