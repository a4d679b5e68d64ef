"""Table: a name that SQL knows: a topic, something outside, or a view, with its columns.

Owns        the nouns: columns, options, where a table's rows are
Leaves      the text of CREATE TABLE to `format.statements`, reading and writing to `spark.connectors`

A topic is a table without anybody's doing. A definition says more about it (columns, format), or names another place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


class Connector(StrEnum):
    """Where rows come from or go to."""

    TOPIC = "topic"
    FILES = "files"
    POSTGRESQL = "postgresql"
    CONSOLE = "console"
    VIEW = "view"
    ICEBERG = "iceberg"
    DELTA = "delta"
    PARQUET = "parquet"


CONNECTION: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""What a connection to a database may be called."""
MADE_BY: Final = "pipeline"
"""The option of a topic's definition that came from a pipeline: which. Nobody writes it into SQL."""
LAKE: Final = (Connector.ICEBERG, Connector.DELTA, Connector.PARQUET)
"""Tables that other engines read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`type` is a type of Spark's SQL: `BIGINT`, `STRUCT<id: INT>`."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`columns` None: whoever reads finds out; `key` names columns of it; `text` is its CREATE TABLE, if it has one."""

    name: str
    connector: Connector
    columns: tuple[Column, ...] | None = None
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None


def is_under(path: str, root: str) -> bool:
    """Whether `path`, which may have wildcards, can only name `root` itself and what lies below it.

    Both are absolute: from the root of the local file system, or of what a URL names.
    """
    path, root = _absolute(path), _absolute(root)
    is_absolute = path.startswith("/") or "://" in path
    return bool(root) and is_absolute and ".." not in path and (path == root or path.startswith(f"{root}/"))


def _absolute(path: str) -> str:
    """Without the several ways to write a local path as a URL, and without a slash at the end."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path.rstrip("/")
