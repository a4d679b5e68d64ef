"""results: every type has one look in text, and a row is found again in every format."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from streamhouse.spark.worker.result_formats import (
    ARROW,
    CSV,
    JSON,
    NDJSON,
    arrow_stream,
    choose_format,
    csv_head,
    csv_of,
    ndjson_of,
    rows_of,
    sql_type,
    unique_names,
)

MOMENT = dt.datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=dt.UTC)
MOMENT_TEXT = "2026-11-15T12:00:00.250000Z"


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def only(column: pa.Array) -> object:
    (row,) = rows_of(batch_of(it=column))
    return row["it"]


@pytest.mark.parametrize(
    ("column", "look"),
    [
        (pa.array([7]), 7),
        (pa.array([None], pa.int64()), None),
        (pa.array([float("nan")]), "NaN"),
        (pa.array([float("-inf")]), "-Infinity"),
        (pa.array([1.5]), 1.5),
        (pa.array([b"\xff"]), "/w=="),
        (pa.array([MOMENT], pa.timestamp("us", "UTC")), MOMENT_TEXT),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")), "2026-11-15T12:00:00.250000"),
        (pa.array([dt.date(2026, 11, 15)]), "2026-11-15"),
        (
            pa.array([[("a", MOMENT)]], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
            {"a": MOMENT_TEXT},
        ),
        (pa.array([[]], pa.map_(pa.string(), pa.int64())), {}),
        (pa.array([{"at": MOMENT, "n": 1}]), {"at": MOMENT_TEXT, "n": 1}),
        (pa.array([[b"a", None]]), ["YQ==", None]),
    ],
)
def test_a_value_is_one_that_json_knows(column: pa.Array, look: object) -> None:
    assert only(column) == look


def test_a_time_that_no_calendar_reaches_is_text_all_the_same() -> None:
    assert str(only(pa.array([2**59], pa.timestamp("us", "UTC")))).startswith("20237-04-25")


def test_decimals_keep_their_digits_in_lines_of_json() -> None:
    lines = ndjson_of(batch_of(price=pa.array([Decimal("12.50")]), name=pa.array(["ä"])))
    assert lines == '{"price":12.50,"name":"ä"}\n'.encode()


def test_csv_distinguishes_null_from_empty_text_and_quotes_what_needs_it() -> None:
    batch = batch_of(
        a=pa.array([None, "", 'say "x", y', "plain"]),
        b=pa.array([True, False, None, None]),
        c=pa.array([[1], [], [2], [3]]),
    )
    assert csv_head(batch.schema.names) == b"a,b,c\n"
    assert csv_of(batch).decode().splitlines() == [",true,[1]", '"",false,[]', '"say ""x"", y",,[2]', "plain,,[3]"]


def test_an_arrow_stream_is_read_back_as_it_was() -> None:
    batches = [batch_of(n=pa.array([1, 2])), batch_of(n=pa.array([3]))]
    parts = list(arrow_stream(batches[0].schema, batches))
    assert pa.ipc.open_stream(b"".join(parts)).read_all() == pa.Table.from_batches(batches)
    assert len(parts) == 3  # each batch when it comes, then the end


def test_no_name_comes_twice() -> None:
    assert unique_names(["id", "ID", "id_2", "x"]) == ["id", "ID_2", "id_2_2", "x"]


def test_types_are_written_as_in_sql() -> None:
    kind = StructType(
        [StructField("Tags", ArrayType(StringType())), StructField("m", MapType(StringType(), LongType()))]
    )
    assert sql_type(kind) == "STRUCT<Tags: ARRAY<STRING>, m: MAP<STRING, BIGINT>>"


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        (None, JSON),
        ("*/*", JSON),
        ("text/html, text/csv;q=0.5", CSV),
        ("application/x-ndjson", NDJSON),
        (ARROW, ARROW),
        ("text/html", None),
    ],
)
def test_the_format_is_the_first_that_is_accepted(accept: str | None, media: str | None) -> None:
    assert choose_format(accept) == media


def test_rows_of_nested_columns_are_json() -> None:
    batch = batch_of(it=pa.array([{"a": [1, 2]}]))
    assert json.loads(ndjson_of(batch)) == {"it": {"a": [1, 2]}}
