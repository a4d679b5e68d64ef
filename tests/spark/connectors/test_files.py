"""Folders are tables and streams, and take rows, each in one file; a console shows rows in the log."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamhouse.errors import Misconfigured, Rejected
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.connectors import ReadContext, WriteContext, find
from tests.spark.connectors.conftest import Lines

pytestmark = pytest.mark.spark

FILES = find(Connector.FILES)
CONSOLE = find(Connector.CONSOLE)
READING = ReadContext(agents="127.0.0.1:1")
DECLARED = (Column(name="id", type="BIGINT"), Column(name="t", type="STRING"))


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    return Lines(spark, tmp_path / "in", "id BIGINT, t STRING")


@pytest.fixture
def writing(tmp_path: Path) -> WriteContext:
    return WriteContext(
        agents="127.0.0.1:1", pipeline="p", epoch=1, query_id="q", checkpoint=str(tmp_path / "checkpoint")
    )


def table(path: Path | str, fmt: str = "parquet", columns: tuple[Column, ...] | None = None) -> Table:
    return Table(name="folder", connector=Connector.FILES, columns=columns, options={"path": str(path), "format": fmt})


def run(frame: DataFrame, target: Table, writing: WriteContext) -> None:
    query = find(target.connector).write_stream(frame, target, writing).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()))


@pytest.mark.parametrize("fmt", ["json", "csv"])
def test_files_are_read_with_columns_of_their_own_or_declared_ones(
    spark: SparkSession, tmp_path: Path, fmt: str
) -> None:
    text = "id,t\n1,a\n2,\n" if fmt == "csv" else '{"id": 1, "t": "a"}\n{"id": 2}\n'
    (tmp_path / f"some.{fmt}").write_text(text)
    assert rows(FILES.read(spark, table(tmp_path, fmt), READING)) == [(1, "a"), (2, None)]
    declared = FILES.read(spark, table(tmp_path, fmt, DECLARED), READING)
    assert declared.schema.simpleString() == "struct<id:bigint,t:string>"
    assert rows(declared) == [(1, "a"), (2, None)]
    stream = FILES.read_stream(spark, table(tmp_path, fmt), READING)
    assert stream.isStreaming
    assert stream.columns == ["id", "t"]


def test_a_stream_becomes_parquet_files_that_are_read_again(
    spark: SparkSession, lines: Lines, tmp_path: Path, writing: WriteContext
) -> None:
    out = tmp_path / "out"
    lines.add('{"id": 1, "t": "a"}')
    run(lines.stream(), table(out), writing)
    lines.add('{"id": 2, "t": "b"}')
    run(lines.stream(), table(out), writing)  # goes on
    assert rows(FILES.read(spark, table(out), READING)) == [(1, "a"), (2, "b")]
    anew = replace(writing, checkpoint=str(tmp_path / "another"))
    with pytest.raises(Rejected, match=r"another query has written these files; .* do=name another path"):
        FILES.write_stream(lines.stream(), table(out), anew)


def test_what_files_can_not_do_is_rejected(
    spark: SparkSession, lines: Lines, tmp_path: Path, writing: WriteContext
) -> None:
    with pytest.raises(
        Rejected, match=r"rows in files don't change; table=folder output=update do=give .* a watermark"
    ):
        FILES.write_stream(lines.stream(), table(tmp_path), replace(writing, mode="update"))
    with pytest.raises(Rejected, match="no such folder; table=folder path=/nowhere"):
        FILES.read(spark, table("/nowhere"), READING)
    with pytest.raises(Misconfigured, match="unknown format; table=folder format=orc do=one of parquet, json, csv"):
        FILES.read(spark, table(tmp_path, "orc"), READING)
    with pytest.raises(Misconfigured, match="files need a path"):
        FILES.read(spark, table(""), READING)
    with pytest.raises(Rejected, match="files are read from the first one"):
        FILES.read_stream(spark, table(tmp_path), replace(READING, starting="latest"))


def test_a_console_shows_the_rows_of_each_micro_batch(
    spark: SparkSession, lines: Lines, writing: WriteContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    console = Table(name="console", connector=Connector.CONSOLE)
    lines.add('{"id": 1, "t": "a"}', '{"id": 22}')
    lines.add(*(f'{{"id": {n}, "t": "{"x" * 50}"}}' for n in range(21)))
    run(lines.stream(), console, writing)
    first, second = [record.getMessage() for record in caplog.records if "connectors.console" in record.name]
    assert first == "batch 0\nid  t\n--  -\n1   a\n22"
    assert second.splitlines()[3] == f"0   {'x' * 39}…"
    assert second.endswith("… more rows")
    with pytest.raises(Rejected, match="a console can't be read"):
        CONSOLE.read(spark, console, READING)
