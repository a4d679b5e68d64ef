"""Tables of SQL (topics, external tables, views) with their columns; lake tables of topics.

Owns        columns, options and location of a table; partitions of a lake table (`day(ts), bucket(16, id), country`);
            which of a topic's `table.*` settings contradict each other
Leaves      the text of CREATE TABLE to `sql.parser`, names and types of settings to `topic_settings`, reading and
            writing to `spark`

A topic is a table without a definition. A definition adds columns and a format, or names another location. Invalid
values raise `ValueError` with the allowed ones; settings that contradict each other raise `InvalidConfig`.
"""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import unquote, urlsplit

from streamhouse.errors import InvalidConfig
from streamhouse.model.identifiers import split_identifiers
from streamhouse.model.tenant import tenant_of


class Connector(StrEnum):
    """The connector of a table."""

    TOPIC = "topic"
    FILES = "files"
    POSTGRESQL = "postgresql"
    CONSOLE = "console"
    VIEW = "view"
    ICEBERG = "iceberg"
    DELTA = "delta"
    PARQUET = "parquet"


CONNECTION: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""Valid names of connections to databases."""
MADE_BY: Final = "pipeline"
"""The option with the pipeline that created a topic's definition; not allowed in SQL."""
LAKE: Final = (Connector.ICEBERG, Connector.DELTA, Connector.PARQUET)
"""Formats of lake tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`type` is a type of Spark's SQL: `BIGINT`, `STRUCT<id: INT>`."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table. `columns` None: inferred when it is read; `key` names columns; `text` is its CREATE TABLE, if any."""

    name: str
    connector: Connector
    columns: tuple[Column, ...] | None = None
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None


_LEADING_UP: Final = re.compile(r"\.\.|[\\\x00-\x1f]|%2e|\{[^}]*/|/[^{]*\}", re.IGNORECASE)
"""Patterns that may match `..` when wildcards and escapes are expanded: `.\\./`, a slash between braces `{/.,x}./`."""


def is_under(path: str, root: str) -> bool:
    """Whether `path`, which may have wildcards, can only match `root` and paths below it.

    Both are absolute paths of the local file system, or URLs.
    """
    path, root = _absolute(path), _absolute(root)
    is_absolute = path.startswith("/") or "://" in path
    return bool(root) and is_absolute and not _LEADING_UP.search(path) and (path == root or path.startswith(f"{root}/"))


def _absolute(path: str) -> str:
    """The canonical form of a local path or URL, without a trailing slash."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path.rstrip("/")


IDENTITY: Final = "identity"
TIMES: Final = ("year", "month", "day", "hour")
WITH_NUMBER: Final = ("bucket", "truncate")
"""Transforms that only Iceberg supports."""
MAX_PARTITIONS: Final = 8

_PLAIN: Final = re.compile(r"`?([^`(),]+?)`?")
_CALL: Final = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?`?([^`(),]+?)`?\s*(?:,\s*(\d+)\s*)?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """`day(ts)`: transform and column; `width` is the number of `bucket(16, id)` and `truncate(4, name)`."""

    column: str
    transform: str = IDENTITY
    width: int = 0

    @property
    def name(self) -> str:
        """The name of the partition field: the column's if it has no transform."""
        return self.column if self.transform == IDENTITY else f"{self.column}_{self.transform}"

    def __str__(self) -> str:
        if self.transform == IDENTITY:
            return self.column
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{self.column})"


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """`day(ts), bucket(16, id), country`."""
    parts = re.findall(r"(?:[^,(]|\([^)]*\))+", text)
    partitions = tuple(_partition(each.strip()) for each in parts if each.strip())
    names = {each.name for each in partitions}
    if (
        not partitions
        or len(partitions) > MAX_PARTITIONS
        or len(names) < len(partitions)
        or text.count("(") != text.count(")")
    ):
        raise ValueError("columns or transforms of them, like 'day(ts), country'")
    return partitions


def _partition(text: str) -> Partition:
    if plain := _PLAIN.fullmatch(text):
        return Partition(column=plain[1])
    call = _CALL.fullmatch(text)
    transform, number = (call[1].lower().removesuffix("s"), call[2] or call[4]) if call else ("", None)
    if call and transform in (*TIMES, IDENTITY) and number is None:
        return Partition(column=call[3], transform=transform)
    if call and transform in WITH_NUMBER and number is not None and int(number) > 0:
        return Partition(column=call[3], transform=transform, width=int(number))
    raise ValueError(
        "columns or transforms of them: year(ts), month(ts), day(ts), hour(ts), bucket(16, id), truncate(4, name)"
    )


NO_TABLE: Final = "none"
FORMATS: Final = (NO_TABLE, *(each.value for each in LAKE))
APPEND: Final = "append"
UPSERT: Final = "upsert"
COMMIT_INTERVAL_MS: Final = 60_000
SUFFIX: Final = "_lake"
"""The default name's suffix: without it, a topic's name already is its table in SQL."""

FOLDER: Final = "lake"
"""The default folder of lake tables. In an object store, no prefix of the agents' own objects begins with it."""
OBJECTS: Final = "objects"
"""The default object store, in an agent's data folder."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""Valid names of tables and pipelines."""
_NAMES: Final = "must begin with a letter, a digit or _, then also . and -, 200 characters at most"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """A topic's lake table; `location` and `partition_by` are empty if the topic doesn't set them."""

    topic: str
    name: str
    format: Connector
    mode: str = APPEND
    key: tuple[str, ...] = ()
    partition_by: str = ""
    location: str = ""
    commit_interval_ms: int = COMMIT_INTERVAL_MS


def table_settings(topic: str, own: Mapping[str, str]) -> TableSettings | None:
    """The lake table of a topic's settings, if they define one; raises `InvalidConfig`."""
    fmt = own.get("table.format", NO_TABLE)
    if fmt == NO_TABLE:
        return None
    if tenant_of(topic):
        raise InvalidConfig("topics of a tenant have no lake tables; setting=table.format")
    try:
        settings = TableSettings(
            topic=topic,
            name=own.get("table.name") or default_name(topic),
            format=Connector(fmt),
            mode=own.get("table.mode", APPEND),
            key=parse_key(own.get("table.key", "")),
            partition_by=own.get("table.partition.by", ""),
            location=parse_location(own.get("table.location", "")),
            commit_interval_ms=int(own.get("table.commit.interval.ms", COMMIT_INTERVAL_MS)),
        )
    except ValueError as error:  # settings of a later release
        raise InvalidConfig(f"topic setting has a bad value; topic={topic} why={error}") from None
    _check(settings)
    return settings


def default_name(topic: str) -> str:
    return topic.replace(".", "_").replace("-", "_") + SUFFIX


def _check(settings: TableSettings) -> None:
    if settings.name == settings.topic:
        raise _contradiction("table.name is the topic's own, which is its table in SQL already; choose another")
    if not _NAME.fullmatch(settings.name):
        raise _contradiction(f"the table's name can't be made of the topic's; set table.name, which {_NAMES}")
    if settings.mode == UPSERT and settings.format is Connector.PARQUET:
        raise _contradiction(
            "rows in Parquet files don't change; set table.format to iceberg or delta, or table.mode to append"
        )
    if settings.mode == UPSERT and not settings.key:
        raise _contradiction("table.mode=upsert needs table.key, the columns that tell rows apart")
    if settings.mode != UPSERT and settings.key:
        raise _contradiction(
            "rows that are only appended have no key; set table.mode to upsert, or leave out table.key"
        )
    if settings.format is not Connector.ICEBERG:
        _check_partitions(settings)


def _check_partitions(settings: TableSettings) -> None:
    for each in parse_partitions(settings.partition_by) if settings.partition_by else ():
        if each.transform in WITH_NUMBER:
            raise _contradiction(
                f"only Iceberg has {each.transform}; change table.partition.by, or set table.format to iceberg"
            )


def _contradiction(why: str) -> InvalidConfig:
    return InvalidConfig(f"topic settings contradict each other; {why}")


# --- checks of single values; empty: not set


def parse_table_name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise ValueError(_NAMES)
    return text


def parse_key(text: str) -> tuple[str, ...]:
    try:
        names = split_identifiers(text) if text.strip() else ()
    except ValueError:
        names = ("", "")
    if len(set(names)) < len(names):
        raise ValueError("must be a column, or several with commas between, like country,city")
    return names


def parse_partitions_if_any(text: str) -> str:
    try:
        parse_partitions(text or "any")
    except ValueError:
        raise ValueError(
            "must be columns or transforms: country, day(ts), hour(ts), bucket(16, id), truncate(4, name)"
        ) from None
    return text


def lake_folder(store: str) -> str:
    """The default location of lake tables; empty if the agents' store can't have any.

    It is inside the agents' store, or beside it if that is in their data folder.
    """
    parts = urlsplit(store)
    if parts.scheme == "file":
        folder = "/" + unquote(parts.path).strip("/")
        return posixpath.join(posixpath.dirname(folder) if posixpath.basename(folder) == OBJECTS else folder, FOLDER)
    if parts.scheme == "s3" and not (parts.query or parts.fragment or "@" in parts.netloc):
        return f"{store.rstrip('/')}/{FOLDER}"
    return ""


def parse_location(text: str) -> str:
    """The canonical location of a table: an absolute path, or s3://bucket/prefix without a trailing slash."""
    parts = urlsplit(text)
    if parts.scheme == "s3" and parts.netloc and not (parts.query or parts.fragment or "@" in parts.netloc):
        return text.rstrip("/")
    path = unquote(parts.path) if parts.scheme == "file" and not parts.netloc else text
    if posixpath.isabs(path) and path.strip("/"):
        return posixpath.normpath(path)
    if text:
        raise ValueError("must be a folder's path from the root, which all of Spark sees, or s3://bucket/prefix")
    return ""
