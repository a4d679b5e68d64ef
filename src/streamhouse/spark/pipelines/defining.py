"""Defining: statements and decorated functions as what agents keep of them.

Data path   a file -> statements, functions -> **defining** -> PUT and DELETE of /v1/tables and /v1/pipelines
Owns        which request a statement is, and its body
Leaves      asking to `applying` and the SQL worker, judging a SELECT to Spark
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from streamhouse.errors import StatementError
from streamhouse.format.statement_options import pipeline_options
from streamhouse.format.statements import (
    CreatePipeline,
    CreateTable,
    CreateView,
    Drop,
    Query,
    Show,
    Statement,
    parse,
    position,
)
from streamhouse.model.pipeline import Kind
from streamhouse.spark.pipelines.finding import Found, find_pipelines

PLACES: Final = {"table": "tables", "pipeline": "pipelines", "view": "pipelines"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One request. `what` is table, pipeline or view; `body` None: it is dropped. `line` counts from 1."""

    what: str
    name: str
    body: Mapping[str, Any] | None
    line: int
    is_optional: bool = False
    """IF EXISTS, IF NOT EXISTS: as it is, is good as well."""
    is_inferred: bool = False
    """Records told the columns that it reads: they may tell others the next time."""

    @property
    def path(self) -> str:
        return f"/v1/{PLACES[self.what]}/{quote(self.name, safe='')}"


def changes_of(path: PurePath, text: str) -> tuple[Change, ...]:
    """What a file asks for, in its order; raises `StatementError`."""
    if path.suffix == ".py":
        return tuple(
            Change(what="pipeline", name=found.name, body=python_body(found, text), line=found.line)
            for found in find_pipelines(text)
        )
    return tuple(change_of(statement, text) for statement in parse(text))


def change_of(statement: Statement, text: str) -> Change:
    line, column = position(text, statement.span[0])
    if isinstance(statement, CreateTable):
        body = table_body(statement)
        return Change(what="table", name=statement.name, body=body, line=line, is_optional=statement.if_not_exists)
    if isinstance(statement, CreatePipeline | CreateView):
        what = "view" if isinstance(statement, CreateView) else "pipeline"
        return Change(what=what, name=statement.name, body=pipeline_body(statement), line=line)
    if isinstance(statement, Drop):
        return Change(what=statement.kind, name=statement.name, body=None, line=line, is_optional=statement.if_exists)
    assert isinstance(statement, Show | Query)
    raise StatementError(
        line,
        column,
        "this creates nothing",
        "a file has CREATE TABLE, PIPELINE, MATERIALIZED VIEW and DROP; ask questions with: streamhouse sql",
    )


def table_body(statement: CreateTable) -> dict[str, Any]:
    table = statement.table
    columns = None if table.columns is None else [{"name": each.name, "type": each.type} for each in table.columns]
    return {
        "connector": table.connector.value,
        "columns": columns,
        "key": list(table.key),
        "options": dict(table.options),
        "text": statement.text,
    }


def pipeline_body(statement: CreatePipeline | CreateView) -> dict[str, Any]:
    """`shape` and `columns` are added by whoever has validated it."""
    is_view = isinstance(statement, CreateView)
    options = dict(statement.options)
    return {
        "kind": (Kind.VIEW if is_view else Kind.SQL).value,
        "text": statement.text,
        "options": options,
        "target": statement.name if isinstance(statement, CreateView) else statement.target,
        "key": list(statement.key if isinstance(statement, CreateView) else pipeline_options(options).key),
        "columns": None,
        "shape": None,
    }


def python_body(found: Found, text: str) -> dict[str, Any]:
    return {
        "kind": Kind.PYTHON.value,
        "text": text,
        "options": dict(found.options),
        "target": found.into,
        "key": list(pipeline_options(found.options).key),
        "columns": None,
        "shape": None,
    }
