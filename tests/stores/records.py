"""Records in and out of an agent by a real client, for tests of where they lie in between."""

from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

RECORDS: Final = 2000


def produce(bootstrap: str, round_: int) -> None:
    """`RECORDS` records, each of them acknowledged."""
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(RECORDS):
        producer.produce("orders", value_of(round_, n), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def value_of(round_: int, n: int) -> bytes:
    return b"%d-%d" % (round_, n) * 20


def values(rounds: int) -> list[bytes]:
    """What was produced in that many rounds."""
    return [value_of(round_, n) for round_ in range(rounds) for n in range(RECORDS)]


def consume(bootstrap: str, expected: int) -> list[bytes]:
    """That many records from the start."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    results: list[bytes] = []
    try:
        while len(results) < expected:
            messages = consumer.consume(expected, timeout=30)
            assert messages, f"only {len(results)} records came back"
            results += [message.value() or b"" for message in messages]
    finally:
        consumer.close()
    return results
