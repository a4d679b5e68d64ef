"""A pipeline that is dropped, and perhaps created again: a runner of the first one commits nothing any more."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from streamhouse.cli.main import app
from streamhouse.client.sync import SyncClient
from streamhouse.errors import PipelineMoved
from streamhouse.model.table import Connector
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.pipelines.runner_protocol import PipelineJob
from tests.spark.lake.conftest import Make, Written, job, run
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = pytest.mark.spark
CONNECTORS = [Connector.ICEBERG, Connector.DELTA, Connector.PARQUET]


def created(agent: LiveAgent, table: Written) -> PipelineJob:
    flags = ["--topic", "orders", "--format", table.table.connector.value, "--location", table.location]
    result = CliRunner().invoke(app, ["tables", "create", "orders_all", *flags, "--agents", agent.http])
    assert result.exit_code == 0, result.output
    return job(agent, "orders_all", dead_letters="none")


def produced(client: SyncClient, *ids: int) -> None:
    with client.producer("orders") as producer:
        for each in ids:
            producer.enqueue(json.dumps({"id": each}), key=None)


def ids_in(table: Written) -> list[int]:
    return sorted(row.id for row in table.read().collect())


@pytest.mark.parametrize("connector", scaled(quick=CONNECTORS[:1], nightly=CONNECTORS))
def test_a_runner_of_the_dropped_pipeline_commits_nothing(
    spark: SparkSession, own_agent: LiveAgent, make: Make, tmp_path: Path, connector: Connector
) -> None:
    table = make(connector)
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    with SyncClient(own_agent.http) as client:
        client.topics.create("orders", partitions=1)
        produced(client, 1)
        first = created(own_agent, table)
        going_on = builder.build(replace(first, given={**first.given, "trigger": "100 milliseconds"}))
        going_on.main.processAllAvailable()
        client.pipelines.delete("orders_all")
        second = created(own_agent, table)
        run(builder, second)
        assert ids_in(table) == [1, 1]  # the second has begun at the beginning
        produced(client, 2)
        with pytest.raises(StreamingQueryException, match="pipeline moved; pipeline=orders_all"):
            going_on.main.awaitTermination(60)
        with pytest.raises(PipelineMoved):
            builder.build(first)
        assert ids_in(table) == [1, 1]
        run(builder, second)
    assert ids_in(table) == [1, 1, 2]


@pytest.mark.parametrize("connector", scaled(quick=CONNECTORS[1:2], nightly=CONNECTORS))
def test_a_runner_of_a_pipeline_that_nobody_creates_again_commits_nothing(
    spark: SparkSession, own_agent: LiveAgent, make: Make, tmp_path: Path, connector: Connector
) -> None:
    table = make(connector)
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    with SyncClient(own_agent.http) as client:
        client.topics.create("orders", partitions=1)
        produced(client, 1)
        made = created(own_agent, table)
        going_on = builder.build(replace(made, given={**made.given, "trigger": "100 milliseconds"}))
        going_on.main.processAllAvailable()
        client.pipelines.delete("orders_all")
        produced(client, 2)
        with pytest.raises(StreamingQueryException, match=r"pipeline moved; .* why=it was dropped"):
            going_on.main.awaitTermination(60)
    assert ids_in(table) == [1]
