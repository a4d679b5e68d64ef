"""Subscriptions and assignments of consumers are decoded from untrusted bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format.consumer_protocol import MAX_ELEMENTS, assigned_partitions, subscribed_topics
from streamhouse.wire.kafka.codec import encode_bytes
from streamhouse.wire.kafka.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition

NEVER_ENDS = struct.pack(">hih", 0, 2**31 - 1, -6)
"""A topic of a negative length leads back to the bytes before it."""


def encoded(*topics: str, version: int = 3, tail: bytes = b"\x00\x00\x00\x00") -> bytes:
    names = b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in topics)
    return version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + tail


@given(st.lists(st.text(max_size=50)), st.integers(min_value=0, max_value=9), st.binary())
def test_topics_are_found_in_every_version(topics: list[str], version: int, tail: bytes) -> None:
    assert subscribed_topics(encoded(*topics, version=version, tail=tail)) == frozenset(topics)


@given(st.binary(max_size=200))
def test_other_bytes_are_no_subscription_and_do_no_harm(data: bytes) -> None:
    result = subscribed_topics(data)
    assert result is None or sum(len(topic.encode()) for topic in result) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x01",
        b"\x00\x01\x7f\xff\xff\xff",
        b"\x00\x01\xff\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x01\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_lengths_that_lie_are_refused(data: bytes) -> None:
    assert subscribed_topics(data) is None


def assignment(partitions: dict[str, list[int]], *, version: int = 0) -> bytes:
    topics = [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in partitions.items()]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=b"sticky")
    return version.to_bytes(2, "big") + encode_bytes(message, version)


@given(
    st.dictionaries(st.text(max_size=20), st.lists(st.integers(0, 2**31 - 1), max_size=20), max_size=10),
    st.integers(0, 3),
)
def test_an_assignment_is_read_as_it_was_written(partitions: dict[str, list[int]], version: int) -> None:
    expected = sorted((topic, number) for topic, numbers in partitions.items() for number in set(numbers))
    assert assigned_partitions(assignment(partitions, version=version)) == expected


@given(st.binary(max_size=200))
def test_other_bytes_are_no_assignment_and_do_no_harm(data: bytes) -> None:
    result = assigned_partitions(data)
    assert result is None or 4 * len(result) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x00\xff\xff\xff\xff",
        struct.pack(">hih", 0, 1, 5),
        struct.pack(">hihi", 0, 2**30, 0, 9),
        struct.pack(">hihi", 0, 1, 0, -1),
        struct.pack(">hihi", 0, 1, 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -1),
        NEVER_ENDS,
    ],
)
def test_an_assignment_whose_lengths_lie_is_none(data: bytes) -> None:
    assert assigned_partitions(data) is None


def test_an_assignment_has_a_million_partitions_at_most() -> None:
    numbers = list(range(MAX_ELEMENTS - 1))
    assert len(assigned_partitions(assignment({"t": numbers})) or ()) == MAX_ELEMENTS - 1
    assert assigned_partitions(assignment({"t": [*numbers, 0]})) is None
