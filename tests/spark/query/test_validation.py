"""Validating: a whole file, before anything of it is done."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from streamhouse.model.pipeline import Shape
from streamhouse.model.table import Connector, Table
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.error_messages import SqlDiagnostic
from streamhouse.spark.query.validation import ValidatedStatement, validate
from tests.spark.query.fakes import FakeBackend, columns, topic
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

FILE = """CREATE TABLE orders (id BIGINT, amount DOUBLE, country STRING, at TIMESTAMP) WITH (connector = 'topic');
CREATE TABLE per_country (country STRING, n BIGINT) WITH (connector = 'topic');

CREATE PIPELINE counts WITH (key = 'country')
AS INSERT INTO per_country SELECT country, count(*) AS n FROM STREAM(orders) GROUP BY country;

CREATE PIPELINE big AS INSERT INTO `big-orders` (id, euros) SELECT id, amount FROM STREAM(orders) WHERE amount > 100;

CREATE MATERIALIZED VIEW biggest AS SELECT id, max(euros) AS most FROM STREAM(`big-orders`) GROUP BY id;
SELECT most FROM biggest WHERE id = 1;
"""


@pytest.fixture
def check(spark: SparkSession) -> "Checker":
    return Checker(spark)


class Checker:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.backend = FakeBackend(topic("orders", id="BIGINT", amount="DOUBLE", country="STRING", at="TIMESTAMP"))

    def __call__(self, text: str) -> list[ValidatedStatement]:
        return validate(self.spark, Catalog("nowhere:1", backend=self.backend), text)

    def problem(self, text: str) -> SqlDiagnostic:
        (problem,) = (problem for checked in self(text) for problem in checked.problems)
        return problem


def test_a_right_file_has_columns_shapes_and_no_problems(check: Checker) -> None:
    check.backend.known.clear()
    result = check(FILE)
    assert [each.problems for each in result] == [()] * 6
    assert [(each.kind, each.name, each.line) for each in result] == [
        ("table", "orders", 1),
        ("table", "per_country", 2),
        ("pipeline", "counts", 4),
        ("pipeline", "big", 7),
        ("view", "biggest", 9),
        ("query", "", 10),
    ]
    _, _, counts, big, biggest, query = result
    assert counts.shape is not None
    assert replace(counts.shape, query=(), signature="") == Shape(
        streams=("orders",), state=("aggregate by country string: count(1)",), target="per_country"
    )
    assert [each.shape.keeps_nothing for each in (counts, big, biggest) if each.shape] == [False, True, False]
    assert big.columns == columns(id="bigint", euros="double")
    assert (biggest.key, biggest.columns) == (("id",), columns(id="bigint", most="double"))
    assert query.columns == columns(most="double")


def test_one_mistake_hides_no_other(check: Checker) -> None:
    text = """CREATE PIPELINE a WITH (triger = 'x') AS INSERT INTO t SELECT 1;
SELECT nope FROM orders;
SELECT coun(*) FROM orders;
DROP TABLE;"""
    results = [(each.line, each.problems[0].line, each.problems[0].column) for each in check(text)]
    assert results == [(1, 1, 25), (2, 2, 8), (3, 3, 8), (4, 4, 11)]


@pytest.mark.parametrize(
    ("text", "line", "column", "what", "hint"),
    [
        (
            "CREATE PIPELINE p AS INSERT INTO t\nSELECT id FROM orders",
            2,
            1,
            "it reads no stream",
            "FROM STREAM(orders)",
        ),
        (
            "CREATE PIPELINE p AS INSERT INTO t\n  SELECT id, idd FROM STREAM(orders)",
            2,
            14,
            "there is no column idd",
            "did you mean id",
        ),
        (
            "CREATE PIPELINE p AS INSERT INTO t (a) SELECT id, amount FROM STREAM(orders)",
            1,
            40,
            "names 1 columns",
            "id",
        ),
        ("CREATE PIPELINE p AS INSERT INTO t SELECT id, 1 AS id FROM STREAM(orders)", 1, 36, "called id", "AS"),
        (
            "CREATE PIPELINE p WITH (key = 'idd')\nAS INSERT INTO t SELECT id FROM STREAM(orders)",
            1,
            31,
            "the key names no column: idd",
            "there are id",
        ),
        (
            "CREATE PIPELINE p WITH (output = 'append') AS INSERT INTO t\n"
            "SELECT country, count(*) AS n FROM STREAM(orders) GROUP BY country",
            2,
            1,
            "output mode append needs a watermark",
            "output = 'update'",
        ),
        (
            "CREATE PIPELINE p AS INSERT INTO t SELECT id FROM STREAM(orders) ORDER BY id",
            1,
            36,
            "Sorting is not supported",
            "leave ORDER BY and LIMIT out",
        ),
        (
            "CREATE PIPELINE p AS INSERT INTO t\nSELECT id, row_number() OVER (ORDER BY at) AS n FROM STREAM(orders)",
            2,
            1,
            "row_number() OVER (…) can't be kept up to date",
            "max_by",
        ),
        ("CREATE MATERIALIZED VIEW v AS SELECT id FROM STREAM(orders)", 1, 31, "a view needs a key", "KEY (column)"),
        ("CREATE TABLE t (a INT, b NUMBR) WITH (connector = 'topic')", 1, 26, "there is no type NUMBR", "DOUBLE"),
    ],
)
def test_what_is_wrong_is_reported_at_its_place(
    check: Checker, text: str, line: int, column: int, what: str, hint: str
) -> None:
    problem = check.problem(text)
    assert what in problem.text
    assert hint in problem.hint
    assert (problem.line, problem.column) == (line, column)


def test_a_target_that_is_declared_takes_only_its_columns(check: Checker) -> None:
    text = """CREATE TABLE t (id BIGINT) WITH (connector = 'topic');
CREATE PIPELINE p AS INSERT INTO t SELECT id, _key, amount AS euros FROM STREAM(orders)"""
    problem = check.problem(text)
    assert problem == SqlDiagnostic(line=2, column=63, text="table t has no column euros", hint="there are id")


def test_a_view_is_written_by_its_own_query(check: Checker) -> None:
    text = """CREATE MATERIALIZED VIEW v AS SELECT id, count(*) AS n FROM STREAM(orders) GROUP BY id;
CREATE PIPELINE p AS INSERT INTO v SELECT id, amount AS n FROM STREAM(orders)"""
    assert "is a view" in check.problem(text).text


def test_a_view_that_is_there_already_is_written_by_its_own_query_and_is_no_stream(check: Checker) -> None:
    view = Table(name="v", connector=Connector.VIEW, columns=columns(id="bigint", n="bigint"), key=("id",), text="…")
    check.backend.known.append(view)
    assert "is a view" in check.problem("CREATE PIPELINE p AS INSERT INTO v SELECT id, 1 AS n FROM STREAM(orders)").text
    problem = check.problem("CREATE PIPELINE p AS INSERT INTO t SELECT id FROM STREAM(v)")
    assert (problem.column, problem.text) == (58, "v is not a stream")


def test_a_watermark_names_a_column_of_a_stream(check: Checker) -> None:
    text = "CREATE PIPELINE p WITH (watermark = '{} 1 minute') AS INSERT INTO t SELECT id FROM STREAM(orders)"
    problem = check.problem(text.format("att"))
    assert (problem.column, problem.text) == (37, "no stream has the watermark's column att")
    assert problem.hint == "there are id, amount, country, at"
    assert [check(text.format(name))[0].problems for name in ("at", "_timestamp")] == [(), ()]


def test_a_file_makes_a_name_once(check: Checker) -> None:
    one = "CREATE {}PIPELINE p AS INSERT INTO t SELECT id FROM STREAM(orders);\n"
    problem = check.problem(one.format("") * 2)
    assert (problem.line, problem.column, problem.text) == (2, 17, "p is created a second time")
    assert all(not each.problems for each in check(one.format("") + one.format("OR REPLACE ")))
    assert all(not each.problems for each in check(one.format("") + "DROP PIPELINE p;\n" + one.format("")))


def test_a_name_that_is_missing_is_shown_where_it_is_read(check: Checker) -> None:
    problem = check.problem("SELECT count(*) AS bids\nFROM STREAM(bids)")
    assert (problem.line, problem.column) == (2, 13)


def test_words_of_other_systems_are_distinguished(check: Checker) -> None:
    assert "EMIT CHANGES" in check.problem("SELECT id FROM STREAM(orders) EMIT CHANGES").hint


def test_what_spark_does_at_once_is_not_done(check: Checker, spark: SparkSession) -> None:
    assert check("CREATE TABLE made_by_mistake USING parquet AS SELECT 1 AS a; SET a.b = 1")[0].problems == ()
    assert not spark.catalog.tableExists("made_by_mistake")


def test_a_command_behind_explain_is_refused_and_not_done(check: Checker, spark: SparkSession) -> None:
    problem = check.problem("EXPLAIN CREATE TABLE made_by_mistake USING parquet AS SELECT 1 AS a")
    assert problem.text == "EXPLAIN shows the plan of a query"
    assert not spark.catalog.tableExists("made_by_mistake")


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN ADD JAR '/tmp/x.jar'",
        "SELECT reflect('java.lang.System', 'getenv')",
        "CREATE PIPELINE p AS INSERT INTO t SELECT reflect('java.lang.System', 'getenv') AS x FROM STREAM(orders)",
        "CREATE MATERIALIZED VIEW v KEY (x) AS SELECT java_method('java.lang.System', 'getenv') AS x FROM orders",
    ],
)
def test_statements_from_the_wire_are_judged_before_anything_is_made_of_them(check: Checker, text: str) -> None:
    (result,) = validate(check.spark, Catalog("nowhere:1", backend=check.backend), text, is_untrusted=True)
    assert "through agents" in result.problems[0].text


@pytest.mark.parametrize("value", ["current_user()", "user", "'${env:HOME}'", "xpath_string(customer, 'a')"])
def test_definitions_are_judged_for_every_user(check: Checker, value: str) -> None:
    (result,) = check(f"{VIEW} KEY (x) AS SELECT {value} AS x FROM STREAM(orders)")
    assert "through agents" in result.problems[0].text
    assert "leave it out" in result.problems[0].hint


@pytest.mark.parametrize("source", ["orders", "STREAM(orders)"])
def test_a_view_of_one_row_needs_no_key(check: Checker, source: str) -> None:
    (result,) = check(f"CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS orders FROM {source};")
    assert (result.problems, result.key) == ((), ())


def test_inferred_columns_are_reported(check: Checker) -> None:
    check.backend.known.append(topic("events"))
    check.backend.samples["events"] = [b'{"kind": "a"}'] * 3
    (result,) = check("EXPLAIN SELECT kind FROM events")
    assert result.notes == ("columns of events inferred from 3 JSON records; used: kind STRING",)


def test_a_pipeline_that_would_feed_itself_is_reported(check: Checker) -> None:
    problem = check.problem("CREATE PIPELINE round AS\nINSERT INTO orders SELECT id FROM STREAM(orders);")
    assert (problem.line, problem.column, problem.hint) == (2, 13, "INSERT INTO another topic")
    assert "it writes the topic that it reads" in problem.text


def test_windows_of_other_systems_are_answered_with_ours(check: Checker) -> None:
    text = "SELECT count(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE))"
    assert "window(column, '10 seconds')" in check.problem(text).hint


def test_a_view_without_a_stream_is_computed_anew_and_right(check: Checker) -> None:
    text = "CREATE MATERIALIZED VIEW ranks KEY (id) AS SELECT id, rank() OVER (ORDER BY amount) AS place FROM orders;"
    (result,) = check(text)
    assert (result.problems, result.key) == ((), ("id",))


VIEW = "CREATE MATERIALIZED VIEW v"
PIPELINE = "CREATE PIPELINE p"
COUNTS = "SELECT country, count(*) AS n FROM STREAM(orders) GROUP BY country"
LEFT = "SELECT a.id, b.amount FROM STREAM(orders) a LEFT JOIN STREAM(paid) b ON a.id = b.id"
IN_TIME = f"{LEFT} AND b.paid_at BETWEEN a.at AND a.at + INTERVAL 1 HOUR"
WATERMARKS = "watermark = 'at 10 minutes, paid_at 10 minutes'"
PER_MINUTE = "SELECT country, window(at, '1 minute') AS w, count(*) AS n FROM STREAM(orders) GROUP BY 1, 2"


HINTS = [
    (
        f"{VIEW} WITH (output = 'append') AS {COUNTS}",
        "or WITH (output = 'update')",
        f"{VIEW} WITH (output = 'update') AS {COUNTS}",
    ),
    (
        f"{PIPELINE} WITH (output = 'append') AS INSERT INTO t {COUNTS}",
        "GROUP BY window(at, '1 minute') and WITH (watermark = 'at 10 seconds')",
        f"{PIPELINE} WITH (output = 'append', watermark = 'at 10 seconds') AS INSERT INTO t {PER_MINUTE}",
    ),
    (
        f"{PIPELINE} WITH (output = 'complete') AS INSERT INTO t SELECT id FROM STREAM(orders)",
        "leave the option output out",
        f"{PIPELINE} AS INSERT INTO t SELECT id FROM STREAM(orders)",
    ),
    (
        f"{VIEW} KEY (id) AS {LEFT}",
        "a watermark, join within a time, AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR, and say"
        " WITH (output = 'append')",
        f"{VIEW} KEY (id) WITH ({WATERMARKS}, output = 'append') AS {IN_TIME}",
    ),
    (
        f"{VIEW} KEY (id) WITH ({WATERMARKS}) AS {IN_TIME}",
        "WITH (output = 'append'), or name its tables without STREAM",
        f"{VIEW} KEY (id) AS SELECT a.id, b.amount FROM orders a LEFT JOIN paid b ON a.id = b.id",
    ),
    (
        f"{PIPELINE} AS INSERT INTO t {LEFT}",
        "give both streams a watermark, and join within a time",
        f"{PIPELINE} WITH ({WATERMARKS}) AS INSERT INTO t {IN_TIME}",
    ),
    (
        f"{VIEW} AS SELECT country, id FROM STREAM(orders)",
        "KEY (column)",
        f"{VIEW} KEY (country) AS SELECT country, id FROM STREAM(orders)",
    ),
    (
        f"{VIEW} KEY (country) AS SELECT country, id, count(*) AS n FROM STREAM(orders) GROUP BY country, id",
        "KEY (country, id)",
        f"{VIEW} KEY (country, id) AS SELECT country, id, count(*) AS n FROM STREAM(orders) GROUP BY country, id",
    ),
    (
        f"{VIEW} KEY (country) AS SELECT country, count(*) AS n FROM STREAM(orders) GROUP BY ROLLUP (country)",
        "SELECT grouping_id() AS level as well, and where there is a KEY, name level in it",
        f"{VIEW} KEY (country, level) AS SELECT country, grouping_id() AS level, count(*) AS n FROM STREAM(orders)"
        " GROUP BY ROLLUP (country)",
    ),
    (
        f"{VIEW} AS SELECT count(*) AS n FROM STREAM(orders) GROUP BY country",
        "select it as well",
        f"{VIEW} AS {COUNTS}",
    ),
    (
        f"{VIEW} AS SELECT max(n) AS n FROM ({COUNTS})",
        "name its tables without STREAM",
        f"{VIEW} AS SELECT max(n) AS n FROM ({COUNTS.replace('STREAM(orders)', 'orders')})",
    ),
    (
        f"{VIEW} WITH (watermark = 'at 1 minute') AS SELECT w, max(n) AS n FROM ({PER_MINUTE}) GROUP BY w",
        "WITH (output = 'append')",
        f"{VIEW} WITH (watermark = 'at 1 minute', output = 'append') AS"
        f" SELECT w, max(n) AS n FROM ({PER_MINUTE}) GROUP BY w",
    ),
    (
        f"{VIEW} AS SELECT country, count(DISTINCT id) AS n FROM STREAM(orders) GROUP BY country",
        "cardinality(collect_set(column))",
        f"{VIEW} AS SELECT country, cardinality(collect_set(id)) AS n FROM STREAM(orders) GROUP BY country",
    ),
    (
        f"{VIEW} KEY (id) AS SELECT id, row_number() OVER (ORDER BY at) AS place FROM STREAM(orders)",
        "name its tables without STREAM",
        f"{VIEW} KEY (id) AS SELECT id, row_number() OVER (ORDER BY at) AS place FROM orders",
    ),
    (
        f"{PIPELINE} AS INSERT INTO t SELECT country, row_number() OVER (ORDER BY at) AS n FROM STREAM(orders)",
        "group by window(column, '1 minute'), and use max_by or min_by",
        f"{PIPELINE} AS INSERT INTO t SELECT country, window(at, '1 minute') AS w, min_by(id, at) AS id"
        " FROM STREAM(orders) GROUP BY 1, 2",
    ),
    (
        f"{VIEW} KEY (id) AS SELECT id FROM STREAM(orders) WHERE amount > (SELECT avg(amount) FROM STREAM(paid))",
        "join the streams, or name its tables without STREAM",
        f"{VIEW} KEY (id) AS SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM paid)",
    ),
    (
        f"{VIEW} KEY (id) AS SELECT a.id FROM STREAM(orders) a JOIN STREAM(paid) b ON a.amount < b.amount",
        "JOIN … ON a.id = b.id, or name one of them without STREAM",
        f"{VIEW} KEY (id) WITH (lookup = 'on arrival') AS"
        " SELECT a.id FROM STREAM(orders) a JOIN paid b ON a.amount < b.amount",
    ),
    (
        f"{VIEW} KEY (id) AS SELECT id FROM STREAM(orders) WHERE id IN (SELECT id FROM paid)",
        "WITH (lookup = 'on arrival')",
        f"{VIEW} KEY (id) WITH (lookup = 'on arrival') AS"
        " SELECT id FROM STREAM(orders) WHERE id IN (SELECT id FROM paid)",
    ),
    (
        f"{VIEW} AS {COUNTS} LIMIT 3",
        "ORDER BY columns that identify rows",
        f"{VIEW} AS {COUNTS} ORDER BY n, country LIMIT 3",
    ),
    (
        f"{VIEW} AS SELECT country, last(id) AS id FROM STREAM(orders) GROUP BY country",
        "min_by(column, at) or max_by(column, at)",
        f"{VIEW} AS SELECT country, max_by(id, at) AS id FROM STREAM(orders) GROUP BY country",
    ),
    (
        f"{PIPELINE} AS INSERT INTO t SELECT id FROM STREAM(orders) UNION ALL SELECT id FROM paid",
        "read both with STREAM(…)",
        f"{PIPELINE} AS INSERT INTO t SELECT id FROM STREAM(orders) UNION ALL SELECT id FROM STREAM(paid)",
    ),
]


@pytest.mark.parametrize(("refused", "hint", "followed"), scaled(quick=(HINTS[1], *HINTS[3:5]), nightly=HINTS))
def test_a_hint_that_is_followed_works(check: Checker, refused: str, hint: str, followed: str) -> None:
    """With every change those that `view_queries/test_hints.py` does not have."""
    check.backend.known.append(topic("paid", id="BIGINT", amount="DOUBLE", paid_at="TIMESTAMP"))
    assert hint in check.problem(refused).hint
    assert [each.problems for each in check(followed)] == [()]


def test_what_an_untrusted_definition_may_not_do_has_a_hint_that_fits(check: Checker) -> None:
    text = f"{VIEW} KEY (id) AS SELECT id, java_method('java.lang.System', 'exit', 1) AS x FROM STREAM(orders)"
    (result,) = validate(check.spark, Catalog("nowhere:1", backend=check.backend), text, is_untrusted=True)
    assert "streamhouse sql" not in result.problems[0].hint
    assert "leave it out" in result.problems[0].hint
