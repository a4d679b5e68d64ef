"""A changed query is told from one that only looks different: by its rows for a view, by its state for a pipeline."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamhouse.model.pipeline import Shape, resume_conflict
from streamhouse.model.table import Connector, Table
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.query import query_signature
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.query_signature import signature_of
from streamhouse.spark.query.resolver import ResolvedQuery, analyze, resolve
from streamhouse.spark.query.state_signature import Rows, state_signature
from streamhouse.sql.options import Watermark
from tests.spark.query.fakes import FakeBackend, columns, topic

pytestmark = pytest.mark.spark

ORDERS = topic("orders", id="BIGINT", amount="DOUBLE", country="STRING", at="TIMESTAMP", tags="ARRAY<STRING>")
PAYMENTS = topic("payments", id="BIGINT", paid="DOUBLE", at="TIMESTAMP")
PRODUCTS = topic("products", id="BIGINT", price="DOUBLE", name="STRING")
PRICES = topic("prices", id="BIGINT", price="DOUBLE", name="STRING")
TABLES = (ORDERS, PAYMENTS, PRODUCTS, PRICES)
READING = ReadContext(agents="127.0.0.1:1")


class Shaper:
    """Analyzes each query once: most are compared with one of a few."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._catalog = Catalog("x", backend=FakeBackend(*TABLES))
        self._bound: dict[tuple[str, ReadContext], ResolvedQuery] = {}
        self._shapes: dict[tuple[str, ReadContext, tuple[str, ...] | None], Shape] = {}

    def bound(self, text: str, reading: ReadContext = READING) -> ResolvedQuery:
        if (text, reading) not in self._bound:
            self._bound[text, reading] = analyze(self._spark, text, self._catalog, reading)
        return self._bound[text, reading]

    def view(self, text: str, *, key: tuple[str, ...] = ("k",), reading: ReadContext = READING) -> Shape:
        return self._shape(text, reading, key)

    def pipeline(self, text: str, reading: ReadContext = READING) -> Shape:
        return self._shape(text, reading, None)

    def _shape(self, text: str, reading: ReadContext, key: tuple[str, ...] | None) -> Shape:
        if (text, reading, key) not in self._shapes:
            bound = self.bound(text, reading)
            rows = None if key is None else Rows(key=key)
            self._shapes[text, reading, key] = state_signature(bound.frame, bound.reads, rows=rows)
        return self._shapes[text, reading, key]


@pytest.fixture(scope="module")
def shape(spark: SparkSession) -> Shaper:
    return Shaper(spark)


SUMS = "SELECT country AS k, sum(amount) AS s, count(*) AS n FROM STREAM(orders) WHERE amount > 0 GROUP BY country"
WITH = """WITH big AS (SELECT id AS i, country AS c, amount AS a FROM STREAM(orders) WHERE amount > 10)
    SELECT c AS k, sum(a) AS s FROM big GROUP BY c"""
JOIN = """SELECT o.id AS k, o.amount, p.paid FROM STREAM(orders) o JOIN STREAM(payments) p
    ON o.id = p.id AND p.paid > 1 WHERE o.amount > 5"""
LOOKUP = "SELECT o.id AS k, p.name FROM STREAM(orders) o JOIN products p ON o.id = p.id"
WINDOW = "SELECT window(at, '1 minute') AS k, count(*) AS n FROM STREAM(orders) GROUP BY 1"
UNION = "SELECT id AS k, amount FROM STREAM(orders) UNION ALL SELECT id, paid FROM STREAM(payments) WHERE paid > 1"
ROWS = "SELECT id AS k, CASE WHEN amount > 5 THEN 'big' ELSE 'small' END AS size FROM STREAM(orders) WHERE amount > 0"
SELF = """WITH o AS (SELECT id, amount, at FROM STREAM(orders))
    SELECT a.id AS k, a.amount AS s FROM o a JOIN o b ON a.id = b.id"""
SUBQUERY = "SELECT id AS k, amount FROM STREAM(orders) WHERE id IN (SELECT id FROM products WHERE price > 3)"


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (SUMS, SUMS.replace("FROM STREAM", "-- all of them\n FROM  STREAM")),
        (SUMS, SUMS.replace("country", "o.country").replace("STREAM(orders)", "STREAM(orders) AS o")),
        (SUMS, SUMS.replace("amount > 0", "(amount > 0)").replace("count(*)", "COUNT(1)")),
        (SUMS.replace("> 0", "> 0 AND id > 1"), SUMS.replace("amount > 0", "id > 1 AND amount > 0")),
        (WITH, WITH.replace("big", "large")),
        (WITH, WITH.replace("amount AS a", "amount AS b").replace("sum(a)", "sum(b)")),
        (WITH, WITH.replace("id AS i, ", "")),  # nobody uses it
        (WITH, WITH.replace("WITH big", "WITH unused AS (SELECT 1), big")),
        (
            WITH,
            """SELECT c AS k, sum(a) AS s FROM (SELECT country AS c, amount AS a FROM STREAM(orders)
               WHERE amount > 10) GROUP BY c""",
        ),
        (WINDOW, WINDOW.replace("1 minute", "60 seconds")),
        (JOIN, JOIN.replace("o.", "x.").replace("orders) o", "orders) x")),
        (JOIN, JOIN.replace("o.id = p.id AND p.paid > 1", "p.paid > 1 AND o.id = p.id")),
        (SUBQUERY, SUBQUERY.replace("SELECT id FROM products", "SELECT p.id FROM products p")),
        ("SELECT id AS k, rand() AS r FROM STREAM(orders)",) * 2,
        ("SELECT id AS k, transform(tags, x -> upper(x)) AS t FROM STREAM(orders)",) * 2,
        ("SELECT id AS k, t FROM STREAM(orders) LATERAL VIEW explode(tags) a AS t",) * 2,
    ],
)
def test_what_only_looks_different_goes_on(shape: Shaper, text: str, other: str) -> None:
    assert resume_conflict(shape.view(text), shape.view(other)) is None
    assert resume_conflict(shape.pipeline(text), shape.pipeline(other)) is None


BELOW_STATE = [
    (SUMS, SUMS.replace("> 0", "> 6")),
    (SUMS, SUMS.replace("amount > 0", "id > 0")),
    (SUMS, SUMS.replace("> 0", ">= 0")),
    (SUMS, SUMS.replace("sum(amount)", "sum(amount * 2)")),
    (SUMS, SUMS.replace("sum(amount)", "sum(CAST(amount AS INT))")),
    (SUMS, SUMS.replace("sum(amount)", "sum(DISTINCT amount)")),
    (SUMS, SUMS.replace("sum(amount)", "sum(amount) FILTER (WHERE id > 1)")),
    (SUMS, SUMS.replace("country", "upper(country)")),
    (SUMS, SUMS.replace("sum(amount) AS s, count(*) AS n", "count(*) AS n, sum(amount) AS s")),
    (SUMS + " HAVING country = 'de'", SUMS + " HAVING country = 'fr'"),  # Spark moves it below the aggregate
    (f"SELECT k, s FROM ({SUMS})", f"SELECT k, n AS s FROM ({SUMS})"),  # Spark leaves out what nobody uses
    (WITH, WITH.replace("> 10", "> 11")),
    (WITH, WITH.replace("amount AS a", "id AS a")),
    (WINDOW, WINDOW.replace("1 minute", "2 minutes")),
    (WINDOW, WINDOW.replace("'1 minute'", "'1 minute', '30 seconds'")),
    (JOIN, JOIN.replace("paid > 1", "paid > 2")),
    (JOIN, JOIN.replace("amount > 5", "amount > 6")),
    (JOIN, JOIN.replace("JOIN", "LEFT JOIN")),
    (SELF, SELF.replace("a.amount", "b.amount")),
    (
        SUMS.replace("orders)", "orders) JOIN products USING (id)"),
        SUMS.replace("orders)", "orders) JOIN prices USING (id)"),
    ),
    (
        SUMS.replace("WHERE", "WHERE id IN (SELECT id FROM products WHERE price > 3) AND"),
        SUMS.replace("WHERE", "WHERE id IN (SELECT id FROM products WHERE price > 4) AND"),
    ),
    (
        SUMS.replace("WHERE", "WHERE amount > (SELECT max(price) FROM products) AND"),
        SUMS.replace("WHERE", "WHERE amount > (SELECT min(price) FROM products) AND"),
    ),
    (
        f"SELECT DISTINCT k, s FROM ({ROWS.replace('size', 's')})",
        f"SELECT DISTINCT k, s FROM ({ROWS.replace('size', 's').replace('> 5', '> 6')})",
    ),
    ("SELECT id AS k FROM STREAM(orders) LIMIT 3", "SELECT id AS k FROM STREAM(orders) LIMIT 4"),
    (
        "SELECT country AS k, count(*) FROM STREAM(orders) GROUP BY ROLLUP (country, id)",
        "SELECT country AS k, count(*) FROM STREAM(orders) GROUP BY CUBE (country, id)",
    ),
    (
        f"SELECT k, count(*) FROM ({UNION}) GROUP BY k",
        f"SELECT k, count(*) FROM ({UNION.replace('> 1', '> 2')}) GROUP BY k",
    ),
    (
        SUMS.replace("STREAM(orders)", "STREAM(orders) WATERMARK at DELAY OF INTERVAL 1 MINUTE"),
        SUMS.replace("STREAM(orders)", "STREAM(orders) WATERMARK at DELAY OF INTERVAL 2 MINUTES"),
    ),
    (
        "SELECT k, v, count(*) FROM (SELECT id AS k, explode(tags) AS v FROM STREAM(orders)) GROUP BY k, v",
        "SELECT k, v, count(*) FROM (SELECT id AS k, explode_outer(tags) AS v FROM STREAM(orders)) GROUP BY k, v",
    ),
    (
        "SELECT id % 2 AS k, max(CASE WHEN amount > 5 THEN 'a' ELSE 'b' END) FROM STREAM(orders) GROUP BY 1",
        "SELECT id % 2 AS k, max(CASE WHEN amount > 5 THEN 'a' ELSE 'c' END) FROM STREAM(orders) GROUP BY 1",
    ),
]


@pytest.mark.parametrize(("text", "other"), BELOW_STATE)
def test_a_query_never_goes_on_with_the_state_of_another(shape: Shaper, text: str, other: str) -> None:
    assert resume_conflict(shape.pipeline(text), shape.pipeline(other)) is not None
    assert resume_conflict(shape.view(text), shape.view(other)) is not None


ABOVE_STATE = [
    (SUMS, SUMS.replace("sum(amount) AS s", "sum(amount) * 2 AS s")),
    (SUMS, SUMS.replace("AS n", "AS m")),
    (SUMS + " HAVING count(*) > 1", SUMS + " HAVING count(*) > 2"),
    (LOOKUP, LOOKUP.replace("products", "prices")),
    (LOOKUP, LOOKUP.replace("o.id = p.id", "o.id = p.id + 1")),
    (UNION, UNION.replace("> 1", "> 2")),
    (ROWS, ROWS.replace("> 0", "> 6")),
    (ROWS, ROWS.replace("'big'", "'large'")),
    (ROWS, ROWS.replace("> 5", "> 7")),
    (SUBQUERY, SUBQUERY.replace("> 3", "> 4")),
    (SUBQUERY, SUBQUERY.replace("id IN", "id NOT IN")),
    (
        SUBQUERY.replace(
            "id IN (SELECT id FROM products WHERE", "EXISTS (SELECT 1 FROM products p WHERE p.id = orders.id AND"
        ),
        SUBQUERY.replace(
            "id IN (SELECT id FROM products WHERE", "EXISTS (SELECT 1 FROM products p WHERE p.id > orders.id AND"
        ),
    ),
]


@pytest.mark.parametrize(("text", "other"), ABOVE_STATE)
def test_rows_of_another_query_dont_stay_in_a_view(shape: Shaper, text: str, other: str) -> None:
    why = resume_conflict(shape.view(text), shape.view(other))
    assert why is not None
    assert why.startswith("it is another query; was=")
    assert resume_conflict(shape.pipeline(text), shape.pipeline(other)) is None


def test_the_key_of_a_view_is_part_of_it(shape: Shaper) -> None:
    assert resume_conflict(shape.view(ROWS, key=("k",)), shape.view(ROWS, key=("k", "size"))) is not None


def test_a_reason_shows_what_has_changed(shape: Shaper) -> None:
    why = resume_conflict(shape.view(SUMS), shape.view(SUMS.replace("> 0", "> 6"))) or ""
    assert "was=Filter (amount > cast(0 as double)) is=Filter (amount > cast(6 as double))" in why


def test_a_watermark_of_the_options_counts_where_there_is_state(shape: Shaper) -> None:
    late, later = (replace(READING, watermarks=(Watermark(column="at", delay=each),)) for each in ("1 hour", "2 hours"))
    assert resume_conflict(shape.view(SUMS, reading=late), shape.view(SUMS, reading=later)) is not None
    assert resume_conflict(shape.view(ROWS, reading=late), shape.view(ROWS, reading=later)) is None


def test_a_name_that_stands_for_another_place_is_another_stream(spark: SparkSession) -> None:
    def of(table: Table, text: str, *, is_same_text: bool = True) -> str | None:
        old, new = (Catalog("x", backend=FakeBackend(*TABLES[1:], each)) for each in (ORDERS, table))
        bounds = (analyze(spark, text, each, READING) for each in (old, new))
        one, other = (state_signature(bound.frame, bound.reads) for bound in bounds)
        return resume_conflict(one, other, is_same_text=is_same_text)

    assert "orders=topic other" in (
        of(replace(ORDERS, options={"topic": "other"}), "SELECT id FROM STREAM(orders)") or ""
    )
    assert of(replace(ORDERS, options={"topic": "orders"}), SUMS, is_same_text=False) is None


def test_a_view_without_a_stream_keeps_nothing(shape: Shaper) -> None:
    old, new = (shape.view(f"SELECT id AS k FROM orders WHERE amount > {n}") for n in (1, 2))
    assert old.keeps_nothing
    assert resume_conflict(old, new) is None


@pytest.mark.parametrize("text", [SUMS, WITH, JOIN, LOOKUP, WINDOW, UNION, ROWS, SELF, SUBQUERY])
def test_frames_that_run_have_the_shape_of_those_that_are_validated(spark: SparkSession, text: str) -> None:
    catalog = Catalog("x", backend=FakeBackend(*TABLES))
    reading = replace(READING, watermarks=(Watermark(column="at", delay="1 hour"),))
    one, other = (each(spark, text, catalog, reading) for each in (analyze, resolve))
    assert state_signature(one.frame, one.reads) == state_signature(other.frame, other.reads)
    assert state_signature(one.frame, one.reads, rows=Rows()) == state_signature(other.frame, other.reads, rows=Rows())


def test_columns_that_a_table_has_got_since_are_nothing_to_a_query_that_uses_others(spark: SparkSession) -> None:
    more = replace(ORDERS, columns=(*(ORDERS.columns or ()), *columns(note="STRING")))
    shapes = []
    for table in (ORDERS, more):
        bound = analyze(spark, WITH, Catalog("x", backend=FakeBackend(table)), READING)
        shapes.append(state_signature(bound.frame, bound.reads, rows=Rows()))
    assert shapes[0] == shapes[1]


def test_a_function_in_python_is_known_by_its_code(spark: SparkSession) -> None:
    def signature(body: str) -> str:
        scope: dict[str, Any] = {}
        exec(body, scope)
        made = F.udf(scope["f"], "int")
        frame = spark.readStream.format("rate").load().groupBy(made("value").alias("k")).count()
        return state_signature(frame, code="").signature

    one = signature("limit = 3\ndef f(x):\n    return x % limit\n")
    assert one == signature("# a comment\n\nlimit = 3\n\ndef f(x):\n    # another\n    return x % limit\n")
    assert one != signature("limit = 4\ndef f(x):\n    return x % limit\n")
    assert one != signature("limit = 3\ndef f(x):\n    return x + limit\n")


def test_rows_and_files_of_a_pipelines_own_are_part_of_it(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "other"):
        spark.range(3).write.parquet(str(tmp_path / name))

    def signature(table: DataFrame, code: str) -> str:
        stream = spark.readStream.format("rate").load()
        frame = stream.join(table, stream.value == table.id).groupBy("id").count()
        return state_signature(frame, code=code).signature

    files = [signature(spark.read.parquet(str(tmp_path / name)), "") for name in ("one", "one", "other")]
    assert files[0] == files[1] != files[2]
    rows = spark.createDataFrame([(1,)], "id BIGINT")
    assert signature(rows, "one") == signature(rows, "one") != signature(rows, "other")


def test_functions_over_groups_in_python_are_part_of_it(spark: SparkSession) -> None:
    def signature(factor: int) -> str:
        def multiplied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield pa.record_batch({"value": [each * factor for each in batch["value"].to_pylist()]})

        stream = spark.readStream.format("rate").load().select("value")
        return state_signature(
            stream.mapInArrow(multiplied, "value BIGINT").groupBy("value").count(), code=""
        ).signature

    assert signature(2) == signature(2) != signature(3)


def test_a_view_that_starts_elsewhere_has_other_rows(shape: Shaper) -> None:
    bound = shape.bound(ROWS)
    one, other = (
        state_signature(bound.frame, bound.reads, rows=Rows(starting=each)) for each in ("earliest", "latest")
    )
    assert resume_conflict(one, other) is not None


@pytest.mark.parametrize(
    "text",
    [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i AS k FROM n",
        "SELECT o.id AS k, m FROM orders o, LATERAL (SELECT max(paid) AS m FROM payments p WHERE p.id = o.id)",
        "SELECT * FROM (SELECT id AS k, country, amount FROM orders) PIVOT (sum(amount) FOR country IN ('de', 'fr'))",
        "SELECT id AS k, rank() OVER (PARTITION BY country ORDER BY amount DESC) FROM orders TABLESAMPLE (50 PERCENT)",
        "SELECT k, v FROM VALUES (1, array('a')) AS t(k, v) EXCEPT SELECT 1, NULL WHERE false",
        "SELECT id AS k, from_json(country, 'a INT').a, INTERVAL 1 DAY + at, X'1F', current_timestamp() FROM orders",
    ],
)
def test_any_query_has_a_signature_and_always_the_same(spark: SparkSession, shape: Shaper, text: str) -> None:
    one, other = (
        signature_of(each.bound(text).frame, leaves=("orders", "payments")) for each in (shape, Shaper(spark))
    )
    assert one.result == other.result


def test_a_plan_that_is_not_understood_is_reported_by_its_text(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shaper(spark)

    def fail(*_: object) -> str:
        raise KeyError("an operator of a later Spark")

    monkeypatch.setattr(query_signature._Rendering, "relation", fail)
    assert resume_conflict(shape.view(SUMS), shape.view(SUMS)) is None
    assert resume_conflict(shape.view(SUMS), shape.view(SUMS.replace("> 0", "> 6"))) is not None


def test_a_shape_of_an_earlier_version_is_compared_by_what_it_has(shape: Shaper) -> None:
    new = shape.view(SUMS)
    old = Shape(streams=new.streams, state=new.state)
    assert resume_conflict(old, new, is_same_text=True) is None
    assert "another version" in (resume_conflict(old, new) or "")
    assert resume_conflict(replace(old, state=()), new, is_same_text=True) is not None
    rows = shape.pipeline(ROWS)
    assert resume_conflict(Shape(streams=rows.streams), rows) is None


def test_a_table_in_files_is_known_by_its_path(spark: SparkSession) -> None:
    def of(path: str) -> Shape:
        files = Table(name="products", connector=Connector.FILES, columns=PRODUCTS.columns, options={"path": path})
        bound = analyze(spark, LOOKUP, Catalog("x", backend=FakeBackend(ORDERS, files)), READING)
        return state_signature(bound.frame, bound.reads, rows=Rows())

    assert of("/a").tables == ("products=files /a",)
    assert resume_conflict(of("/a"), of("/b"), is_same_text=True) is not None
