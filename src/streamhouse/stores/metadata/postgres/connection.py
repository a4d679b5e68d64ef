"""A connection to PostgreSQL: which host, how long to wait for it, and how it is set up.

Data path   `database` -> **connection** -> server
Owns        trying the hosts of a URL in turn, each with a time of its own; what every connection is told first
Leaves      keeping connections to the driver's pool in `database`
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import asyncpg

from streamhouse.stores.metadata.postgres.dialect import bind, server_statements
from streamhouse.stores.metadata.postgres.url import PostgresUrl
from streamhouse.stores.metadata.rows import Row

# What the driver raises; timeouts are OSErrors.
FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    timeout_s: float = 5.0  # deadline of one call, waiting for a connection included
    connect_timeout_s: float = 2.0  # for each of the hosts that the URL names
    min_connections: int = 1
    max_connections: int = 8
    max_waiting_calls: int = 1024  # calls under way or waiting for a connection; more are refused at once
    max_attempts: int = 5  # of a transaction that got in another one's way
    listen_check_s: float = 5.0  # how often the connection that listens is asked whether it is still there
    listen_again_s: float = 0.1  # pause before it is made again; doubled at each failure …
    listen_again_max_s: float = 5.0  # … up to this


class Connection(Protocol):
    """What is used of the driver's connection."""

    async def fetch(self, query: str, /, *args: object) -> Sequence[Row]: ...
    async def fetchrow(self, query: str, /, *args: object) -> Row | None: ...
    async def fetchval(self, query: str, /, *args: object) -> Any: ...
    async def execute(self, query: str, /, *args: object) -> str: ...
    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, Any], None]) -> None: ...
    def add_termination_listener(self, callback: Callable[[Any], None]) -> None: ...
    def transaction(self) -> Any: ...
    def is_in_transaction(self) -> bool: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...


async def connect(url: PostgresUrl, settings: PostgresSettings, *args: object, **pool: Any) -> Connection:
    """A connection to the first host that answers and takes writes; raise what the last one said when none does."""
    for number, host in enumerate(url.hosts, start=1):
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                return await _prepared(await asyncpg.connect(host, **pool), settings)
        except FAILURES:
            if number == len(url.hosts):
                raise
    raise AssertionError("a URL names at least one host")


@contextmanager
def told_of_loss(connection: Connection) -> Iterator[None]:
    """Of a connection that the server closed between two statements the driver says that it is used wrongly."""
    try:
        yield
    except asyncpg.InterfaceError as error:
        if not connection.is_closed():
            raise
        raise ConnectionResetError(f"the server closed the connection; why={error}") from error


async def _prepared(connection: Connection, settings: PostgresSettings) -> Connection:
    prepare = bind(server_statements().prepare_connection)
    try:
        with told_of_loss(connection):
            await connection.fetch(prepare.text, str(round(settings.timeout_s * 1000)))
    except BaseException:
        connection.terminate()
        raise
    return connection
