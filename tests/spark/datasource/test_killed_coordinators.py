"""Two agents with a disk each: whoever coordinates a commit is killed in the middle of it, and each row comes once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamhouse.client.sync import SyncClient
from tests.crash.pair import PARTITIONS, Pair, running_pair
from tests.stores.postgres.conftest import databases, empty_database

__all__ = ["databases", "empty_database"]

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.crash, pytest.mark.timeout(240)]

ROWS = 60


@pytest.fixture
def pair(tmp_path: Path, empty_database: str) -> Iterator[Pair]:
    with running_pair(tmp_path, database=empty_database, wal="disk") as running:
        yield running


def write(spark: SparkSession, agents: str, start: int) -> None:
    rows = spark.range(start, start + ROWS, 1, 2).selectExpr("concat('key-', id) AS key", "string(id) AS value")
    writer = rows.write.format("streamhouse").option("agents", agents).option("topic", "orders")
    writer.option("commitTimeout", 60).mode("append").save()


@pytest.mark.slow
def test_each_row_comes_once_when_whichever_agent_coordinates_is_killed_in_the_commit(
    spark: SparkSession, pair: Pair
) -> None:
    with SyncClient(pair.addresses) as client:
        client.topics.create("orders", partitions=PARTITIONS)
    # Everything is held, and nothing is placed yet.
    pair.trap.set(b"POST /v1/holds HTTP", pair.first.kill, on_answer=True)
    write(spark, pair.addresses, 0)
    assert pair.trap.sprung == 1
    pair.first.start()
    # Everything is placed, and nobody has been told.
    pair.trap.set(b"/end HTTP", pair.first.kill, on_answer=False)
    # Under another name for the same agents: who was asked before would be asked again, and that is the second one now.
    write(spark, f"{pair.addresses},{pair.second.http}", ROWS)
    assert pair.trap.sprung == 2
    with SyncClient(pair.addresses) as client:
        results = sorted(int(record.text()) for record in client.consume("orders", until="end"))
    assert results == list(range(2 * ROWS))
