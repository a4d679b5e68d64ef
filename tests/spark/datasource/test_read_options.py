"""Options: in the words of Spark's Kafka connector, and refused where they can't be meant so."""

import pytest

from streamhouse.errors import Misconfigured
from streamhouse.model.names import TopicPartition
from streamhouse.spark.datasource.read_options import (
    EARLIEST,
    LATEST,
    Assign,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    UniformOffset,
    read_options,
)
from streamhouse.spark.runtime import AGENTS_VARIABLE

A = TopicPartition("a", 0)


def test_what_is_read_is_said_in_one_of_four_ways() -> None:
    assert read_options({"topic": "a"}, streaming=False).subscription == Subscribe(("a",))
    assert read_options({"subscribe": "a, b,a"}, streaming=False).subscription == Subscribe(("a", "b"))
    assert read_options({"subscribePattern": "a.*"}, streaming=False).subscription == SubscribePattern("a.*")
    assert read_options({"assign": '{"a":[0]}'}, streaming=False).subscription == Assign((A,))


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    batch, stream = read_options({"topic": "a"}, streaming=False), read_options({"topic": "a"}, streaming=True)
    assert (batch.start, batch.end) == (UniformOffset(EARLIEST), UniformOffset(LATEST))
    assert stream.start == UniformOffset(LATEST)


def test_times_go_before_offsets() -> None:
    given = {
        "topic": "a",
        "startingOffsets": '{"a":{"0":3}}',
        "startingOffsetsByTimestamp": '{"a":{"0":1000}}',
        "startingTimestamp": "2000",
    }
    assert read_options(given, streaming=False).start == SpecificTimestamps({}, 2000)
    del given["startingTimestamp"]
    assert read_options(given, streaming=False).start == SpecificTimestamps({A: 1000})
    del given["startingOffsetsByTimestamp"]
    assert read_options(given, streaming=False).start == SpecificOffsets({A: 3})


def test_names_are_taken_in_any_case_and_kafkas_own_are_let_pass() -> None:
    given = {"TOPIC": "a", "maxoffsetspertrigger": "10", "kafka.bootstrap.servers": "x", "includeheaders": "TRUE"}
    options = read_options(given, streaming=True)
    assert (options.max_records, options.include_headers) == (10, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "is required"),
        ({"topic": "a", "subscribe": "b"}, "given=topic,subscribe"),
        ({"topic": ","}, "no topic"),
        ({"topic": "a", "startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"topic": "a", "startingOffsets": "first"}, "option=startingOffsets"),
        ({"topic": "a", "startingOffsets": '{"a":[1]}'}, "option=startingOffsets"),
        ({"topic": "a", "startingOffsets": '{"a":{"0":-3}}'}, "negative"),
        ({"topic": "a", "endingOffsets": "earliest"}, "can't end at earliest"),
        ({"topic": "a", "minPartitions": "0"}, "option=minPartitions"),
        ({"topic": "a", "failOnDataLoss": "maybe"}, "option=failOnDataLoss"),
        ({"topic": "a", "schema": "avro"}, "do=give registry"),
        ({"topic": "a", "schema": "registry", "decodeErrors": "drop"}, "do=fail, columns or bytes"),
        ({"topic": "a", "decodeErrors": "columns"}, "set schema=registry"),
        ({"assign": "[]"}, "option=assign"),
        ({"assign": "{}"}, "no partition is named"),
        ({"topic": "a", "maxTriggerDelay": "soon"}, "not a duration"),
        ({"topic": "a", "maxRecordsPerPartition": "0"}, "option=maxRecordsPerPartition"),
        ({"topic": "a", "startingOffsetsByTimestampStrategy": "earliest"}, "do=error or latest"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(given: dict[str, str], said: str) -> None:
    with pytest.raises(Misconfigured, match=said) as refused:
        read_options(given, streaming=False)
    assert " do=" in str(refused.value)


def test_jobs_that_come_from_kafkas_connector_keep_what_they_say_of_triggers_and_tasks() -> None:
    given = {"topic": "a", "minOffsetsPerTrigger": "50", "maxTriggerDelay": "2m", "maxRecordsPerPartition": "7"}
    options = read_options(given, streaming=True)
    assert (options.min_records, options.max_delay_ms, options.max_split_records) == (50, 120_000, 7)
    assert read_options({"topic": "a"}, streaming=True).max_delay_ms == 15 * 60 * 1000
    assert read_options({"topic": "a", "maxTriggerDelay": "250"}, streaming=True).max_delay_ms == 250


@pytest.mark.parametrize(
    ("bootstrap", "agents"),
    [
        ("one:9092,two:9093", "one:8080,two:8080"),
        ("PLAINTEXT://one:9092, two", "one:8080,two:8080"),
        ("[::1]:9092", "[::1]:8080"),
        (",", "localhost:8080"),
    ],
)
def test_agents_are_on_the_hosts_of_kafkas_ports_unless_they_are_named(
    monkeypatch: pytest.MonkeyPatch, bootstrap: str, agents: str
) -> None:
    monkeypatch.delenv(AGENTS_VARIABLE, raising=False)
    given = {"topic": "a", "kafka.bootstrap.servers": bootstrap}
    assert read_options(given, streaming=False).agents == agents
    assert read_options({**given, "agents": "three:80"}, streaming=False).agents == "three:80"
    monkeypatch.setenv(AGENTS_VARIABLE, "four:80")
    assert read_options(given, streaming=False).agents == "four:80"


def test_a_stream_has_no_end() -> None:
    with pytest.raises(Misconfigured, match="a stream has no end"):
        read_options({"topic": "a", "endingOffsets": "latest"}, streaming=True)
