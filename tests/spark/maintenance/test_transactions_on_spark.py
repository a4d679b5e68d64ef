"""Transactions and a real Spark: what it reads, once or as a stream, compacts and writes to the lake is committed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from streamhouse.cli.main import app
from streamhouse.spark.maintenance import compaction_job, retained_offsets
from streamhouse.spark.maintenance.job import SparkTasks
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from tests.spark.lake.conftest import job, run
from tests.spark.maintenance.compacting import STILL, create, final, read_all
from tests.spark.maintenance.support import ask
from tests.spark.maintenance.transactions import ABORTED, FINAL, transaction, transactional, write_history
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    data = tmp_path_factory.mktemp("transactions") / "data"
    allowed = ("--set", f"tables.files_under={tmp_path_factory.getbasetemp()}")
    with LiveAgent(data, *STILL, "--set", "pipelines.ttl_s=1h", *allowed) as running:
        yield running


def batch_read(spark: SparkSession, agent: LiveAgent, topic: str) -> dict[bytes, bytes]:
    rows = spark.read.format("streamhouse").option("agents", agent.http).option("topic", topic).load().collect()
    results = {bytes(row.key): row.value for row in sorted(rows, key=lambda row: row.offset)}
    return {key: bytes(value) for key, value in results.items() if value is not None}


def test_spark_reads_and_compacts_what_was_committed(
    agent: LiveAgent, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        compaction_job, "SPLIT_BYTES", 300
    )  # transactions begin in one task's part, and end in another's
    monkeypatch.setattr(retained_offsets, "RECORDS_PER_SHUFFLE", 5)
    create(agent, "sparks", cleanup_policy="compact")
    bob = write_history(agent, "sparks", name="sparks")
    assert batch_read(spark, agent, "sparks") == FINAL, "from segments and from the tail"
    ask(agent, "/v1/topics/sparks/flush")
    assert batch_read(spark, agent, "sparks") == FINAL
    compaction_job.run("sparks", agents=agent.http, tasks=SparkTasks(lambda: spark))
    assert batch_read(spark, agent, "sparks") == FINAL == final(read_all(agent, "sparks"))
    bob.commit_transaction(30)
    done = compaction_job.run("sparks", agents=agent.http, tasks=SparkTasks(lambda: spark))
    expected = FINAL | {b"a": b"open", b"c": b"behind", b"e": b"open"}
    seen = read_all(agent, "sparks", isolation="read_uncommitted")
    assert final(seen) == batch_read(spark, agent, "sparks") == expected
    assert not {each.value for each in seen} & set(ABORTED)
    assert done.conflicts == 0


def test_a_stream_waits_for_transactions_to_end(agent: LiveAgent, spark: SparkSession, tmp_path: Path) -> None:
    create(agent, "streamed")
    alice, bob = transactional(agent, "streamed-alice"), transactional(agent, "streamed-bob")

    def stream() -> list[str]:
        """Everything that the query has seen up to now, of all its runs."""
        source = spark.readStream.format("streamhouse").option("agents", agent.http).option("topic", "streamed")
        rows = source.option("startingOffsets", "earliest").load().selectExpr("CAST(value AS STRING) AS value")
        writer = rows.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        files = sorted((tmp_path / "out").glob("*.json"))
        return sorted(json.loads(line)["value"] for file in files for line in file.read_text().splitlines())

    transaction(alice, "streamed", ("a", "1"))
    transaction(bob, "streamed", ("a", "2"), ends=None)
    transaction(alice, "streamed", ("a", "3"))
    assert stream() == ["1"]
    bob.abort_transaction(30)
    transaction(bob, "streamed", ("a", "4"), ends=None)
    assert stream() == ["1", "3"]
    bob.commit_transaction(30)
    assert stream() == ["1", "3", "4"]


@pytest.mark.slow
def test_a_lake_table_has_what_was_committed(agent: LiveAgent, spark: SparkSession, tmp_path: Path) -> None:
    create(agent, "laked")
    alice = transactional(agent, "laked-alice")
    transaction(alice, "laked", ("a", '{"id": 1}'))
    transaction(alice, "laked", ("a", '{"id": 2}'), ends=False)
    transaction(alice, "laked", ("a", '{"id": 3}'))
    transaction(alice, "laked", ("a", '{"id": 4}'), ends=None)
    location = tmp_path / "lake"
    flags = ["--topic", "laked", "--format", "parquet", "--location", str(location), "--agents", agent.http]
    made = CliRunner().invoke(app, ["tables", "create", "laked_table", *flags])
    assert made.exit_code == 0, made.output
    builder = PipelineBuilder(spark, agents=agent.http, checkpoints=str(tmp_path / "checkpoints"))
    run(builder, job(agent, "laked_table", dead_letters="none"))
    assert sorted(row.id for row in spark.read.parquet(str(location)).select("id").collect()) == [1, 3]
    alice.commit_transaction(30)
    run(builder, job(agent, "laked_table", dead_letters="none"))
    assert sorted(row.id for row in spark.read.parquet(str(location)).select("id").collect()) == [1, 3, 4]
