"""A topic made with a Kafka client and `table.format` is a table that PyIceberg reads, until the setting is gone."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka.cimpl import NewTopic
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from streamhouse.cli.main import app
from streamhouse.client.http import Http
from streamhouse.client.sync import SyncClient
from streamhouse.clock import Ids, SystemClock
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.pipelines.topic_tables import TopicTableReconciler
from streamhouse.spark.query.catalog import topic_columns
from tests.spark.lake.conftest import job, run
from tests.spark.pipelines.live import LiveSupervisor, until
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

api: Any = confluent_kafka.admin  # whose types are not all exported
SETTINGS = {
    "table.format": "iceberg",
    "table.mode": "upsert",
    "table.key": "id",
    "table.commit.interval.ms": "200",
}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path / "data") as running:
        yield running


def tables(agent: LiveAgent) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["tables", "list", "--json", "--agents", agent.http])
    assert result.exit_code == 0, result.output
    return {each["name"]: each for each in json.loads(result.stdout)}


def rows_of(location: Path) -> dict[int, int]:
    try:
        result = StaticTable.from_metadata(str(location)).scan().to_arrow().to_pylist()
    except (FileNotFoundError, NoSuchTableError, ValueError):  # no commit yet
        return {}
    return {row["id"]: row["amount"] for row in result}


def altered(admin: Any, *changes: tuple[str, str | None]) -> None:
    kinds = api.AlterConfigOpType
    entries = [
        api.ConfigEntry(name, value, incremental_operation=kinds.DELETE if value is None else kinds.SET)
        for name, value in changes
    ]
    resource = api.ConfigResource(api.ResourceType.TOPIC, "shop.orders", incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(10)


def produced(client: SyncClient) -> None:
    """Of order 1 nothing is left."""
    with client.producer("shop.orders") as producer:
        for key, value in (("1", {"id": 1, "amount": 30}), ("2", {"id": 2, "amount": 5}), ("1", None)):
            producer.enqueue(None if value is None else json.dumps(value), key=key)


def looked(agent: LiveAgent, times: int) -> None:
    """As a supervisor does, now and then."""

    async def look() -> None:
        async with Http(agent.http) as http:
            columns = partial(topic_columns, agent.http)
            following = TopicTableReconciler(http, columns, every_s=1, clock=SystemClock(), ids=Ids())
            for _ in range(times):
                await following.reconcile_once()

    asyncio.run(look())


def test_the_table_that_a_setting_makes_is_filled_and_stays_when_the_setting_goes(
    spark: SparkSession, own_agent: LiveAgent, tmp_path: Path
) -> None:
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    location = own_agent.data / "lake" / "shop_orders_lake"
    with SyncClient(own_agent.http) as client:
        client.topics.create("shop.orders", partitions=1, config=SETTINGS)
        produced(client)
        looked(own_agent, times=1)
        run(builder, job(own_agent, "shop_orders_lake", dead_letters="none"))
        assert rows_of(location) == {2: 5}
        client.topics.configure("shop.orders", {"table.format": None})
        looked(own_agent, times=2)
    assert tables(own_agent) == {}
    assert rows_of(location) == {2: 5}


@pytest.mark.slow
def test_a_topic_is_a_table_for_as_long_as_its_settings_say_so(agent: LiveAgent, tmp_path: Path) -> None:
    admin, location = api.AdminClient({"bootstrap.servers": agent.bootstrap}), agent.data / "lake" / "shop_orders_lake"
    new = NewTopic("shop.orders", num_partitions=1, replication_factor=1, config=SETTINGS)
    admin.create_topics([new])["shop.orders"].result(10)
    with (
        SyncClient(agent.http) as client,
        LiveSupervisor(agent, tmp_path, "first", {"STREAMHOUSE_TABLES_FOLLOW_S": "0.5"}) as supervisor,
    ):
        produced(client)
        until(lambda: rows_of(location) == {2: 5}, f"the table has the rows:\n{supervisor.output}")
        altered(admin, ("table.format", "delta"))
        until(lambda: "format is iceberg, not delta" in supervisor.output, "a change that can't be is said")
        assert "format is iceberg, not delta" in tables(agent)["shop_orders_lake"]["refused"]
        altered(admin, ("table.format", None))
        until(lambda: tables(agent) == {}, "without the setting there is no table")
        assert supervisor.output.count("format is iceberg, not delta") == 1
        assert supervisor.stop() == 0
    assert rows_of(location) == {2: 5}
