"""How long does a Kafka message take, to bytes and from bytes, beside kafka-python in the same run?

    python benchmarks/kafka_codec.py

One topic, two partitions, records of 1 KiB (produce) and 1 MiB (fetch); the best of several rounds, per message.
"""

import importlib
import timeit
import warnings
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from streamhouse.wire.kafka.codec import decode, encode, encode_bytes
from streamhouse.wire.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from streamhouse.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from streamhouse.wire.kafka.schema import Message

TOPIC: Final = "orders"
TOPIC_ID: Final = UUID("00112233-4455-6677-8899-aabbccddeeff")
PARTITIONS: Final = range(2)
ROUNDS: Final = 5
SECONDS_PER_ROUND: Final = 0.05


def samples() -> list[tuple[Message, int]]:
    """The four messages of the hot path, each in a version before and one after flexible encoding."""
    batch, block = bytes(1024), bytes(1 << 20)
    produced = [PartitionProduceData(index=index, records=batch) for index in PARTITIONS]
    acked = [PartitionProduceResponse(index=index, base_offset=1_000_000) for index in PARTITIONS]
    wanted = [
        FetchPartition(partition=index, fetch_offset=1_000_000, partition_max_bytes=1 << 20) for index in PARTITIONS
    ]
    fetched = [PartitionData(partition_index=index, high_watermark=1_000_000, records=block) for index in PARTITIONS]
    produce = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=produced)]
    )
    response = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=acked)])
    fetch = FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic=TOPIC, topic_id=TOPIC_ID, partitions=wanted)])
    blocks = FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=fetched)])
    before_and_after = [(produce, 8, 11), (response, 8, 11), (fetch, 11, 13), (blocks, 11, 13)]
    return [(message, version) for message, *versions in before_and_after for version in versions]


def microseconds(action: Callable[[], object]) -> float:
    timer = timeit.Timer(action)
    number = max(1, int(SECONDS_PER_ROUND / (timer.timeit(20) / 20)))
    return min(timer.repeat(repeat=ROUNDS, number=number)) / number * 1e6


def their_class(message: Message) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = {"Produce": "kafka.protocol.producer", "Fetch": "kafka.protocol.consumer"}[message.name]
        return getattr(importlib.import_module(module), type(message).__name__)


def measure(message: Message, version: int) -> tuple[float, float, float, float]:
    """Microseconds: our encode, theirs, our decode, theirs."""
    cls, theirs, encoded = type(message), their_class(message), encode_bytes(message, version)
    decoded = theirs.decode(encoded, version=version)
    decoded._header = None
    if bytes(decoded.encode(version=version)) != encoded:
        raise AssertionError(f"{cls.__name__} v{version}: kafka-python writes other bytes")
    return (
        microseconds(lambda: encode(message, version)),
        microseconds(lambda: decoded.encode(version=version)),
        microseconds(lambda: decode(cls, version, encoded)),
        microseconds(lambda: theirs.decode(encoded, version=version)),
    )


def main() -> None:
    print(f"{'microseconds per message':28}{'encode':>10}{'kafka-python':>14}{'decode':>10}{'kafka-python':>14}")
    for message, version in samples():
        ours, theirs, our_decode, their_decode = measure(message, version)
        name = f"{type(message).__name__} v{version}"
        print(f"{name:28}{ours:10.2f}{theirs:14.2f}{our_decode:10.2f}{their_decode:14.2f}")


if __name__ == "__main__":
    main()
