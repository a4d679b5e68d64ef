"""Lake tables as statements: what `streamhouse tables create` asks for, in SQL.

Owns        the table's definition and the pipeline that fills it, as text; what of a table is for good
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
"""The option that names the topic whose settings made a table, and will end it."""
NO_DELETED: Final = "WHERE NOT _deleted"
OTHER_QUERY: Final = "a query of its own"
"""Instead of a topic: somebody wrote the pipeline in SQL."""

_FORMER: Final = re.compile(r"SELECT \*[, a-z_]* FROM STREAM\(`((?:[^`]|``)+)`\)(?: " + NO_DELETED + ")?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTableSpec:
    """A topic as a lake table. `options` are those of the table, besides mode and location.

    `settings_of` is the topic whose settings ask for the table; empty where somebody made it by command or in SQL.
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
    place = {"connector": table.connector, "location": table.location, "mode": table.mode, **table.options}
    place |= {SETTINGS_OF: table.settings_of} if table.settings_of else {}
    pipeline = {"trigger": f"{parse_duration_ms(table.commit_interval)} milliseconds"}
    pipeline |= {"key": join_identifiers(table.key)} if table.key else {}
    pipeline |= {"dead_letters": table.dead_letters} if table.dead_letters else {}
    pipeline |= {"starting": table.starting} if table.starting else {}
    name = quote_identifier(table.name)
    return (
        f"CREATE OR REPLACE TABLE {name} WITH ({_options(place)});\n"
        f"CREATE OR REPLACE PIPELINE {name} WITH ({_options(pipeline)}) AS\n"
        f"  INSERT INTO {name} {_query(table)};\n"
    )


def _query(table: LakeTableSpec) -> str:
    stream = f"STREAM({quote_identifier(table.topic)})"
    if table.mode == UPSERT:
        # Which record is the latest of its key, and which is the end of it, is told by columns about records.
        return f"SELECT *, _key, _partition, _offset, _deleted FROM {stream}"
    # A record without a value is no row: there is nothing to be found in it.
    return f"SELECT * FROM {stream} {NO_DELETED}"


# --- what is there already


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that stays as it was for as long as there is the table."""

    what: str
    was: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.what} is {self.was or 'none'}, not {self.wanted or 'none'}"


def stored_table(table: Mapping[str, Any], pipeline: Mapping[str, Any] | None) -> LakeTableSpec:
    """What agents keep, as it would be asked for; `topic` is empty where nobody writes the table."""
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


def is_same(kept: LakeTableSpec, wanted: LakeTableSpec) -> bool:
    """Whether nothing has to be done to have what is wanted."""
    return replace(kept, commit_interval=_interval(kept)) == replace(wanted, commit_interval=_interval(wanted))


def _interval(table: LakeTableSpec) -> str:
    try:
        return str(parse_duration_ms(table.commit_interval))
    except ValueError:  # somebody gave the pipeline another trigger
        return table.commit_interval


def differences(kept: LakeTableSpec, wanted: LakeTableSpec) -> list[Difference]:
    """What of a table that is there is another than is asked for, and can't be changed: its files are as they are."""
    was, asked = (_for_good(each.connector, _table_options(each)) for each in (kept, wanted))
    if kept.topic:
        was |= {"topic": kept.topic, "key": join_identifiers(kept.key)}
        asked |= {"topic": wanted.topic, "key": join_identifiers(wanted.key)}
    return _differing(was, asked)


def table_differences(kept: Table, wanted: Table, writers: Iterable[tuple[str, ...]] = ()) -> list[Difference]:
    """The same of two definitions; nothing where the one that is there is no lake table.

    `writers` are the keys of pipelines that write it, empty where one goes by the table's: theirs go first.
    """
    if kept.connector not in LAKE:
        return []
    if wanted.connector not in LAKE:
        return [Difference(what="format", was=kept.connector.value, wanted=wanted.connector.value)]
    found = _differing(*(_for_good(each.connector.value, each.options) for each in (kept, wanted)))
    if not _is_keyed(kept):
        return found
    by_table = [(kept.key, wanted.key)] if kept.key else []
    keys = {(key or kept.key, key or wanted.key) for key in writers} or by_table
    return found + [each for was, asked in sorted(keys) for each in key_differences(was, asked)]


def writer_differences(target: Table | None, was: tuple[str, ...], asked: tuple[str, ...]) -> list[Difference]:
    """What would be another table because the pipeline that writes it has another key."""
    if target is None or target.connector not in LAKE or not _is_keyed(target):
        return []
    return key_differences(was or target.key, asked or target.key)


def key_differences(was: tuple[str, ...], asked: tuple[str, ...]) -> list[Difference]:
    return _differing({"key": join_identifiers(was)}, {"key": join_identifiers(asked)})


def _differing(was: Mapping[str, str], asked: Mapping[str, str]) -> list[Difference]:
    return [Difference(what=what, was=was[what], wanted=asked[what]) for what in was if was[what] != asked[what]]


def _for_good(connector: str, options: Mapping[str, str]) -> dict[str, str]:
    """What files and metadata are like from the first commit on, each in words that are always the same."""
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
    except ValueError:  # whoever opens the table says what is wrong with it
        return given


def _location(location: str) -> str:
    path = unquote(urlsplit(location).path) if location.startswith("file:") else location
    return path.rstrip("/")


def _topic(text: str) -> str:
    try:
        (statement,) = parse(text)
    except (StatementError, ValueError):
        return OTHER_QUERY
    found = _FORMER.fullmatch(statement.select.strip()) if isinstance(statement, CreatePipeline) else None
    return found[1].replace("``", "`") if found else OTHER_QUERY


def _options(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {quote_string(value)}" for name, value in given.items())
