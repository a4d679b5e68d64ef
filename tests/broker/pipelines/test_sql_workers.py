"""Tokens of SQL workers in the metadata store: encrypted where there is a cluster secret."""

from types import SimpleNamespace
from typing import Any

from streamhouse.broker.pipelines.workers import SqlWorkers
from streamhouse.config import Settings
from streamhouse.config.secrets import Secrets
from streamhouse.model.pipeline import SqlWorker, WorkerId

WORKER = SqlWorker(worker=WorkerId("w-1"), address="127.0.0.1:1", token="canary-token", busy=0)


class Rows:
    """The rows of workers."""

    def __init__(self) -> None:
        self.stored: list[SqlWorker] = []

    async def heartbeat_worker(self, worker: SqlWorker, **_: object) -> None:
        self.stored = [worker]

    async def workers(self) -> list[SqlWorker]:
        return self.stored


def workers(rows: Rows, secret: str) -> SqlWorkers:
    dependencies: Any = SimpleNamespace(metadata=rows, settings=Settings(), secrets=Secrets(cluster_secret=secret))
    return SqlWorkers(dependencies)


async def test_agents_with_the_secret_read_the_token_and_the_store_does_not_show_it() -> None:
    rows = Rows()
    await workers(rows, "a secret of the cluster").beat(WORKER)
    assert "canary" not in rows.stored[0].token
    assert await workers(rows, "a secret of the cluster").in_order() == [WORKER]
    for other in ("another secret of it", ""):
        assert await workers(rows, other).all() == []


async def test_without_a_secret_and_from_earlier_releases_tokens_are_as_they_are() -> None:
    rows = Rows()
    await workers(rows, "").beat(WORKER)
    assert rows.stored == [WORKER]
    assert await workers(rows, "a secret of the cluster").all() == [WORKER]


async def test_a_token_belongs_to_its_worker() -> None:
    rows = Rows()
    await workers(rows, "a secret of the cluster").beat(WORKER)
    rows.stored = [SqlWorker(worker=WorkerId("w-2"), address="127.0.0.1:2", token=rows.stored[0].token, busy=0)]
    assert await workers(rows, "a secret of the cluster").all() == []
