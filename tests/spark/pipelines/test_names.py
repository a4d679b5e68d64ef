"""Columns may be called anything, and topics, tables and views what a topic may be called: everywhere."""

import json
from collections.abc import Iterator
from pathlib import Path, PurePath

import httpx
import pytest
from pyspark.sql import Row, SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.model.identifiers import join_identifiers, quote_identifier
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import resolve
from streamhouse.sql.definitions import changes_of
from tests.spark.lake.conftest import job, run
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

TOPIC = "shop.odd-orders"
ID = "it`s the.id"
NAMES = ("a.b", 'say "hi"', "it's", "two words", "Größe", "x,y", "select", "back\\slash", "{}")
KEY = (ID, "x,y")
ROWS = [{ID: row, **{name: f"{row}-{place}" for place, name in enumerate(NAMES)}} for row in range(3)]
SHOWN = ", ".join(quote_identifier(name) for name in (ID, *NAMES))


def places(folder: Path) -> str:
    return f"""
CREATE PIPELINE `to.topic` WITH (key = '{join_identifiers(KEY)}', dead_letters = 'none')
AS INSERT INTO `odd.copies` SELECT {SHOWN} FROM STREAM(`{TOPIC}`);
CREATE MATERIALIZED VIEW `odd.view-1` KEY ({", ".join(map(quote_identifier, KEY))}) WITH (dead_letters = 'none')
AS SELECT {SHOWN} FROM STREAM(`{TOPIC}`);
CREATE TABLE `odd.files` WITH (connector = 'files', path = '{folder}/files');
CREATE PIPELINE `to.files` WITH (dead_letters = 'none')
AS INSERT INTO `odd.files` SELECT {SHOWN} FROM STREAM(`{TOPIC}`);
"""


def lake(folder: Path, connector: str, mode: str) -> str:
    key = f", key = '{join_identifiers(KEY)}'" if mode == "upsert" else ""
    return f"""
CREATE TABLE `odd.lake` WITH (connector = '{connector}', location = '{folder}/lake', mode = '{mode}');
CREATE PIPELINE `to.lake` WITH (dead_letters = 'none'{key})
AS INSERT INTO `odd.lake` SELECT {SHOWN}, _key, _partition, _offset, _deleted FROM STREAM(`{TOPIC}`);
"""


@pytest.fixture
def own_agent(tmp_path: Path) -> Iterator[LiveAgent]:
    settings = ("--set", "pipelines.ttl_s=1h", "--set", f"tables.files_under={tmp_path}")
    with LiveAgent(tmp_path / "data", *settings) as running:
        with SyncClient(running.http) as client:
            client.topics.create(TOPIC, partitions=1)
            with client.producer(TOPIC) as producer:
                for row in ROWS:
                    producer.enqueue(json.dumps(row), key=json.dumps([row[name] for name in KEY]))
        yield running


def applied(agent: LiveAgent, text: str) -> None:
    with httpx.Client(base_url=f"http://{agent.http}", trust_env=False, timeout=30) as http:
        for change in changes_of(PurePath("x.sql"), text):
            http.put(change.path, json=change.body).raise_for_status()


def query(spark: SparkSession, agent: LiveAgent, text: str) -> list[Row]:
    return resolve(spark, text, Catalog(agent.http), ReadContext(agents=agent.http)).frame.collect()


def as_dicts(rows: list[Row]) -> list[dict[str, object]]:
    return sorted((row.asDict() for row in rows), key=lambda row: int(row[ID]))


def test_columns_of_any_name_are_read_written_and_kept_by_key(
    spark: SparkSession, own_agent: LiveAgent, tmp_path: Path
) -> None:
    assert as_dicts(query(spark, own_agent, f"SELECT {SHOWN} FROM `{TOPIC}`")) == ROWS
    applied(own_agent, places(tmp_path))
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    for pipeline in ("to.topic", "odd.view-1", "to.files"):
        run(builder, job(own_agent, pipeline))
    for table in ("odd.copies", "odd.view-1", "odd.files"):
        assert as_dicts(query(spark, own_agent, f"SELECT {SHOWN} FROM `{table}`")) == ROWS, table
    keys = query(spark, own_agent, "SELECT _key FROM `odd.copies`")
    assert sorted(json.loads(row[0]) for row in keys) == [[row[name] for name in KEY] for row in ROWS]
    only = query(spark, own_agent, f"SELECT {quote_identifier(ID)} FROM `odd.view-1` WHERE `x,y` = '1-5'")
    assert [row[0] for row in only] == [1]


@pytest.mark.parametrize(
    ("connector", "mode"),
    [
        ("iceberg", "upsert"),
        pytest.param("delta", "upsert", marks=pytest.mark.slow),
        pytest.param("parquet", "append", marks=pytest.mark.slow),
    ],
)
def test_lake_tables_have_columns_of_any_name(
    spark: SparkSession, own_agent: LiveAgent, tmp_path: Path, connector: str, mode: str
) -> None:
    applied(own_agent, lake(tmp_path, connector, mode))
    builder = PipelineBuilder(spark, agents=own_agent.http, checkpoints=str(tmp_path / "checkpoints"))
    run(builder, job(own_agent, "to.lake"))
    assert as_dicts(query(spark, own_agent, f"SELECT {SHOWN} FROM `odd.lake`")) == ROWS
    if mode == "append":
        return
    with SyncClient(own_agent.http) as client, client.producer(TOPIC) as producer:
        producer.enqueue(json.dumps({**ROWS[1], "two words": "changed"}), key=json.dumps([1, "1-5"]))
        producer.enqueue(None, key=json.dumps({ID: 2, "x,y": "2-5"}))
    run(builder, job(own_agent, "to.lake"))
    now = as_dicts(query(spark, own_agent, f"SELECT {SHOWN} FROM `odd.lake`"))
    assert now == [ROWS[0], {**ROWS[1], "two words": "changed"}]
