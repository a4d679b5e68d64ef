"""Identifiers: names and texts as SQL writes them, so that they mean the same when they are read again.

Owns        quoting of names and strings for Spark's SQL and ours, of names for PostgreSQL; lists of names in options
Leaves      reading whole statements to `sql.lexer`

Every name that goes into a text of SQL, into a schema or into `col(…)` is quoted here: a column may be called anything.
"""

import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE: Final = re.compile(r"[^`,\s](?:[^`,]*[^`,\s])?")
_LISTED: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*[^`,\s]))\s*(,|\Z)")


def quote_identifier(name: str) -> str:
    """The name in backticks, for Spark's SQL and for our statements."""
    return "`" + name.replace("`", "``") + "`"


def quote_if_needed(name: str) -> str:
    """The name as it is where SQL can't take it for anything else, in backticks otherwise."""
    return name if _PLAIN.fullmatch(name) else quote_identifier(name)


def quote_string(text: str) -> str:
    """The text as a string literal, for Spark's SQL and for our statements."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def quote_postgresql_identifier(name: str) -> str:
    """The name in double quotes, for PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def join_identifiers(names: tuple[str, ...]) -> str:
    """Names with commas between, as `split_identifiers` reads them."""
    return ", ".join(name if _BARE.fullmatch(name) else quote_identifier(name) for name in names)


def split_identifiers(text: str) -> tuple[str, ...]:
    """The names of a list with commas between; those in backticks may hold commas. ValueError for anything else."""
    names: list[str] = []
    at, more = 0, True
    while more:
        match = _LISTED.match(text, at)
        if match is None:
            raise ValueError("names with commas between; a name with a comma or a backtick stands in backticks")
        names.append(match[1].replace("``", "`") if match[1] is not None else match[2].strip())
        at, more = match.end(), match[3] == ","
    return tuple(names)
