"""Lake tables as statements: the SQL that `streamhouse tables create` runs.

Owns        the table's definition and the pipeline that fills it, as text; which properties of a table can't change
Leaves      running it to `spark.pipelines`
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from streamhouse.errors import StatementError
from streamhouse.model.identifiers import join_identifiers, quote_identifier, quote_string
from streamhouse.model.table import LAKE, Connector, Table, parse_partitions
from streamhouse.sql.options import parse_duration_ms
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline

UPSERT: Final = "upsert"
SETTINGS_OF: Final = "settings_of"
"""The option that names the topic whose settings created a table, and will delete it."""
NO_DELETED: Final = "WHERE NOT _deleted"
OTHER_QUERY: Final = "a query of its own"
"""Instead of a topic: the pipeline was written in SQL."""

_FORMER: Final = re.compile(r"SELECT \*[, a-z_]* FROM STREAM\(`((?:[^`]|``)+)`\)(?: " + NO_DELETED + ")?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTableSpec:
    """A topic as a lake table. `options` are those of the table, besides mode and location.

    `settings_of` is the topic whose settings require the table; empty if it was made by a command or in SQL.
    """

    name: str
    topic: str
    connector: str
    location: str
    mode: str = "append"
    key: tuple[str, ...] = ()
    commit_interval: str = "1m"
    dead_letters: str | None = None
    starting: str | None = None
    settings_of: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


def statements_of(table: LakeTableSpec) -> str:
    """`CREATE TABLE` and `CREATE PIPELINE`, each with a semicolon."""
    options = {"connector": table.connector, "location": table.location, "mode": table.mode, **table.options}
    options |= {SETTINGS_OF: table.settings_of} if table.settings_of else {}
    pipeline = {"trigger": f"{parse_duration_ms(table.commit_interval)} milliseconds"}
    pipeline |= {"key": join_identifiers(table.key)} if table.key else {}
    pipeline |= {"dead_letters": table.dead_letters} if table.dead_letters else {}
    pipeline |= {"starting": table.starting} if table.starting else {}
    name = quote_identifier(table.name)
    return (
        f"CREATE OR REPLACE TABLE {name} WITH ({_options(options)});\n"
        f"CREATE OR REPLACE PIPELINE {name} WITH ({_options(pipeline)}) AS\n"
        f"  INSERT INTO {name} {_query(table)};\n"
    )


def _query(table: LakeTableSpec) -> str:
    stream = f"STREAM({quote_identifier(table.topic)})"
    if table.mode == UPSERT:
        # Metadata columns show which record is the latest of its key, and which is a tombstone.
        return f"SELECT *, _key, _partition, _offset, _deleted FROM {stream}"
    # A record without a value is not a row.
    return f"SELECT * FROM {stream} {NO_DELETED}"


# --- comparison with stored tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A property that can't change during the life of a table."""

    what: str
    was: str
    requested: str

    def __str__(self) -> str:
        return f"{self.what} is {self.was or 'none'}, not {self.requested or 'none'}"


def stored_table(table: Mapping[str, Any], pipeline: Mapping[str, Any] | None) -> LakeTableSpec:
    """The spec of a stored table; `topic` is empty if no pipeline writes the table."""
    options, writer = dict(table.get("options") or {}), pipeline or {}
    given = writer.get("options") or {}
    return LakeTableSpec(
        name=table["name"],
        topic=_topic(writer["text"]) if pipeline else "",
        connector=table["connector"],
        location=options.pop("location", ""),
        mode=options.pop("mode", "append").lower(),
        key=tuple(writer.get("key") or table.get("key") or ()),
        commit_interval=given.get("trigger", ""),
        dead_letters=given.get("dead_letters"),
        starting=given.get("starting"),
        settings_of=options.pop(SETTINGS_OF, ""),
        options=options,
    )


def is_same(stored: LakeTableSpec, requested: LakeTableSpec) -> bool:
    """Whether the stored table already is as requested."""
    return replace(stored, commit_interval=_interval(stored)) == replace(
        requested, commit_interval=_interval(requested)
    )


def _interval(table: LakeTableSpec) -> str:
    try:
        return str(parse_duration_ms(table.commit_interval))
    except ValueError:  # a trigger that is no duration
        return table.commit_interval


def differences(stored: LakeTableSpec, requested: LakeTableSpec) -> list[Difference]:
    """Return the requested properties that differ and can't change, because the table's files depend on them."""
    old, new = (_fixed_properties(each.connector, _table_options(each)) for each in (stored, requested))
    if stored.topic:
        old |= {"topic": stored.topic, "key": join_identifiers(stored.key)}
        new |= {"topic": requested.topic, "key": join_identifiers(requested.key)}
    return _differing(old, new)


def table_differences(stored: Table, requested: Table, writers: Iterable[tuple[str, ...]] = ()) -> list[Difference]:
    """Compare two definitions; empty if the stored one is not a lake table.

    `writers` are the keys of the pipelines that write the table; an empty one stands for the table's own key.
    """
    if stored.connector not in LAKE:
        return []
    if requested.connector not in LAKE:
        return [Difference(what="format", was=stored.connector.value, requested=requested.connector.value)]
    differing = _differing(*(_fixed_properties(each.connector.value, each.options) for each in (stored, requested)))
    if not _is_keyed(stored):
        return differing
    by_table = [(stored.key, requested.key)] if stored.key else []
    keys = {(key or stored.key, key or requested.key) for key in writers} or by_table
    return differing + [each for old, new in sorted(keys) for each in key_differences(old, new)]


def writer_differences(target: Table | None, old: tuple[str, ...], new: tuple[str, ...]) -> list[Difference]:
    """Return the differences that a new key of the pipeline makes to the table that it writes."""
    if target is None or target.connector not in LAKE or not _is_keyed(target):
        return []
    return key_differences(old or target.key, new or target.key)


def key_differences(old: tuple[str, ...], new: tuple[str, ...]) -> list[Difference]:
    return _differing({"key": join_identifiers(old)}, {"key": join_identifiers(new)})


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    return [Difference(what=what, was=old[what], requested=new[what]) for what in old if old[what] != new[what]]


def _fixed_properties(connector: str, options: Mapping[str, str]) -> dict[str, str]:
    """The properties that are fixed by the first commit, normalised."""
    return {
        "format": connector,
        "mode": options.get("mode", "append").strip().lower(),
        "partition_by": _partitions(options.get("partition_by", "")),
        "location": _location(options.get("location", "")),
        "catalog": options.get("catalog", ""),
        "table": options.get("table", ""),
    }


def _table_options(table: LakeTableSpec) -> dict[str, str]:
    return {**table.options, "mode": table.mode, "location": table.location}


def _is_keyed(table: Table) -> bool:
    return table.options.get("mode", "").strip().lower() == UPSERT and table.connector is not Connector.PARQUET


def _partitions(given: str) -> str:
    try:
        return ", ".join(map(str, parse_partitions(given))) if given else ""
    except ValueError:  # reported when the table is opened
        return given


def _location(location: str) -> str:
    path = unquote(urlsplit(location).path) if location.startswith("file:") else location
    return path.rstrip("/")


def _topic(text: str) -> str:
    try:
        (statement,) = parse(text)
    except (StatementError, ValueError):
        return OTHER_QUERY
    match = _FORMER.fullmatch(statement.select.strip()) if isinstance(statement, CreatePipeline) else None
    return match[1].replace("``", "`") if match else OTHER_QUERY


def _options(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {quote_string(value)}" for name, value in given.items())
