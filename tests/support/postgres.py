"""A real PostgreSQL for tests: a server of our own that can be stopped, killed and started again.

Owns        a folder that goes with the server; standbys; fresh databases; a clock in the database that a test moves by
            hand
Leaves      the server itself to `streamhouse.dev.postgres`; what is tested to the tests
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from streamhouse.dev.postgres import USER, PostgresServer, find_binaries
from tests.contracts.clocks import ManualClock
from tests.support.agent import free_port

__all__ = ["BY_HAND", "CLOCK", "VARIABLE", "DatabaseClock", "Databases", "RealPostgres", "database_of", "find_binaries"]

VARIABLE: Final = "TEST_POSTGRES_DSN"  # a server that is there already; for tests that don't stop it

# Nobody pulls the plug on a test: what the system holds survives a killed server.
OPTIONS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "deadlock_timeout": "100ms",
}


TEMPLATES: Final = Path(__file__).parents[2] / ".cache" / "postgres"


class RealPostgres(PostgresServer):
    """A server on a loopback port, in a folder of its own that goes with it."""

    def __init__(self, binaries: Path, options: dict[str, str] | None = None) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="streamhouse-postgres-"))
        self._place.chmod(0o755)
        super().__init__(
            self._place / "server",
            binaries=binaries,
            port=free_port(),
            log_path=self._place / "log",
            password=None,
            options=OPTIONS | (options or {}),
        )

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._place, ignore_errors=True)

    def restart(self) -> None:
        self.kill()
        self.start()

    def standby(self) -> "RealPostgres":
        """Another server that follows this one; to be entered, and promoted, by whoever asked."""
        return _Standby(self)

    def promote(self) -> None:
        self.run_tool("pg_ctl", "-D", str(self.data), "-w", "promote")

    def fill(self) -> None:
        """A copy of a folder that `initdb` has filled, once for all servers and runs."""
        TEMPLATES.mkdir(parents=True, exist_ok=True)
        made = os.stat(self._binaries / "initdb")
        template = TEMPLATES / f"{made.st_ino}-{made.st_mtime_ns}-{os.getuid()}"
        with (TEMPLATES / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                super().fill()
                unfinished = template.with_suffix(f".{os.getpid()}")
                _copy(self.data, unfinished)
                unfinished.rename(template)
        if not self.data.exists():
            _copy(template, self.data)
        rules = self.data / "pg_hba.conf"
        rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + rules.read_text())


def _copy(source: Path, target: Path) -> None:
    """With owners, since the server runs as another user where root runs the tests."""
    subprocess.run(["cp", "-a", source, target], check=True)


class _Standby(RealPostgres):
    def __init__(self, primary: RealPostgres) -> None:
        super().__init__(primary._binaries, primary._options)
        self._primary = primary

    def fill(self) -> None:
        source = ["-h", "127.0.0.1", "-p", str(self._primary.port), "-U", USER]
        self.run_tool("pg_basebackup", *source, "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "--no-sync")


# --- databases ----------------------------------------------------------------------------------------------------


class Databases:
    """Databases on one server for tests, each of which gets one to itself."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._made = 0
        self.spare: list[str] = []

    async def create(self) -> str:
        """The DSN of a new database."""
        self._made += 1
        name = f"test_{os.getpid()}_{self._made}"
        await self.run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        return self.named(name)

    async def drop(self, dsn: str) -> None:
        await self.run(f"DROP DATABASE IF EXISTS {database_of(dsn)} WITH (FORCE)")

    async def empty(self, dsn: str) -> None:
        """Make it as it was when its tables had just been created, which is quicker than another database."""
        connection = await asyncpg.connect(dsn)
        try:
            if filled := await _filled(connection):
                await connection.execute(f"TRUNCATE {', '.join(filled)} CASCADE")
            await connection.execute(f"UPDATE counters SET value = 0; {BEGIN_AGAIN}")
        finally:
            await connection.close()

    async def run(self, *statements: str, dsn: str | None = None) -> None:
        connection = await asyncpg.connect(dsn or self._dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    def named(self, name: str) -> str:
        parts = urlsplit(self._dsn)
        return urlunsplit(parts._replace(path=f"/{name}"))


KEPT: Final = ("schema_version", "counters")
BEGIN_AGAIN: Final = "SELECT setval(sequencename::regclass, 1, false) FROM pg_sequences WHERE schemaname = 'public'"


async def _filled(connection: asyncpg.Connection) -> list[str]:
    """A test writes to a few tables; to truncate one, and there are dozens, costs more than to look into it."""
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    names = [row["tablename"] for row in tables if row["tablename"] not in KEPT]
    looks = (f"SELECT '{name}' AS name WHERE EXISTS (SELECT FROM {name})" for name in names)
    return [row["name"] for row in await connection.fetch(" UNION ALL ".join(looks))]


def database_of(dsn: str) -> str:
    return urlsplit(dsn).path.removeprefix("/")


# --- a clock ------------------------------------------------------------------------------------------------------

CLOCK: Final = (
    "CREATE SCHEMA manual",
    "CREATE TABLE manual.clock (now_ms BIGINT NOT NULL)",
    "INSERT INTO manual.clock VALUES (0)",
    "CREATE FUNCTION manual.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE "
    "AS 'SELECT to_timestamp(now_ms / 1000.0) FROM manual.clock'",
)
BY_HAND: Final = "search_path=public,manual,pg_catalog"  # here `clock_timestamp()` is the one of `manual`


class DatabaseClock(ManualClock):
    """A manual clock that the database reads, too. It is moved by plain calls, so a thread talks to the server."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="database clock")
        self._thread.start()
        self._connection = self._wait(asyncpg.connect(dsn))
        self._show()

    def advance(self, *, ms: int) -> None:
        super().advance(ms=ms)
        self._show()

    def close(self) -> None:
        self._wait(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _show(self) -> None:
        self._wait(self._connection.execute("UPDATE manual.clock SET now_ms = $1", self.now_ms()))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(_awaited(work), self._loop).result(timeout=30)


async def _awaited(work: Any) -> Any:
    return await work
