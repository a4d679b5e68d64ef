"""Load on a live agent, and every acknowledgement with its offset, to be checked against the log."""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TOPIC = "crash"
PARTITIONS = 4
MAX_OUTSTANDING = 2000
BURST = 20
"""Records that a producer with a rate sends at a time."""


def place_of(message: Message) -> tuple[int, int, bytes]:
    """Partition, offset and value of a message that is no error."""
    assert message.error() is None, message.error()
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert isinstance(value, bytes)
    return partition, offset, value


@dataclass
class Ledger:
    """The acknowledgements of producers."""

    acked: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """(partition, offset) -> value"""
    clashes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, error: KafkaError | None, message: Message) -> None:
        with self.lock:
            if error is not None:
                self.refused.append(f"{message.value()!r}: {error}")
                return
            partition, offset, value = place_of(message)
            place = (partition, offset)
            if self.acked.setdefault(place, value) != value:
                self.clashes.append(f"{place} was acknowledged for {self.acked[place]!r} and for {value!r}")


class LoadProducer(threading.Thread):
    """Sends numbered values until `stop`; every one is either acknowledged or rejected in the ledger.

    As fast as it can, unless there is a rate; `padding` makes values longer.
    """

    def __init__(
        self, name: str, bootstrap: str, ledger: Ledger, *, idempotent: bool, rate_per_s: int = 0, padding: int = 0
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._ledger = ledger
        self._pause_s = BURST / rate_per_s if rate_per_s else 0.0
        self._padding = "." * padding
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        self.sent = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            if len(self._producer) >= MAX_OUTSTANDING:
                self._producer.poll(0.05)
                continue
            self._producer.produce(
                TOPIC,
                value=f"{self.name}/{self.sent}/{self._padding}".encode(),
                partition=self.sent % PARTITIONS,
                on_delivery=self._ledger.note,
            )
            self.sent += 1
            self._producer.poll(0)
            if self._pause_s and self.sent % BURST == 0:
                self._stopping.wait(self._pause_s)
        self._producer.flush(120)

    def stop(self) -> None:
        self._stopping.set()
        self.join(150)
        assert not self.is_alive(), f"{self.name} did not get rid of its messages"


def read_everything(bootstrap: str) -> dict[int, list[tuple[int, bytes]]]:
    """All records of the topic: partition -> [(offset, value)] in the order in which they were read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    try:
        starts = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
        ends = {part.partition: end_of(consumer, part) for part in starts}
        consumer.assign(starts)
        results: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        missing = {number for number, end in ends.items() if end > 0}
        while missing:
            message = consumer.poll(30)
            assert message is not None, f"nothing came within 30 s; missing={missing} ends={ends}"
            for each in (message, *consumer.consume(num_messages=10_000, timeout=0.05)):
                partition, offset, value = place_of(each)
                results[partition].append((offset, value))
                if offset + 1 >= ends[partition]:
                    missing.discard(partition)
        return results
    finally:
        consumer.close()


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Where a partition ends. Agents that have come back take partitions over again, and librdkafka leaves it to its
    users to ask again when a leader has just changed."""
    deadline = time.monotonic() + 30
    while True:
        try:
            end: int = consumer.get_watermark_offsets(partition, timeout=30)[1]
        except KafkaException as error:
            moves = error.args[0].retriable() or error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not moves or time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
        else:
            return end


def check(ledger: Ledger, found: dict[int, list[tuple[int, bytes]]], *, idempotent: set[str]) -> None:
    """Promises 1 to 3, as far as a client can see them."""
    assert not ledger.clashes, ledger.clashes[:5]
    stored = {(partition, offset): value for partition, records in found.items() for offset, value in records}
    lost = [f"{place}: {value!r}" for place, value in ledger.acked.items() if stored.get(place) != value]
    assert not lost, f"{len(lost)} of {len(ledger.acked)} acknowledged records are not where they were: {lost[:5]}"
    for partition, records in found.items():
        offsets = [offset for offset, _ in records]
        assert offsets == sorted(set(offsets)), f"partition {partition} is out of order or repeats an offset"
        _check_producers(partition, [value for _, value in records], idempotent)


def _check_producers(partition: int, values: list[bytes], idempotent: set[str]) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for value in values:
        name, number, _ = value.decode().split("/")
        numbers[name].append(int(number))
    for name in idempotent:
        sent = numbers[name]
        assert len(sent) == len(set(sent)), f"{name} is stored twice in partition {partition}"
        assert sent == sorted(sent), f"{name} is out of order in partition {partition}"
