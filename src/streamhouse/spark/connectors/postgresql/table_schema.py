"""Columns, keys and types of a PostgreSQL table, and which Spark columns can be written to it.

Data path   none; on the driver, once per read or write
Owns        finding a table; types in both directions; CSV forms of bytes, arrays and JSON; errors that name the
            column
Leaves      rows to `connector` and `writer`

Types are checked before a query runs: a text can't be written to a number. The database checks each value's width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.types import StructType

from streamhouse.errors import Rejected
from streamhouse.model.identifiers import quote_identifier
from streamhouse.model.identifiers import quote_postgresql_identifier as quoted
from streamhouse.spark.connectors.postgresql.connection import connect

TEXT: Final = "text"
UTC_MICROSECONDS: Final = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadType:
    """How a column leaves the database: `select` makes its CSV, `arrow` reads it, `spark` is what it is to be.

    `{}` in `select` is replaced by the column; `restore` is an expression of Spark's where Arrow can't make the value.
    """

    spark: st.DataType
    arrow: Any
    select: str = "{}"
    restore: str | None = None
    is_quoted: bool = False


_STRING: Final = ReadType(spark=st.StringType(), arrow=pa.string(), select="{}::text", is_quoted=True)
_EPOCH: Final = "CASE WHEN isfinite({}) THEN (extract(epoch FROM {}) * 1000000)::bigint END"
_SIMPLE: Final[Mapping[str, ReadType]] = {
    "bool": ReadType(spark=st.BooleanType(), arrow=pa.bool_()),
    "int2": ReadType(spark=st.ShortType(), arrow=pa.int16()),
    "int4": ReadType(spark=st.IntegerType(), arrow=pa.int32()),
    "int8": ReadType(spark=st.LongType(), arrow=pa.int64()),
    "float4": ReadType(spark=st.FloatType(), arrow=pa.float32()),
    "float8": ReadType(spark=st.DoubleType(), arrow=pa.float64()),
    "date": ReadType(
        spark=st.DateType(), arrow=pa.date32(), select="CASE WHEN isfinite({}) THEN {} - DATE '1970-01-01' END"
    ),
    "timestamptz": ReadType(spark=st.TimestampType(), arrow=UTC_MICROSECONDS, select=_EPOCH),
    "timestamp": ReadType(spark=st.TimestampNTZType(), arrow=pa.timestamp("us"), select=_EPOCH),
    "bytea": ReadType(
        spark=st.BinaryType(), arrow=pa.string(), select="encode({}, 'hex')", restore="unhex({})", is_quoted=True
    ),
}
MAX_DIGITS: Final = 38
UNBOUNDED: Final = (38, 18)
"""Digits and scale of a numeric without them, as Spark's own reader has it."""


def read_type(typname: str, typmod: int, *, element: str | None) -> ReadType:
    """The Spark type of a column; `element` is the type of an array's elements. What is not known is its text."""
    if element is not None:
        kind = _SIMPLE.get(element, _STRING).spark
        if isinstance(kind, st.BinaryType | st.TimestampType | st.TimestampNTZType | st.DateType):
            kind = st.StringType()
        array = st.ArrayType(kind)
        restore = f"from_json({{}}, '{array.simpleString()}')"
        return ReadType(spark=array, arrow=pa.string(), select="to_jsonb({})::text", restore=restore, is_quoted=True)
    if typname == "numeric":
        return _numeric(typmod)
    return _SIMPLE.get(typname, _STRING)


def _numeric(typmod: int) -> ReadType:
    precision, scale = UNBOUNDED
    if typmod >= 4:  # PostgreSQL keeps both in one number, behind a header of four bytes; the scale may be negative
        precision, scale = (typmod - 4) >> 16, (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    if not (0 <= scale <= precision <= MAX_DIGITS):
        precision, scale = UNBOUNDED
    select = f"NULLIF({{}}, 'NaN')::numeric({precision}, {scale})"
    return ReadType(spark=st.DecimalType(precision, scale), arrow=pa.decimal128(precision, scale), select=select)


# --- into the database

_INTEGERS: Final = ("int2", "int4", "int8")
_FLOATS: Final = ("float4", "float8")
_TEXTS: Final = (TEXT, "varchar", "bpchar", "citext")
_JSON: Final = ("json", "jsonb")
_TIMES: Final = ("timestamptz", "timestamp")
_NOT_FROM_TEXT: Final = (*_INTEGERS, *_FLOATS, "numeric", "bool", "bytea", "date", *_TIMES, "time", "timetz")


def can_write(spark: st.DataType, typname: str, *, is_array: bool) -> bool:
    """Whether values of a type of Spark's can become values of a column."""
    if is_array:
        return isinstance(spark, st.ArrayType) and _is_plain(spark.elementType)
    match spark:
        case st.ByteType() | st.ShortType() | st.IntegerType() | st.LongType():
            return typname in (*_INTEGERS, *_FLOATS, "numeric", *_TEXTS)
        case st.DecimalType():
            return typname in ("numeric", *_FLOATS, *_TEXTS) or (spark.scale == 0 and typname in _INTEGERS)
        case st.FloatType() | st.DoubleType():
            return typname in (*_FLOATS, "numeric", *_TEXTS)
        case st.BooleanType():
            return typname in ("bool", *_TEXTS)
        case st.DateType():
            return typname in ("date", *_TIMES, *_TEXTS)
        case st.TimestampType() | st.TimestampNTZType():
            return typname in (*_TIMES, *_TEXTS)
        case st.BinaryType():
            return typname == "bytea"
        case st.StructType() | st.MapType() | st.ArrayType() | st.VariantType():
            return typname in (*_JSON, *_TEXTS)
        case st.StringType():
            return typname not in _NOT_FROM_TEXT
        case _:
            return False


def _is_plain(kind: st.DataType) -> bool:
    return isinstance(kind, st.NumericType | st.StringType | st.BooleanType)


def staging_type(name: str, spark: st.DataType) -> str:
    """Spark's expression for a value as CSV carries it into the database."""
    column = quote_identifier(name)
    match spark:
        case st.BinaryType():
            return f"concat('\\\\x', hex({column})) AS {column}"
        case st.StructType() | st.MapType() | st.ArrayType() | st.VariantType():
            return f"to_json({column}) AS {column}"
        case _:
            return column


def suggested_type(spark: st.DataType) -> str:
    """The type that a column for such values might have."""
    match spark:
        case st.ByteType() | st.ShortType():
            return "smallint"
        case st.IntegerType():
            return "integer"
        case st.LongType():
            return "bigint"
        case st.DecimalType():
            return f"numeric({spark.precision},{spark.scale})"
        case st.FloatType():
            return "real"
        case st.DoubleType():
            return "double precision"
        case st.BooleanType():
            return "boolean"
        case st.DateType():
            return "date"
        case st.TimestampType():
            return "timestamptz"
        case st.TimestampNTZType():
            return "timestamp"
        case st.BinaryType():
            return "bytea"
        case st.StringType():
            return "text"
        case _:
            return "jsonb"


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
    """`type` as in CREATE TABLE; `is_needed`: NOT NULL without a default; `is_made`: the database fills it."""

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
class TableInfo:
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
    def description(self) -> str:
        return f"connection={self.connection} table={self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


async def find_table(connection: str, name: str) -> TableInfo | None:
    """The table as the connection's user sees it; None where there is none of the name."""
    async with connect(connection) as link:
        row = await link.fetchrow(_FIND, name)
        if row is None:
            return None
        columns = await link.fetch(_COLUMNS, row["oid"])
        keys = await link.fetch(_KEYS, row["oid"])
    facts = {field: row[field] for field in ("schema", "name", "size_bytes", "may_read", "may_insert", "may_update")}
    return TableInfo(
        connection=connection,
        **facts,
        columns=tuple(TableColumn(**dict(each)) for each in columns),
        keys=tuple(UniqueKey(columns=frozenset(each["columns"]), nulls_match=each["nulls_match"]) for each in keys),
    )


def missing_table(connection: str, name: str, schema: StructType | None = None, key: Sequence[str] = ()) -> Rejected:
    problem = f"no such table; connection={connection} table={name}"
    if schema is None:
        return Rejected(f"{problem} do=create it, or correct the option table")
    columns = [f"{quoted(field.name)} {suggested_type(field.dataType)}" for field in schema.fields]
    columns += [f"PRIMARY KEY ({', '.join(map(quoted, key))})"] if key else []
    return Rejected(f"{problem} do=create it: CREATE TABLE {name} ({', '.join(columns)})")


def check_readable(table: TableInfo) -> None:
    if not table.may_read:
        raise Rejected(
            f"no rights to read; {table.description} do=GRANT SELECT ON {table.sql_name} TO the connection's user"
        )


def check_writable(table: TableInfo, schema: StructType, key: Sequence[str]) -> UniqueKey | None:
    """Raise `Rejected` unless rows of the schema can be written; returns the index that keeps the key unique."""
    _check_rights(table, upserts=bool(key))
    known = {column.name: column for column in table.columns}
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise Rejected(
                f"the table has no such column; {table.description} column={field.name} columns={','.join(known)}"
                f" do=ALTER TABLE {table.sql_name} ADD COLUMN {quoted(field.name)} {suggested_type(field.dataType)},"
                " or leave it out"
            )
        _check_type(table, column, field.dataType)
    missing = [column.name for column in table.columns if column.is_needed and column.name not in schema.names]
    if missing:
        raise Rejected(
            f"the table needs a column that the rows don't have; {table.description} column={missing[0]}"
            " do=select it, or give it a default"
        )
    return _unique_key(table, schema, key) if key else None


def _check_rights(table: TableInfo, *, upserts: bool) -> None:
    rights_needed = {"INSERT": table.may_insert}
    if upserts:  # a row that is there is looked at, and changed
        rights_needed |= {"UPDATE": table.may_update, "SELECT": table.may_read}
    if missing := [right for right, is_given in rights_needed.items() if not is_given]:
        rights = ", ".join(missing)
        raise Rejected(
            f"no rights to write; {table.description} do=GRANT {rights} ON {table.sql_name} TO the connection's user"
        )


def _check_type(table: TableInfo, column: TableColumn, kind: Any) -> None:
    description = f"{table.description} column={column.name}"
    if column.is_made:
        raise Rejected(f"the database fills this column by itself; {description} do=leave it out of the query")
    if not can_write(kind, column.typname, is_array=column.element is not None):
        raise Rejected(
            f"a column's type doesn't fit; {description} type={column.type} given={kind.simpleString()}"
            f" do=CAST it in the query, or make the column {suggested_type(kind)}"
        )


def _unique_key(table: TableInfo, schema: StructType, key: Sequence[str]) -> UniqueKey:
    if absent := [name for name in key if name not in schema.names]:
        raise Rejected(f"a column of the key isn't in the rows; {table.description} column={absent[0]} do=select it")
    for unique in table.keys:
        if unique.columns == frozenset(key):
            return unique
    columns = ", ".join(map(quoted, key))
    raise Rejected(
        f"the table can't be updated by this key; {table.description} key={', '.join(key)}"
        f" do=CREATE UNIQUE INDEX ON {table.sql_name} ({columns})"
    )
