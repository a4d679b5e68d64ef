"""A topic with a registered schema is a table that grows with it; what doesn't fit is a dead letter, byte by byte."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from streamhouse.cli.main import app
from streamhouse.client.sync import SyncClient
from streamhouse.client.types import NewSchema, Record
from streamhouse.model.table import Connector
from streamhouse.spark.pipelines.dead_letters import NO_KEY
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from tests.spark.lake.conftest import Engines, Make, Written, job, run
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": ["null", "long"], "default": None},
    {"name": "amount", "type": "int"},
]
COUNTRY = {"name": "country", "type": ["null", "string"], "default": None}


def avro(*fields: dict[str, Any]) -> NewSchema:
    return NewSchema(text=json.dumps({"type": "record", "name": "Order", "fields": list(fields)}), type="AVRO")


@dataclass
class Orders:
    """A topic, and its table."""

    agent: LiveAgent
    client: SyncClient
    builder: PipelineBuilder
    table: Written

    def produce(self, schema: NewSchema | None, *records: tuple[str | None, Any]) -> None:
        with self.client.producer("orders", schema=schema) as producer:
            for key, value in records:
                producer.enqueue(value, key=key)

    def run(self) -> None:
        run(self.builder, job(self.agent, "orders_now"))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.table.read().collect())

    def records(self) -> list[Record]:
        """As they are in the topic."""
        return list(self.client.consume("orders", until="end"))

    def letters(self) -> list[tuple[Any, Any, dict[str, str]]]:
        result = list(self.client.consume("orders_now.dead-letters", until="end"))
        results = [{name: (value or b"").decode() for name, value in each.headers} for each in result]
        both = [(each.key, each.value, headers) for each, headers in zip(result, results, strict=True)]
        return sorted(both, key=lambda each: int(each[2]["sh.offset"]))


@pytest.fixture
def orders(spark: SparkSession, own_agent: LiveAgent, make: Make, tmp_path: Path) -> Iterator[Orders]:
    table = make(Connector.ICEBERG, "id")
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    with SyncClient(own_agent.http) as client:
        client.topics.create("orders", partitions=1)
        client.schemas.register("orders-value", avro(*FIELDS))
        flags = ["--topic", "orders", "--format", "iceberg", "--mode", "upsert", "--key", "id"]
        flags += ["--location", table.location, "--agents", own_agent.http]
        result = CliRunner().invoke(app, ["tables", "create", "orders_now", *flags])
        assert result.exit_code == 0, result.output
        yield Orders(own_agent, client, builder, table)


def test_a_new_version_with_another_field_is_another_column_and_old_rows_have_null(
    orders: Orders, engines: Engines
) -> None:
    old, new = avro(*FIELDS), avro(*FIELDS, COUNTRY)
    orders.produce(old, *[(str(each), {"id": each, "amount": 10}) for each in range(3)])
    orders.run()
    assert orders.rows() == [(0, 10), (1, 10), (2, 10)]
    orders.produce(new, ("1", {"id": 1, "amount": 7, "country": "de"}), ("3", {"id": 3, "amount": 5, "country": None}))
    orders.produce(old, ("4", {"id": 4, "amount": 1}))
    orders.produce(None, ("0", None))
    orders.run()
    assert orders.rows() == [(1, 7, "de"), (2, 10, None), (3, 5, None), (4, 1, None)]
    assert set(engines.sums(orders.table).values()) == {(4, 23, 1)}
    assert orders.letters() == []


def test_what_does_not_fit_is_a_dead_letter_with_its_bytes_and_the_table_goes_on(orders: Orders) -> None:
    schema = avro(*FIELDS)
    orders.produce(schema, ("1", {"id": 1, "amount": 10}), ("lost", {"id": None, "amount": 20}))
    orders.produce(None, ("wrong", b"no schema"), ("short", b"\0\0\0\0\1\2"), ("no number", None))
    orders.produce(schema, ("2", {"id": 2, "amount": 30}))
    orders.run()
    assert orders.rows() == [(1, 10), (2, 30)]
    sent, letters = orders.records(), orders.letters()
    assert [(key, value) for key, value, _ in letters] == [(each.key, each.value) for each in sent[1:5]]
    assert letters[0][1] is not None
    assert [headers["sh.offset"] for _, _, headers in letters] == ["1", "2", "3", "4"]
    why = [headers["sh.error"] for _, _, headers in letters]
    assert [why[place] for place in (0, 3)] == [NO_KEY] * 2
    assert "does not begin with the id of a schema" in why[1]
    assert "record=orders-0@3" in why[2]
    orders.produce(schema, ("1", {"id": 1, "amount": 11}))
    orders.run()
    assert orders.rows() == [(1, 11), (2, 30)]
    assert len(orders.letters()) == 4
