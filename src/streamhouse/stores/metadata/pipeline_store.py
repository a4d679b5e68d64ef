"""SqlPipelineStore: the calls for tables, pipelines, views and SQL workers over an SQL engine.

Data path   broker.pipelines, broker.views, broker.tables, broker.sql -> **pipeline store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions`, running them to the engines
"""

from collections.abc import Sequence
from functools import partial

from streamhouse.model.pipeline import Event, Heartbeat, KeptPipeline, Pipeline, PipelineName, Supervisor, SupervisorId
from streamhouse.model.table import Table
from streamhouse.model.view import ViewPage, ViewPart, ViewRow, ViewState
from streamhouse.model.worker import SqlWorker, WorkerId
from streamhouse.stores.metadata.engine import CountedEngine
from streamhouse.stores.metadata.transactions import pipelines, supervisors, tables, views, workers


class SqlPipelineStore:
    """A `PipelineStore` over an SQL engine."""

    _engine: CountedEngine

    async def tables(self) -> Sequence[Table]:
        return await self._engine.look(tables.list_tables)

    async def find_table(self, name: str) -> Table | None:
        return await self._engine.look(partial(tables.find_table, name=name))

    async def put_table(self, table: Table, *, max_tables: int) -> bool:
        return await self._engine.write(partial(tables.put_table, table=table, max_tables=max_tables))

    async def drop_table(self, name: str) -> bool:
        return await self._engine.write(partial(tables.drop_table, name=name))

    async def pipelines(self) -> Sequence[KeptPipeline]:
        return await self._engine.read(pipelines.list_pipelines)

    async def find_pipeline(self, name: PipelineName) -> KeptPipeline | None:
        return await self._engine.read(partial(pipelines.find_pipeline, name=name))

    async def put_pipeline(self, pipeline: Pipeline, *, expected: Pipeline | None, max_pipelines: int) -> bool:
        work = partial(pipelines.put_pipeline, pipeline=pipeline, expected=expected, max_pipelines=max_pipelines)
        return await self._engine.write(work)

    async def drop_pipeline(self, name: PipelineName) -> bool:
        return await self._engine.write(partial(pipelines.drop_pipeline, name=name))

    async def pipeline_events(self, name: PipelineName, limit: int) -> Sequence[Event]:
        return await self._engine.look(partial(pipelines.list_events, name=name, limit=limit))

    async def beat(
        self, heartbeat: Heartbeat, *, ttl_ms: int, max_events: int, max_supervisors: int
    ) -> Sequence[KeptPipeline]:
        limits = supervisors.Limits(ttl_ms=ttl_ms, max_events=max_events, max_supervisors=max_supervisors)
        return await self._engine.write(partial(supervisors.beat, heartbeat=heartbeat, limits=limits))

    async def supervisors(self) -> Sequence[Supervisor]:
        return await self._engine.read(supervisors.list_supervisors)

    async def leave(self, supervisor: SupervisorId) -> None:
        await self._engine.write(partial(supervisors.leave, supervisor=supervisor))

    async def views(self) -> Sequence[ViewState]:
        return await self._engine.look(views.list_views)

    async def find_view(self, name: str) -> ViewState | None:
        return await self._engine.look(partial(views.find_view, name=name))

    async def change_view(self, part: ViewPart, *, max_rows: int) -> ViewState:
        return await self._engine.write(partial(views.change_view, part=part, max_rows=max_rows))

    async def find_view_row(self, name: str, found_by: str) -> ViewRow | None:
        return await self._engine.look(partial(views.find_row, name=name, found_by=found_by))

    async def view_rows(self, name: str, *, cursor: str | None, limit: int, max_bytes: int) -> ViewPage:
        work = partial(views.page, name=name, cursor=cursor, limit=limit, max_bytes=max_bytes)
        return await self._engine.look(work)

    async def beat_worker(self, worker: SqlWorker, *, ttl_ms: int, max_workers: int) -> None:
        await self._engine.write(partial(workers.beat, worker=worker, ttl_ms=ttl_ms, max_workers=max_workers))

    async def workers(self) -> Sequence[SqlWorker]:
        return await self._engine.read(workers.list_workers)

    async def drop_worker(self, worker: WorkerId) -> None:
        await self._engine.write(partial(workers.drop, worker=worker))
