"""Which strings may name a topic."""

import pytest

from streamhouse.errors import InvalidTopicName
from streamhouse.model.names import TopicPartition, check_topic_name


@pytest.mark.parametrize("name", ["orders", "a", "A.b_c-9", "x" * 249, "..."])
def test_names_that_kafka_accepts_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "../etc", "a\0b", "naïve", "a b", "a\n"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


def test_a_partition_reads_as_people_write_it() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
