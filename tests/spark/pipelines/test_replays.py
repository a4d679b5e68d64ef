"""A micro-batch that comes again counts as done only if it is the one that was committed."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.spark.pipelines.building import Builder
from streamhouse.spark.pipelines.checkpoints import checkpoint_path
from streamhouse.spark.pipelines.jobs import Job, job_of
from tests.live import LiveAgent

pytestmark = pytest.mark.spark

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    """An agent whose leases outlast a slow machine."""
    with LiveAgent(tmp_path_factory.mktemp("replays") / "data", "--set", "pipelines.ttl_s=1h") as running:
        yield running


@pytest.fixture(scope="module")
def http(keeper: LiveAgent) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{keeper.http}", trust_env=False, timeout=30) as client:
        yield client


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline over a topic of its own, run here until it has read everything; its checkpoint is in `folder`."""

    http: httpx.Client
    client: SyncClient
    builder: Builder
    job: Job
    source: str
    folder: Path

    def produce(self, *values: int) -> None:
        with self.client.producer(self.source) as producer:
            for value in values:
                producer.enqueue(json.dumps({"id": value}), key=str(value))

    def run(self) -> None:
        built = self.builder.build(self.job)
        assert built.main.awaitTermination(120)

    def view(self) -> Any:
        return self.http.get(f"/v1/views/{self.job.name}").json()

    def view_rows(self) -> list[Any]:
        return list(self.http.get(f"/v1/views/{self.job.name}/rows").json()["rows"])

    def forget_last_commit(self) -> None:
        """As if the query had been stopped between the target's answer and its own note of it."""
        last = max(int(each.name) for each in (self.folder / "commits").iterdir() if each.name.isdigit())
        (self.folder / "commits" / str(last)).unlink()
        (self.folder / "commits" / f".{last}.crc").unlink(missing_ok=True)


Start = Callable[..., Pipeline]


@pytest.fixture
def start(spark: SparkSession, keeper: LiveAgent, http: httpx.Client, tmp_path: Path) -> Iterator[Start]:
    builder = Builder(spark, agents=keeper.http, checkpoints=str(tmp_path / "checkpoints"))
    with SyncClient(keeper.http) as client:

        def start(text: str, *, kind: str = "sql", target: str | None = None, **options: str) -> Pipeline:
            """`{name}` and `{source}` stand in the text for names of its own."""
            number = next(NUMBERS)
            name, source = f"replayed-{number}", f"orders-{number}"
            client.topics.create(source, partitions=1)
            definition = {
                "kind": kind,
                "text": text.format(name=name, source=source),
                "target": target or name,
                "options": {"dead_letters": "none", **options},
            }
            http.put(f"/v1/pipelines/{name}", json=definition).raise_for_status()
            told = http.post("/v1/supervisors/me/heartbeat", json={"host": "here", "slots": 100, "running": []}).json()
            [mine] = [each for each in told["assigned"] if each["pipeline"]["name"] == name]
            job = job_of(mine["pipeline"], epoch=mine["epoch"])
            job = replace(job, given={"trigger": "available now", **job.given})
            path = checkpoint_path(str(tmp_path / "checkpoints"), name, job.query_id, job.generation)
            return Pipeline(http=http, client=client, builder=builder, job=job, source=source, folder=Path(path))

        yield start


def test_a_view_without_streams_is_right_when_its_last_batch_is_replayed(start: Start) -> None:
    kept = start("CREATE MATERIALIZED VIEW `{name}` AS SELECT count(*) AS n FROM `{source}`", kind="view")
    kept.produce(*range(5))
    kept.run()
    assert kept.view_rows() == [{"n": 5}]
    kept.forget_last_commit()
    kept.produce(*range(5))
    query = kept.builder.build(replace(kept.job, given={**kept.job.given, "trigger": "1 second"})).main
    fresh_at_ms = kept.view()["fresh_at_ms"]
    try:
        while kept.view()["fresh_at_ms"] == fresh_at_ms:
            assert query.exception() is None
    finally:
        query.stop()
    assert kept.view_rows() == [{"n": 10}]
