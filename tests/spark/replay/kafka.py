"""Topics as a Kafka client fills and sees them."""

from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from streamhouse.client.sync import SyncClient
from tests.support.agent import LiveAgent

TIME_MS = 1_700_000_000_000


def named(what: str) -> str:
    return f"{what}-{uuid4().hex[:8]}"


def records_of(agent: LiveAgent, topic: str, partitions: int) -> dict[int, list[tuple[object, ...]]]:
    """All there is to a record but its offset, by partition, as a Kafka client sees it."""
    consumer = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    results: dict[int, list[tuple[object, ...]]] = {number: [] for number in range(partitions)}
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    ended = 0
    while ended < partitions:
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            ended += 1
            continue
        results[message.partition() or 0].append(
            (message.key(), message.value(), message.timestamp(), message.headers() or [])
        )
    consumer.close()
    return results


def fill(agent: LiveAgent, client: SyncClient, topic: str, *, partitions: int = 3, count: int = 200) -> None:
    """Nulls, empty ones, bytes that are no text, headers that come twice, times that go back."""
    client.topics.create(topic, partitions=partitions, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            topic,
            key=[None, b"", b"\xff\x00key", f"k{number % 7}".encode()][number % 4],
            value=None if number % 11 == 0 else b"" if number % 13 == 0 else f"value-{number}".encode() + b"\xfe\x00",
            headers=[("h", b"\x00\xff"), ("h", None), ("", str(number).encode())] if number % 3 else [],
            timestamp=TIME_MS + (number * 7919) % 1000,
            partition=number % partitions,
        )
    assert producer.flush(30) == 0
