"""Lake tables in a bucket: the same commits, found by the environment that every task has."""

import pytest
from pyspark.sql import SparkSession

from streamhouse.errors import Unavailable
from streamhouse.model.table import Connector
from streamhouse.spark.lake.table import Progress
from tests.spark.conftest import BUCKET
from tests.spark.lake.conftest import QUERY_ID, Make
from tests.spark.lake.test_writing import CHANGES, LAKES, change, end
from tests.support.depth import scaled

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.mark.parametrize("connector", scaled(quick=LAKES[:1], nightly=LAKES))
def test_a_table_in_a_bucket_is_changed_by_key_and_has_one_writer(make: Make, connector: Connector) -> None:
    table, other = (make(connector, "id", location=f"s3://{BUCKET}/lake/{connector}") for _ in range(2))
    table.write(0, CHANGES, change(0, 1, 10), change(1, 2, 20))
    table.write(1, CHANGES, change(2, 1, 11), end(3, "2"))
    assert [(row.id, row.amount) for row in table.read().collect()] == [(1, 11)]
    assert table.lake.last_batch(QUERY_ID) == other.lake.last_batch(QUERY_ID) == 1
    table.lake.commit((), (), Progress(query_id=QUERY_ID, batch_id=2))
    with pytest.raises(Unavailable):
        other.lake.commit((), (), Progress(query_id=QUERY_ID, batch_id=2))


def test_parquet_files_of_a_micro_batch_that_was_begun_are_taken_back(
    spark: SparkSession, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(Connector.PARQUET, location=f"s3://{BUCKET}/lake/parquet")
    with monkeypatch.context() as patch:
        patch.setattr(type(table.lake), "commit", lambda *_, **__: None)  # as if it were killed before
        table.write(0, "id BIGINT", (1,), (2,))
    table.restart()
    table.write(0, "id BIGINT", (1,), (2,))
    assert sorted(row.id for row in table.read().collect()) == [1, 2]
