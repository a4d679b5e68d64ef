"""PipelineStore: tables, pipelines, views and SQL workers; a part of the metadata store's interface.

Data path   broker.pipelines -> **pipeline_store** -> one transaction each
Owns        the contract of each call
Leaves      SQL to the engines and `sql/`, when a change is allowed to `broker.pipelines`

Leases of pipelines expire by the store's clock; every change of owner has a new epoch (decision 0019).
"""

from collections.abc import Sequence
from typing import Protocol

from streamhouse.model.pipeline import (
    Event,
    Heartbeat,
    Pipeline,
    PipelineLimits,
    PipelineName,
    PipelineVersion,
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
        """All definitions, by name."""
        ...

    async def find_table(self, name: str) -> Table | None: ...

    async def put_table(self, table: Table, *, max_tables: int) -> bool:
        """Store a definition; False if it is unchanged. Raises `PipelineLimit` above `max_tables`."""
        ...

    async def drop_table(self, name: str) -> bool:
        """Delete a definition; returns whether it existed."""
        ...

    # --- pipelines
    async def pipelines(self) -> Sequence[StoredPipeline]:
        """All pipelines, by name; owners with expired leases are left out."""
        ...

    async def find_pipeline(self, name: PipelineName) -> StoredPipeline | None: ...

    async def put_pipeline(self, pipeline: Pipeline, *, expected: Pipeline | None, limits: PipelineLimits) -> bool:
        """Store a pipeline if the stored one is still the `expected` one (None: no pipeline); else return False and
        change nothing.

        A new generation starts a new epoch for its owner; writes under the old epoch are rejected. A new revision or
        desired state resets the status to waiting. A definition that differs in more than its columns and its shape is
        stored as a new version. Times are the store's. Raises `PipelineLimit` beyond the limit.
        """
        ...

    async def drop_pipeline(self, name: PipelineName) -> bool:
        """Remove a pipeline with its events and rows; returns whether it existed."""
        ...

    async def pipeline_events(self, name: PipelineName, limit: int) -> Sequence[Event]:
        """The last events of a pipeline, newest last."""
        ...

    async def pipeline_versions(self, name: PipelineName, limit: int) -> Sequence[PipelineVersion]:
        """The last versions of a pipeline's definition, newest first, without columns and shapes."""
        ...

    # --- supervisors
    async def heartbeat_supervisor(
        self, heartbeat: Heartbeat, *, ttl_ms: int, max_events: int, max_supervisors: int
    ) -> Sequence[StoredPipeline]:
        """Process a supervisor's heartbeat: renew the pipelines that it lists and owns, release those that it owns and
        doesn't list, and assign unowned ones up to its share. Returns the pipelines that it should run, by name.

        Pipelines that it should stop (paused, dropped, above its share) are left out of the response, and remain owned
        until it no longer lists them. Raises `PipelineLimit` beyond `max_supervisors`.
        """
        ...

    async def supervisors(self) -> Sequence[Supervisor]:
        """Live ones, by id."""
        ...

    async def remove_supervisor(self, supervisor: SupervisorId) -> None:
        """Remove a supervisor; its pipelines become free. No error if it is unknown."""
        ...

    # --- views
    async def views(self) -> Sequence[ViewState]:
        """Views with at least one batch, by name."""
        ...

    async def find_view(self, name: str) -> ViewState | None: ...

    async def change_view(self, part: ViewPart, *, max_rows: int) -> ViewState:
        """Change rows of a view, if the pipeline is still owned under the fence's epoch: raise `PipelineMoved` if not.

        A batch that was applied before is skipped. The first part of another query replaces all rows of the previous
        query. Raises `ViewRefused` for a part that doesn't follow the stored state and for a query that isn't the
        pipeline's, and `PipelineLimit` beyond `max_rows`.
        """
        ...

    async def find_view_row(self, name: str, found_by: str) -> ViewRow | None: ...

    async def view_rows(self, name: str, *, cursor: str | None, limit: int, max_bytes: int) -> ViewPage:
        """Rows in key order after the cursor; at least one if there is any."""
        ...

    # --- SQL workers
    async def heartbeat_worker(self, worker: SqlWorker, *, ttl_ms: int, max_workers: int) -> None:
        """Renew a worker's lease. Raises `PipelineLimit` above `max_workers`."""
        ...

    async def workers(self) -> Sequence[SqlWorker]:
        """Live ones, by id."""
        ...

    async def drop_worker(self, worker: WorkerId) -> None: ...
