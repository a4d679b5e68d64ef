"""Pipelines, tables, views and SQL of the synchronous client."""

from collections.abc import Iterator, Mapping
from typing import Any

from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.pipeline_types import (
    Applied,
    Checked,
    Events,
    FoundRow,
    PipelineInfo,
    Rows,
    Supervisors,
    ViewInfo,
    ViewRows,
    WorkerInfo,
)
from streamhouse.client.pipelines import TIMEOUT_S, Pipelines, Sql, Tables, Views
from streamhouse.model.pipeline import Definition
from streamhouse.model.table import Table


class SyncTables:
    """Use it as `client.tables`; see `Tables`."""

    def __init__(self, loop: LoopThread, tables: Tables) -> None:
        self._loop, self._tables = loop, tables

    def list(self) -> "list[Table]":
        return self._loop.run(self._tables.list())

    def get(self, name: str) -> Table:
        return self._loop.run(self._tables.get(name))

    def put(self, table: Table) -> Table:
        return self._loop.run(self._tables.put(table))

    def drop(self, name: str, *, missing_ok: bool = False) -> None:
        self._loop.run(self._tables.drop(name, missing_ok=missing_ok))


class SyncPipelines:
    """Use it as `client.pipelines`; see `Pipelines`."""

    def __init__(self, loop: LoopThread, pipelines: Pipelines) -> None:
        self._loop, self._pipelines = loop, pipelines

    def list(self) -> "list[PipelineInfo]":
        return self._loop.run(self._pipelines.list())

    def get(self, name: str) -> PipelineInfo:
        return self._loop.run(self._pipelines.get(name))

    def put(self, definition: Definition, *, starting: str | None = None, fresh: bool = False) -> Applied:
        return self._loop.run(self._pipelines.put(definition, starting=starting, fresh=fresh))

    def delete(self, name: str, *, missing_ok: bool = False) -> None:
        self._loop.run(self._pipelines.delete(name, missing_ok=missing_ok))

    def pause(self, name: str) -> PipelineInfo:
        return self._loop.run(self._pipelines.pause(name))

    def resume(self, name: str) -> PipelineInfo:
        return self._loop.run(self._pipelines.resume(name))

    def restart(self, name: str, from_: str | None = None) -> PipelineInfo:
        return self._loop.run(self._pipelines.restart(name, from_))

    def events(self, name: str, *, limit: int = 1000) -> Events:
        return self._loop.run(self._pipelines.events(name, limit=limit))

    def supervisors(self) -> Supervisors:
        return self._loop.run(self._pipelines.supervisors())


class SyncViews:
    """Use it as `client.views`; see `Views`."""

    def __init__(self, loop: LoopThread, views: Views) -> None:
        self._loop, self._views = loop, views

    def list(self) -> "list[ViewInfo]":
        return self._loop.run(self._views.list())

    def get(self, name: str) -> ViewInfo:
        return self._loop.run(self._views.get(name))

    def row(self, name: str, key: Mapping[str, Any]) -> FoundRow:
        return self._loop.run(self._views.row(name, key))

    def page(self, name: str, *, limit: int | None = None, cursor: str | None = None) -> ViewRows:
        return self._loop.run(self._views.page(name, limit=limit, cursor=cursor))

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        return self._loop.iterate(self._views.pages(name))


class SyncSql:
    """Use it as `client.sql`; see `Sql`."""

    def __init__(self, loop: LoopThread, sql: Sql) -> None:
        self._loop, self._sql = loop, sql

    def query(self, sql: str, *, max_rows: int | None = None, timeout_s: float = TIMEOUT_S) -> Rows:
        return self._loop.run(self._sql.query(sql, max_rows=max_rows, timeout_s=timeout_s))

    def stream(
        self, sql: str, *, starting: str = "latest", max_rows: int | None = None, timeout_s: float | None = None
    ) -> Iterator[dict[str, Any]]:
        batches = self._sql.batches(sql, starting=starting, max_rows=max_rows, timeout_s=timeout_s)
        return self._loop.iterate(batches)

    def validate(self, text: str) -> Checked:
        return self._loop.run(self._sql.validate(text))

    def cancel(self, query_id: str) -> None:
        self._loop.run(self._sql.cancel(query_id))

    def workers(self) -> list[WorkerInfo]:
        return self._loop.run(self._sql.workers())
