"""Shapes: what of a streaming query decides whether another one may go on in its place."""

import pytest
from pyspark.sql import SparkSession

from streamhouse.model.pipeline import Shape, resume_conflict
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import analyze
from streamhouse.spark.query.state_signature import state_signature
from tests.spark.query.fakes import FakeBackend, topic

pytestmark = pytest.mark.spark

ORDERS = topic("orders", id="BIGINT", amount="DOUBLE", country="STRING", at="TIMESTAMP")
PAYMENTS = topic("payments", id="BIGINT", paid="DOUBLE", at="TIMESTAMP")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog("x", backend=FakeBackend(ORDERS, PAYMENTS))


@pytest.fixture
def shape(spark: SparkSession, catalog: Catalog) -> "Shaper":
    return Shaper(spark, catalog)


class Shaper:
    def __init__(self, spark: SparkSession, catalog: Catalog) -> None:
        self.spark, self.catalog = spark, catalog

    def __call__(self, text: str) -> Shape:
        bound = analyze(self.spark, text, self.catalog, ReadContext(agents="x"))
        return state_signature(bound.frame, bound.reads)


def test_filters_and_columns_are_no_state(shape: Shaper) -> None:
    result = shape("SELECT id FROM STREAM(orders) WHERE amount > 1")
    assert (result.streams, result.state) == (("orders",), ())
    assert resume_conflict(result, shape("SELECT id, amount * 2 FROM STREAM(orders) WHERE amount > 2")) is None


def test_an_aggregate_is_known_by_its_keys_and_functions(shape: Shaper) -> None:
    result = shape("SELECT country, count(*) AS n, round(sum(amount), 2) FROM STREAM(orders) GROUP BY country")
    assert result.state == ("aggregate by country string: count(1), sum(amount)",)


@pytest.mark.parametrize(
    ("changed", "keeps"),
    [
        ("SELECT country AS c, count(*) AS m, sum(amount) * 2 FROM STREAM(orders) GROUP BY country", True),
        ("SELECT country, count(*), sum(amount) FROM STREAM(orders) WHERE id > 0 GROUP BY country", False),
        ("SELECT country, count(*), max(amount) FROM STREAM(orders) GROUP BY country", False),
        ("SELECT id, count(*), sum(amount) FROM STREAM(orders) GROUP BY id", False),
        ("SELECT country, count(*), sum(paid) FROM STREAM(payments), (SELECT 'x' country) GROUP BY country", False),
    ],
)
def test_a_changed_aggregate_keeps_its_place_where_its_state_stays(shape: Shaper, changed: str, keeps: bool) -> None:
    before = shape("SELECT country, count(*) AS n, sum(amount) FROM STREAM(orders) GROUP BY country")
    assert (resume_conflict(before, shape(changed)) is None) is keeps


def test_the_length_of_a_window_is_part_of_it(shape: Shaper) -> None:
    def of(length: str) -> Shape:
        return shape(f"SELECT window(at, '{length}'), count(*) FROM STREAM(orders) GROUP BY 1")

    assert of("1 minute").state[0].endswith("of 60 s: count(1)")
    assert of("1 minute") == of("60 seconds")
    assert of("1 minute") != of("2 minutes")


def test_the_length_of_a_window_is_found_below_other_names(shape: Shaper) -> None:
    text = """SELECT w, max(n) FROM (
        SELECT window(at, '1 minute', '10 seconds') AS w, country, count(*) AS n
        FROM STREAM(orders) WATERMARK at DELAY OF INTERVAL 1 MINUTE GROUP BY 1, 2) GROUP BY w"""
    assert [state.count(" of 60 s, 10 s") for state in shape(text).state] == [1, 1]
    distinct = "SELECT DISTINCT id, window(at, '10 seconds') AS w FROM STREAM(orders)"
    assert shape(distinct).state == ("aggregate by id bigint, w window of 10 s: none",)


def test_a_session_has_a_gap(shape: Shaper) -> None:
    text = """SELECT session_window(at, '5 minutes'), count(*)
        FROM STREAM(orders) WATERMARK at DELAY OF INTERVAL 1 MINUTE GROUP BY session_window(at, '5 minutes')"""
    assert "of 5 minutes" in shape(text).state[0]


def test_a_join_of_streams_is_known_by_condition_and_columns(shape: Shaper) -> None:
    result = shape("SELECT o.id, paid FROM STREAM(orders) o JOIN STREAM(payments) p ON o.id = p.id")
    assert result.streams == ("orders", "payments")
    assert result.state == ("join inner on (id = id) orders(id) payments(id, paid)",)
    more = shape("SELECT o.id, paid, amount FROM STREAM(orders) o JOIN STREAM(payments) p ON o.id = p.id")
    assert resume_conflict(result, more) is not None


def test_the_order_of_streams_counts(shape: Shaper) -> None:
    one = shape("SELECT id FROM STREAM(orders) UNION ALL SELECT id FROM STREAM(payments)")
    other = shape("SELECT id FROM STREAM(payments) UNION ALL SELECT id FROM STREAM(orders)")
    assert one.streams == ("orders", "payments")
    assert resume_conflict(one, other) is not None


def test_a_with_is_read_where_it_is_used(shape: Shaper) -> None:
    text = """WITH p AS (SELECT id, paid FROM STREAM(payments)), o AS (SELECT id FROM STREAM(orders))
        SELECT o.id FROM o JOIN p ON o.id = p.id"""
    assert shape(text).streams == ("orders", "payments")


def test_distinct_rows_are_an_aggregate(shape: Shaper) -> None:
    assert shape("SELECT DISTINCT country, id FROM STREAM(orders)").state == (
        "aggregate by country string, id bigint: none",
    )
