"""Options: in the words of Spark's Kafka connector, and refused where they can't be meant so."""

import pytest

from streamhouse.errors import Misconfigured
from streamhouse.model.names import TopicPartition
from streamhouse.spark.options import (
    EARLIEST,
    LATEST,
    AllOffsets,
    Assigned,
    Names,
    Pattern,
    SomeOffsets,
    Times,
    read_options,
)

A = TopicPartition("a", 0)


def test_what_is_read_is_said_in_one_of_four_ways() -> None:
    assert read_options({"topic": "a"}, streaming=False).subscription == Names(("a",))
    assert read_options({"subscribe": "a, b,a"}, streaming=False).subscription == Names(("a", "b"))
    assert read_options({"subscribePattern": "a.*"}, streaming=False).subscription == Pattern("a.*")
    assert read_options({"assign": '{"a":[0]}'}, streaming=False).subscription == Assigned((A,))


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    batch, stream = read_options({"topic": "a"}, streaming=False), read_options({"topic": "a"}, streaming=True)
    assert (batch.start, batch.end) == (AllOffsets(EARLIEST), AllOffsets(LATEST))
    assert stream.start == AllOffsets(LATEST)


def test_times_go_before_offsets() -> None:
    given = {
        "topic": "a",
        "startingOffsets": '{"a":{"0":3}}',
        "startingOffsetsByTimestamp": '{"a":{"0":1000}}',
        "startingTimestamp": "2000",
    }
    assert read_options(given, streaming=False).start == Times({}, 2000)
    del given["startingTimestamp"]
    assert read_options(given, streaming=False).start == Times({A: 1000})
    del given["startingOffsetsByTimestamp"]
    assert read_options(given, streaming=False).start == SomeOffsets({A: 3})


def test_names_are_taken_in_any_case_and_kafkas_own_are_let_pass() -> None:
    given = {"TOPIC": "a", "maxoffsetspertrigger": "10", "kafka.bootstrap.servers": "x", "includeheaders": "TRUE"}
    options = read_options(given, streaming=True)
    assert (options.max_records, options.include_headers) == (10, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "says what to read"),
        ({"topic": "a", "subscribe": "b"}, "given=topic,subscribe"),
        ({"topic": ","}, "no topic"),
        ({"topic": "a", "startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"topic": "a", "startingOffsets": "first"}, "option=startingOffsets"),
        ({"topic": "a", "startingOffsets": '{"a":[1]}'}, "option=startingOffsets"),
        ({"topic": "a", "startingOffsets": '{"a":{"0":-3}}'}, "negative"),
        ({"topic": "a", "endingOffsets": "earliest"}, "can't end at earliest"),
        ({"topic": "a", "minPartitions": "0"}, "option=minPartitions"),
        ({"topic": "a", "failOnDataLoss": "maybe"}, "option=failOnDataLoss"),
        ({"topic": "a", "schema": "avro"}, "do=registry"),
        ({"topic": "a", "schema": "registry", "decodeErrors": "drop"}, "none of fail, columns, bytes"),
        ({"topic": "a", "decodeErrors": "columns"}, "set schema=registry"),
        ({"assign": "[]"}, "option=assign"),
        ({"topic": "a", "startingOffsetsByTimestampStrategy": "earliest"}, "neither error nor latest"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        read_options(given, streaming=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(Misconfigured, match="a stream has no end"):
        read_options({"topic": "a", "endingOffsets": "latest"}, streaming=True)
