"""Streams on a real Spark: what comes is read once, over limits, new partitions, failures and restarts."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from streamhouse.client.sync import SyncClient
from streamhouse.model.names import TopicPartition
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.datasource.split_reader import OutputSchema
from streamhouse.spark.datasource.stream_reader import OffsetPoller, StreamReader
from tests.spark.conftest import LAZY, client_of, send
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

LIMIT_S = 120


class Sink:
    """What batches brought: values by batch."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = str(folder / "checkpoint")
        self.batches: list[list[str]] = []
        self.fails = 0

    def take(self, frame: DataFrame, number: int) -> None:
        rows = [str(row[0]) for row in frame.selectExpr("cast(value as string)").collect()]
        if rows and self.fails:
            self.fails -= 1
            raise RuntimeError("the sink is away")
        self.batches.append(rows)

    @property
    def values(self) -> list[int]:
        return sorted(int(value) for batch in self.batches for value in batch)


Start = Callable[..., StreamingQuery]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


@pytest.fixture
def start(spark: SparkSession, agent: LiveAgent) -> Start:
    def begin(sink: Sink, *, now: bool = True, **options: Any) -> StreamingQuery:
        reader = spark.readStream.format("streamhouse").option("agents", agent.http)
        frame = reader.options(**{name: str(value) for name, value in options.items()}).load()
        writer = frame.writeStream.foreachBatch(sink.take).option("checkpointLocation", sink.checkpoint)
        return (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")).start()

    return begin


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(LIMIT_S), "the query never ends"


def test_a_query_goes_on_from_its_checkpoint_and_finds_new_partitions(
    client: SyncClient, start: Start, sink: Sink
) -> None:
    client.topics.create("events", partitions=2)
    send(client, "events", range(100))
    finish(start(sink, topic="events", startingOffsets="earliest"))
    assert sink.values == list(range(100))
    client.topics.grow("events", 4)
    send(client, "events", range(100, 200))
    finish(start(sink, topic="events", startingOffsets="earliest"))
    assert sink.values == list(range(200))
    before = len(sink.batches)
    finish(start(sink, topic="events", startingOffsets="earliest"))
    assert len(sink.batches) == before


def test_a_limit_bounds_each_batch_and_leaves_nothing_out(client: SyncClient, start: Start, sink: Sink) -> None:
    client.topics.create("limited", partitions=3)
    send(client, "limited", range(100))
    finish(start(sink, topic="limited", startingOffsets="earliest", maxOffsetsPerTrigger=40))
    assert max(len(batch) for batch in sink.batches) <= 40
    assert sink.values == list(range(100))


def test_bytes_bound_each_batch_too(client: SyncClient, start: Start, sink: Sink) -> None:
    client.topics.create("weighed", partitions=2)
    send(client, "weighed", [f"{number:0100}" for number in range(100)])
    finish(start(sink, topic="weighed", startingOffsets="earliest", maxBytesPerTrigger=5000))
    assert len(sink.batches) > 1
    assert sink.values == list(range(100))


def test_a_topic_that_was_made_again_is_noticed_and_read_anew_if_that_is_wanted(
    client: SyncClient, start: Start, sink: Sink
) -> None:
    client.topics.create("again", partitions=2)
    send(client, "again", range(40))
    finish(start(sink, topic="again", startingOffsets="earliest"))
    client.topics.delete("again")
    client.topics.create("again", partitions=1)
    send(client, "again", range(100, 160))
    with pytest.raises(Exception, match=r"deleted and made again.*new checkpointLocation"):
        start(sink, topic="again", startingOffsets="earliest").awaitTermination(LIMIT_S)
    query = start(sink, now=False, topic="again", startingOffsets="earliest", failOnDataLoss="false")
    try:
        query.processAllAvailable()
        assert sink.values == [*range(40), *range(100, 160)]
        client.topics.delete("again")
        client.topics.create("again", partitions=2)
        send(client, "again", range(200, 210))
        query.processAllAvailable()
        assert sink.values == [*range(40), *range(100, 160), *range(200, 210)]
    finally:
        query.stop()


def test_partitions_of_a_topic_that_was_made_again_are_seen_at_the_first_look(
    client: SyncClient, agent: LiveAgent
) -> None:
    """Which partitions there are is remembered from one look to the next, but not of a topic that is gone."""
    client.topics.create("renewed", partitions=1)
    driver = OffsetPoller(read_options({"agents": agent.http, "topic": "renewed"}, streaming=True))
    try:
        assert sorted(driver.poll({}).ends) == [TopicPartition("renewed", 0)]
        client.topics.delete("renewed")
        client.topics.create("renewed", partitions=2)
        assert sorted(driver.poll({}).ends) == [TopicPartition("renewed", number) for number in range(2)]
    finally:
        driver.close()


def test_flushed_records_are_read_while_no_agent_is_there_and_the_query_goes_on_with_the_next(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    """What was planned needs no agent: executors read objects. What comes next is planned when one is back."""
    agent = LiveAgent(tmp_path / "data", *LAZY)
    with agent:
        with client_of(agent) as client:
            client.topics.create("away", partitions=1)
            send(client, "away", range(100))
        agent.stop()  # which flushes
        agent.start()
        take = sink.take

        def without_agent(frame: DataFrame, number: int) -> None:
            if number == 0:
                agent.kill()
            take(frame, number)

        options = {"agents": agent.http, "topic": "away", "startingOffsets": "earliest"}
        frame = spark.readStream.format("streamhouse").options(**options).load()
        writer = frame.writeStream.foreachBatch(without_agent).option("checkpointLocation", sink.checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            wait_for(lambda: sink.values == list(range(100)), query)
            agent.start()
            with client_of(agent) as client:
                send(client, "away", range(100, 120))
            query.processAllAvailable()
            assert sink.values == list(range(120))
        finally:
            query.stop()


def wait_for(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "it never happens"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_running_query_sees_what_comes_and_a_failed_batch_comes_again(
    client: SyncClient, start: Start, sink: Sink
) -> None:
    client.topics.create("fresh", partitions=1)
    send(client, "fresh", [-1])
    sink.fails = 1
    query = start(sink, now=False, topic="fresh")
    send_when_started(client, query)
    with pytest.raises(Exception, match="the sink is away"):
        query.awaitTermination(LIMIT_S)
    send(client, "fresh", range(10, 20))
    query = start(sink, now=False, topic="fresh")
    try:
        query.processAllAvailable()
        assert sink.values == list(range(20))
        send(client, "fresh", range(20, 30))
        query.processAllAvailable()
        assert sink.values == list(range(30))
    finally:
        query.stop()


def send_when_started(client: SyncClient, query: StreamingQuery) -> None:
    """A query that has looked once knows where it begins."""
    query.processAllAvailable()
    send(client, "fresh", range(10))


@pytest.mark.parametrize(("delay", "waits"), [("1h", True), ("0ms", False)])
def test_a_stream_leaves_a_few_records_to_a_later_batch_but_not_forever(
    client: SyncClient, agent: LiveAgent, delay: str, waits: bool
) -> None:
    topic = f"few-{delay}"
    client.topics.create(topic, partitions=2)
    given = {"topic": topic, "agents": agent.http, "startingOffsets": "earliest"}
    options = read_options({**given, "minOffsetsPerTrigger": "10", "maxTriggerDelay": delay}, streaming=True)
    reader = StreamReader(options, OutputSchema(columns=StructType()))
    send(client, topic, range(5))
    try:
        first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert waiting(reader, first) == 0
        send(client, topic, range(4))
        assert (reader.latestOffset(first, ReadAllAvailable()) == first) is waits
        send(client, topic, range(6))
        assert sum(ends(reader.latestOffset(first, ReadAllAvailable()))) == 15
    finally:
        reader.stop()


def waiting(reader: StreamReader, since: dict[str, Any]) -> int:
    return sum(ends(reader.reportLatestOffset() or {"offsets": {}})) - sum(ends(since))


def ends(results: dict[str, Any]) -> list[int]:
    return [offset for offsets in results["offsets"].values() for offset in offsets.values()]
