"""Pipelines, tables, views and SQL: `client.pipelines`, `.tables`, `.views` and `.sql`, over HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from streamhouse.client.http import Http, error_from_response
from streamhouse.client.pipeline_types import (
    Applied,
    Checked,
    Events,
    FoundRow,
    Page,
    PipelineInfo,
    Rows,
    SupervisorInfo,
    Supervisors,
    ViewInfo,
    ViewRows,
    WorkerInfo,
)
from streamhouse.errors import Rejected, UnknownPipeline, UnknownTable
from streamhouse.model.pipeline import Definition, Event
from streamhouse.model.table import Table

T = TypeVar("T")


class _Tables(msgspec.Struct):
    tables: list[Table]


class _Pipelines(msgspec.Struct):
    pipelines: list[PipelineInfo]


class _Supervisors(msgspec.Struct):
    supervisors: list[SupervisorInfo]


class _Events(msgspec.Struct):
    events: list[Event]


class _Views(msgspec.Struct):
    views: list[ViewInfo]


async def parse_response(
    http: Http,
    kind: type[T],
    method: str,
    path: str,
    *,
    params: Mapping[str, str | int] | None = None,
    body: object = None,
    timeout_s: float | None = None,
) -> T:
    """Return the decoded response; raises the error that it names."""
    response = await http.send(method, path, params=params, body=body, timeout_s=timeout_s)
    if response.status >= 400:
        raise error_from_response(response)
    try:
        return msgspec.json.decode(response.content or b"null", type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"unexpected response; path={path} why={error}") from None


class Tables:
    """Tables that SQL knows. Use it as `client.tables`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def list(self) -> "list[Table]":
        """Definitions, then topics without one, then views."""
        return (await parse_response(self._http, _Tables, "GET", "/v1/tables")).tables

    async def get(self, name: str) -> Table:
        """The table of a name; raises `UnknownTable`."""
        return await parse_response(self._http, Table, "GET", f"/v1/tables/{_q(name)}")

    async def put(self, table: Table) -> Table:
        """Create or replace a table; raises `NameTaken`, `InvalidDefinition`."""
        body = {
            "connector": table.connector,
            "columns": table.columns,
            "key": table.key,
            "options": dict(table.options),
            "text": table.text,
        }
        return await parse_response(self._http, Table, "PUT", f"/v1/tables/{_q(table.name)}", body=body)

    async def drop(self, name: str, *, missing_ok: bool = False) -> None:
        """Drop a table; a topic of the same name stays. Raises `UnknownTable`."""
        with suppress(*((UnknownTable,) if missing_ok else ())):
            await parse_response(self._http, type(None), "DELETE", f"/v1/tables/{_q(name)}")


class Pipelines:
    """Streaming pipelines. Use it as `client.pipelines`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def list(self) -> "list[PipelineInfo]":
        return (await parse_response(self._http, _Pipelines, "GET", "/v1/pipelines")).pipelines

    async def get(self, name: str) -> PipelineInfo:
        """Raises `UnknownPipeline`."""
        return await parse_response(self._http, PipelineInfo, "GET", f"/v1/pipelines/{_q(name)}")

    async def put(self, definition: Definition, *, starting: str | None = None, fresh: bool = False) -> Applied:
        """Create or change a pipeline; raises `PlaceLost` if it can't resume from its checkpoint, unless `fresh`."""
        body = {
            "kind": definition.kind,
            "text": definition.text,
            "options": dict(definition.options),
            "target": definition.target,
            "key": definition.key,
            "columns": definition.columns,
            "shape": definition.shape,
            "starting": starting,
            "fresh": fresh,
        }
        return await parse_response(self._http, Applied, "PUT", f"/v1/pipelines/{_q(definition.name)}", body=body)

    async def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a pipeline with its log, and its rows if it is a view."""
        with suppress(*((UnknownPipeline,) if missing_ok else ())):
            await parse_response(self._http, type(None), "DELETE", f"/v1/pipelines/{_q(name)}")

    async def pause(self, name: str) -> PipelineInfo:
        return await parse_response(self._http, PipelineInfo, "POST", f"/v1/pipelines/{_q(name)}/pause")

    async def resume(self, name: str) -> PipelineInfo:
        return await parse_response(self._http, PipelineInfo, "POST", f"/v1/pipelines/{_q(name)}/resume")

    async def restart(self, name: str, from_: str | None = None) -> PipelineInfo:
        """Restart from the checkpoint, or without state at `earliest`, `latest`, a time or offsets as JSON."""
        return await parse_response(
            self._http, PipelineInfo, "POST", f"/v1/pipelines/{_q(name)}/restart", body={"from": from_}
        )

    async def events(self, name: str, *, limit: int = 1000) -> Events:
        """The last events of a pipeline, newest last."""
        path = f"/v1/pipelines/{_q(name)}/events"
        return (await parse_response(self._http, _Events, "GET", path, params={"limit": limit})).events

    async def supervisors(self) -> Supervisors:
        """The live supervisors, with the pipelines they run."""
        return (await parse_response(self._http, _Supervisors, "GET", "/v1/supervisors")).supervisors


class Views:
    """Materialized views. Use it as `client.views`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def list(self) -> "list[ViewInfo]":
        return (await parse_response(self._http, _Views, "GET", "/v1/views")).views

    async def get(self, name: str) -> ViewInfo:
        """Raises `UnknownView`."""
        return await parse_response(self._http, ViewInfo, "GET", f"/v1/views/{_q(name)}")

    async def row(self, name: str, key: Mapping[str, Any]) -> FoundRow:
        """The row of a key, with the freshness of the view; raises `UnknownViewRow`."""
        params = {column: _text(value) for column, value in key.items()}
        return await parse_response(self._http, FoundRow, "GET", f"/v1/views/{_q(name)}/rows", params=params)

    async def page(self, name: str, *, limit: int | None = None, cursor: str | None = None) -> ViewRows:
        """A page of rows in key order, after the page that returned `cursor`."""
        query: dict[str, str | int | None] = {"limit": limit, "cursor": cursor}
        params = {name: value for name, value in query.items() if value is not None}
        return await parse_response(self._http, ViewRows, "GET", f"/v1/views/{_q(name)}/rows", params=params)

    async def rows(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """All rows in key order, page by page; the view may change in between."""
        async for page in self.pages(name):
            for row in page:
                yield row

    async def pages(self, name: str) -> AsyncIterator[Page]:
        cursor: str | None = None
        while True:
            page = await self.page(name, cursor=cursor)
            yield page.rows
            cursor = page.cursor
            if cursor is None:
                return


def _q(name: str) -> str:
    return quote(name, safe="")


def _text(value: Any) -> str:
    """A key's value as text in a URL."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


TIMEOUT_S: Final = 300.0
GRACE_S: Final = 10.0
"""The agent and the worker enforce the query timeout; the client waits this much longer for their response."""


class _Statements(msgspec.Struct):
    statements: Checked


class _Workers(msgspec.Struct):
    workers: list[WorkerInfo]


class Sql:
    """Use it as `client.sql`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def query(self, sql: str, *, max_rows: int | None = None, timeout_s: float = TIMEOUT_S) -> Rows:
        """Rows of a query; raises `NoWorker` if no SQL worker is running."""
        body = {"sql": sql, "max_rows": max_rows, "timeout_s": timeout_s}
        return await parse_response(self._http, Rows, "POST", "/v1/sql", body=body, timeout_s=timeout_s + GRACE_S)

    async def stream(
        self, sql: str, *, starting: str = "latest", max_rows: int | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield rows as they arrive. `FROM STREAM(topic)` reads records from now on, or from `starting`."""
        async for rows in self.batches(sql, starting=starting, max_rows=max_rows, timeout_s=timeout_s):
            for row in rows:
                yield row

    async def batches(
        self, sql: str, *, starting: str = "latest", max_rows: int | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[list[dict[str, Any]]]:
        body = {"sql": sql, "max_rows": max_rows, "timeout_s": timeout_s, "starting": starting}
        async with self._http.lines("/v1/sql", body) as lines:
            async for line in lines:
                if line:
                    yield [msgspec.json.decode(line)]

    async def validate(self, text: str) -> Checked:
        """Validate statements; errors have lines and columns."""
        response = await parse_response(
            self._http, _Statements, "POST", "/v1/sql/validate", body={"text": text}, timeout_s=TIMEOUT_S + GRACE_S
        )
        return response.statements

    async def cancel(self, query_id: str) -> None:
        """Cancel a query; raises `UnknownQuery`."""
        await parse_response(self._http, type(None), "DELETE", f"/v1/sql/queries/{quote(query_id, safe='')}")

    async def workers(self) -> list[WorkerInfo]:
        return (await parse_response(self._http, _Workers, "GET", "/v1/sql/workers")).workers
