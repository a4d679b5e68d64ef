"""The part of the metadata store's door for tables, pipelines, views and SQL workers.

Data path   broker.pipelines, broker.views, broker.tables, broker.sql -> **pipelines** -> one transaction each
Owns        what each call promises
Leaves      SQL to the engines and `sql/`, when a change is allowed to `broker.pipelines`

Leases of pipelines are judged by the store's clock; every change of owner has an epoch that was never used before
(decision 0019).
"""

from collections.abc import Sequence
from typing import Protocol

from streamhouse.model.pipeline import (
    Event,
    Heartbeat,
    Pipeline,
    PipelineName,
    SqlWorker,
    StoredPipeline,
    Supervisor,
    SupervisorId,
    ViewPage,
    ViewPart,
    ViewRow,
    ViewState,
    WorkerId,
)
from streamhouse.model.table import Table


class PipelineStore(Protocol):
    # --- tables
    async def tables(self) -> Sequence[Table]:
        """Every definition, by name."""
        ...

    async def find_table(self, name: str) -> Table | None: ...

    async def put_table(self, table: Table, *, max_tables: int) -> bool:
        """Keep a definition; False when the same one was there. Raise `PipelineLimit` beyond `max_tables`."""
        ...

    async def drop_table(self, name: str) -> bool:
        """Whether there was one."""
        ...

    # --- pipelines
    async def pipelines(self) -> Sequence[StoredPipeline]:
        """All of them, by name; an owner whose lease is over is left out."""
        ...

    async def find_pipeline(self, name: PipelineName) -> StoredPipeline | None: ...

    async def put_pipeline(self, pipeline: Pipeline, *, expected: Pipeline | None, max_pipelines: int) -> bool:
        """Keep a pipeline if what is there still is what is `expected`; None: nothing. False, and no change, otherwise.

        Another generation ends the epoch: its owner keeps it under a new one, and what is done under the old one is
        refused. Another revision or wish makes its status one that waits. Times are the store's. Raise `PipelineLimit`
        beyond `max_pipelines`.
        """
        ...

    async def drop_pipeline(self, name: PipelineName) -> bool:
        """Remove a pipeline with its log and its rows; whether there was one."""
        ...

    async def pipeline_events(self, name: PipelineName, limit: int) -> Sequence[Event]:
        """The last lines of a pipeline's log, newest last."""
        ...

    # --- supervisors
    async def heartbeat_supervisor(
        self, heartbeat: Heartbeat, *, ttl_ms: int, max_events: int, max_supervisors: int
    ) -> Sequence[StoredPipeline]:
        """A supervisor is alive: renew what it runs and still owns, release what it owns and doesn't list, give it what
        nobody owns, up to its share; returns what it should run, by name.

        What it should let go (paused, gone, more than its share) is left out, and stays its own until it isn't listed.
        Raise `PipelineLimit` beyond `max_supervisors`.
        """
        ...

    async def supervisors(self) -> Sequence[Supervisor]:
        """Those that are alive, by id."""
        ...

    async def remove_supervisor(self, supervisor: SupervisorId) -> None:
        """A supervisor goes: all that it owns is free. No error when it isn't there."""
        ...

    # --- views
    async def views(self) -> Sequence[ViewState]:
        """Views that ever had a batch, by name."""
        ...

    async def find_view(self, name: str) -> ViewState | None: ...

    async def change_view(self, part: ViewPart, *, max_rows: int) -> ViewState:
        """Change rows of a view, if the pipeline is still owned under the fence's epoch: raise `PipelineMoved` if not.

        A batch that is wholly there is passed over. The first part of another query takes all rows of the one before
        it away. Raise `ViewRefused` for a part that doesn't follow what is there, and for a query that isn't the
        pipeline's; `PipelineLimit` beyond `max_rows`.
        """
        ...

    async def find_view_row(self, name: str, found_by: str) -> ViewRow | None: ...

    async def view_rows(self, name: str, *, cursor: str | None, limit: int, max_bytes: int) -> ViewPage:
        """Rows in the order of their keys, from where a page before ended; at least one, if there is one."""
        ...

    # --- SQL workers
    async def heartbeat_worker(self, worker: SqlWorker, *, ttl_ms: int, max_workers: int) -> None:
        """A worker is alive. Raise `PipelineLimit` beyond `max_workers`."""
        ...

    async def workers(self) -> Sequence[SqlWorker]:
        """Those that are alive, by id."""
        ...

    async def drop_worker(self, worker: WorkerId) -> None: ...
