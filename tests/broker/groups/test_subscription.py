"""What consumers subscribe to is read from the beginning of their metadata, whatever follows, whatever it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.groups.subscription import subscribed_topics


def encoded(*topics: str, version: int = 3, tail: bytes = b"\x00\x00\x00\x00") -> bytes:
    names = b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in topics)
    return version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + tail


@given(st.lists(st.text(max_size=50)), st.integers(min_value=0, max_value=9), st.binary())
def test_topics_are_found_in_every_version(topics: list[str], version: int, tail: bytes) -> None:
    assert subscribed_topics(encoded(*topics, version=version, tail=tail)) == frozenset(topics)


@given(st.binary(max_size=200))
def test_other_bytes_are_no_subscription_and_do_no_harm(data: bytes) -> None:
    found = subscribed_topics(data)
    assert found is None or sum(len(topic.encode()) for topic in found) <= len(data)


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
