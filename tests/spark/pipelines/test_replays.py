"""A micro-batch that comes again counts as done only if it is the one that was committed."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.pipelines.runner_protocol import PipelineJob, pipeline_job
from streamhouse.spark.runtime.checkpoint_folder import checkpoint_path
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

KINDS = ("here", "elsewhere")
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
    builder: PipelineBuilder
    job: PipelineJob
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

    def records(self) -> list[int]:
        return sorted(record.json()["id"] for record in self.client.consume(f"{self.job.name}-out", until="end"))

    def forget_last_commit(self) -> None:
        """As if the query had been stopped between the target's answer and its own note of it."""
        last = max(int(each.name) for each in (self.folder / "commits").iterdir() if each.name.isdigit())
        (self.folder / "commits" / str(last)).unlink()
        (self.folder / "commits" / f".{last}.crc").unlink(missing_ok=True)


Start = Callable[..., Pipeline]


@pytest.fixture
def start(spark: SparkSession, keeper: LiveAgent, http: httpx.Client, tmp_path: Path) -> Iterator[Start]:
    with SyncClient(keeper.http) as client:

        def start(text: str, *, kind: str = "sql", checkpoints: str = "", **options: str) -> Pipeline:
            """`{name}` and `{source}` stand in the text for names of its own."""
            builder = PipelineBuilder(
                spark, agents=keeper.http, checkpoints=checkpoints or str(tmp_path / "checkpoints")
            )
            number = next(NUMBERS)
            name, source = f"replayed-{number}", f"orders-{number}"
            client.topics.create(source, partitions=1)
            definition = {
                "kind": kind,
                "text": text.format(name=name, source=source),
                "target": name if kind == "view" else f"{name}-out",
                "options": {"dead_letters": "none", **options},
            }
            http.put(f"/v1/pipelines/{name}", json=definition).raise_for_status()
            response = http.post(
                "/v1/supervisors/me/heartbeat", json={"host": "here", "slots": 100, "running": []}
            ).json()
            [mine] = [each for each in response["assigned"] if each["pipeline"]["name"] == name]
            job = pipeline_job(mine["pipeline"], epoch=mine["epoch"])
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


COPY = "CREATE PIPELINE `{name}` AS INSERT INTO `{name}-out` SELECT id FROM STREAM(`{source}`)"


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> str:
    """The folder of checkpoints on a file system of Hadoop's that isn't this machine's own to whoever asks."""
    (tmp_path / "checkpoints").mkdir()
    assert spark._jsc is not None
    settings = spark._jsc.hadoopConfiguration()
    table = f"table{next(NUMBERS)}"
    settings.set(f"fs.viewfs.mounttable.{table}.link./kept", (tmp_path / "checkpoints").as_uri())
    return f"viewfs://{table}/kept"


@pytest.mark.parametrize("kind", scaled(quick=KINDS[1:], nightly=KINDS))
def test_a_checkpoint_that_is_gone_is_put_back_from_the_last_commit(
    start: Start, request: pytest.FixtureRequest, kind: str
) -> None:
    checkpoints = request.getfixturevalue("elsewhere") if kind == "elsewhere" else ""
    pipeline = start(COPY, checkpoints=checkpoints)
    pipeline.produce(1, 2)
    pipeline.run()
    assert (pipeline.folder / "offsets" / "0").is_file()
    shutil.rmtree(pipeline.folder)
    pipeline.produce(3)
    replace(pipeline, job=replace(pipeline.job, last_batch=0)).run()
    assert pipeline.records() == [1, 2, 3]


@pytest.mark.parametrize("kind", scaled(quick=KINDS[:1], nightly=KINDS))
def test_a_topic_is_not_written_from_a_checkpoint_that_was_rolled_back(
    start: Start, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    checkpoints = request.getfixturevalue("elsewhere") if kind == "elsewhere" else ""
    pipeline = start(COPY, checkpoints=checkpoints)
    pipeline.produce(1)
    pipeline.run()
    shutil.copytree(pipeline.folder, tmp_path / "older")
    pipeline.produce(2)
    pipeline.run()
    shutil.rmtree(pipeline.folder)
    shutil.copytree(tmp_path / "older", pipeline.folder)
    pipeline.produce(3)
    with pytest.raises(StreamingQueryException, match=r'batch=1 committed_batch=1 committed={"offsets": .* do=restore'):
        pipeline.run()
    assert pipeline.records() == [1, 2]


def test_a_checkpoint_that_was_rolled_back_is_noticed_by_a_batch_without_rows(start: Start, tmp_path: Path) -> None:
    pipeline = start(f"{COPY} WHERE id < 100", max_records_per_trigger="1")
    pipeline.produce(1)
    pipeline.run()
    shutil.copytree(pipeline.folder, tmp_path / "older")
    pipeline.produce(100, 2)
    replace(pipeline, job=replace(pipeline.job, given={**pipeline.job.given, "max_records_per_trigger": "2"})).run()
    assert pipeline.records() == [1, 2]
    shutil.rmtree(pipeline.folder)
    shutil.copytree(tmp_path / "older", pipeline.folder)
    with pytest.raises(StreamingQueryException, match=r"the checkpoint is older than what was committed"):
        pipeline.run()  # the first micro-batch is the record that is left out
    assert pipeline.records() == [1, 2]
