"""Client worker: one process with a real client, which produces or consumes for some seconds and prints what it moved.

Data path   `clients` -> **client_worker** (librdkafka) -> a broker
Owns        a confluent-kafka producer or consumer with its default settings, and values prepared beforehand
Leaves      how many of these run, and what their sum says, to `clients`

Prints `ready`, waits for a line, works, prints one JSON object. Partitions are assigned by hand.
"""

import argparse
import json
import sys
import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.batches import values

PREPARED: Final = 5000
REPORT_EVERY: Final = 250
AT_ONCE: Final = 10_000
QUEUE_MESSAGES: Final = 200_000


def produce(bootstrap: str, topic: str, partitions: int, record_bytes: int, seconds: float) -> dict[str, float]:
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "queue.buffering.max.messages": QUEUE_MESSAGES,
    }
    producer = Producer(settings)
    producer.list_topics(topic, timeout=10)
    failures: list[str] = []
    messages = prepared_messages(record_bytes, failures)
    _wait_for_the_word()
    began, sent, turn = time.perf_counter(), 0, 0
    while time.perf_counter() - began < seconds:
        if len(producer) > QUEUE_MESSAGES - PREPARED:
            producer.poll(0.005)
            continue
        sent += producer.produce_batch(topic, messages, partition=turn % partitions)
        turn += 1
    left = producer.flush(30)
    if failures:
        raise RuntimeError(f"records refused; first_error={failures[0]}")
    return {"records": sent - left, "wall_s": time.perf_counter() - began}


def prepared_messages(record_bytes: int, failures: list[str]) -> list[dict[str, object]]:
    """Values to send again and again; some of each batch report back, as a refused batch fails as a whole."""

    def check(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    messages: list[dict[str, object]] = [{"value": value} for value in values(PREPARED, record_bytes)]
    for message in messages[::REPORT_EVERY]:
        message["callback"] = check
    return messages


def consume(bootstrap: str, topic: str, partitions: int, seconds: float) -> dict[str, float]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings)
    beginning = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
    consumer.list_topics(topic, timeout=10)
    _wait_for_the_word()
    consumer.assign(beginning)
    consumed = len(consumer.consume(1, timeout=10))
    began, last = time.perf_counter(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        records = consumer.consume(AT_ONCE, timeout=0.2)
        if not records:
            break
        consumed, last = consumed + len(records), time.perf_counter()
    consumer.close()
    return {"records": consumed, "wall_s": last - began}


def _wait_for_the_word() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["produce", "consume"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    asked = parser.parse_args()
    if asked.role == "produce":
        moved = produce(asked.bootstrap, asked.topic, asked.partitions, asked.record_bytes, asked.seconds)
    else:
        moved = consume(asked.bootstrap, asked.topic, asked.partitions, asked.seconds)
    print(json.dumps(moved), flush=True)


if __name__ == "__main__":
    main()
