"""Problems: Spark's errors in our words, at their places in the file."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamhouse.errors import Misconfigured, StatementError
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.error_messages import SqlDiagnostic, diagnostics_of, root_cause
from streamhouse.spark.query.resolver import analyze
from tests.spark.query.fakes import FakeBackend, topic


@pytest.mark.spark
@pytest.mark.parametrize(
    ("select", "line", "column", "text", "hint"),
    [
        ("SELECT idd\nFROM orders", 3, 8, "there is no column idd", "did you mean id"),
        ("SELECT id\nFROM orders WHERE\n  o.amont > 1", 5, 3, "there is no column o.amont", ""),
        ("SELECT coun(*) FROM orders", 3, 8, "there is no function coun", "did you mean count"),
        ("SELECT id\nFROM orders\nGROUP BYE id", 5, 7, "syntax error at 'BYE'", "the word before"),
        ("SELECT (id", 3, 11, "syntax error at end of input", "not finished"),
        ("SELECT id,\n count(*) FROM orders", 3, 1, "without a GROUP BY", "GROUP BY ALL"),
        ("SELECT id, amount, count(*) FROM orders GROUP BY id", 3, 12, "amount is neither grouped by", "GROUP BY"),
        ("SELECT id FROM orders a JOIN orders b ON a.id = b.id", 3, 8, "id may mean several columns", "a.id or b.id"),
        ("SELECT substr(country) FROM orders", 3, 8, "substr takes 2 or 3 arguments, not 1", ""),
        ("SELECT amount > DATE'2026-01-01' FROM orders", 3, 8, "types don't fit in (amount > DATE", "cast"),
        ("SELECT *\nFROM ordrs", 4, 6, "there is no table or topic ordrs", "did you mean orders"),
    ],
)
def test_a_mistake_of_a_query_is_reported_at_its_place(
    spark: SparkSession, select: str, line: int, column: int, text: str, hint: str
) -> None:
    before = "-- a file\nCREATE PIPELINE p AS INSERT INTO t\n"
    catalog = Catalog("x", backend=FakeBackend(topic("orders", id="BIGINT", amount="DOUBLE", country="STRING")))
    with pytest.raises((PySparkException, StatementError)) as caught:
        analyze(spark, select, catalog, ReadContext(agents="x"))
    (problem,) = diagnostics_of(caught.value, before + select, len(before))
    assert text in problem.text
    assert hint in problem.hint
    assert (problem.line, problem.column) == (line, column)
    assert "SQLSTATE" not in problem.text
    assert "\n" not in problem.text


def test_our_own_errors_keep_their_words() -> None:
    (problem,) = diagnostics_of(Misconfigured("no schema; do=register one"), "a\nb", 2)
    assert problem == SqlDiagnostic(line=2, column=1, text="no schema", hint="register one")


def test_an_error_of_a_python_worker_is_reported_without_its_traceback() -> None:
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "split_reader.py", line 109, in read_split\nImportError: cannot import name x\n'
    )
    (problem,) = diagnostics_of(PySparkException(text), "SELECT 1")
    assert problem.text == "cannot import name x"


def test_what_a_task_said_is_found_among_sparks_words() -> None:
    text = """Job aborted due to stage failure: Task 0 in stage 1.0 failed
Traceback (most recent call last):
  File "source.py", line 5, in read
streamhouse.errors.partitions.DataLost: records are gone; partition=a-0

Driver stacktrace:"""
    assert root_cause(text) == "records are gone; partition=a-0"
    assert root_cause("x\nValueError: not a number\n  at org.apache.spark") == "not a number"
    assert root_cause("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012") == "Division by zero."
    trace = (
        "An error occurred while calling o39.getResult.\n: org.apache.spark.SparkException: Exception thrown: \n"
        "\tat org.apache.X.y(X.scala:70)\nCaused by: org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.X.y(X.scala:70)\nCaused by: java.lang.RuntimeException: x is no Parquet file\n\t... 28 more"
    )
    assert root_cause(trace) == "x is no Parquet file"
