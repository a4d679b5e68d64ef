"""Schema versions: numbered `.sql` files, applied once each, in order.

Data path   none; runs when a metadata store is opened
Owns        the order of migrations, and refusing a database that is newer than this code
Leaves      the tables to `migrations/` of each engine in `sql/`, transactions to the engine that runs the steps
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from streamhouse.errors import Internal, Misconfigured
from streamhouse.stores.metadata.statements import SQL

_FILE: Final = re.compile(r"([0-9]{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    version: int
    name: str
    sql: str


@cache
def load_migrations(engine: str = "") -> tuple[Migration, ...]:
    """Every migration of an engine that has its own, by version: 1, 2, 3 … without a gap."""
    found = [
        Migration(version=int(match[1]), name=match[2], sql=path.read_text(encoding="utf-8"))
        for path in (SQL / engine / "migrations").iterdir()
        if (match := _FILE.fullmatch(path.name))
    ]
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise Internal(f"migrations have a gap; versions={[migration.version for migration in found]}")
    return tuple(found)


def due_migrations(known: Sequence[Migration], *, version: int) -> Sequence[Migration]:
    """What a database of this version still needs; raise `Misconfigured` when it is newer than the code."""
    newest = known[-1].version if known else 0
    if version > newest:
        raise Misconfigured(
            f"the metadata database was written by a newer release; schema={version} supported={newest} "
            "do=run that release or a later one, or point --metadata at another database"
        )
    return known[version:]


def split_script(sql: str) -> Iterator[str]:
    """The statements of a script one by one, so that they can share a transaction."""
    statement = ""
    for line in sql.splitlines():
        if not statement and (not line.strip() or line.startswith("--")):
            continue
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if statement.strip():
        raise Internal(f"migration ends in the middle of a statement; tail={statement.strip()!r}")
