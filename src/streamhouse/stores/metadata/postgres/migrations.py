"""Migrations of a PostgreSQL database, applied when a store is opened.

Data path   none; runs when a metadata store is opened
Owns        the minimum server version, one agent at a time under an advisory lock, all steps in one transaction
Leaves      the order of migrations to `metadata.statements`, the tables to `sql/postgres/migrations/`
"""

from typing import Final

import asyncpg

from streamhouse.errors import Misconfigured
from streamhouse.stores.metadata.postgres.connection import ENGINE, Connection, bind, server_statements
from streamhouse.stores.metadata.statements import Migration, due_migrations, load_migrations

OLDEST_SERVER: Final = 130000
_LOCK_WAIT: Final = "60s"  # how long to wait for another agent's migration


async def prepare_schema(connection: Connection, where: str) -> None:
    """Create or migrate the tables; raises `Misconfigured` if they, or the server, can't be used."""
    sql = server_statements()
    facts = await connection.fetchrow(sql.server_facts)
    assert facts is not None
    check_server(facts["version_number"], facts["encoding"], where)
    version = await connection.fetchval(sql.schema_version) if facts["has_tables"] else 0
    if not due_migrations(_migrations(), version=version):
        return
    try:
        await _migrate(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        if not version:
            raise
        raise Misconfigured(
            f"the metadata database is of an older release, and this user may not change its tables; "
            f"schema={version} needed={_migrations()[-1].version} where={where} user={facts['user_name']} "
            "do=start one agent as the tables' owner"
        ) from error


def check_server(version_number: int, encoding: str, where: str) -> None:
    if version_number < OLDEST_SERVER:
        raise Misconfigured(
            f"PostgreSQL is too old; version={version_number // 10000} needed={OLDEST_SERVER // 10000} where={where} "
            "do=upgrade the server"
        )
    if encoding != "UTF8":
        raise Misconfigured(
            f"the metadata database can't hold every text; encoding={encoding} needed=UTF8 where={where} "
            "do=create another one with ENCODING 'UTF8'"
        )


def _migrations() -> tuple[Migration, ...]:
    return load_migrations(ENGINE)


async def _migrate(connection: Connection) -> None:
    """Apply missing migrations in one transaction; concurrent agents take turns."""
    sql = server_statements()
    add = bind(sql.add_schema_version)
    async with connection.transaction():
        await connection.execute(f"SET LOCAL statement_timeout = '{_LOCK_WAIT}'")
        await connection.execute(sql.lock_schema)
        await connection.execute(sql.create_schema_version)
        version = await connection.fetchval(sql.schema_version)
        for migration in due_migrations(_migrations(), version=version):
            await connection.execute(migration.sql)
            now_ms = await connection.fetchval(sql.now_ms)
            values = {"version": migration.version, "name": migration.name, "applied_at_ms": now_ms}
            await connection.execute(add.text, *(values[name] for name in add.names))
