"""Batches on a real Spark: every record once, in the columns of Spark's Kafka source."""

import time
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.spark.runtime.launch import PUSH_DOWN
from tests.spark.conftest import Read, send
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

TIME_MS = int(time.time()) * 1000 - 3_600_000
"""Within the retention time."""


@pytest.fixture(scope="session")
def filled(agent: LiveAgent) -> None:
    """A topic with 300 records in segments and 30 in the tail; odd ones have no key; each a second after the other."""
    with SyncClient(agent.http) as client:
        client.topics.create("orders", partitions=3)
        client.topics.create("orders-late", partitions=1)
        fill(client, range(300))
    agent.stop()
    agent.start()
    with SyncClient(agent.http) as client:
        fill(client, range(300, 330))
        send(client, "orders-late", range(5))


def fill(client: SyncClient, numbers: range) -> None:
    with client.producer("orders") as producer:
        for number in numbers:
            producer.enqueue(
                f"value-{number}",
                key=None if number % 2 else f"key-{number}",
                headers=[("n", str(number).encode()), ("none", None)] if number % 3 == 0 else (),
                timestamp_ms=TIME_MS + 1000 * number,
                partition=number % 3,
            )


def numbers_of(rows: list[Row]) -> list[int]:
    return sorted(int(bytes(row.value).removeprefix(b"value-")) for row in rows)


@pytest.mark.usefixtures("filled")
class TestOrders:
    def test_every_record_comes_once_with_all_that_it_has(self, read: Read, client: SyncClient) -> None:
        rows = read(topic="orders", includeHeaders=True).selectExpr("*", "unix_millis(timestamp) as ms").collect()
        results = sorted(
            (row.topic, row.partition, row.offset, row.ms, row.key, row.value, row.headers) for row in rows
        )
        expected = sorted(
            (r.topic, r.partition, r.offset, r.timestamp_ms, r.key, r.value, [*r.headers])
            for r in client.consume("orders", until="end")
        )
        assert [
            (*row[:4], row[4] and bytes(row[4]), bytes(row[5]), [tuple(pair) for pair in row[6]]) for row in results
        ] == expected
        assert len(results) == 330
        assert {row.timestampType for row in rows} == {0}

    def test_splits_are_as_many_as_requested_and_share_no_record(self, read: Read) -> None:
        frame = read(topic="orders", minPartitions=7)
        assert frame.rdd.getNumPartitions() == 7
        assert numbers_of(frame.collect()) == list(range(330))

    @pytest.mark.parametrize(
        ("options", "numbers"),
        [
            ({"startingOffsets": '{"orders":{"0":100,"1":-1}}'}, [*range(2, 330, 3), *range(300, 330, 3)]),
            ({"endingOffsets": '{"orders":{"0":1,"1":0,"2":-1}}'}, [0, *range(2, 330, 3)]),
            ({"startingTimestamp": TIME_MS + 320_000}, range(320, 330)),
            ({"startingTimestamp": TIME_MS + 10_000, "endingTimestamp": TIME_MS + 20_000}, range(10, 20)),
        ],
    )
    def test_a_read_begins_and_ends_at_the_given_offsets(self, read: Read, options: Any, numbers: Any) -> None:
        assert numbers_of(read(topic="orders", **options).collect()) == sorted(numbers)

    def test_topics_are_named_or_matched_or_assigned(self, read: Read) -> None:
        def count(**options: Any) -> dict[str, int]:
            rows = read("topic string", **options).groupBy("topic").count().collect()
            return {row.topic: row["count"] for row in rows}

        both = {"orders": 330, "orders-late": 5}
        assert count(subscribe="orders,orders-late") == both
        assert count(subscribePattern="orders.*") == both
        assert count(assign='{"orders":[1]}') == {"orders": 110}

    def test_filters_narrow_what_is_read_and_change_no_result(self, read: Read) -> None:
        frame = read(topic="orders").where("partition = 1 and offset >= 90 and offset < 95")
        assert numbers_of(frame.collect()) == [3 * n + 1 for n in range(90, 95)]
        since = f"timestamp >= timestamp_millis({TIME_MS + 325_000})"
        assert numbers_of(read(topic="orders").where(since).collect()) == list(range(325, 330))
        assert read(topic="orders").where("partition = 9").count() == 0

    def test_a_session_that_pushes_no_filters_reads_the_same(self, read: Read, spark: SparkSession) -> None:
        spark.conf.set(PUSH_DOWN, "false")
        try:
            frame = read(topic="orders").where("partition = 1 and offset >= 90 and offset < 95")
            assert numbers_of(frame.collect()) == [3 * n + 1 for n in range(90, 95)]
        finally:
            spark.conf.set(PUSH_DOWN, "true")

    def test_only_what_a_record_may_lack_can_be_null(self, read: Read) -> None:
        frame = read(topic="orders", includeHeaders=True)
        assert [field.name for field in frame.schema if field.nullable] == ["key", "value", "headers"]
        assert frame.where("key is null").count() == 165
        assert frame.where("offset is null or timestamp is null").count() == 0

    def test_a_narrower_schema_is_all_that_is_read(self, read: Read) -> None:
        assert read("offset long", topic="orders").columns == ["offset"]
        assert read("offset long", topic="orders").selectExpr("sum(offset)").collect()[0][0] == 3 * sum(range(110))

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"topic": "nothing"}, "unknown topic.*name=nothing.*known=.*orders"),
            ({"topic": "orders", "startingOffset": "latest"}, "did you mean startingOffsets"),
            ({}, "is required"),
            ({"topic": "orders", "schema_": "price double"}, "no such column; column=price"),
            ({"topic": "orders", "startingOffsets": '{"orders":{"0":999}}'}, "the log ends before.*failOnDataLoss"),
            ({"topic": "orders", "startingTimestamp": TIME_MS * 2}, "startingOffsetsByTimestampStrategy=latest"),
        ],
    )
    def test_what_cannot_be_read_is_refused_with_what_to_do(self, read: Read, options: Any, said: str) -> None:
        schema = options.pop("schema_", None)
        with pytest.raises(PySparkException, match=said):
            read(schema, **options).collect()
