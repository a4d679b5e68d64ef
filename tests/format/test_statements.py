"""Statements: the parsed content of a SQL file, positions, and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import StatementError
from streamhouse.model.table import Column, Connector
from streamhouse.sql.lexer import position, without_layout
from streamhouse.sql.options import Watermark, pipeline_options, starting_time_ms
from streamhouse.sql.parser import parse, parse_all
from streamhouse.sql.statements import CreatePipeline, CreateTable, CreateView, Drop, Query, Show, Statement

FILE = """-- what came in
CREATE TABLE orders (
  id BIGINT,
  lines ARRAY<STRUCT<sku: STRING, price: DECIMAL(9, 2)>>, -- nested; with a semicolon
  `at` TIMESTAMP,
  PRIMARY KEY (id, `at`)
) WITH (connector = 'topic', topic = 'shop.orders', 'format' = 'json');

/* the sums; /* of every minute */ */
CREATE OR REPLACE PIPELINE revenue WITH (trigger = '10 seconds', max_records_per_trigger = 500)
AS INSERT INTO `revenue-per-minute` (minute, total)
   SELECT window.start, sum(price) FROM STREAM(orders) WHERE note <> ';' GROUP BY window(`at`, '1 minute');
CREATE MATERIALIZED VIEW per_country KEY (country) AS SELECT country, count(*) AS n FROM orders GROUP BY country;
SHOW TABLES; show materialized views; DROP PIPELINE IF EXISTS revenue;
SELECT 1
"""


def only(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


def refused(text: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        parse(text)
    return caught.value


def test_a_file_is_its_statements_in_order() -> None:
    kinds = [type(statement) for statement in parse(FILE)]
    assert kinds == [CreateTable, CreatePipeline, CreateView, Show, Show, Drop, Query]


def test_every_statement_knows_where_it_stands() -> None:
    for statement in parse(FILE):
        start, stop = statement.span
        assert FILE[start:stop] == statement.text
        if isinstance(statement, CreatePipeline | CreateView | Query):
            assert FILE[statement.select_start :].startswith(statement.select)
            assert statement.select.startswith("SELECT")


def test_a_table_has_columns_a_key_and_options() -> None:
    result = parse(FILE)[0]
    assert isinstance(result, CreateTable)
    assert result.table.columns == (
        Column(name="id", type="BIGINT"),
        Column(name="lines", type="ARRAY<STRUCT<sku: STRING, price: DECIMAL(9, 2)>>"),
        Column(name="at", type="TIMESTAMP"),
    )
    assert (result.table.connector, result.table.key) == (Connector.TOPIC, ("id", "at"))
    assert result.table.options == {"topic": "shop.orders", "format": "json"}
    assert result.table.text == result.text


def test_a_table_needs_no_columns() -> None:
    result = only("CREATE TABLE IF NOT EXISTS seen WITH (connector = console)")
    assert isinstance(result, CreateTable)
    assert result.if_not_exists
    assert (result.table.columns, result.table.key, result.table.connector) == (None, (), Connector.CONSOLE)


def test_a_column_may_be_the_key_itself() -> None:
    result = only("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT) WITH (connector = 'topic')")
    assert isinstance(result, CreateTable)
    assert result.table.key == ("id",)


def test_a_pipeline_has_a_target_options_and_a_select() -> None:
    result = parse(FILE)[1]
    assert isinstance(result, CreatePipeline)
    assert (result.name, result.target, result.columns) == ("revenue", "revenue-per-minute", ("minute", "total"))
    assert result.options == {"trigger": "10 seconds", "max_records_per_trigger": "500"}
    assert result.is_replace
    assert result.select.endswith("window(`at`, '1 minute')")


@pytest.mark.parametrize("select", ["WITH a AS (SELECT 1) SELECT * FROM a", "(SELECT 1)", "FROM a SELECT b"])
def test_a_select_may_begin_with_any_word_of_a_query(select: str) -> None:
    result = only(f"CREATE PIPELINE p AS INSERT INTO TABLE t {select}")
    assert isinstance(result, CreatePipeline)
    assert (result.select, result.columns) == (select, ())


@pytest.mark.parametrize("words", ["KEY (a, b) WITH (trigger = 'once')", "WITH (trigger = 'once') KEY (a, b)"])
def test_a_view_has_its_key_before_or_behind_its_options(words: str) -> None:
    result = only(f"CREATE MATERIALIZED VIEW v {words} AS SELECT 1 a, 2 b")
    assert isinstance(result, CreateView)
    assert (result.key, result.options) == (("a", "b"), {"trigger": "once"})


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN SELECT 1",
        "SHOW DATABASES",
        "SHOW TABLES LIKE 'a*'",
        "CREATE TABLE t USING parquet AS SELECT 1",
        "CREATE TABLE t AS WITH a AS (SELECT 1) SELECT * FROM a",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "DROP VIEW v",
    ],
)
def test_everything_else_is_sparks(text: str) -> None:
    assert only(text) == Query(text=text, span=(0, len(text)))


def test_semicolons_in_strings_names_and_comments_end_nothing() -> None:
    text = r"""SELECT 'a;''b\';c', "d;e", r'\', `f;``g` -- h;i
    /* j; /* k; */ */ FROM l;;"""
    assert len(parse(text)) == 1


def test_an_empty_file_has_no_statements() -> None:
    assert parse(" ; -- nothing\n /* at all */ ;") == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "what", "hint"),
    [
        ("SELECT 1;\n  SELECT 'a", 2, 10, "a string is never closed", "end it with '"),
        ("/* a", 1, 1, "a comment is never closed", "end it with */"),
        ("SELECT `a", 1, 8, "a name in backticks is never closed", "end it with `"),
        ("CREATE TABLE t (a INT)", 1, 23, "expected WITH (connector = 'topic'), found the end", "WITH (connector"),
        ("CREATE TABLE t WITH (topic = 'a')", 1, 16, "a table needs a connector", "files"),
        ("CREATE TABLE t WITH (connector='kafka')", 1, 32, "there is no connector 'kafka'", "it is called topic here"),
        ("CREATE TABLE t WITH (connector='nosuch')", 1, 32, "there is no connector 'nosuch'", "there are topic"),
        ("CREATE TABLE t WITH (connector='topic', tpic='a')", 1, 41, "no option tpic", "did you mean topic"),
        (
            "CREATE TABLE t WITH (connector='topic', format='xml')",
            1,
            48,
            "format can't be 'xml'",
            "json, raw or registry",
        ),
        ("CREATE TABLE t WITH (connector='files')", 1, 32, "needs the option path", "path"),
        ("CREATE TABLE t (a INT, a INT) WITH (connector='topic')", 1, 24, "a column is there twice: a", ""),
        ("CREATE TABLE t (a, b INT) WITH (connector='topic')", 1, 18, "expected a type, found ,", "a STRING"),
        ("CREATE TABLE t (a INT NOT NULL) WITH (connector='topic')", 1, 23, "expected a comma", "any may be null"),
        ("CREATE TABLE t (ab INT, PRIMARY KEY (ac)) WITH (connector='topic')", 1, 41, "names no column: ac", "ab"),
        ("CREATE TABLE a.b WITH (connector='topic')", 1, 15, "needs backticks", "`a.…`"),
        ("CREATE TABLE `a b` WITH (connector='topic')", 1, 14, "'a b' can't be a name", "letters"),
        ("CREATE PIPELINE p AS SELECT 1", 1, 22, "expected INSERT INTO, found SELECT", "AS INSERT INTO topic"),
        ("CREATE PIPELINE p\nWITH (triger = '1 second')\nAS", 2, 7, "no option triger", "did you mean trigger"),
        ("CREATE PIPELINE p WITH (trigger = 'often') AS", 1, 35, "trigger can't be 'often'", "10 seconds"),
        ("CREATE PIPELINE p WITH (starting = 'now') AS", 1, 36, "starting can't be 'now'", "earliest, latest"),
        ("CREATE PIPELINE p WITH (watermark = 'ts') AS", 1, 37, "watermark can't be 'ts'", "ts 10 seconds"),
        ("CREATE PIPELINE p WITH (partitions = 0) AS", 1, 38, "partitions can't be '0'", "from 1 on"),
        ("CREATE PIPELINE p WITH (key='a', key='b') AS", 1, 34, "an option is there twice: key", ""),
        ("CREATE PIPELINE IF NOT EXISTS p AS", 1, 20, "expected AS, found NOT", "CREATE PIPELINE"),
        ("CREATE MATERIALIZED VIEW v WITH (key='a') AS", 1, 34, "a view has no option key", "there are"),
        ("CREATE MATERIALIZED VIEW v AS INSERT INTO t SELECT 1", 1, 31, "expected SELECT, found INSERT", ""),
        ("DROP TABLE a b", 1, 14, "expected the end of the statement, found b", ";"),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_a_way_out(
    text: str, line: int, column: int, what: str, hint: str
) -> None:
    error = refused(text)
    assert (error.line, error.column) == (line, column)
    assert what in error.text
    assert hint in error.hint


def test_a_mistake_hides_no_other() -> None:
    statements, errors = parse_all("DROP TABLE; SELECT 1; CREATE PIPELINE; SELECT 2; SELECT 'a")
    assert [statement.text for statement in statements] == ["SELECT 1", "SELECT 2"]
    assert [error.column for error in errors] == [11, 38, 57]


def test_options_of_a_pipeline_say_what_it_does() -> None:
    options = pipeline_options(
        {
            "trigger": "Available  Now",
            "watermark": "ts 10 seconds, `a-b` 2 minutes",
            "key": "a, b",
            "format": "raw",
            "isolation": "own",
            "lookup": "On Arrival",
            "max_records_per_trigger": "10",
        }
    )
    assert options.trigger == "available now"
    assert options.watermarks == (
        Watermark(column="ts", delay="10 seconds"),
        Watermark(column="a-b", delay="2 minutes"),
    )
    assert (options.key, options.fmt, options.is_alone, options.max_records_per_trigger) == (
        ("a", "b"),
        "raw",
        True,
        10,
    )
    assert (options.starting, options.output, options.partitions) == ("earliest", None, None)
    assert options.lookup == "on arrival"


def test_dead_letters_have_a_topic_unless_nobody_wants_them() -> None:
    assert pipeline_options({}).dead_letters_of("p") == "p.dead-letters"
    assert pipeline_options({"dead_letters": "bad"}).dead_letters_of("p") == "bad"
    assert pipeline_options({"dead_letters": "none"}).dead_letters_of("p") is None


def test_a_starting_time_without_a_zone_is_utc() -> None:
    assert starting_time_ms("1970-01-01T00:00:01") == starting_time_ms("1970-01-01T01:00:01+01:00") == 1000
    assert starting_time_ms("earliest") is None


def test_positions_count_from_one() -> None:
    assert [position("ab\ncd", index) for index in (0, 1, 2, 3, 5)] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 3)]


@given(
    st.lists(st.sampled_from(["CREATE", "TABLE", "PIPELINE", "(", ")", "WITH", "a", "'b'", "=", ",", ";", "\n", "`c`"]))
)
def test_any_words_are_statements_or_a_statement_error(words: list[str]) -> None:
    statements, errors = parse_all(" ".join(words))
    assert bool(statements) or bool(errors) or not set(words) - {";", "\n"}


@given(st.text())
def test_any_text_is_statements_or_a_statement_error(text: str) -> None:
    statements, _ = parse_all(text)
    assert all(text[slice(*statement.span)] == statement.text for statement in statements)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("SELECT a FROM b", "/* x */ SELECT\n  a -- y\nFROM b", True),
        ("SELECT a>0", "SELECT a > 0", True),
        ("SELECT 'a'", "SELECT 'a '", False),
        ("SELECT 1e3", "SELECT 1 e3", False),
        ("SELECT X'1F'", "SELECT X '1F'", False),
        ("SELECT a", "SELECT A", False),
        ("SELECT 'never closed", "SELECT  'never closed", False),
    ],
)
def test_comments_and_layout_are_left_out_of_a_text(one: str, other: str, is_same: bool) -> None:
    assert (without_layout(one) == without_layout(other)) is is_same
