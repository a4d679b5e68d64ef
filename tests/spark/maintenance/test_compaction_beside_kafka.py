"""Compaction beside Kafka's own: the same updates, sent to both, and what is left of them, offset by offset."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.kafka_jars import PeerUnavailable
from benchmarks.kafka_peer import KafkaPeer
from streamhouse.spark.maintenance.compacting import compact
from tests.live import LiveAgent
from tests.spark.maintenance.compacting import STILL, HereExecutors, Seen, read_all
from tests.spark.maintenance.test_compaction_on_spark import updates, wait_flushed

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]

COUNT, KEYS = 20_000, 500
CLEANED_WITHIN_S = 200
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": "500",
    "max.message.bytes": "1000000",
}


@pytest.fixture
def kafka() -> Iterator[KafkaPeer]:
    try:
        with KafkaPeer() as running:
            yield running
    except PeerUnavailable as why:
        pytest.skip(str(why))


def send(bootstrap: str) -> None:
    """The same batches whoever gets them; the last records make Kafka close the segment with the others."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("both", 1, 1, config=SETTINGS)])["both"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number, (key, value) in enumerate(updates(COUNT, KEYS)):
        producer.produce("both", value, key, partition=0)
        if number % 1000 == 999:
            producer.flush(30)
    for _ in range(2):
        time.sleep(1)
        producer.produce("both", b"end", b"end", partition=0)
        producer.flush(30)


def left_of(place: LiveAgent | KafkaPeer) -> list[Seen]:
    return [each for each in read_all(place, "both") if each.offset < COUNT]


def test_what_is_left_is_what_kafka_leaves(kafka: KafkaPeer, tmp_path: Path) -> None:
    send(kafka.bootstrap)
    with LiveAgent(tmp_path / "data", *STILL) as agent:
        send(agent.bootstrap)
        wait_flushed(agent, "both", COUNT + 2)
        compact("both", agents=agent.http, executors=HereExecutors())
        ours = left_of(agent)
    deadline = time.monotonic() + CLEANED_WITHIN_S
    while len(theirs := left_of(kafka)) > KEYS:
        assert time.monotonic() < deadline, "Kafka's cleaner is not done"
        time.sleep(1)
    assert ours == theirs
    assert len(ours) == KEYS
