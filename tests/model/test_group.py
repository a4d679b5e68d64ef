"""A group's shard is the one that Kafka would choose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.model.group import shard_of


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # Integer.MIN_VALUE, of which Kafka makes 0
        ("zzzzzz", 685785664),
        ("größe", 98762257),
        ("\N{GRINNING FACE}", 1772899),  # two UTF-16 units
    ],
)
def test_java_hashes_decide(group_id: str, java_hash: int) -> None:
    assert shard_of(group_id, 2**31) == java_hash


@given(st.text(), st.integers(min_value=1, max_value=100))
def test_every_group_has_a_shard(group_id: str, shards: int) -> None:
    assert 0 <= shard_of(group_id, shards) < shards
