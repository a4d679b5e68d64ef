"""A checkpoint that was rolled back is noticed by every target: nothing is left out, and nothing comes twice."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamhouse.client.sync import SyncClient
from streamhouse.errors import CheckpointMismatch
from streamhouse.model.table import Connector, Table
from streamhouse.spark.connectors import ReadContext, WriteContext, find
from tests.spark.connectors.conftest import Ask, Lines
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

TARGETS = ("topic append", "view", "iceberg", "postgresql", "files", "topic update", "delta", "parquet")
NUMBERS = itertools.count()
NOTICED = r"the checkpoint is older than what was committed; .* do=restore the newest checkpoint, or start over"
Rows = Callable[[], list[Any]]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    """An agent whose leases outlast a slow machine."""
    with LiveAgent(tmp_path_factory.mktemp("replays") / "data", "--set", "pipelines.ttl_s=1h") as running:
        yield running


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a query writes to, and what is in it."""

    table: Table
    writing: WriteContext
    rows: Rows


MakeTarget = Callable[[str], Target]


@pytest.fixture
def target(
    spark: SparkSession, keeper: LiveAgent, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[MakeTarget]:
    name = f"kept-{next(NUMBERS)}"
    with httpx.Client(base_url=f"http://{keeper.http}", trust_env=False) as http, SyncClient(keeper.http) as client:
        body = {"kind": "view", "text": f"CREATE MATERIALIZED VIEW `{name}` AS SELECT 1", "key": ["id"]}
        http.put(f"/v1/pipelines/{name}", json=body).raise_for_status()
        response = http.post("/v1/supervisors/me/heartbeat", json={"host": "here", "slots": 100, "running": []}).json()
        [mine] = [each for each in response["assigned"] if each["pipeline"]["name"] == name]
        writing = WriteContext(
            agents=keeper.http,
            pipeline=name,
            epoch=mine["epoch"],
            query_id=mine["pipeline"]["query_id"],
            checkpoint=str(tmp_path / "checkpoint"),
        )

        def records() -> list[Any]:
            return sorted(record.json()["id"] for record in client.consume(f"{name}-topic", until="end"))

        def make(kind: str) -> Target:
            if kind.startswith("topic"):
                client.topics.create(f"{name}-topic", partitions=1)
                table = Table(name=f"{name}-topic", connector=Connector.TOPIC)
                return Target(table=table, writing=mode(writing, kind.partition(" ")[2]), rows=records)
            if kind == "postgresql":
                ask: Ask = request.getfixturevalue("ask")
                ask("CREATE TABLE kept (id bigint)")
                options = {"connection": "warehouse", "table": "kept"}
            else:
                options = {"path" if kind == "files" else "location": str(tmp_path / "out")}
            options = {} if kind == "view" else options
            key = ("id",) if kind == "view" else ()
            shown = Table(name=name if kind == "view" else "kept", connector=Connector(kind), key=key, options=options)

            def read() -> list[Any]:
                frame = find(shown.connector).read(spark, shown, ReadContext(agents=keeper.http))
                return sorted(row["id"] for row in frame.collect())

            return Target(table=shown, writing=mode(writing, "append"), rows=read)

        yield make


def mode(writing: WriteContext, output: str) -> WriteContext:
    (Path(writing.checkpoint)).mkdir()
    (Path(writing.checkpoint) / "metadata").write_text(json.dumps({"id": writing.query_id}))
    return WriteContext(
        agents=writing.agents,
        pipeline=writing.pipeline,
        epoch=writing.epoch,
        query_id=writing.query_id,
        checkpoint=writing.checkpoint,
        mode=output,
    )


def run(frame: DataFrame, to: Target) -> None:
    query = find(to.table.connector).write_stream(frame, to.table, to.writing).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def line(number: int) -> str:
    return json.dumps({"id": number})


@pytest.mark.parametrize("kind", scaled(quick=TARGETS[:3], nightly=TARGETS))
def test_a_checkpoint_that_was_rolled_back_is_noticed(
    spark: SparkSession, target: MakeTarget, tmp_path: Path, kind: str
) -> None:
    to = target(kind)
    lines = Lines(spark, tmp_path / "in", "id BIGINT")
    frame = spark.readStream.schema("id BIGINT").json(str(tmp_path / "in"))  # all files that come, in one micro-batch
    if kind == "topic update":
        frame = frame.groupBy("id").agg(F.count(F.lit(1)).alias("n"))
    checkpoint, newest = Path(to.writing.checkpoint), tmp_path / "newest"
    lines.add(line(1))
    run(frame, to)
    shutil.copytree(checkpoint, tmp_path / "older")
    lines.add(line(2))
    run(frame, to)
    shutil.copytree(checkpoint, newest)
    assert to.rows() == [1, 2]

    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "older", checkpoint)
    lines.add(line(3))
    with pytest.raises((StreamingQueryException, CheckpointMismatch), match=NOTICED):
        run(frame, to)
    assert to.rows() == [1, 2]

    # A stop between the target's answer and the query's own note of it: the same batch comes again, and is there.
    shutil.rmtree(checkpoint)
    shutil.copytree(newest, checkpoint)
    for each in (checkpoint / "commits").glob("*1*"):
        each.unlink()
    run(frame, to)
    assert to.rows() == [1, 2, 3]
