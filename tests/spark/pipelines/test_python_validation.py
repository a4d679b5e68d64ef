"""A pipeline in Python that can't run is refused when it is applied, with the line that is wrong."""

import textwrap

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.pipelines.python_validation import validate_python
from streamhouse.spark.query.catalog import Catalog
from streamhouse.sql.definitions import PythonPipeline
from tests.spark.query.fakes import FakeBackend, topic

pytestmark = pytest.mark.spark


def problems(spark: SparkSession, body: str, **options: str) -> list[tuple[int, str]]:
    """Of a function whose first line is the fifth of its file."""
    text = "from streamhouse.spark import pipeline\n\n@pipeline(into='copies')\ndef copies(tables):\n"
    text += textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    backend = FakeBackend(topic("orders", id="BIGINT", amount="DOUBLE", at="TIMESTAMP"), topic("products", id="BIGINT"))
    pipeline = PythonPipeline(name="copies", text=text, line=4, options=options)
    result = validate_python(
        spark, Catalog("127.0.0.1:1", backend=backend), [pipeline]
    )  # no agent is asked for a record
    return [(each.line, each.text) for each in result["copies"]]


@pytest.mark.parametrize(
    "body",
    [
        "return tables.stream('orders').where('amount > 1').select('id', 'amount')",
        "return tables.stream('orders', 'id', '_key').join(tables.table('products'), 'id')",
        "return tables.sql('SELECT id, sum(amount) AS total FROM STREAM(orders) GROUP BY id')",
        "return tables.stream('orders').groupBy('id').count()",
        "tables.spark.udf.register('twice', lambda n: 2 * n, 'double')\n"
        "return tables.sql('SELECT twice(amount) AS a FROM STREAM(orders)')",
    ],
)
def test_what_can_run_is_right(spark: SparkSession, body: str) -> None:
    assert problems(spark, body) == []


@pytest.mark.parametrize(
    ("body", "line", "word"),
    [
        ("orders = tables.stream('orders')\nreturn orders.where('nope > 1')", 6, "nope"),
        ("return tables.stream('orders', 'id', 'nope')", 5, "orders has no column nope"),
        ("return tables.stream('ordres')", 5, "there is no table or topic ordres"),
        ("return tables.sql('SELECT nope FROM STREAM(orders)')", 5, "nope"),
        ("return tables.table('orders')", 4, "it reads no stream"),
        ("return 3", 4, "the function returned no DataFrame"),
        ("raise SystemExit(3)", 5, "SystemExit: 3"),
        ("frame = tables.stream('orders')\nreturn frame.orderBy('id')", 4, "sort"),
    ],
)
def test_what_cannot_run_is_reported_with_its_line(spark: SparkSession, body: str, line: int, word: str) -> None:
    [(at, text)] = problems(spark, body)
    assert word.lower() in text.lower()
    assert at == line
