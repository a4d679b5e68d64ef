"""Connections to PostgreSQL: URL, hosts, timeouts, setup of a connection, and statements in its dialect.

Owns        trying the hosts of a URL in turn, each with its own timeout; the name of the database in texts, without
            user and password; how parameters and lists are written; statements that only PostgreSQL has
Leaves      the pool to `database`, other differences of the dialect to `sql/postgres/`
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import asyncpg

from streamhouse.config import POSTGRES_EXAMPLE, is_postgres
from streamhouse.errors import Misconfigured
from streamhouse.stores.metadata.rows import Row
from streamhouse.stores.metadata.statements import SQL, Statements, as_attributes, load_statements, read_statements

ENGINE: Final = "postgres"  # its folder in `sql/`
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")
_LIST: Final = re.compile(r"json_each\((:[a-z_]+)\) AS (\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatements:
    # a connection
    prepare_connection: str
    now_ms: str
    # changes
    announce: str
    is_standby: str
    # the schema
    server_facts: str
    lock_schema: str
    create_schema_version: str
    schema_version: str
    add_schema_version: str
    # what `Lock` names
    lock_node_ids: str
    lock_topic: str
    lock_sessions: str
    lock_partitions: str
    lock_partitions_of_topic: str
    lock_partitions_held_by: str
    lock_objects: str
    lock_placing: str
    lock_giving_up: str
    lock_schemas: str
    lock_pipelines: str
    lock_view: str
    lock_security: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with numbered parameters, and the names that they had."""

    text: str
    names: tuple[str, ...]


def postgres_statements() -> Statements:
    return load_statements(ENGINE)


@cache
def server_statements() -> ServerStatements:
    return as_attributes(ServerStatements, read_statements(SQL / ENGINE / "server"))


@cache
def bind(statement: str) -> Bound:
    """`:name` becomes `$1`, a list's rows come from `jsonb`. There are as many statements as names, so all are kept."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    listed = _LIST.sub(r"jsonb_array_elements(CAST(\1 AS jsonb)) AS \2 (value)", statement)
    return Bound(_PARAMETER.sub(number, listed).removesuffix(";"), tuple(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresUrl:
    where: str
    hosts: tuple[str, ...] = field(repr=False)  # a URL for each host, to be tried in this order


def parse_url(url: str) -> PostgresUrl:
    """Parse the URL; raises `Misconfigured`, without repeating the URL, which may contain a password."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    database = parts.path.removeprefix("/")
    if not is_postgres(url) or not database or "/" in database or parts.fragment:
        raise Misconfigured(
            f"the metadata URL can't be read; do=write it like {POSTGRES_EXAMPLE} and "
            "percent-encode what is special in the password (%40 for @, %2F for /, %23 for #, %3F for ?)"
        )
    query = parse_qs(parts.query)
    requested = parts.query if "target_session_attrs" in query else f"{parts.query}&target_session_attrs=read-write"
    return PostgresUrl(
        where=f"{hosts or ','.join(query.get('host', ['localhost']))}/{database}",
        hosts=tuple(f"postgresql://{login}{at}{host}/{database}?{requested.lstrip('&')}" for host in hosts.split(",")),
    )


# What the driver raises; timeouts are OSErrors.
DRIVER_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    timeout_s: float = 5.0  # timeout of one call, including waiting for a connection
    connect_timeout_s: float = 2.0  # for each of the hosts that the URL names
    min_connections: int = 1
    max_connections: int = 8
    max_waiting_calls: int = 1024  # calls in progress or waiting for a connection; further ones are rejected
    max_attempts: int = 5  # retries of a transaction after a conflict
    listen_check_s: float = 5.0  # interval of checking the listening connection
    listen_again_s: float = 0.1  # first wait before it is reopened; doubled at each failure …
    listen_again_max_s: float = 5.0  # … up to this


class Connection(Protocol):
    """The part of the driver's connection that is used here."""

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
    """Connect to the first host that responds and accepts writes; raises the last host's error if none does."""
    for number, host in enumerate(url.hosts, start=1):
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                return await _prepared(await asyncpg.connect(host, **pool), settings)
        except DRIVER_ERRORS:
            if number == len(url.hosts):
                raise
    raise AssertionError("a URL names at least one host")


@contextmanager
def on_connection_lost(connection: Connection) -> Iterator[None]:
    """The driver reports a connection closed by the server between two statements as a usage error."""
    try:
        yield
    except asyncpg.InterfaceError as error:
        if not connection.is_closed():
            raise
        raise ConnectionResetError(f"the server closed the connection; why={error}") from error


async def _prepared(connection: Connection, settings: PostgresSettings) -> Connection:
    prepare = bind(server_statements().prepare_connection)
    try:
        with on_connection_lost(connection):
            await connection.fetch(prepare.text, str(round(settings.timeout_s * 1000)))
    except BaseException:
        connection.terminate()
        raise
    return connection
