"""DDL: statements that create, drop and list tables, pipelines and views, sent to the agents.

Data path   query_executor -> **ddl** -> an agent's /v1/tables, /v1/pipelines, /v1/views
Owns        validation before anything is created; the rows of the result
Leaves      requests to `sql.definitions`, validation to `query.validation`, running pipelines to supervisors
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from streamhouse.client.http import HttpResponse
from streamhouse.errors import BadSql, Mistake, Rejected, Unavailable
from streamhouse.spark.agents.address import AgentAddress, open_http
from streamhouse.spark.agents.client import error_detail
from streamhouse.spark.agents.definition_applier import DefinitionApplier
from streamhouse.sql.definitions import DefinitionChange, change_of
from streamhouse.sql.statements import Drop, Show, Statement

REQUEST_TIMEOUT_S: Final = 30.0
OUTCOME: Final = ("name", "kind", "outcome")
LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "tables": ("name", "connector", "columns"),
    "pipelines": ("name", "kind", "target", "wish", "phase", "error"),
    "views": ("name", "key", "rows", "fresh_at"),
}


def show(agents: AgentAddress, statement: Show) -> pa.Table:
    """SHOW TABLES, PIPELINES, VIEWS."""
    response = asyncio.run(_send(agents, "GET", f"/v1/{statement.kind}"))
    rows = msgspec.json.decode(response.content)[statement.kind]
    names = LISTS[statement.kind]
    return _table(names, [_row(statement.kind, each) for each in rows])


def apply_ddl(agents: AgentAddress, statement: Statement, text: str, checked: Sequence[Mapping[str, Any]]) -> pa.Table:
    """CREATE and DROP; `checked` is the result of validation. Raises `BadSql` with all diagnostics."""
    wrong = [each for validated in checked for each in validated.get("problems") or ()]
    if wrong and not isinstance(statement, Drop):
        raise BadSql([Mistake(each["line"], each["column"], each["text"], each.get("hint") or "") for each in wrong])
    change = change_of(statement, text)
    outcome = asyncio.run(_applied(agents, _with_shape(change, checked)))
    if outcome.outcome == "refused":
        raise Rejected(outcome.why)
    return _table(OUTCOME, [(outcome.name, outcome.what, outcome.outcome)])


def _with_shape(change: DefinitionChange, checked: Sequence[Mapping[str, Any]]) -> DefinitionChange:
    """A pipeline is stored with its columns and state signature, by which a later change is checked."""
    if change.body is None or "kind" not in change.body or not checked:
        return change
    validated = checked[-1]
    known = {"columns": validated.get("columns"), "shape": validated.get("shape")}
    body = {**change.body, **known, "key": change.body["key"] or validated.get("key") or []}
    return DefinitionChange(
        what=change.what, name=change.name, body=body, line=change.line, is_optional=change.is_optional
    )


async def _applied(agents: AgentAddress, change: DefinitionChange) -> Any:
    async with open_http(agents, timeout_s=REQUEST_TIMEOUT_S) as http:
        return await DefinitionApplier(http).apply(change)


async def _send(agents: AgentAddress, method: str, path: str) -> HttpResponse:
    async with open_http(agents, timeout_s=REQUEST_TIMEOUT_S) as http:
        response = await http.send(method, path)
    if response.status >= 500:
        raise Unavailable(error_detail(response))
    if response.status >= 400:
        raise Rejected(error_detail(response))
    return response


def _row(kind: str, definition: Mapping[str, Any]) -> tuple[str | None, ...]:
    if kind == "tables":
        columns = definition.get("columns")
        shown = None if columns is None else ", ".join(f"{each['name']} {each['type']}" for each in columns)
        return definition["name"], definition["connector"], shown
    if kind == "pipelines":
        status = definition.get("status") or {}
        names = ("kind", "target", "wish")
        return (definition["name"], *(definition.get(name) for name in names), status.get("phase"), status.get("error"))
    fresh = definition.get("fresh_at_ms")
    rows = definition.get("rows")
    return (
        definition["name"],
        ", ".join(definition.get("key") or ()),
        None if rows is None else str(rows),
        None if fresh is None else str(pa.scalar(fresh, pa.timestamp("ms", "UTC"))),
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table({name: pa.array(list(column), pa.string()) for name, column in zip(names, columns, strict=True)})
