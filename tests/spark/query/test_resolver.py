"""Binding: names of a query become views of topics, of which nothing is read that isn't used."""

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.errors import StatementError
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.connectors import topic as connector
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import ResolvedQuery, analyze, resolve
from streamhouse.spark.query.schema_inference import AgentCatalogBackend
from streamhouse.sql.options import Watermark
from tests.spark.query.fakes import FakeBackend, columns, topic
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

ORDERS = [
    {"id": 1, "amount": 2.5, "country": "de", "at": "2026-11-15T08:00:00Z"},
    {"id": 2, "amount": 10, "country": "fr", "at": "2026-11-15T08:00:30Z"},
    {"id": 3, "amount": 7, "country": "de", "at": "2026-11-15T08:01:00Z", "note": {"text": "x"}},
]


class Door(AgentCatalogBackend):
    """The agents' records, and tables that the test says there are."""

    def __init__(self, address: str, *tables: Table) -> None:
        super().__init__(address)
        self.known = list(tables)

    def tables(self) -> list[Table]:
        return self.known


@pytest.fixture(scope="session")
def orders(agent: LiveAgent) -> str:
    """A topic of three orders, and of records that are none; for as long as its agent is there."""
    with SyncClient(agent.http) as client:
        client.topics.create("bound-orders", partitions=2)
        with client.producer("bound-orders") as producer:
            for order in ORDERS:
                producer.enqueue(json.dumps(order), key=f"key-{order['id']}")
            producer.enqueue("not JSON", key="bad-1")
            producer.enqueue('{"id": "four"}', key="bad-2")
    return "bound-orders"


@pytest.fixture(scope="session")
def catalog(agent: LiveAgent, orders: str) -> Catalog:
    declared = Table(
        name="orders",
        connector=Connector.TOPIC,
        columns=columns(id="BIGINT", amount="DOUBLE", country="STRING", at="TIMESTAMP"),
        options={"topic": orders},
    )
    countries = topic("countries", "json", country="STRING", name="STRING")
    backend = Door(agent.http, declared, topic(orders), countries, topic("shop.orders", "json", id="BIGINT"))
    return Catalog(agent.http, backend=backend)


@pytest.fixture
def bound(spark: SparkSession, agent: LiveAgent, catalog: Catalog) -> "Binder":
    return Binder(spark, agent.http, catalog)


class Binder:
    def __init__(self, spark: SparkSession, agents: str, catalog: Catalog) -> None:
        self.spark, self.agents, self.catalog = spark, agents, catalog

    def __call__(self, text: str, **reading: object) -> ResolvedQuery:
        return resolve(self.spark, text, self.catalog, ReadContext(agents=self.agents, **reading))  # type: ignore[arg-type]

    def looked(self, text: str, **reading: object) -> ResolvedQuery:
        return analyze(self.spark, text, self.catalog, ReadContext(agents=self.agents, **reading))  # type: ignore[arg-type]

    def rows(self, text: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in self(text).frame.collect())


def used(result: ResolvedQuery) -> dict[str, list[str]]:
    return {read.name: [column.name for column in read.table.columns or ()] for read in result.reads}


def scans(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def test_a_topic_is_a_table_and_what_cannot_be_decoded_is_left_out(bound: Binder) -> None:
    assert bound.rows("SELECT id, country FROM orders") == [(1, "de"), (2, "fr"), (3, "de")]


def test_columns_that_nobody_declared_are_inferred(bound: Binder) -> None:
    result = bound("SELECT * FROM `bound-orders`")
    assert result.frame.columns == ["id", "amount", "country", "at", "note"]
    assert result.notes[0].startswith("columns of bound-orders inferred from 4 JSON records")
    # One of four has text for an id, so ids are text.
    assert dict(result.frame.dtypes)["id"] == "string"
    assert dict(result.frame.dtypes)["note"] == "struct<text:string>"
    assert result.frame.count() == 4


def test_only_the_columns_that_are_used_are_read(bound: Binder) -> None:
    result = bound("SELECT country, sum(amount) FROM orders WHERE id > 1 GROUP BY country")
    assert used(result) == {"orders": ["id", "amount", "country"]}
    assert sorted(map(tuple, result.frame.collect())) == [("de", 7.0), ("fr", 10.0)]


def test_a_star_inside_uses_what_is_used_outside(bound: Binder) -> None:
    result = bound("WITH a AS (SELECT * FROM orders) SELECT b.id FROM (SELECT * FROM a) b")
    assert used(result) == {"orders": ["id"]}


def test_a_count_reads_no_values(bound: Binder) -> None:
    result = bound("SELECT count(*) FROM orders")
    assert used(result) == {"orders": []}
    assert "value" not in scans(result.frame)
    # Nothing is decoded, so records that can't be count too.
    assert result.frame.collect()[0][0] == 5


def test_json_is_parsed_once_whatever_is_filtered(bound: Binder) -> None:
    result = bound("SELECT id, amount FROM orders WHERE id > 1 AND amount < 8 AND _offset >= 0")
    assert scans(result.frame).count("from_json") == 1


def test_unions_by_position_keep_their_positions(bound: Binder) -> None:
    text = """SELECT amount FROM (
        SELECT id, amount, country FROM orders WHERE country = 'de'
        UNION ALL
        SELECT * FROM (SELECT _offset, amount, country FROM orders) WHERE amount = 10
    )"""
    assert bound.rows(text) == [(2.5,), (7.0,), (10.0,)]


def test_columns_about_records_are_there_when_they_are_named(bound: Binder) -> None:
    result = bound("SELECT id, _key, _topic, _partition, _offset, _timestamp, _headers FROM orders WHERE id = 2")
    (row,) = result.frame.collect()
    assert (row["_key"], row["_topic"], row["_headers"]) == ("key-2", "bound-orders", [])
    assert bound("SELECT * FROM orders").frame.columns == ["id", "amount", "country", "at"]


def test_subqueries_and_joins_use_what_they_use(bound: Binder) -> None:
    text = """SELECT o.id FROM orders o JOIN orders p ON o.country = p.country
        WHERE o.amount = (SELECT max(amount) FROM orders WHERE id < 3) AND p.at IS NOT NULL"""
    result = bound(text)
    assert used(result) == {"orders": ["id", "amount", "country", "at"]}
    assert [tuple(row) for row in result.frame.collect()] == [(2,)]


def test_a_stream_is_one_where_it_is_said(bound: Binder) -> None:
    result = bound.looked("SELECT o.id, c.name FROM STREAM(orders) o JOIN countries c ON o.country = c.country")
    assert (result.streams, result.tables) == (("orders",), ("countries",))
    assert result.frame.isStreaming
    assert used(result) == {"orders": ["id", "country"], "countries": ["country", "name"]}


def test_a_stream_can_be_run(bound: Binder, spark: SparkSession, tmp_path: object) -> None:
    result = bound("SELECT country, count(*) AS n FROM STREAM orders WHERE amount > 0 GROUP BY country")
    query = (
        result.frame.writeStream.format("memory")
        .queryName("bound_counts")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    rows = result.frame.sparkSession.sql("SELECT * FROM bound_counts").collect()
    assert sorted(map(tuple, rows)) == [("de", 2), ("fr", 1)]


def test_undecodable_records_come_when_they_are_wanted(bound: Binder) -> None:
    result = bound("SELECT id, _key FROM orders")
    (read,) = result.reads
    frame = connector.read(
        result.frame.sparkSession, read.table, ReadContext(agents=bound.agents, include_malformed=True)
    ).where("_sh_error IS NOT NULL")
    rows = sorted(tuple(row) for row in frame.collect())
    assert [(row[0], row[1], bytes(row[3])) for row in rows] == [
        (None, "bad-1", b"not JSON"),
        (None, "bad-2", b'{"id": "four"}'),
    ]
    assert [row[2] for row in rows] == [connector.NOT_JSON, connector.OTHER_JSON]


def test_watermarks_go_to_streams_that_have_their_column(bound: Binder) -> None:
    marks = (Watermark(column="at", delay="10 seconds"), Watermark(column="elsewhere", delay="1 second"))
    result = bound.looked("SELECT window(at, '1 minute') w, count(*) FROM STREAM(orders) GROUP BY 1", watermarks=marks)
    assert "EventTimeWatermark" in result.frame._jdf.queryExecution().analyzed().toString()
    assert used(result) == {"orders": ["at"]}


def test_a_watermark_makes_a_time_of_text(bound: Binder) -> None:
    marks = (Watermark(column="at", delay="10 seconds"),)
    result = bound.looked("SELECT at FROM STREAM(`bound-orders`)", watermarks=marks)
    assert result.frame.dtypes == [("at", "timestamp")]


def test_a_name_cannot_be_a_stream_and_a_table_at_once(bound: Binder) -> None:
    with pytest.raises(StatementError, match="both as a stream and as a table") as caught:
        bound("SELECT 1 FROM STREAM(orders) a JOIN orders b ON a.id = b.id")
    assert "CREATE TABLE orders_all" in caught.value.hint


def test_an_unknown_name_is_reported_with_what_is_near(bound: Binder) -> None:
    with pytest.raises(StatementError, match="there is no table or topic ordrs") as caught:
        bound("SELECT *\nFROM ordrs")
    assert (caught.value.line, caught.value.column, caught.value.hint) == (
        2,
        6,
        "did you mean orders or shop.orders",
    )


def test_a_request_does_not_write_to_a_topic(bound: Binder) -> None:
    with pytest.raises(StatementError, match="a query doesn't write to orders") as caught:
        bound("INSERT INTO orders VALUES (1)")
    assert "streamhouse produce orders" in caught.value.hint


def test_a_query_that_begins_with_its_table_writes_nothing(bound: Binder) -> None:
    assert bound("FROM orders |> SELECT id").frame.columns == ["id"]


def test_a_name_with_dots_needs_backticks(bound: Binder) -> None:
    with pytest.raises(StatementError, match="needs backticks"):
        bound("SELECT * FROM shop.orders")
    assert used(bound.looked("SELECT * FROM `shop.orders`")) == {"shop.orders": ["id"]}


def test_names_of_a_with_are_its_own_even_when_a_topic_has_the_same(bound: Binder) -> None:
    assert bound.rows("WITH orders AS (SELECT id FROM orders WHERE id > 1) SELECT * FROM orders") == [(2,), (3,)]
    assert bound.rows("WITH mine AS (SELECT 1 AS a) SELECT a FROM mine") == [(1,)]
    many = ", ".join(f"name{number} AS (SELECT {number} AS a)" for number in range(30))
    assert bound.rows(f"WITH {many} SELECT a FROM name29") == [(29,)]


def test_a_string_that_reads_like_a_plan_names_nothing(bound: Binder) -> None:
    text = "'UnresolvedRelation [x], [], true"
    assert bound.rows(f'SELECT "{text}"') == [(text,)]


def test_a_query_that_reads_nothing_sends_no_request(spark: SparkSession) -> None:
    backend = FakeBackend()
    result = resolve(spark, "SELECT 1 + 1", Catalog("nowhere:1", backend=backend), ReadContext(agents="nowhere:1"))
    assert (result.frame.collect()[0][0], result.reads, backend.requests) == (2, (), [])


def test_views_of_one_query_are_not_those_of_another(bound: Binder, spark: SparkSession) -> None:
    bound("SELECT * FROM orders")
    assert not spark.catalog.tableExists("orders")


def test_describe_shows_columns_without_reading(bound: Binder) -> None:
    rows = bound("DESCRIBE orders").frame.collect()
    assert [(row[0], row[1]) for row in rows][:2] == [("id", "bigint"), ("amount", "double")]


def test_explain_shows_what_is_read(bound: Binder) -> None:
    (row,) = bound("EXPLAIN FORMATTED SELECT sum(amount) FROM orders").frame.collect()
    assert "table orders (topic, columns declared): amount" in row["plan"]
    assert "== Physical Plan ==" in row["plan"]


def test_sparks_own_errors_are_sparks(bound: Binder) -> None:
    with pytest.raises(AnalysisException):
        bound("SELECT nope FROM orders")


def test_a_raw_topic_is_one_column(spark: SparkSession, agent: LiveAgent, orders: str) -> None:
    table = Table(
        name="raw",
        connector=Connector.TOPIC,
        columns=(Column(name="line", type="STRING"),),
        options={"topic": orders, "format": "raw"},
    )
    result = resolve(
        spark,
        "SELECT line FROM raw WHERE line LIKE 'not%'",
        Catalog("x", backend=FakeBackend(table)),
        ReadContext(agents=agent.http),
    )
    assert [tuple(row) for row in result.frame.collect()] == [("not JSON",)]
