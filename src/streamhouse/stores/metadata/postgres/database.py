"""PostgresMetadataStore and its database: a pool of connections, transactions with a deadline.

Data path   `store` -> **database** -> server
Owns        the pool, begin and commit, the deadline of a call, retrying a transaction after a conflict
Leaves      statements to `transaction`, connecting to `connection`, the meaning of errors to `errors`

Transactions are READ COMMITTED and lock the rows that they decide by (decision 0007). A connection whose state is
uncertain after a call is dropped without waiting: a server that does not respond delays only that call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Self, TypeVar

import asyncpg

from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.stores.metadata.engine import OnChange, Work
from streamhouse.stores.metadata.postgres.connection import (
    DRIVER_ERRORS,
    Connection,
    PostgresSettings,
    PostgresUrl,
    connect,
    on_connection_lost,
    parse_url,
)
from streamhouse.stores.metadata.postgres.errors import explain_start, is_conflict, translate
from streamhouse.stores.metadata.postgres.migrations import prepare_schema
from streamhouse.stores.metadata.postgres.notifications import Notifications
from streamhouse.stores.metadata.postgres.transaction import PostgresTransaction, SingleStatement
from streamhouse.stores.metadata.store import SqlMetadataStore

T = TypeVar("T")

READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_CLOSE_S: Final = 2.0  # timeout of closing connections


class Database:
    def __init__(self, url: PostgresUrl, settings: PostgresSettings) -> None:
        self._url = url
        self._settings = settings
        self._pool: Any = None
        self._connect = partial(connect, url, settings)
        self._announcements = Notifications(self._connect, settings)
        self._waiting = 0

    def __repr__(self) -> str:
        size = self._pool.get_size() if self._pool else 0
        return f"<Database {self._url.where} connections={size} waiting={self._waiting}>"

    async def open(self) -> None:
        """Migrate the schema and fill the pool; raises `Misconfigured` if the database can't be used, `NotUpYet` if it
        may become usable soon."""
        try:
            connection = await self._connect()
            try:
                with on_connection_lost(connection):
                    await prepare_schema(connection, self._url.where)
            finally:
                connection.terminate()
            self._pool = await asyncpg.create_pool(
                connect=self._connect,
                min_size=min(self._settings.min_connections, self._settings.max_connections),
                max_size=self._settings.max_connections,
                reset=_leave_as_it_is,
            )
        except (*DRIVER_ERRORS, ValueError) as error:
            raise explain_start(error, self._url.where) from error

    async def read_one(self, work: Work[T]) -> T:
        """Run `work`, which reads with one statement."""
        return await self._in_time(self._read_one, work)

    async def read_snapshot(self, work: Work[T]) -> T:
        """Run `work` on one snapshot."""
        return await self._in_time(self._read_snapshot, work)

    async def write(self, work: Work[T]) -> T:
        """Run `work` as one transaction: all of it is durable on return, or nothing of it happened."""
        return await self._in_time(self._write, work)

    async def write_urgent(self, work: Work[T]) -> T:
        """`write`: an agent's heartbeats have a store, and with it a connection, of their own."""
        return await self.write(work)

    async def now_ms(self) -> int:
        return await self.read_one(lambda tx: tx.now_ms())

    @property
    def is_listening(self) -> bool:
        return self._announcements.is_listening

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        return self._announcements.subscribe(on_change)

    async def aclose(self) -> None:
        await self._announcements.aclose()
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await pool.close()
        except DRIVER_ERRORS:
            pool.terminate()

    # --- one call

    async def _in_time(self, run: Callable[[Work[T]], Awaitable[T]], work: Work[T]) -> T:
        if self._waiting >= self._settings.max_waiting_calls:
            raise Unavailable(f"too many calls wait for the metadata store; limit={self._settings.max_waiting_calls}")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.timeout_s) as deadline:
                return await self._until_done(run, work)
        except DRIVER_ERRORS as error:
            if deadline.expired():
                raise Unavailable(f"metadata call timed out; timeout_s={self._settings.timeout_s:g}") from None
            raise translate(error) from error
        finally:
            self._waiting -= 1

    async def _until_done(self, run: Callable[[Work[T]], Awaitable[T]], work: Work[T]) -> T:
        """Retry a transaction after a conflict with another one."""
        for _ in range(self._settings.max_attempts - 1):
            try:
                return await run(work)
            except asyncpg.PostgresError as error:
                if not is_conflict(error):
                    raise
        return await run(work)

    # --- on one connection

    async def _read_one(self, work: Work[T]) -> T:
        async with _Borrowed(self._pool) as connection:
            return await work(SingleStatement(connection))

    async def _read_snapshot(self, work: Work[T]) -> T:
        return await self._transact(READ, work)

    async def _write(self, work: Work[T]) -> T:
        return await self._transact(WRITE, work)

    async def _transact(self, begin: str, work: Work[T]) -> T:
        async with _Borrowed(self._pool) as connection:
            await connection.execute(begin)
            transaction = PostgresTransaction(connection)
            result = await work(transaction)
            await transaction.send_announced()
            await connection.execute("COMMIT")
            return result


class _Borrowed:
    """A connection of the pool for one transaction. It is returned without an open transaction, or dropped."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def __aenter__(self) -> Connection:
        if self._pool is None:
            raise Unavailable("metadata store is closed")
        connection: Connection = await self._pool.acquire()
        self._connection = connection
        return connection

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        connection = self._connection
        is_clean = error is None
        try:
            if isinstance(error, StreamhouseError | asyncpg.PostgresError):
                is_clean = await _rolled_back(connection)
        finally:
            was_lost = _is_lost(connection)
            if not was_lost and not is_clean:
                connection.terminate()
            await self._pool.release(connection)
        if was_lost and isinstance(error, asyncpg.InterfaceError):
            raise Unavailable(f"metadata store's connection was lost; why={error}") from error


async def _rolled_back(connection: Connection) -> bool:
    try:
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        return False
    return True


def _is_lost(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has released it, because the server closed it
        return True


async def _leave_as_it_is(connection: object) -> None:
    """No reset: transactions leave no state in a connection."""


class PostgresMetadataStore(SqlMetadataStore):
    """A `MetadataStore`. The store's clock is the database's."""

    def __init__(self, url: str, settings: PostgresSettings | None = None) -> None:
        self._database = Database(parse_url(url), settings or PostgresSettings())
        super().__init__(self._database)

    async def open(self) -> Self:
        """Migrate the schema and connect; must be called first."""
        await self._database.open()
        return self
