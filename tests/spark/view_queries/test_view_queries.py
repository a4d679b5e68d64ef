"""Random views over random records: `VIEW_QUERIES=500` for more of them, `VIEW_QUERIES_SEED=17` for one again."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.view_queries.oracle import judge
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

FIRST = int(os.environ.get("VIEW_QUERIES_SEED", "0"))
COUNT = int(
    os.environ.get("VIEW_QUERIES", "1" if "VIEW_QUERIES_SEED" in os.environ else scaled(quick="4", nightly="60"))
)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_view_equals_the_batch_query_after_every_micro_batch_or_it_was_refused(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    outcome = judge(spark, tmp_path, seed)
    assert not outcome.wrong, f"seed {seed}:\n{outcome.statement}\n{outcome.wrong}"
    assert outcome.rows or outcome.hint, f"seed {seed}: refused without a word of what to do\n{outcome.refused}"
