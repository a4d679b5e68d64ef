"""Checks of table definitions, before anything reads or writes the table.

Data path   wire -> tables_and_views -> **table_definitions**
Owns        invalid definitions, and the locations that SQL workers and supervisors may access
Leaves      names to `tables_and_views`; values of options to `sql.options` and `spark`
"""

from collections.abc import Iterable
from typing import Final

from streamhouse.errors import InvalidDefinition
from streamhouse.model.table import (
    CONNECTION,
    LAKE,
    MADE_BY,
    Column,
    Connector,
    Table,
    is_under,
    lake_folder,
    parse_location,
)
from streamhouse.sql.options import TABLE_OPTIONS, is_one_type

_LOCATION_OPTIONS: Final = {Connector.FILES: "path", **dict.fromkeys(LAKE, "location")}
"""The option with the location of a table's rows."""
_OPTION_NAMES: Final = {
    "connection": "connection=warehouse, with its address in STREAMHOUSE_CONNECTION_WAREHOUSE where Spark runs",
    "catalog": "catalog=sales, with its address in PyIceberg's own configuration where Spark runs",
}
"""Options that name what an operator has configured."""


def has_same_location(before: Table, table: Table) -> bool:
    """Whether an existing lake table keeps its location; it stays valid when the setting changes."""
    return before.connector in LAKE and before.options.get("location") == table.options.get("location")


def check_location(table: Table, *, allowed: str, store: str) -> None:
    """Raise unless the table is below a folder that the operator allows (`tables.files_under`).

    Lake tables may also be in the agents' store, in its folder for lake tables.
    """
    option = _LOCATION_OPTIONS.get(table.connector)
    if option is None or (option == "location" and option not in table.options):  # a catalog knows where
        return
    roots = [root.strip() for root in allowed.split(",") if root.strip()]
    option_value = table.options.get(option, "")
    location = option_value
    if option == "location":
        lake = lake_folder(store)
        roots = ([lake] if lake else []) + [_lake_location(root) for root in roots]
        location = _lake_location(option_value)
    if not any(is_under(location, root) for root in roots):
        raise InvalidDefinition(
            f"tables may not lie there; table={table.name} {option}={option_value[:200]} "
            f"allowed={', '.join(roots) or 'nowhere'} "
            "do=let the agents' operator set tables.files_under to a folder above it"
        )


def _lake_location(location: str) -> str:
    """The location as the table's reader parses it; `s3a://` is Spark's scheme for buckets."""
    try:
        return parse_location("s3://" + location.removeprefix("s3a://") if location.startswith("s3a://") else location)
    except ValueError:  # nowhere
        return ""


def check_definition(table: Table, *, limit: int) -> None:
    if table.connector is Connector.VIEW:
        raise InvalidDefinition(f"a view is made by CREATE MATERIALIZED VIEW; name={table.name}")
    names = [column.name for column in table.columns or ()]
    if len(set(names)) < len(names):
        raise InvalidDefinition(f"a column is named twice; table={table.name}")
    _check_options(table)
    check_types(table.name, table.columns)
    if table.columns is not None and (odd := [name for name in table.key if name not in names]):
        raise InvalidDefinition(f"a column of the key isn't one of the table; table={table.name} column={odd[0][:100]}")
    texts = [table.text or "", *names, *(column.type for column in table.columns or ()), *table.key]
    size = sum(len(text.encode()) for text in [*texts, *table.options, *table.options.values()])
    if size > limit:
        raise InvalidDefinition(
            f"a definition is too large; table={table.name} limit_bytes={limit} setting=tables.max_definition_bytes"
        )


def _check_options(table: Table) -> None:
    known = TABLE_OPTIONS[table.connector]
    ours = (MADE_BY,) if table.connector is Connector.TOPIC else ()
    if unknown := [name for name in table.options if name not in (*known, *ours)]:
        raise InvalidDefinition(
            f"unknown option; table={table.name} option={unknown[0][:100]}"
            f" do=known for {table.connector.value} are {', '.join(known) or 'none'}"
        )
    for option, do in _OPTION_NAMES.items():
        is_needed = option in table.options or (option == "connection" and option in known)
        if is_needed and not CONNECTION.fullmatch(table.options.get(option, "")):
            raise InvalidDefinition(f"a {option} is named, not written out; table={table.name} do={do}")


def check_types(name: str, columns: Iterable[Column] | None) -> None:
    """Raise `InvalidDefinition` for a column whose type is more than a type, or none."""
    for column in columns or ():
        if not is_one_type(column.type):
            raise InvalidDefinition(
                f"a column has no type of Spark's SQL; name={name} column={column.name[:100]}"
                f" type={column.type[:100]} do=STRING, BIGINT, DECIMAL(9, 2), ARRAY<…>, STRUCT<a: INT>"
            )
