"""A record's own `_partition`, `_offset`, `_timestamp` … is never taken for the log's, nor the log's for its own."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.client.types import NewSchema
from streamhouse.errors import Misconfigured
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.lake.connector import latest_per_key, own_columns
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import resolve
from streamhouse.spark.query.schema_inference import AgentCatalogBackend
from streamhouse.spark.query.validation import validate
from tests.spark.conftest import Read
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

OWN = {"_partition": 7, "_offset": 1000, "_timestamp": "yesterday", "_key": "mine", "_deleted": "no", "_error": "none"}
AVRO = {
    "type": "record",
    "name": "Own",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "_partition", "type": "int"},
        {"name": "_offset", "type": "long"},
        *({"name": name, "type": "string"} for name in ("_timestamp", "_key", "_deleted", "_error")),
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        **{name: {"type": "integer" if isinstance(value, int) else "string"} for name, value in OWN.items()},
    },
}
NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=scaled(quick=["AVRO"], nightly=["AVRO", "JSON"]))
def registered(request: pytest.FixtureRequest, agent: LiveAgent) -> str:
    name = f"own-{request.param.lower()}"
    text = json.dumps(AVRO if request.param == "AVRO" else JSON_SCHEMA)
    with SyncClient(agent.http) as client:
        client.topics.create(name, partitions=1, config={"retention.ms": -1})
        with client.producer(name, schema=NewSchema(text=text, type=request.param)) as producer:
            for number in range(5):
                producer.enqueue({"id": number, **OWN}, key=f"k{number}", timestamp_ms=1_790_000_000_000 + number)
    return name


@pytest.fixture(scope="module")
def plain(agent: LiveAgent) -> str:
    with SyncClient(agent.http) as client:
        client.topics.create("own-plain", partitions=1)
        with client.producer("own-plain") as producer:
            for number in range(5):
                producer.enqueue(json.dumps({"id": number, **OWN}), key=f"k{number}")
    return "own-plain"


def frame_of(spark: SparkSession, agent: LiveAgent, text: str) -> DataFrame:
    return resolve(spark, text, Catalog(agent.http), ReadContext(agents=agent.http)).frame


def streamed(frame: DataFrame, tmp_path: Path) -> list[tuple[Any, ...]]:
    name = f"own_{next(NUMBERS)}"
    writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / name))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    return sorted(map(tuple, frame.sparkSession.sql(f"SELECT * FROM {name}").collect()))


def test_in_sql_these_names_are_the_logs(
    spark: SparkSession, agent: LiveAgent, registered: str, plain: str, tmp_path: Path
) -> None:
    for name in (registered, plain):
        where = "FROM {} WHERE _partition = 0 AND _offset >= 3 AND _key > 'k' AND _deleted = false"
        query = f"SELECT id, _key, _offset {where}"
        assert sorted(map(tuple, frame_of(spark, agent, query.format(f"`{name}`")).collect())) == [
            (3, "k3", 3),
            (4, "k4", 4),
        ]
        assert streamed(frame_of(spark, agent, query.format(f"STREAM(`{name}`)")), tmp_path) == [
            (3, "k3", 3),
            (4, "k4", 4),
        ]
        everything = frame_of(spark, agent, f"SELECT * FROM `{name}`")
        assert sorted(everything.columns) == ["_error", "id"]
        assert {row._error for row in everything.collect()} == {"none"}


def test_a_lake_table_goes_by_the_logs_order_and_keys(spark: SparkSession, agent: LiveAgent, registered: str) -> None:
    text = f"SELECT *, _key, _partition, _offset, _deleted FROM `{registered}`"
    frame = frame_of(spark, agent, text.replace("SELECT *", "SELECT id % 2 AS id, id AS n"))
    assert own_columns(frame) == ["id", "n"]
    assert sorted((row.id, row.n) for row in latest_per_key(frame, ["id"]).collect()) == [(0, 4), (1, 3)]
    assert sorted(own_columns(frame_of(spark, agent, text))) == ["_error", "id"]


def test_the_typed_source_has_the_records_own_and_the_logs_under_another_prefix(read: Read, registered: str) -> None:
    own = read(topic=registered, schema="registry")
    assert own.where("_offset = 1000 AND _partition = 7").count() == 5
    assert own.where("_offset = 3").count() == 0
    both = read(topic=registered, schema="registry", metadataPrefix="_log_")
    rows = both.where("_log_offset >= 3 AND _offset = 1000").select("id", "_log_key", "_timestamp", "_log_partition")
    assert sorted((row[0], bytes(row[1]), row[2], row[3]) for row in rows.collect()) == [
        (3, b"k3", "yesterday", 0),
        (4, b"k4", "yesterday", 0),
    ]


def test_a_prefix_is_for_typed_columns() -> None:
    with pytest.raises(Misconfigured, match="do=set schema=registry"):
        read_options({"topic": "t", "metadataPrefix": "_log_"}, streaming=False)
    with pytest.raises(Misconfigured, match="at least one character"):
        read_options({"topic": "t", "schema": "registry", "metadataPrefix": ""}, streaming=False)


def test_registered_columns_leave_these_names_to_the_log(agent: LiveAgent, registered: str) -> None:
    result = AgentCatalogBackend(agent.http).fields(registered)
    assert result is not None
    assert sorted(column.name for column in result) == ["_error", "id"]


def test_a_table_of_a_topic_cannot_declare_them(spark: SparkSession, agent: LiveAgent) -> None:
    text = "CREATE TABLE t (id INT, _offset STRING) WITH (connector = 'topic', topic = 'own-plain')"
    (checked,) = validate(spark, Catalog(agent.http), text)
    (problem,) = checked.problems
    assert "_offset is known of every record" in problem.text
    files = "CREATE TABLE t (id INT, _offset STRING) WITH (connector = 'files', path = '/tmp/x')"
    assert validate(spark, Catalog(agent.http), files)[0].problems == ()
