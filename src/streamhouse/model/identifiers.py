"""Quoting of identifiers and string literals in SQL.

Owns        quoting for Spark SQL, StreamHouse SQL and PostgreSQL; lists of names in options
Leaves      reading whole statements to `sql.lexer`

Every name in generated SQL, in a schema or in `col(…)` must be quoted, because column names may have any character.
"""

import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE: Final = re.compile(r"[^`,\s](?:[^`,]*[^`,\s])?")
_LISTED: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*[^`,\s]))\s*(,|\Z)")


def quote_identifier(name: str) -> str:
    """Quote a name with backticks, for Spark SQL and StreamHouse SQL."""
    return "`" + name.replace("`", "``") + "`"


def quote_if_needed(name: str) -> str:
    """Quote a name only if SQL could parse it as something else."""
    return name if _PLAIN.fullmatch(name) else quote_identifier(name)


def quote_string(text: str) -> str:
    """Quote a string literal, for Spark SQL and StreamHouse SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def quote_postgresql_identifier(name: str) -> str:
    """Quote a name with double quotes, for PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def join_identifiers(names: tuple[str, ...]) -> str:
    """Join names with commas; `split_identifiers` is the inverse."""
    return ", ".join(name if _BARE.fullmatch(name) else quote_identifier(name) for name in names)


def split_identifiers(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names; quoted names may contain commas. Raises `ValueError` if it is
    malformed."""
    names: list[str] = []
    at, more = 0, True
    while more:
        match = _LISTED.match(text, at)
        if match is None:
            raise ValueError("names with commas between; a name with a comma or a backtick stands in backticks")
        names.append(match[1].replace("``", "`") if match[1] is not None else match[2].strip())
        at, more = match.end(), match[3] == ","
    return tuple(names)
