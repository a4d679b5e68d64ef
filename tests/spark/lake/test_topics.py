"""A topic is a table: what SQL says of the topic, other engines say of its files when no agent runs any more."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from streamhouse.cli.main import app
from streamhouse.client.sync import SyncClient
from streamhouse.model.table import Connector
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import resolve
from tests.spark.lake.conftest import Engines, Make, job, run
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LATEST = """
SELECT count(*) AS n, coalesce(sum(row.amount), 0) AS amount, count(row.country) AS countries
FROM (SELECT max_by(struct(*), _offset) AS row FROM orders WHERE _deleted IS NOT NULL GROUP BY _key)
WHERE NOT row._deleted
"""


def produced(client: SyncClient, *records: tuple[str, dict[str, Any] | None]) -> None:
    with client.producer("orders") as producer:
        for key, value in records:
            producer.enqueue(None if value is None else json.dumps(value), key=key)


def test_a_topic_with_changes_and_other_columns_is_what_sql_says_of_it(
    spark: SparkSession, own_agent: LiveAgent, make: Make, engines: Engines, tmp_path: Path
) -> None:
    table = make(Connector.ICEBERG, "id")
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    with SyncClient(own_agent.http) as client:
        client.topics.create("orders", partitions=1)
        produced(client, *[(str(each), {"id": each, "amount": 10, "country": None}) for each in range(4)])
        flags = ["--topic", "orders", "--format", "iceberg", "--mode", "upsert", "--key", "id"]
        flags += ["--location", table.location, "--agents", own_agent.http]
        result = CliRunner().invoke(app, ["tables", "create", "orders_now", *flags])
        assert result.exit_code == 0, result.output
        run(builder, job(own_agent, "orders_now", dead_letters="none"))
        produced(client, ("1", {"id": 1, "amount": 7, "country": "de", "vip": True}), ("2", None), ("9", None))
        run(builder, job(own_agent, "orders_now", dead_letters="none"))
        said = resolve(spark, LATEST, Catalog(own_agent.http), ReadContext(agents=own_agent.http)).frame.first()
    own_agent.stop()
    assert said is not None
    assert set(engines.sums(table).values()) == {tuple(said)} == {(3, 27, 1)}
    assert engines.duckdb(table, "count(vip)") == [1]


def test_records_without_a_value_are_no_rows_of_a_table_that_is_only_appended_to(
    spark: SparkSession, own_agent: LiveAgent, make: Make, engines: Engines, tmp_path: Path
) -> None:
    table = make(Connector.DELTA)
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    with SyncClient(own_agent.http) as client:
        client.topics.create("orders", partitions=1)
        produced(client, *[(str(each), {"id": each, "amount": 10, "country": "de"}) for each in range(3)])
        produced(client, ("1", None), ("4", {"id": 4, "amount": 5, "country": None}), ("9", None))
        flags = ["--topic", "orders", "--format", "delta", "--location", table.location, "--agents", own_agent.http]
        result = CliRunner().invoke(app, ["tables", "create", "orders_all", *flags])
        assert result.exit_code == 0, result.output
        run(builder, job(own_agent, "orders_all", dead_letters="none"))
    assert set(engines.sums(table).values()) == {(4, 35, 3)}
