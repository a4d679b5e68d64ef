"""A transaction on PostgreSQL: statements by name, one round trip each.

Data path   `procedures` -> **transaction** -> server
Owns        running statements on one connection; many sets of parameters as one statement over arrays
Leaves      begin and commit to `database`, the statements to `sql/`
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamhouse.errors import Internal
from streamhouse.model.cluster import Change
from streamhouse.stores.metadata.engine import Lock
from streamhouse.stores.metadata.postgres.connection import (
    Bound,
    Connection,
    bind,
    postgres_statements,
    server_statements,
)
from streamhouse.stores.metadata.postgres.notifications import payload_of
from streamhouse.stores.metadata.rows import Params, Row
from streamhouse.stores.metadata.statements import Statements


class PostgresTransaction:
    """The statements of one call. Many sets of parameters are one statement over arrays, and one round trip."""

    __slots__ = ("_changes", "_connection", "_now_ms", "sql")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._now_ms: int | None = None
        self._changes: dict[Change, None] = {}
        self.sql: Statements = postgres_statements()

    async def now_ms(self) -> int:
        if self._now_ms is None:
            [row] = await self.rows(server_statements().now_ms)
            self._now_ms = int(row["now_ms"])
        return self._now_ms

    async def lock(self, what: Lock, params: Params) -> None:
        await self.rows(getattr(server_statements(), what.value), params)

    async def rows(self, statement: str, params: Params | None = None) -> Sequence[Row]:
        return await self._fetch(bind(statement), params or {})

    async def row(self, statement: str, params: Params | None = None) -> Row | None:
        result = await self.rows(statement, params)
        return result[0] if result else None

    async def rows_each(self, statement: str, params: Iterable[Params]) -> Sequence[Row]:
        bound, param_sets = bind(statement), list(params)
        return await self._fetch(bound, _columns(bound, param_sets)) if param_sets else []

    async def change(self, statement: str, params: Params) -> int:
        return await self._execute(bind(statement), params)

    async def change_each(self, statement: str, params: Iterable[Params]) -> int:
        bound, param_sets = bind(statement), list(params)
        return await self._execute(bound, _columns(bound, param_sets)) if param_sets else 0

    def announce(self, *changes: Change) -> None:
        self._changes.update(dict.fromkeys(changes))

    async def send_announced(self) -> None:
        """Queue the notifications, as the last statement before the commit, with which the server sends them."""
        if self._changes:
            await self._fetch(bind(server_statements().announce), {"payloads": [*map(payload_of, self._changes)]})

    async def _fetch(self, bound: Bound, params: Mapping[str, Any]) -> Sequence[Row]:
        return await self._connection.fetch(bound.text, *(params[name] for name in bound.names))

    async def _execute(self, bound: Bound, params: Mapping[str, Any]) -> int:
        status = await self._connection.execute(bound.text, *(params[name] for name in bound.names))
        return int(status.rpartition(" ")[2])  # `UPDATE 3`, `INSERT 0 3`


class SingleStatement(PostgresTransaction):
    """A transaction of one statement, without BEGIN and COMMIT."""

    __slots__ = ("_used",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._used = False

    async def _fetch(self, bound: Bound, params: Mapping[str, Any]) -> Sequence[Row]:
        if self._used:
            raise Internal("a second statement would read another snapshot")
        self._used = True
        return await super()._fetch(bound, params)


def _columns(bound: Bound, param_sets: Sequence[Params]) -> Mapping[str, list[Any]]:
    return {name: [params[name] for params in param_sets] for name in bound.names}
