"""Tables: what a database's catalog says of one: its columns, what a key may be, how large it is.

Data path   connector -> **tables** -> the catalog; once for a read or a write, on the driver
Owns        finding a table, whether a frame's columns go into it, errors that say which column doesn't
Leaves      types to `types`, rows to `reading` and `writing`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from streamhouse.errors import Rejected
from streamhouse.model.identifiers import quote_postgresql_identifier as quoted
from streamhouse.spark.connectors.postgresql.connections import opened
from streamhouse.spark.connectors.postgresql.types import fits, suggested

_FIND: Final = """
SELECT c.oid, n.nspname AS schema, c.relname AS name, pg_relation_size(c.oid) AS size_bytes,
       has_table_privilege(c.oid, 'SELECT') AS may_read, has_table_privilege(c.oid, 'INSERT') AS may_insert,
       has_table_privilege(c.oid, 'UPDATE') AS may_update
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"""
_COLUMNS: Final = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, t.typname, a.atttypmod AS typmod,
       e.typname AS element, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AS is_needed,
       a.attgenerated <> '' OR a.attidentity = 'a' AS is_made
  FROM pg_attribute a
  JOIN pg_type d ON d.oid = a.atttypid
  JOIN pg_type t ON t.oid = CASE WHEN d.typtype = 'd' THEN d.typbasetype ELSE d.oid END
  LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum"""
_KEYS: Final = """
SELECT array_agg(a.attname::text) AS columns,
       coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false) AS nulls_match
  FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
 WHERE i.indrelid = $1 AND i.indisunique AND i.indimmediate AND i.indisvalid
   AND i.indpred IS NULL AND i.indexprs IS NULL
 GROUP BY i.indexrelid, i.*"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """`type` as CREATE TABLE says it; `is_needed`: a row can't do without; `is_made`: the database fills it."""

    name: str
    type: str
    typname: str
    typmod: int
    element: str | None
    is_needed: bool
    is_made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKey:
    columns: frozenset[str]
    nulls_match: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    connection: str
    schema: str
    name: str
    size_bytes: int
    may_read: bool
    may_insert: bool
    may_update: bool
    columns: tuple[TableColumn, ...]
    keys: tuple[UniqueKey, ...]

    @property
    def told(self) -> str:
        return f"connection={self.connection} table={self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


async def find_table(connection: str, name: str) -> FoundTable | None:
    """The table as the connection's user sees it; None where there is none of the name."""
    async with opened(connection) as link:
        found = await link.fetchrow(_FIND, name)
        if found is None:
            return None
        columns = await link.fetch(_COLUMNS, found["oid"])
        keys = await link.fetch(_KEYS, found["oid"])
    facts = {field: found[field] for field in ("schema", "name", "size_bytes", "may_read", "may_insert", "may_update")}
    return FoundTable(
        connection=connection,
        **facts,
        columns=tuple(TableColumn(**dict(row)) for row in columns),
        keys=tuple(UniqueKey(columns=frozenset(row["columns"]), nulls_match=row["nulls_match"]) for row in keys),
    )


def missing_table(connection: str, name: str, schema: StructType | None = None, key: Sequence[str] = ()) -> Rejected:
    told = f"no such table; connection={connection} table={name}"
    if schema is None:
        return Rejected(f"{told} do=create it, or correct the option table")
    columns = [f"{quoted(field.name)} {suggested(field.dataType)}" for field in schema.fields]
    columns += [f"PRIMARY KEY ({', '.join(map(quoted, key))})"] if key else []
    return Rejected(f"{told} do=create it: CREATE TABLE {name} ({', '.join(columns)})")


def check_readable(table: FoundTable) -> None:
    if not table.may_read:
        raise Rejected(f"no rights to read; {table.told} do=GRANT SELECT ON {table.sql_name} TO the connection's user")


def check_writable(table: FoundTable, schema: StructType, key: Sequence[str]) -> UniqueKey | None:
    """Raise `Rejected` unless rows of the schema can be written; returns the index that keeps the key unique."""
    _check_rights(table, upserts=bool(key))
    known = {column.name: column for column in table.columns}
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise Rejected(
                f"the table has no such column; {table.told} column={field.name} columns={','.join(known)}"
                f" do=ALTER TABLE {table.sql_name} ADD COLUMN {quoted(field.name)} {suggested(field.dataType)},"
                " or leave it out"
            )
        _check_type(table, column, field.dataType)
    missing = [column.name for column in table.columns if column.is_needed and column.name not in schema.names]
    if missing:
        raise Rejected(
            f"the table needs a column that the rows don't have; {table.told} column={missing[0]}"
            " do=select it, or give it a default"
        )
    return _unique_key(table, schema, key) if key else None


def _check_rights(table: FoundTable, *, upserts: bool) -> None:
    wanted = {"INSERT": table.may_insert}
    if upserts:  # a row that is there is looked at, and changed
        wanted |= {"UPDATE": table.may_update, "SELECT": table.may_read}
    if missing := [right for right, is_given in wanted.items() if not is_given]:
        rights = ", ".join(missing)
        raise Rejected(
            f"no rights to write; {table.told} do=GRANT {rights} ON {table.sql_name} TO the connection's user"
        )


def _check_type(table: FoundTable, column: TableColumn, kind: Any) -> None:
    told = f"{table.told} column={column.name}"
    if column.is_made:
        raise Rejected(f"the database fills this column by itself; {told} do=leave it out of the query")
    if not fits(kind, column.typname, is_array=column.element is not None):
        raise Rejected(
            f"a column's type doesn't fit; {told} type={column.type} given={kind.simpleString()}"
            f" do=CAST it in the query, or make the column {suggested(kind)}"
        )


def _unique_key(table: FoundTable, schema: StructType, key: Sequence[str]) -> UniqueKey:
    if absent := [name for name in key if name not in schema.names]:
        raise Rejected(f"a column of the key isn't in the rows; {table.told} column={absent[0]} do=select it")
    for unique in table.keys:
        if unique.columns == frozenset(key):
            return unique
    columns = ", ".join(map(quoted, key))
    raise Rejected(
        f"the table can't be updated by this key; {table.told} key={', '.join(key)}"
        f" do=CREATE UNIQUE INDEX ON {table.sql_name} ({columns})"
    )
