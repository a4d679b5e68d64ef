"""Pipelines as transactions.

Data path   broker.pipelines -> **pipelines** -> rows
Owns        that a change is made to what it was decided by; that an epoch ends with its generation; the fence
Leaves      whether a change is allowed to `broker.pipelines`, who owns what to `supervisors`
"""

from collections.abc import Sequence
from dataclasses import replace

from streamhouse.errors import PipelineLimit, PipelineMoved
from streamhouse.model.pipeline import Event, Fence, KeptPipeline, Phase, Pipeline, PipelineName, Status
from streamhouse.stores.metadata.pipeline_rows import kept_of, pipeline_params, status_text
from streamhouse.stores.metadata.rows import Params, Row
from streamhouse.stores.metadata.transaction import Lock, Transaction


async def list_pipelines(tx: Transaction) -> Sequence[KeptPipeline]:
    now_ms = await tx.now_ms()
    return [kept_of(row, now_ms=now_ms) for row in await tx.rows(tx.sql.list_pipelines)]


async def find_pipeline(tx: Transaction, name: PipelineName) -> KeptPipeline | None:
    now_ms = await tx.now_ms()
    row = await tx.row(tx.sql.find_pipeline, {"name": name})
    return None if row is None else kept_of(row, now_ms=now_ms)


async def put_pipeline(tx: Transaction, pipeline: Pipeline, expected: Pipeline | None, max_pipelines: int) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    row = await tx.row(tx.sql.find_pipeline, {"name": pipeline.definition.name})
    if (None if row is None else kept_of(row).pipeline) != expected:
        return False
    if row is None:
        await _insert(tx, pipeline, max_pipelines)
    else:
        await _change(tx, pipeline, row)
    return True


async def _insert(tx: Transaction, pipeline: Pipeline, max_pipelines: int) -> None:
    [count] = await tx.rows(tx.sql.count_pipelines)
    if count["found"] >= max_pipelines:
        raise PipelineLimit("pipelines", limit=max_pipelines, setting="pipelines.max_pipelines")
    told: Params = {"now_ms": await tx.now_ms(), "epoch": 0, "status": status_text(Status())}
    await tx.change(tx.sql.insert_pipeline, {**pipeline_params(pipeline), **told})


async def _change(tx: Transaction, pipeline: Pipeline, row: Row) -> None:
    before = kept_of(row)
    begins_anew = pipeline.generation != before.pipeline.generation
    epoch = await take_epochs(tx, 1) if begins_anew else row["epoch"]
    is_other = (pipeline.revision, pipeline.wish) != (before.pipeline.revision, before.pipeline.wish)
    status = status_text(_waiting(before.status, begins_anew)) if is_other else row["status"]
    told: Params = {"now_ms": await tx.now_ms(), "epoch": epoch, "status": status}
    await tx.change(tx.sql.change_pipeline, {**pipeline_params(pipeline), **told})


def _waiting(before: Status, begins_anew: bool) -> Status:
    """Figures are those of a run; how far it has come stays true until it begins anew."""
    waiting = Status(phase=Phase.WAITING, restarts=before.restarts)
    return waiting if begins_anew else replace(waiting, batch_id=before.batch_id, progress=before.progress)


async def take_epochs(tx: Transaction, count: int) -> int:
    """The first of so many epochs."""
    [row] = await tx.rows(tx.sql.take_pipeline_epochs, {"count": count})
    return int(row["first"])


async def drop_pipeline(tx: Transaction, name: PipelineName) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    return await tx.change(tx.sql.drop_pipeline, {"name": name}) > 0


async def list_events(tx: Transaction, name: PipelineName, limit: int) -> Sequence[Event]:
    rows = await tx.rows(tx.sql.list_events, {"name": name, "limit": limit})
    return [Event(at_ms=row["at_ms"], level=row["level"], text=row["text"]) for row in reversed(rows)]


async def check_fence(tx: Transaction, fence: Fence) -> str:
    """The pipeline's query, if it is owned under this epoch, until the end of the transaction; raise `PipelineMoved`
    otherwise. A lease that is over holds until somebody else has it."""
    row = await tx.row(tx.sql.fence_pipeline, {"name": fence.pipeline})
    if row is None:
        raise PipelineMoved(fence.pipeline, epoch=fence.epoch, why="it is gone")
    if row["owner"] is None:
        raise PipelineMoved(fence.pipeline, epoch=fence.epoch, why="it was released")
    if row["epoch"] != fence.epoch:
        raise PipelineMoved(fence.pipeline, epoch=fence.epoch, why=f"its epoch is {row['epoch']}")
    return str(row["query_id"])
