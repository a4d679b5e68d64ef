"""Spark reads and writes tables of PostgreSQL: types, joins that see changes, each row once, errors that help."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import ParseException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import Misconfigured, Rejected
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.connectors import ReadContext, WriteContext, find
from tests.spark.conftest import PASSWORD
from tests.spark.connectors.conftest import Ask, Lines

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

READING = ReadContext(agents="127.0.0.1:1")
PLACE = find(Connector.POSTGRESQL)


def table(name: str, *, connection: str = "warehouse", key: tuple[str, ...] = ()) -> Table:
    options = {"connection": connection, "table": name}
    return Table(name=name, connector=Connector.POSTGRESQL, key=key, options=options)


@pytest.fixture
def writing(tmp_path: Path) -> WriteContext:
    return WriteContext(
        agents="127.0.0.1:1",
        pipeline="p",
        epoch=1,
        query_id="q",
        checkpoint=str(tmp_path / "checkpoint"),
        mode="append",
    )


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path / "in", "id BIGINT, n INT")


def run(frame: DataFrame, target: Table, writing: WriteContext) -> None:
    query = PLACE.write_stream(frame, target, writing).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_a_table_is_a_frame_with_its_types(spark: SparkSession, ask: Ask) -> None:
    ask(
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        'CREATE TABLE kinds (id int, "Big Name" bigint, d numeric(8,3), any_d numeric, f float4, b bool, day date,'
        " at timestamptz, local timestamp, raw bytea, j jsonb, m mood, tags text[], ns int[], t text)",
        "INSERT INTO kinds VALUES (1, 2, 3.5, 4.25, 0.5, true, '2026-01-02', '2026-01-02 03:04:05.678901+01',"
        " '2026-01-02 03:04:05', '\\x00ff', '{\"a\": 1}', 'bad', '{a,NULL,\"b,c\"}', '{1,2}',"
        " E'two\\nlines, \"quoted\"')",
        "INSERT INTO kinds (id, t) VALUES (2, '')",
    )
    frame = PLACE.read(spark, table("kinds"), READING)
    assert [field.dataType.simpleString() for field in frame.schema] == [
        *("int", "bigint", "decimal(8,3)", "decimal(38,18)", "float", "boolean", "date", "timestamp", "timestamp_ntz"),
        *("binary", "string", "string", "array<string>", "array<int>", "string"),
    ]
    full, empty = frame.orderBy("id").collect()
    assert full[:7] == (1, 2, Decimal("3.500"), Decimal("4.25"), 0.5, True, date(2026, 1, 2))
    assert full["at"].astimezone(UTC) == datetime(2026, 1, 2, 2, 4, 5, 678901, UTC)
    assert full["local"] == datetime(2026, 1, 2, 3, 4, 5)
    assert full[9:] == (bytearray(b"\x00\xff"), '{"a": 1}', "bad", ["a", None, "b,c"], [1, 2], 'two\nlines, "quoted"')
    assert empty[1:14] == (None,) * 13
    assert empty["t"] == ""


def test_a_declaration_chooses_columns_and_types(spark: SparkSession, ask: Ask) -> None:
    ask("CREATE TABLE users (id int, name text, age int)", "INSERT INTO users VALUES (1, 'ann', 30)")
    declared = replace(table("users"), columns=(Column(name="age", type="BIGINT"), Column(name="id", type="STRING")))
    assert PLACE.read(spark, declared, READING).collect() == [(30, "1")]
    assert PLACE.read(spark, replace(declared, columns=()), READING).count() == 1
    with pytest.raises(Rejected, match=r"no such column; .* column=size columns=id,name,age"):
        PLACE.read(spark, replace(declared, columns=(Column(name="size", type="INT"),)), READING)


def test_a_table_without_rows_and_one_of_which_a_few_rows_are_wanted(spark: SparkSession, ask: Ask) -> None:
    ask(
        "CREATE TABLE empty (id int)",
        "CREATE TABLE many AS SELECT n AS id, repeat('x', 100) AS t FROM generate_series(1, 200000) n",
    )
    assert PLACE.read(spark, table("empty"), READING).collect() == []
    many = PLACE.read(spark, table("many"), READING)
    assert len(many.limit(3).collect()) == 3
    assert many.selectExpr("count(*)", "sum(id)", "sum(length(t))").first() == (200000, 20000100000, 20000000)


def test_a_stream_that_looks_rows_up_sees_changes_in_every_micro_batch(
    spark: SparkSession, ask: Ask, lines: Lines, writing: WriteContext
) -> None:
    ask(
        "CREATE TABLE names (id int PRIMARY KEY, name text)",
        "INSERT INTO names VALUES (1, 'one')",
        "CREATE TABLE found (n int, name text)",
    )
    joined = lines.stream().join(PLACE.read(spark, table("names"), READING), "id").select("n", "name")
    query = PLACE.write_stream(joined, table("found"), writing).trigger(processingTime="10 milliseconds").start()
    try:
        lines.add('{"id": 1, "n": 1}')
        query.processAllAvailable()
        ask("UPDATE names SET name = 'uno'")
        lines.add('{"id": 1, "n": 2}')
        query.processAllAvailable()
    finally:
        query.stop()
    assert ask("SELECT * FROM found ORDER BY n") == [(1, "one"), (2, "uno")]


def test_rows_of_a_key_are_updated_and_the_last_one_of_a_micro_batch_stays(
    spark: SparkSession, ask: Ask, lines: Lines, writing: WriteContext
) -> None:
    ask("CREATE TABLE latest (id bigint PRIMARY KEY, n int, note text DEFAULT 'new')")
    lines.add(*(f'{{"id": {n % 3}, "n": {n}}}' for n in range(30)))
    lines.add('{"id": 1, "n": 100}', '{"id": 7, "n": 101}')
    run(lines.stream(), table("latest", key=("id",)), writing)
    assert ask("SELECT * FROM latest ORDER BY id") == [(0, 27, "new"), (1, 100, "new"), (2, 29, "new"), (7, 101, "new")]


def test_a_micro_batch_that_spark_does_again_adds_nothing(
    spark: SparkSession, ask: Ask, lines: Lines, writing: WriteContext
) -> None:
    ask("CREATE TABLE copies (id bigint, n int)")
    for n in range(3):
        lines.add(f'{{"id": {n}, "n": {n}}}')
    run(lines.stream(), table("copies"), writing)
    for committed in Path(writing.checkpoint, "commits").glob("*2*"):  # as if it was killed behind the last commit
        committed.unlink()
    lines.add('{"id": 3, "n": 3}')
    run(lines.stream(), table("copies"), replace(writing, epoch=2))
    assert ask("SELECT id FROM copies ORDER BY id") == [(0,), (1,), (2,), (3,)]
    assert ask("SELECT query_id, batch_id, epoch, pipeline FROM streamhouse_progress") == [("q", 3, 2, "p")]


def test_an_aggregate_is_kept_by_its_key(spark: SparkSession, ask: Ask, lines: Lines, writing: WriteContext) -> None:
    ask("CREATE TABLE sums (id bigint PRIMARY KEY, total numeric, ns jsonb)")
    for n in range(4):
        lines.add(f'{{"id": {n % 2}, "n": {n}}}')
    sums = lines.stream().groupBy("id").agg({"n": "sum"}).withColumnRenamed("sum(n)", "total")
    run(
        sums.selectExpr("id", "total", "array(total) AS ns"),
        table("sums"),
        replace(writing, mode="update", key=("id",)),
    )
    assert ask("SELECT id, total::int, ns FROM sums ORDER BY id") == [(0, 2, "[2]"), (1, 4, "[4]")]


@pytest.mark.parametrize(
    ("made", "columns", "key", "words"),
    [
        ("", "id", (), "no such table; connection=warehouse table=t do=create it: CREATE TABLE t (\"id\" bigint)"),
        ("id int", "id, n", (), "no such column; connection=warehouse table=public.t column=n columns=id do=ALTER"),
        ("id int, n date", "id, n", (), "column=n type=date given=int do=CAST it"),
        ("id int, n int NOT NULL", "id", (), "don't have; connection=warehouse table=public.t column=n do="),
        ("id int GENERATED ALWAYS AS IDENTITY", "id", (), "by itself; connection=warehouse table=public.t column=id"),
        ("id int", "id", ("id",), 'key=id do=CREATE UNIQUE INDEX ON "public"."t" ("id")'),
        ("id int PRIMARY KEY", "n AS m", ("id",), "column=m"),
    ],
)  # fmt: skip
def test_what_can_not_be_written_is_reported_before_anything_runs(
    ask: Ask, lines: Lines, writing: WriteContext, made: str, columns: str, key: tuple[str, ...], words: str
) -> None:
    if made:
        ask(f"CREATE TABLE t ({made})")
    with pytest.raises(Rejected) as caught:
        PLACE.write_stream(lines.stream().selectExpr(*columns.split(", ")), table("t", key=key), writing)
    assert words in str(caught.value)


def test_rows_that_change_need_a_key(lines: Lines, writing: WriteContext) -> None:
    with pytest.raises(Rejected, match="rows that change need a key"):
        PLACE.write_stream(lines.stream(), table("t"), replace(writing, mode="update"))


def test_rights_that_are_missing_are_named(spark: SparkSession, ask: Ask, lines: Lines, writing: WriteContext) -> None:
    ask("CREATE TABLE closed (id bigint PRIMARY KEY, n int)")
    closed = table("closed", connection="visitor", key=("id",))
    with pytest.raises(Rejected, match=r"no rights to read; connection=visitor table=public.closed do=GRANT SELECT"):
        PLACE.read(spark, closed, READING)
    with pytest.raises(Rejected, match="do=GRANT INSERT, UPDATE, SELECT ON"):
        PLACE.write_stream(lines.stream(), closed, writing)
    ask("GRANT INSERT, UPDATE, SELECT ON closed TO visitor")
    with pytest.raises(Rejected, match="no rights; connection=visitor why=permission denied for schema public"):
        PLACE.write_stream(lines.stream(), closed, writing)


def test_what_is_not_a_connection_or_a_stream_is_reported(spark: SparkSession, ask: Ask) -> None:
    with pytest.raises(Misconfigured, match="connection=nowhere do=set STREAMHOUSE_CONNECTION_NOWHERE=postgresql://"):
        PLACE.read(spark, table("t", connection="nowhere"), READING)
    with pytest.raises(Misconfigured, match="a connection is named, not written out") as caught:
        PLACE.read(spark, table("t", connection="postgresql://a:secret@b/c"), READING)
    assert "secret" not in str(caught.value)
    with pytest.raises(Rejected, match="no such table; connection=warehouse table=absent"):
        PLACE.read(spark, table("absent"), READING)
    with pytest.raises(Rejected, match="do=name it without STREAM"):
        PLACE.read_stream(spark, table("t"), READING)


@pytest.fixture
def jvm_log(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Everything that the JVM says."""
    path = tmp_path / "jvm.log"
    jvm = spark._jvm
    assert jvm is not None
    core = jvm.org.apache.logging.log4j.core
    layout = core.layout.PatternLayout.createDefaultLayout()
    appender = core.appender.FileAppender.createAppender(
        str(path), "false", "false", "places", "true", "false", "false", None, layout, None, "false", None, None
    )
    appender.start()
    root = jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    spark.sparkContext.setLogLevel("DEBUG")
    root.addAppender(appender)
    yield path
    root.removeAppender(appender)
    spark.sparkContext.setLogLevel("OFF")
    appender.stop()


def test_a_password_is_in_no_plan_no_log_and_no_error(
    spark: SparkSession, ask: Ask, lines: Lines, writing: WriteContext, jvm_log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ask("CREATE TABLE names (id bigint, name text)", "INSERT INTO names VALUES (1, 'one')")
    ask("CREATE TABLE narrow (id smallint, name text)")
    names = PLACE.read(spark, table("names"), READING)
    execution = names._jdf.queryExecution()
    plans = [execution.toString(), execution.analyzed().toJSON(), names._jdf.queryExecution().debug().toString()]
    lines.add('{"id": 1, "n": 1}', '{"id": 1, "n": 2}')
    joined = lines.stream().join(names, "id").selectExpr("(id + 70000) AS id", "name")
    query = PLACE.write_stream(joined, table("narrow"), writing).trigger(availableNow=True).start()
    with pytest.raises(
        StreamingQueryException, match=r"column=id why=value .* out of range for type smallint"
    ) as caught:
        query.awaitTermination(120)
    log = jvm_log.read_text(errors="replace")
    assert "foreachBatch" in log or "ForeachBatch" in log  # it is the log of this query
    for text in (*plans, str(caught.value), log, caplog.text, str(query.recentProgress)):
        assert PASSWORD not in text
    kept = [path.read_text(errors="replace") for path in Path(writing.checkpoint).rglob("*") if path.is_file()]
    assert kept
    assert not any(PASSWORD in text for text in kept)


def test_names_that_need_quotes_are_read_and_written(
    spark: SparkSession, ask: Ask, lines: Lines, writing: WriteContext
) -> None:
    odd, key = 'it`s a.b "c"', "x,y {}"
    quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in (odd, key)]
    ask(f'CREATE TABLE "Odd.Table" ({quoted[0]} text, {quoted[1]} bigint PRIMARY KEY)')
    lines.add('{"id": 1, "n": 7}', '{"id": 2, "n": 8}')
    rows = lines.stream().selectExpr("concat('n', n)", "id").toDF(odd, key)
    target = replace(table("odd", key=(key,)), options={"connection": "warehouse", "table": '"Odd.Table"'})
    run(rows, target, writing)
    result = PLACE.read(spark, target, READING).collect()
    assert sorted(row.asDict()[key] for row in result) == [1, 2]
    assert {row.asDict()[odd] for row in result} == {"n7", "n8"}


def test_a_declared_type_is_a_type_and_nothing_else(spark: SparkSession, ask: Ask) -> None:
    ask("CREATE TABLE plain (t text)", "INSERT INTO plain VALUES ('x')")
    smuggled = "STRING) || java_method('java.lang.System', 'getProperty', 'user.home') || CAST('' AS STRING"
    declared = replace(table("plain"), columns=(Column(name="t", type=smuggled),))
    with pytest.raises(ParseException):
        PLACE.read(spark, declared, READING)
