"""A broker in memory: librdkafka's own mock, which speaks Kafka's protocol on a loopback port."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Its address. Topics are created with four partitions by a metadata request."""
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock:1", "log_level": 0})
    (result,) = owner.list_topics(timeout=10).brokers.values()
    yield f"{result.host}:{result.port}"
    del owner
