"""What librdkafka's own tests expect of a broker, with the packaged client against a live agent."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.compat.clients import TIMEOUT_S, Confluent, Sent

api: Any = confluent_kafka.admin  # whose types are not all exported


@pytest.fixture
def admin(bootstrap: str) -> Any:
    return api.AdminClient({"bootstrap.servers": bootstrap})


def create(admin: Any, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new])[topic].result(TIMEOUT_S)


def a_consumer(bootstrap: str, topic: str, **config: str | int | bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-group",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 300,
            "heartbeat.interval.ms": 300,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )


def topics_of(consumer: Consumer) -> set[str]:
    return {part.topic for part in consumer.assignment()}


def poll_until(consumer: Consumer, reached: Callable[[], bool]) -> list[Message]:
    """What was read on the way, errors among it."""
    read: list[Message] = []
    for _ in range(int(TIMEOUT_S / 0.1)):
        if reached():
            return read
        if (message := consumer.poll(0.1)) is not None:
            read.append(message)
    raise AssertionError(f"waited in vain; assigned={consumer.assignment()} read={len(read)}")


def test_of_a_refused_batch_the_producer_learns_which_records_were_to_blame(
    bootstrap: str, admin: Any, topic: str
) -> None:
    create(admin, topic, config={"cleanup.policy": "compact"})
    codes: Counter[int | None] = Counter()

    def delivered(error: KafkaError | None, _: object) -> None:
        codes[error.code() if error else None] += 1

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 200})
    for n in range(100):
        producer.produce(
            topic,
            key=None if n % 10 == 0 else b"%d" % n,
            value=b"%d" % n,
            on_delivery=delivered,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert codes == {KafkaError.INVALID_RECORD: 10, KafkaError._INVALID_DIFFERENT_RECORD: 90}


def test_records_are_deleted_for_a_client_that_does_not_want_to_wait(bootstrap: str, admin: Any, topic: str) -> None:
    create(admin, topic)
    client = Confluent(bootstrap)
    client.produce(topic, [Sent(key=None, value=b"%d" % n) for n in range(10)], codec="none")
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4)], operation_timeout=0).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 4
    assert client.ends(topic) == (4, 10)


def test_a_pattern_finds_topics_that_come_and_loses_those_that_go(bootstrap: str, admin: Any, topic: str) -> None:
    first, second = f"{topic}-first", f"{topic}-second"
    create(admin, first)
    with closing(a_consumer(bootstrap, topic)) as consumer:
        consumer.subscribe([f"^{topic}-.*"])
        poll_until(consumer, lambda: topics_of(consumer) == {first})
        create(admin, second, partitions=3)
        poll_until(consumer, lambda: topics_of(consumer) == {first, second})
        assert len(consumer.assignment()) == 4
        admin.delete_topics([first])[first].result(TIMEOUT_S)
        poll_until(consumer, lambda: topics_of(consumer) == {second})


def test_a_producer_goes_on_when_its_topic_is_created_again(bootstrap: str, admin: Any, topic: str) -> None:
    offsets: list[int | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 300})
    for partitions in (2, 1):
        create(admin, topic, partitions=partitions)
        for n in range(5):
            producer.produce(topic, b"%d" % n, partition=0, on_delivery=delivered)
        assert producer.flush(TIMEOUT_S) == 0
        assert Confluent(bootstrap).ends(topic) == (0, 5)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert offsets == [0, 1, 2, 3, 4] * 2


def test_the_text_committed_with_an_offset_comes_back(bootstrap: str, admin: Any, topic: str) -> None:
    create(admin, topic)
    text = "Rübe \U0001f955"
    with closing(a_consumer(bootstrap, topic)) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3, metadata=text)], asynchronous=False)
    with closing(a_consumer(bootstrap, topic)) as another:
        (result,) = another.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    assert (result.offset, result.metadata) == (3, text)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_agents_time_is_seen_where_the_topic_requests_it(
    bootstrap: str, admin: Any, topic: str, codec: str
) -> None:
    create(admin, topic, config={"message.timestamp.type": "LogAppendTime"})
    client = Confluent(bootstrap)
    client.produce(topic, [Sent(key=None, value=b"%d" % n, timestamp_ms=1000 + n) for n in range(10)], codec=codec)
    with closing(a_consumer(bootstrap, topic)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = consumer.consume(10, timeout=TIMEOUT_S)
    assert {message.timestamp()[0] for message in read} == {confluent_kafka.TIMESTAMP_LOG_APPEND_TIME}
    assert all(message.timestamp()[1] > 1_700_000_000_000 for message in read)


def test_a_place_outside_of_the_log_is_an_error_where_the_consumer_wants_one(
    bootstrap: str, admin: Any, topic: str
) -> None:
    create(admin, topic)
    Confluent(bootstrap).produce(topic, [Sent(key=None, value=b"x")] * 5, codec="none")
    with closing(a_consumer(bootstrap, topic, auto_offset_reset="error")) as consumer:
        consumer.assign([TopicPartition(topic, 0, 6)])
        message = consumer.poll(TIMEOUT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
