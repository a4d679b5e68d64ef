"""The shared statements, as PostgreSQL reads them.

Data path   `transactions` -> **dialect** -> server
Owns        the two differences that need no statement of their own (how parameters and lists are written), and the
            names of the statements that only this engine has
Leaves      the other differences to `sql/postgres/`, where one statement takes the place of a shared one
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

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
