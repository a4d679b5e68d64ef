"""SQL: which worker with a Spark is asked.

Data path   wire -> **sql** -> a worker's address
Owns        choosing among those that are alive
Leaves      passing the question on to the wire, answering it to `spark.sql`
"""

from collections.abc import Sequence

from streamhouse.broker.doors import Doors
from streamhouse.errors import NoWorker
from streamhouse.model.worker import SqlWorker, WorkerId


class SqlWorkers:
    def __init__(self, doors: Doors) -> None:
        self._metadata = doors.metadata
        self._settings = doors.settings.sql

    @property
    def ttl_s(self) -> float:
        return self._settings.worker_ttl_s

    async def beat(self, worker: SqlWorker) -> None:
        await self._metadata.beat_worker(
            worker, ttl_ms=round(self._settings.worker_ttl_s * 1000), max_workers=self._settings.max_workers
        )

    async def all(self) -> Sequence[SqlWorker]:
        return await self._metadata.workers()

    async def drop(self, worker: WorkerId) -> None:
        await self._metadata.drop_worker(worker)

    async def in_order(self) -> Sequence[SqlWorker]:
        """Those that may be asked, the least busy first; raises `NoWorker` when there is none."""
        found = sorted(await self._metadata.workers(), key=lambda each: (each.busy, each.worker))
        if not found:
            raise NoWorker("nobody answers SQL; do=start one: streamhouse sql serve")
        return found
