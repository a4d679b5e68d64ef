"""Compaction beside Kafka's own: the same updates, sent to both, and what is left of them, offset by offset."""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.kafka_jars import PeerUnavailable
from benchmarks.kafka_peer import KafkaPeer
from streamhouse.spark.maintenance.compaction_job import compact
from tests.spark.maintenance.compacting import STILL, HereExecutors, Seen, read_all
from tests.spark.maintenance.test_compaction_on_spark import updates, wait_flushed
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]

COUNT, KEYS = 20_000, 500
TRANSACTIONS = 50
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


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("both", 1, 1, config=SETTINGS)])["both"].result(30)


def send(bootstrap: str) -> None:
    """The same batches whoever gets them."""
    create(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number, (key, value) in enumerate(updates(COUNT, KEYS)):
        producer.produce("both", value, key, partition=0)
        if number % 1000 == 999:
            producer.flush(30)
    close_segment(bootstrap)


def send_in_transactions(bootstrap: str) -> None:
    """Every third one is aborted, so is the last; between them are records of none."""
    create(bootstrap)
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "transactional.id": "both"})
    producer.init_transactions(30)
    given = updates(COUNT, KEYS)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for key, value in islice(given, COUNT // TRANSACTIONS):
            producer.produce("both", value, key, partition=0)
        producer.flush(30)
        plain.produce("both", b"plain-%d" % number, b"key-%d" % number, partition=0)
        plain.flush(30)
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    close_segment(bootstrap)


def close_segment(bootstrap: str) -> None:
    """The last records make Kafka close the segment with the others."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(2):
        time.sleep(1)
        producer.produce("both", b"end", b"end", partition=0)
        producer.flush(30)


def left_of(place: LiveAgent | KafkaPeer, end: int, isolation: str = "read_committed") -> list[Seen]:
    return [each for each in read_all(place, "both", isolation=isolation) if each.offset < end]


def when_cleaned(kafka: KafkaPeer, end: int, isolation: str = "read_committed") -> list[Seen]:
    deadline = time.monotonic() + CLEANED_WITHIN_S
    while len(result := left_of(kafka, end, isolation)) > KEYS:
        assert time.monotonic() < deadline, "Kafka's cleaner is not done"
        time.sleep(1)
    return result


def test_what_is_left_is_what_kafka_leaves(kafka: KafkaPeer, tmp_path: Path) -> None:
    send(kafka.bootstrap)
    with LiveAgent(tmp_path / "data", *STILL) as agent:
        send(agent.bootstrap)
        wait_flushed(agent, "both", COUNT + 2)
        compact("both", agents=agent.http, executors=HereExecutors())
        ours = left_of(agent, COUNT)
    assert ours == when_cleaned(kafka, COUNT)
    assert len(ours) == KEYS


def test_what_is_left_of_transactions_is_what_kafka_leaves(kafka: KafkaPeer, tmp_path: Path) -> None:
    end = COUNT + 2 * TRANSACTIONS  # each has a record beside it, and a marker
    send_in_transactions(kafka.bootstrap)
    with LiveAgent(tmp_path / "data", *STILL) as agent:
        send_in_transactions(agent.bootstrap)
        wait_flushed(agent, "both", end + 2)
        before = left_of(agent, end)
        compact("both", agents=agent.http, executors=HereExecutors())
        ours = {each: left_of(agent, end, each) for each in ("read_committed", "read_uncommitted")}
    latest = {each.key: each for each in before}
    assert ours["read_committed"] == sorted(latest.values(), key=lambda each: each.offset)
    for isolation, left in ours.items():  # nothing of what was aborted is left for anybody
        assert left == when_cleaned(kafka, end, isolation)
        assert len(left) == KEYS
