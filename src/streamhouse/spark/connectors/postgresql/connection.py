"""Connections: the databases that tables name, opened with addresses of the environment, and their errors as ours.

Data path   reading, writing, tables -> **connections** -> PostgreSQL
Owns        which variable holds a connection's DSN, how long a server is waited for, what its errors mean here
Leaves      statements to `connector` and `writer`

A DSN has a password in it, so it is never an option, a part of a plan, or of an error's text: names travel, and every
process of Spark looks the name up in its own environment.
"""

import os
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

import asyncpg

from streamhouse.client.loop_thread import LoopThread
from streamhouse.errors import Misconfigured, Rejected, StreamhouseError, Unavailable

T = TypeVar("T")

PREFIX: Final = "STREAMHOUSE_CONNECTION_"
CONNECT_TIMEOUT_S: Final = 10.0
STATEMENT_TIMEOUT_S: Final = 600.0
"""For one statement, a COPY of a whole table among them."""
MAX_MESSAGE_CHARS: Final = 200
"""Characters of a server's own message in an error."""

# Classes of SQL states after which the same statement may succeed: connections, conflicts, resources, the operator.
_PASSING: Final = ("08", "25P03", "40", "53", "55", "57", "58", "XX")
_SETTINGS: Final = {"application_name": "streamhouse", "timezone": "UTC", "datestyle": "ISO", "extra_float_digits": "1"}


def variable_of(connection: str) -> str:
    """`warehouse` is `STREAMHOUSE_CONNECTION_WAREHOUSE`."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", connection.upper())


def dsn_of(connection: str, environ: Mapping[str, str] | None = None) -> str:
    """The address from the environment; raises `Misconfigured` if there is none."""
    name = variable_of(connection)
    dsn = (os.environ if environ is None else environ).get(name, "")
    if not dsn:
        raise Misconfigured(
            f"unknown connection; connection={connection} do=set {name}=postgresql://user:password@host/database"
            " in the environment of whatever runs Spark: supervisor, SQL worker, executors"
        )
    return dsn


@asynccontextmanager
async def connect(connection: str) -> AsyncIterator[Any]:
    """A new connection. Errors of the server, also inside the block, become ours."""
    link: Any = None
    try:
        link = await _connect(connection)
        yield link
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise translate_error(error, connection) from None
    finally:
        if link is not None:
            link.terminate()  # whatever wasn't committed is not to be


async def _connect(connection: str) -> Any:
    dsn = dsn_of(connection)
    try:
        return await asyncpg.connect(
            dsn,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=STATEMENT_TIMEOUT_S,
            statement_cache_size=0,  # poolers that share connections don't keep statements
            server_settings=_SETTINGS,
        )
    except (ValueError, asyncpg.InterfaceError):  # of the DSN itself, parts of which their texts show
        raise Misconfigured(
            f"a connection can't be read; connection={connection}"
            f" do=write {variable_of(connection)} like postgresql://user:password@host:5432/database"
        ) from None


def translate_error(error: Exception, connection: str) -> StreamhouseError:
    """Translate an error of the server or network for the author of a pipeline."""
    where = f"connection={connection}"
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return Rejected(f"the database rejects this login; {where} do=correct {variable_of(connection)}")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return Rejected(f"no rights; {where} why={_message(error)} do=GRANT them to the connection's user")
    if not isinstance(error, asyncpg.PostgresError):
        return Unavailable(f"the database doesn't answer; {where} why={type(error).__name__}")
    state = str(getattr(error, "sqlstate", "") or "")
    if state.startswith(_PASSING):
        return Unavailable(f"the database can't serve now; {where} why={_message(error)}")
    column = _column(error)
    return Rejected(f"the database refuses; {where}{f' column={column}' if column else ''} why={_message(error)}")


def _message(error: asyncpg.PostgresError) -> str:
    text = " ".join(str(getattr(error, "message", "") or type(error).__name__).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def _column(error: asyncpg.PostgresError) -> str | None:
    """The column that a server blames: by itself for constraints, in the context of a COPY otherwise."""
    named = getattr(error, "column_name", None)
    match = re.search(r"line \d+, column ([^:,]+)", str(getattr(error, "context", "") or ""))
    return named or (match[1] if match else None)


@lru_cache(maxsize=1)
def _loop() -> LoopThread:
    return LoopThread(name="streamhouse-postgresql")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it on a loop of our own: Spark's threads have none, or one that is not ours."""
    return _loop().run(work)
