"""Definitions of tables, pipelines and views, from SQL statements and from `@pipeline` functions in Python files.

Python files are parsed, not run. A `DefinitionChange` has the request body that agents store.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

import msgspec

from streamhouse.errors import StatementError
from streamhouse.model.pipeline import Kind
from streamhouse.sql.lexer import position
from streamhouse.sql.options import PIPELINE_OPTIONS, pipeline_options
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateTable, CreateView, Drop, Query, Show, Statement

DECORATOR: Final = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPipeline:
    """`line` is the first line of the function."""

    name: str
    into: str
    options: Mapping[str, str]
    line: int


class PythonPipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline that is to be validated: `text` is the whole file, `line` the first line of the function in it."""

    name: str
    text: str
    line: int = 1
    options: dict[str, str] = {}


def find_pipelines(text: str) -> tuple[DeclaredPipeline, ...]:
    """Raises `StatementError` for a file that is no Python, or a decorator that can't be read."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise StatementError(error.lineno or 1, error.offset or 1, f"this is no Python: {error.msg}") from None
    declared = [
        _declared(node, call)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call) and _is_ours(call.func)
    ]
    names = [each.name for each in declared]
    for each in declared:
        if names.count(each.name) > 1:
            raise StatementError(each.line, 1, f"two pipelines have one name: {each.name}")
    return tuple(declared)


def _is_ours(node: ast.expr) -> bool:
    """`pipeline`, `spark.pipeline`, `streamhouse.spark.pipeline`."""
    return (isinstance(node, ast.Name) and node.id == DECORATOR) or (
        isinstance(node, ast.Attribute) and node.attr == DECORATOR
    )


def _declared(function: ast.FunctionDef, call: ast.Call) -> DeclaredPipeline:
    if call.args:
        raise _error(call.args[0], "@pipeline takes names only", '@pipeline(into="topic", …)')
    given: dict[str, str] = {}
    for keyword in call.keywords:
        if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
            raise _error(
                keyword.value,
                "an option of @pipeline must be written out: the file is read, not run",
                'write a text or a number, like trigger="1 second"',
            )
        given[keyword.arg] = _checked(keyword, str(keyword.value.value))
    if "into" not in given:
        raise _error(call, "@pipeline doesn't name a target", '@pipeline(into="topic")')
    into, name = given.pop("into"), given.pop("name", function.name)
    return DeclaredPipeline(name=name, into=into, options=given, line=function.lineno)


def _checked(keyword: ast.keyword, value: str) -> str:
    name = keyword.arg or ""
    if name in ("into", "name"):
        return value
    if name not in PIPELINE_OPTIONS:
        raise _error(keyword.value, f"a pipeline has no option {name}", f"there are {', '.join(PIPELINE_OPTIONS)}")
    try:
        PIPELINE_OPTIONS[name](value)
    except ValueError as error:
        raise _error(keyword.value, f"{name} can't be {value!r}", f"it may be {error}") from None
    return value


def _error(node: ast.expr, text: str, hint: str) -> StatementError:
    return StatementError(node.lineno, node.col_offset + 1, text, hint)


_COLLECTIONS: Final = {"table": "tables", "pipeline": "pipelines", "view": "pipelines"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """One request. `what` is table, pipeline or view; `body` None: it is dropped. `line` counts from 1."""

    what: str
    name: str
    body: Mapping[str, Any] | None
    line: int
    is_optional: bool = False
    """IF EXISTS, IF NOT EXISTS: no error if nothing has to be done."""
    is_inferred: bool = False
    """The columns that it reads were inferred from records, and may differ the next time."""

    @property
    def path(self) -> str:
        return f"/v1/{_COLLECTIONS[self.what]}/{quote(self.name, safe='')}"


def changes_of(path: PurePath, text: str) -> tuple[DefinitionChange, ...]:
    """The changes that a file declares, in its order; raises `StatementError`."""
    if path.suffix == ".py":
        return tuple(
            DefinitionChange(what="pipeline", name=declared.name, body=python_body(declared, text), line=declared.line)
            for declared in find_pipelines(text)
        )
    return tuple(change_of(statement, text) for statement in parse(text))


def change_of(statement: Statement, text: str) -> DefinitionChange:
    line, column = position(text, statement.span[0])
    if isinstance(statement, CreateTable):
        body = table_body(statement)
        return DefinitionChange(
            what="table", name=statement.name, body=body, line=line, is_optional=statement.if_not_exists
        )
    if isinstance(statement, CreatePipeline | CreateView):
        what = "view" if isinstance(statement, CreateView) else "pipeline"
        return DefinitionChange(what=what, name=statement.name, body=pipeline_body(statement), line=line)
    if isinstance(statement, Drop):
        return DefinitionChange(
            what=statement.kind, name=statement.name, body=None, line=line, is_optional=statement.if_exists
        )
    assert isinstance(statement, Show | Query)
    raise StatementError(
        line,
        column,
        "this creates nothing",
        "a file has CREATE TABLE, PIPELINE, MATERIALIZED VIEW and DROP; run queries with: streamhouse sql",
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
    """`shape` and `columns` are added by the validation."""
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


def python_body(declared: DeclaredPipeline, text: str) -> dict[str, Any]:
    return {
        "kind": Kind.PYTHON.value,
        "text": text,
        "options": dict(declared.options),
        "target": declared.into,
        "key": list(pipeline_options(declared.options).key),
        "columns": None,
        "shape": None,
    }
