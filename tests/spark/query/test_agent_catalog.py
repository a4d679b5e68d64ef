"""Asking: what a live agent tells a catalog, and reads of topics whose records have a schema."""

import json

import pytest
from pyspark.sql import SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.client.types import NewSchema
from streamhouse.errors import UnknownTopic
from streamhouse.format.schema_id import prefix_of
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.connectors import topic as connector
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import analyze, resolve
from streamhouse.spark.query.schema_inference import SAMPLE_RECORDS, AgentCatalogBackend
from tests.spark.query.fakes import columns
from tests.support.agent import LiveAgent

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}


@pytest.fixture
def backend(agent: LiveAgent) -> AgentCatalogBackend:
    return AgentCatalogBackend(agent.http)


@pytest.fixture(scope="session")
def requested_users(agent: LiveAgent) -> str:
    """A topic with a registered schema, one record of which was written without."""
    with SyncClient(agent.http) as client:
        client.topics.create("asked-users", partitions=1)
        schema = NewSchema(text=json.dumps(SCHEMA), type="JSON")
        registered = client.schemas.register("asked-users-value", schema)
        with client.producer("asked-users") as producer:
            producer.enqueue(prefix_of(registered.id) + b'{"id": 1, "name": "a"}', key="1")
            producer.enqueue(b"no schema", key="2")
            producer.enqueue(prefix_of(registered.id) + b'{"id": 3, "name": "c"}', key="3")
    return "asked-users"


def test_every_topic_is_a_table(backend: AgentCatalogBackend, client: SyncClient) -> None:
    client.topics.create("asked-plain")
    result = {table.name: table for table in backend.tables()}
    assert result["asked-plain"].connector == "topic"
    assert result["asked-plain"].columns is None


def test_a_sample_has_the_newest_and_the_oldest_records(backend: AgentCatalogBackend, client: SyncClient) -> None:
    client.topics.create("asked-many", partitions=1)
    with client.producer("asked-many") as producer:
        for number in range(3 * SAMPLE_RECORDS):
            producer.enqueue(str(number))
    sample = [int(value or b"-1") for value in backend.sample("asked-many")]
    assert len(sample) <= SAMPLE_RECORDS
    assert {0, 3 * SAMPLE_RECORDS - 1} <= set(sample)
    assert len(set(sample)) == len(sample)


def test_a_small_topic_is_its_own_sample(backend: AgentCatalogBackend, client: SyncClient) -> None:
    client.topics.create("asked-few", partitions=3)
    with client.producer("asked-few") as producer:
        for number in range(10):
            producer.enqueue(str(number), key=str(number))
    assert sorted(backend.sample("asked-few"), key=str) == [str(number).encode() for number in range(10)]
    client.topics.create("asked-none")
    assert backend.sample("asked-none") == []


def test_a_topic_that_is_not_there_has_no_sample(backend: AgentCatalogBackend) -> None:
    with pytest.raises(UnknownTopic):
        backend.sample("asked-nowhere")


def test_registered_columns_are_those_of_the_latest_schema(backend: AgentCatalogBackend, requested_users: str) -> None:
    assert backend.fields(requested_users) == columns(id="bigint", name="string")
    assert backend.fields("asked-unregistered") is None


@pytest.mark.spark
def test_fields_of_a_registered_struct_may_be_called_anything(
    backend: AgentCatalogBackend, client: SyncClient, spark: SparkSession
) -> None:
    client.topics.create("asked-homes", partitions=1)
    home = {"type": "object", "properties": {"zip-code": {"type": "string"}, "floor no.": {"type": "integer"}}}
    text = json.dumps({"type": "object", "properties": {"home": home}})
    client.schemas.register("asked-homes-value", NewSchema(text=text, type="JSON"))
    assert backend.fields("asked-homes") == columns(home="struct<`zip-code`:string,`floor no.`:bigint>")
    catalog = Catalog("nowhere:1", backend=backend)
    reading = ReadContext(agents="nowhere:1")
    frame = analyze(spark, "SELECT home.`zip-code` AS zip, home FROM `asked-homes`", catalog, reading).frame
    assert frame.columns == ["zip", "home"]


@pytest.mark.spark
def test_a_registered_topic_is_read_by_its_schema(
    spark: SparkSession, agent: LiveAgent, backend: AgentCatalogBackend, requested_users: str
) -> None:
    catalog = Catalog(agent.http, backend=backend)
    text = "SELECT name, _key, _offset FROM `asked-users` WHERE id > 0"
    bound = resolve(spark, text, catalog, ReadContext(agents=agent.http))
    assert catalog.origin(requested_users) == "registered"
    assert sorted(map(tuple, bound.frame.collect())) == [("a", "1", 0), ("c", "3", 2)]
    counted = resolve(spark, "SELECT count(*) FROM `asked-users`", catalog, ReadContext(agents=agent.http))
    assert counted.frame.collect()[0][0] == 3
    kept = connector.read(
        bound.frame.sparkSession, bound.reads[0].table, ReadContext(agents=agent.http, include_malformed=True)
    )
    (wrong,) = kept.where("_sh_error IS NOT NULL").collect()
    assert (wrong["_key"], bytes(wrong["_sh_value"]), wrong["id"]) == ("2", b"no schema", None)
