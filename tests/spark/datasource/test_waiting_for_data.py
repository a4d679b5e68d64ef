"""A stream without new records waits for them at the agent, and lets nobody else wait for that."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from streamhouse.client.sync import SyncClient
from streamhouse.spark.columns.record_schema import record_schema
from streamhouse.spark.datasource import stream_reader
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.datasource.split_reader import OutputSchema
from streamhouse.spark.datasource.stream_reader import OffsetPoller, StreamReader
from tests.spark.conftest import send
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

LIMIT_S = 30
LONG_S = 60


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each wait, none of which takes time."""
    calls: list[str] = []
    monkeypatch.setattr(OffsetPoller, "wait_for_data", lambda _: calls.append("waited"))
    return calls


def reader_of(agent: LiveAgent, topic: str) -> StreamReader:
    options = read_options({"agents": agent.http, "topic": topic, "startingOffsets": "latest"}, streaming=True)
    return StreamReader(options, OutputSchema(columns=record_schema(include_headers=False)))


def test_the_first_record_ends_the_wait(agent: LiveAgent, client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "WAIT_ALONE_S", LONG_S)
    client.topics.create("waits", partitions=1)
    reader = reader_of(agent, "waits")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(reader.latestOffset, start, ReadAllAvailable())
        send(client, "waits", range(1))
        assert waiting.result(LIMIT_S) != start
    reader.stop()


def test_a_look_waits_from_the_second_on_that_finds_nothing(
    agent: LiveAgent, client: SyncClient, waits: list[str]
) -> None:
    client.topics.create("quiet", partitions=2)
    reader = reader_of(agent, "quiet")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert not waits
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert len(waits) == 1
    send(client, "quiet", range(10))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end != start
    assert len(waits) == 2
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert len(waits) == 2
    reader.stop()


def test_a_batch_of_another_source_is_not_kept_waiting(agent: LiveAgent, client: SyncClient, waits: list[str]) -> None:
    client.topics.create("beside", partitions=1)
    reader = reader_of(agent, "beside")
    start = reader.initialOffset()
    for _ in range(3):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        reader.commit(start)
    assert not waits
    reader.stop()


def test_a_query_that_ends_with_what_there_is_never_waits(
    agent: LiveAgent, client: SyncClient, waits: list[str]
) -> None:
    client.topics.create("ending", partitions=1)
    reader = reader_of(agent, "ending")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    for _ in range(3):
        assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert not waits
    reader.stop()
