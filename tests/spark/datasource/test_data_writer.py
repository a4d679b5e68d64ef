"""Spark writes topics, in batches and in streams: every row once, and errors that say what to do."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.client.types import Record
from streamhouse.format.partitioner import partition_for
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

Save = Callable[..., None]
HEADERS = "array(struct('h' AS key, binary('1') AS value))"


@pytest.fixture
def topic(client: SyncClient) -> str:
    name = f"sink-{uuid.uuid4()}"
    client.topics.create(name, partitions=3)
    return name


@pytest.fixture
def save(agent: LiveAgent) -> Save:
    def save(frame: DataFrame, **options: str) -> None:
        frame.write.format("streamhouse").option("agents", agent.http).options(**options).mode("append").save()

    return save


def consumed(client: SyncClient, topic: str) -> list[Record]:
    return sorted(client.consume(topic, until="end"), key=lambda record: (record.partition, record.offset))


def test_a_batch_of_rows_is_records_with_everything_that_they_were_given(
    spark: SparkSession, save: Save, topic: str, client: SyncClient
) -> None:
    rows = spark.range(200).selectExpr(
        "concat('key-', id) AS key",
        "binary(concat('value-', id)) AS value",
        "timestamp_millis(1700000000000 + id) AS timestamp",
        f"if(id % 2 = 0, {HEADERS}, NULL) AS headers",
    )
    save(rows, topic=topic, compression="zstd")
    records = consumed(client, topic)
    assert {record.value for record in records} == {f"value-{n}".encode() for n in range(200)}
    assert len(records) == 200
    for record in records:
        number = int(record.text().removeprefix("value-"))
        assert record.partition == partition_for(record.key, 3)
        assert (record.key, record.timestamp_ms) == (f"key-{number}".encode(), 1700000000000 + number)
        assert record.headers == ((("h", b"1"),) if number % 2 == 0 else ())


def test_what_is_written_is_read_again(spark: SparkSession, save: Save, topic: str, agent: LiveAgent) -> None:
    save(spark.range(1000).selectExpr("string(id) AS value").repartition(2), topic=topic)
    read = spark.read.format("streamhouse").option("agents", agent.http).option("topic", topic).load()
    now = datetime.now(UTC).timestamp()
    counted = read.selectExpr(
        "count(*) n", "count(DISTINCT value) d", "max(offset) last", "count(key) k", "max(timestamp) t"
    ).first()
    assert counted is not None
    assert (counted.n, counted.d, counted.k) == (1000, 1000, 0)
    assert counted.last < 500  # spread over three partitions
    assert abs(counted.t.timestamp() - now) < 3600


def test_rows_name_their_topics(spark: SparkSession, save: Save, client: SyncClient) -> None:
    names = [f"rows-{uuid.uuid4()}" for _ in range(2)]
    for name in names:
        client.topics.create(name, partitions=1)
    rows = spark.createDataFrame([(names[n % 2], str(n)) for n in range(20)], "topic string, value string")
    save(rows)
    for half, name in enumerate(names):
        assert sorted(int(record.text()) for record in consumed(client, name)) == list(range(half, 20, 2))


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("id AS value", {}, "column=value type=bigint do=cast it to string or binary"),
        ("string(id) AS key", {}, "a record needs a value"),
        ("string(id) AS value", {"compression": "rar"}, "unknown compression"),
        ("string(id) AS value; int(9) AS partition", {}, "partitions=3 do=correct or drop the column partition"),
        ("repeat(uuid(), 60000) AS value", {"compression": "none"}, "do=raise max.message.bytes of the topic"),
    ],
)
def test_what_can_not_be_written_is_reported(
    spark: SparkSession, save: Save, topic: str, client: SyncClient, columns: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        save(spark.range(3).selectExpr(*columns.split("; ")), topic=topic, **options)
    assert text in str(caught.value)
    assert consumed(client, topic) == []


def test_a_stream_writes_its_micro_batches(
    spark: SparkSession, topic: str, client: SyncClient, agent: LiveAgent, tmp_path: Path
) -> None:
    lines = tmp_path / "in"
    lines.mkdir()
    for number in range(3):
        (lines / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(10)))

    def run() -> None:
        query = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(lines))
            .writeStream.format("streamhouse")
            .option("agents", agent.http)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    expected = {f"{number}-{line}" for number in range(3) for line in range(10)}
    assert sorted(record.text() for record in consumed(client, topic)) == sorted(expected)
    (lines / "3.txt").write_text("3-0\n")
    run()
    assert sorted(record.text() for record in consumed(client, topic)) == sorted({*expected, "3-0"})


def test_a_stream_to_a_topic_of_bad_settings_fails_and_says_why(
    spark: SparkSession, client: SyncClient, agent: LiveAgent, tmp_path: Path
) -> None:
    name = f"compacted-{uuid.uuid4()}"
    client.topics.create(name, partitions=1, config={"cleanup.policy": "compact"})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("a\n")
    query = (
        spark.readStream.text(str(tmp_path / "in"))
        .writeStream.format("streamhouse")
        .option("agents", agent.http)
        .option("topic", name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="a compacted topic needs keys"):
        query.awaitTermination(120)
