"""Syntax tree of SQL statements: our CREATE, DROP and SHOW, and queries for Spark.

Owns        the classes
Leaves      parsing to `sql.parser`, execution to `spark.query` and `spark.pipelines`
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streamhouse.model.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positioned:
    """`text` is the statement without its semicolon, `span` its start and end in the file."""

    text: str
    span: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(_Positioned):
    table: Table
    is_replace: bool = False
    if_not_exists: bool = False

    @property
    def name(self) -> str:
        return self.table.name


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePipeline(_Positioned):
    """`columns` are those of the target that are named; `select` begins at `select_start` of the file."""

    name: str
    target: str
    select: str
    select_start: int
    columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    is_replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(_Positioned):
    name: str
    select: str
    select_start: int
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    is_replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(_Positioned):
    """`kind` is table, pipeline or view."""

    kind: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(_Positioned):
    """`kind` is tables, pipelines or views."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(_Positioned):
    """A statement for Spark."""

    @property
    def select(self) -> str:
        return self.text

    @property
    def select_start(self) -> int:
        return self.span[0]


Statement: TypeAlias = CreateTable | CreatePipeline | CreateView | Drop | Show | Query
