"""SqliteMetadataStore: the metadata store on SQLite.

Data path   broker -> **store** -> one transaction each
Owns        running the engine-independent procedures without waiting
Leaves      the calls to `stores.metadata.store` and `procedures`, the connection and its thread to `database`
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Self, TypeVar

from streamhouse.clock import Clock
from streamhouse.model.cluster import Change
from streamhouse.stores.metadata.engine import Listeners, Lock, OnChange, Work, run_inline
from streamhouse.stores.metadata.rows import Params, Row
from streamhouse.stores.metadata.sqlite.database import Database, SqliteSettings, Transaction
from streamhouse.stores.metadata.statements import Statements
from streamhouse.stores.metadata.store import SqlMetadataStore

T = TypeVar("T")


class InlineTransaction:
    """A transaction whose awaits never wait. It needs no locks: a writer locks the whole database."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner

    @property
    def sql(self) -> Statements:
        return self._inner.sql

    async def now_ms(self) -> int:
        return self._inner.now_ms

    async def lock(self, what: Lock, params: Params) -> None:
        return

    async def rows(self, statement: str, params: Params | None = None) -> Sequence[Row]:
        return self._inner.rows(statement, params)

    async def row(self, statement: str, params: Params | None = None) -> Row | None:
        return self._inner.row(statement, params)

    async def rows_each(self, statement: str, params: Iterable[Params]) -> Sequence[Row]:
        return self._inner.rows_each(statement, params)

    async def change(self, statement: str, params: Params) -> int:
        return self._inner.change(statement, params)

    async def change_each(self, statement: str, params: Iterable[Params]) -> int:
        return self._inner.change_each(statement, params)

    def announce(self, *changes: Change) -> None:
        self._inner.changes.update(dict.fromkeys(changes))


class SqliteEngine:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def __repr__(self) -> str:
        return repr(self._database)

    async def read_snapshot(self, work: Work[T]) -> T:
        return await self._database.read(lambda tx: _finish(work, tx))

    async def read_one(self, work: Work[T]) -> T:
        return await self.read_snapshot(work)

    async def write(self, work: Work[T]) -> T:
        return await self._database.write(lambda tx: _finish(work, tx))

    async def write_urgent(self, work: Work[T]) -> T:
        return await self._database.write_urgent(lambda tx: _finish(work, tx))

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    @property
    def is_listening(self) -> bool:
        return True

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        return self._database.listeners.add(on_change)

    async def aclose(self) -> None:
        await self._database.aclose()


class SqliteMetadataStore(SqlMetadataStore):
    """A `MetadataStore`. The store's clock is the `clock` it is given.

    Statements run through the event loop's `run_in_executor`: on one own thread, on the given `executor`, or inline on
    a simulated loop. Changes are sent to its `listeners`, which several stores may share.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        settings: SqliteSettings | None = None,
        executor: Executor | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self._database = Database(
            path, clock=clock, settings=settings or SqliteSettings(), executor=executor, listeners=listeners
        )
        super().__init__(SqliteEngine(self._database, clock))

    async def open(self) -> Self:
        """Open or create the database; must be called first."""
        await self._database.open()
        return self


def _finish(work: Work[T], tx: Transaction) -> T:
    return run_inline(work(InlineTransaction(tx)))
