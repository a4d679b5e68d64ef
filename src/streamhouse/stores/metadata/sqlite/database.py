"""One SQLite database: one connection, one thread, transactions with a deadline.

Data path   `store` -> **database** -> file
Owns        the connection and its pragmas, begin and commit, the deadline of a call, migrations, the meaning of errors
Leaves      statements to `sql/`, the content of a transaction to its caller

Writes that wait while another one is committed share the next transaction, and so one fsync (group commit). Each has a
savepoint of its own: one that fails is undone alone. An error that undoes the whole transaction, such as a full disk,
has each of them tried alone.

After a failed fsync every call is rejected until a restart: the system may have dropped the pages, and a second fsync
would report success for them. Opening moves everything from the journal into the database, which writes those pages
anew.
"""

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from streamhouse.clock import Clock
from streamhouse.errors import Internal, Misconfigured, StreamhouseError, Unavailable
from streamhouse.model.cluster import Change
from streamhouse.stores.metadata.engine import Listeners
from streamhouse.stores.metadata.rows import Params
from streamhouse.stores.metadata.statements import (
    Statements,
    due_migrations,
    load_migrations,
    load_statements,
    split_script,
)

_PRIMARY: Final = 0xFF  # the low byte of an extended result code is its primary code
_TRANSIENT: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_LOST_SYNC: Final = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})


def translate(error: sqlite3.Error) -> StreamhouseError:
    """`Unavailable` for temporary conditions: busy, full, I/O errors. Anything else is damage or a bug."""
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if code is not None and code & _PRIMARY in _TRANSIENT:
        return Unavailable(f"metadata store can't serve now; code={name} why={error}")
    return Internal(f"metadata store failed; code={name} why={error}")


def has_lost_sync(error: sqlite3.Error) -> bool:
    """Whether an fsync failed, so that the system may have dropped pages that later look written."""
    return getattr(error, "sqlite_errorcode", None) in _LOST_SYNC


T = TypeVar("T")

MEMORY: Final = ":memory:"
OLDEST_SQLITE: Final = (3, 38, 0)  # STRICT tables, RETURNING and ->>
GROUP_S: Final = 0.01
"""Time after which no further write joins a transaction: a heartbeat waits that long."""
_STEPS_BETWEEN_CHECKS: Final = 10_000  # virtual machine steps between checks of the deadline: well below a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteSettings:
    timeout_s: float = 5.0  # timeout of one call, including waiting in the queue
    max_waiting_calls: int = 1024  # calls waiting for the thread; further ones are rejected
    group_calls: int = 64  # writes that share a transaction


class Transaction:
    """The statements of one call; `now_ms` is the store's clock, read once the transaction has begun."""

    __slots__ = ("_connection", "changes", "now_ms", "sql")

    def __init__(self, connection: sqlite3.Connection, sql: Statements, now_ms: int) -> None:
        self._connection = connection
        self.sql = sql
        self.now_ms = now_ms
        self.changes: dict[Change, None] = {}  # sent after the commit

    def rows(self, statement: str, params: Params | None = None) -> list[sqlite3.Row]:
        return self._connection.execute(statement, params or {}).fetchall()

    def row(self, statement: str, params: Params | None = None) -> sqlite3.Row | None:
        """The only row, or None. All rows are read, because a RETURNING statement is done only then."""
        results = self.rows(statement, params)
        return results[0] if results else None

    def rows_each(self, statement: str, params: Iterable[Params]) -> list[sqlite3.Row]:
        """The rows for all sets of parameters together."""
        return [row for each in params for row in self.rows(statement, each)]

    def change(self, statement: str, params: Params) -> int:
        """Run a statement; returns how many rows it changed."""
        return self._connection.execute(statement, params).rowcount

    def change_each(self, statement: str, params: Iterable[Params]) -> int:
        """Run a statement for each set of parameters; returns how many rows were changed in all."""
        return max(0, self._connection.executemany(statement, params).rowcount)


class _Write(Generic[T]):
    """A write that waits for the thread, and its outcome once it is committed or has failed."""

    __slots__ = ("changes", "deadline", "error", "is_abandoned", "is_done", "loop", "result", "work")

    def __init__(self, work: Callable[[Transaction], T], deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.deadline = deadline
        self.loop = loop
        self.is_abandoned = False
        """Whether its caller has gone before it began."""
        self.is_done = False
        self.result: T | None = None
        self.error: Exception | None = None
        self.changes: dict[Change, None] = {}

    def fail(self, error: Exception) -> None:
        self.is_done, self.error = True, error

    def outcome(self) -> T:
        """The result; raises the error."""
        if not self.is_done:
            raise Unavailable("metadata call was given up before it began")
        if self.error is not None:
            raise self.error
        return cast(T, self.result)


class Database:
    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        settings: SqliteSettings,
        executor: Executor | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._settings = settings
        self._executor = executor or ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._owns_executor = executor is None
        self._sql = load_statements()
        self.listeners = listeners if listeners is not None else Listeners()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._waiting = 0
        self._urgent: deque[Callable[[], None]] = deque()
        self._writes: deque[_Write[Any]] = deque()
        self._deadline = 0.0
        self._stopped = ""

    def __repr__(self) -> str:
        return f"<Database {self._path} waiting={self._waiting} stopped={self._stopped or 'no'}>"

    async def open(self) -> None:
        """Open or create the file and migrate its schema; raises `Misconfigured` if it can't be used."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._open)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one snapshot."""
        loop, deadline = self._admit()
        return await self._run(loop, partial(self._perform, work, deadline, loop))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` as one transaction: all of it is durable on return, or nothing of it happened. `work` may be run
        again, after all that it had done was undone."""
        loop, deadline = self._admit()
        call = _Write(work, deadline, loop)
        self._writes.append(call)
        try:
            return await self._run(loop, partial(self._perform_write, call))
        finally:
            call.is_abandoned = True

    async def write_urgent(self, work: Callable[[Transaction], T]) -> T:
        """`write` with priority over all waiting calls: it waits at most for the running one. Event loops of other
        threads may call it."""
        if self._closed:
            raise Unavailable("metadata store is closed")
        deadline = self._clock.monotonic() + self._settings.timeout_s
        loop = asyncio.get_running_loop()
        call: Future[T] = Future()
        perform = partial(self._transact, "BEGIN IMMEDIATE", work, deadline, loop)
        self._urgent.append(lambda: _settle(call, perform))
        loop.run_in_executor(self._executor, self._perform_urgent)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await asyncio.wrap_future(call)
        except TimeoutError:
            raise Unavailable(f"metadata call timed out; timeout_s={self._settings.timeout_s:g}") from None

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._executor, self._close)
        if self._owns_executor:
            self._executor.shutdown(wait=False)

    def _admit(self) -> tuple[asyncio.AbstractEventLoop, float]:
        """The loop of the caller, and the deadline of its call; raises `Unavailable` if too many wait."""
        if self._closed:
            raise Unavailable("metadata store is closed")
        if self._waiting >= self._settings.max_waiting_calls:
            raise Unavailable(f"too many calls wait for the metadata store; limit={self._settings.max_waiting_calls}")
        return asyncio.get_running_loop(), self._clock.monotonic() + self._settings.timeout_s

    async def _run(self, loop: asyncio.AbstractEventLoop, perform: Callable[[], T]) -> T:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await loop.run_in_executor(self._executor, perform)
        except TimeoutError:
            raise Unavailable(f"metadata call timed out; timeout_s={self._settings.timeout_s:g}") from None
        finally:
            self._waiting -= 1

    # --- in the thread

    def _perform_urgent(self) -> None:
        while self._urgent:
            self._urgent.popleft()()

    def _perform(self, work: Callable[[Transaction], T], deadline: float, loop: asyncio.AbstractEventLoop) -> T:
        self._perform_urgent()
        return self._transact("BEGIN", work, deadline, loop)

    def _perform_write(self, call: "_Write[T]") -> T:
        """Commit the writes that wait, unless this one was committed together with one before it."""
        self._perform_urgent()
        if not call.is_done:
            self._commit_writes()
        return call.outcome()

    def _commit_writes(self) -> None:
        group: list[_Write[Any]] = []
        while self._writes and len(group) < self._settings.group_calls:
            if not (call := self._writes.popleft()).is_abandoned:
                group.append(call)
        tried = self._commit_together(group) if len(group) > 1 else 1
        self._writes.extendleft(reversed(group[tried:]))
        for call in group[:tried]:
            if not call.is_done:
                self._perform_urgent()
                self._commit_alone(call)

    def _commit_alone(self, call: "_Write[Any]") -> None:
        try:
            call.result = self._transact("BEGIN IMMEDIATE", call.work, call.deadline, call.loop)
            call.is_done = True
        except Exception as error:  # noqa: BLE001 - raised where the call is waited for
            call.fail(error)

    def _commit_together(self, group: "Sequence[_Write[Any]]") -> int:
        """One transaction for as many of them as fit in its time; returns how many were tried. Those that are not done
        then are to be tried alone."""
        connection = self._connection
        if connection is None or self._stopped:
            return len(group)
        joined: list[_Write[Any]] = []
        tried = 0
        no_more_at = self._clock.monotonic() + GROUP_S
        self._deadline = group[0].deadline
        try:
            connection.execute("BEGIN IMMEDIATE")
            for call in group:
                tried += 1
                if self._join(connection, call):
                    joined.append(call)
                if self._urgent or not connection.in_transaction or self._clock.monotonic() >= no_more_at:
                    break
            if not joined or not connection.in_transaction:
                return tried
            self._deadline = max(call.deadline for call in joined)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if has_lost_sync(error):
                self._stopped = "an fsync failed, restart to recover"
                for call in joined:
                    call.fail(translate(error))
            return max(tried, 1)
        finally:
            self._leave(connection)
        for call in joined:
            call.is_done = True
            with suppress(RuntimeError):  # the event loop is closed: there are no listeners
                self.listeners.notify(call.changes, call.loop.call_soon_threadsafe)
        return tried

    def _join(self, connection: sqlite3.Connection, call: "_Write[Any]") -> bool:
        """Run a call below a savepoint; whether it is part of the transaction now. If not, it is undone, and done if
        the error is its own."""
        if self._clock.monotonic() >= call.deadline:
            return False  # rejected where it is tried alone
        self._deadline = call.deadline
        connection.execute("SAVEPOINT call")
        try:
            transaction = Transaction(connection, self._sql, self._clock.now_ms())
            call.result = call.work(transaction)
            call.changes = transaction.changes
            connection.execute("RELEASE call")
            return True
        except sqlite3.Error as error:
            if has_lost_sync(error):
                raise
            self._undo(connection)  # and again alone, which says what is wrong
            return False
        except Exception as error:  # noqa: BLE001 - raised where the call is waited for
            self._undo(connection)
            call.fail(error)
            return False

    def _undo(self, connection: sqlite3.Connection) -> None:
        """Undo the call of the savepoint, unless the whole transaction was undone."""
        self._deadline = float("inf")
        if connection.in_transaction:
            connection.execute("ROLLBACK TO call")
            connection.execute("RELEASE call")

    def _transact(
        self, begin: str, work: Callable[[Transaction], T], deadline: float, loop: asyncio.AbstractEventLoop
    ) -> T:
        connection = self._connection
        if connection is None or self._stopped:
            raise Unavailable(f"metadata store is closed; why={self._stopped or 'not open'}")
        if self._clock.monotonic() >= deadline:
            raise Unavailable("metadata call waited past its deadline; it did not happen")
        self._deadline = deadline
        try:
            connection.execute(begin)
            transaction = Transaction(connection, self._sql, self._clock.now_ms())
            result = work(transaction)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if has_lost_sync(error):
                self._stopped = "an fsync failed, restart to recover"
            raise translate(error) from error
        finally:
            self._leave(connection)
        with suppress(RuntimeError):  # the event loop is closed: there are no listeners
            self.listeners.notify(transaction.changes, loop.call_soon_threadsafe)
        return result

    def _leave(self, connection: sqlite3.Connection) -> None:
        """End any open transaction after a call."""
        self._deadline = float("inf")  # a rollback has no deadline
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        if connection.in_transaction:
            self._stopped = "a rollback failed, restart to recover"

    def _is_late(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    def _open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise Misconfigured(
                f"SQLite is too old; version={sqlite3.sqlite_version} needed={'.'.join(map(str, OLDEST_SQLITE))} "
                "do=use a Python that is built with a newer SQLite"
            )
        try:
            self._connection = self._connect()
            self._migrate(self._connection)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.set_progress_handler(self._is_late, _STEPS_BETWEEN_CHECKS)
        except sqlite3.Error as error:
            self._close()
            raise Misconfigured(
                f"the metadata database can't be opened; path={self._path} why={error} "
                "do=check that the folder exists, is writable, and has a database that no other process locks"
            ) from error
        except Misconfigured:
            self._close()
            raise

    def _create_file(self) -> None:
        """Create the database's file, for its owner only: users' credentials will be in it.

        SQLite gives the same mode to the files that it makes beside it.
        """
        if self._path != MEMORY:
            with suppress(OSError):  # the file is there, or opening it says what is wrong
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _connect(self) -> sqlite3.Connection:
        self._create_file()
        connection = sqlite3.connect(
            self._path, timeout=self._settings.timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            connection.row_factory = sqlite3.Row
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal" and self._path != MEMORY:
                raise Misconfigured(f"SQLite can't keep a write-ahead log here; path={self._path} do=use a local disk")
            connection.execute("PRAGMA synchronous = FULL")  # NORMAL loses the last commits at a power cut
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Apply missing migrations in one transaction; concurrent processes take turns."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version ("
                "version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at_ms INTEGER NOT NULL) STRICT"
            )
            version = connection.execute("SELECT COALESCE(MAX(version), 0) FROM schema_version").fetchone()[0]
            for migration in due_migrations(load_migrations(), version=version):
                for statement in split_script(migration.sql):
                    connection.execute(statement)
                applied = (migration.version, migration.name, self._clock.now_ms())
                connection.execute("INSERT INTO schema_version VALUES (?, ?, ?)", applied)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _settle(call: "Future[T]", perform: Callable[[], T]) -> None:
    """Run a call unless its caller was cancelled, and set its result."""
    if not call.set_running_or_notify_cancel():
        return
    try:
        result = perform()
    except Exception as error:  # noqa: BLE001 - passed to the caller; the thread continues
        call.set_exception(error)
    else:
        call.set_result(result)
