"""Pipelines in Python: what a function registers on its session is there for its SQL."""

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.pipelines.python_pipeline import run_python
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import own_session
from tests.spark.query.fakes import FakeBackend

pytestmark = pytest.mark.spark

CODE = """
from pyspark.sql.types import LongType
from streamhouse.spark import pipeline

@pipeline(into="out")
def doubled(tables):
    tables.spark.udf.register("twice", lambda x: 2 * x, LongType())
    tables.spark.range(3).createOrReplaceTempView("numbers")
    tables.spark.sql("CREATE TEMPORARY FUNCTION thrice(x BIGINT) RETURNS BIGINT RETURN 3 * x")
    return tables.sql("SELECT twice(id) AS two, thrice(id) AS three FROM numbers ORDER BY id")
"""


def test_functions_and_views_of_a_pipelines_session_are_known_to_its_sql(spark: SparkSession) -> None:
    session = own_session(spark)
    catalog, reading = Catalog("127.0.0.1:1", backend=FakeBackend()), ReadContext(agents="127.0.0.1:1")
    bound = run_python(session, CODE, "doubled", catalog, reading)
    assert [tuple(row) for row in bound.frame.collect()] == [(0, 0), (2, 3), (4, 6)]
    assert "twice" not in [each.name for each in spark.catalog.listFunctions()]
