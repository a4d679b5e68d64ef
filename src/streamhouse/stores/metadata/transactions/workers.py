"""SQL workers as transactions.

Data path   broker.sql -> **workers** -> rows
Owns        which workers are alive, by the store's clock
Leaves      whom to ask to `broker.sql`
"""

from collections.abc import Sequence

from streamhouse.errors import PipelineLimit
from streamhouse.model.worker import SqlWorker, WorkerId
from streamhouse.stores.metadata.pipeline_rows import worker_of
from streamhouse.stores.metadata.rows import Params
from streamhouse.stores.metadata.transaction import Lock, Transaction


async def beat(tx: Transaction, worker: SqlWorker, ttl_ms: int, max_workers: int) -> None:
    await tx.lock(Lock.PIPELINES, {})
    now_ms = await tx.now_ms()
    await tx.change(tx.sql.forget_workers, {"before_ms": now_ms})
    others = [each for each in await list_workers(tx) if each.worker != worker.worker]
    if len(others) >= max_workers:
        raise PipelineLimit("SQL workers", limit=max_workers, setting="sql.max_workers")
    params: Params = {
        "worker": worker.worker,
        "address": worker.address,
        "token": worker.token,
        "busy": worker.busy,
        "expires_at_ms": now_ms + ttl_ms,
    }
    await tx.change(tx.sql.put_worker, params)


async def list_workers(tx: Transaction) -> Sequence[SqlWorker]:
    return [worker_of(row) for row in await tx.rows(tx.sql.list_workers, {"now_ms": await tx.now_ms()})]


async def drop(tx: Transaction, worker: WorkerId) -> None:
    await tx.change(tx.sql.drop_worker, {"worker": worker})
