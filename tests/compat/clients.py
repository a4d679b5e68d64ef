"""Clients: what the Python clients of Kafka have in common, so that one set of tests fits all of them."""

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, ClassVar, NamedTuple, Protocol

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
from confluent_kafka.cimpl import NewTopic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka
    import kafka.admin
    import kafka.codec

TIMEOUT_S = 30.0
ALL_CODECS = frozenset({"none", "gzip", "snappy", "lz4", "zstd"})

Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 1_700_000_000_000


class Read(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class KafkaClient(Protocol):
    codecs: ClassVar[frozenset[str]]
    """Those that the client has libraries for."""

    def __init__(self, bootstrap: str) -> None: ...
    def create(self, topic: str, partitions: int) -> None: ...
    def delete(self, topic: str) -> None: ...
    def topics(self) -> set[str]: ...
    def partitions(self, topic: str) -> int: ...
    def produce(self, topic: str, records: Sequence[Sent], *, codec: str, idempotent: bool = True) -> list[int]:
        """Send to partition 0; returns the acknowledged offsets."""
        ...

    def read(self, topic: str, count: int, *, from_offset: int = 0) -> list[Read]:
        """Read `count` records of partition 0, assigned by hand."""
        ...

    def ends(self, topic: str) -> tuple[int, int]:
        """The first and the next offset of partition 0."""
        ...

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        """The first offset of partition 0 at or after a time."""
        ...


def _read(message: Any) -> Read:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Read(message.offset(), message.key(), message.value(), headers, message.timestamp()[1])


class Confluent:
    """librdkafka."""

    codecs: ClassVar = ALL_CODECS

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}

    def _admin(self) -> confluent_kafka.admin.AdminClient:
        return confluent_kafka.admin.AdminClient(self._bootstrap)

    def _consumer(self) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {**self._bootstrap, "group.id": "by-hand", "enable.auto.commit": False, "auto.offset.reset": "error"}
        )

    def create(self, topic: str, partitions: int) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        admin = self._admin()
        admin.create_topics([new])[topic].result(TIMEOUT_S)

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def topics(self) -> set[str]:
        admin = self._admin()
        return set(admin.list_topics(timeout=TIMEOUT_S).topics)

    def partitions(self, topic: str) -> int:
        admin = self._admin()
        return len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions)

    def produce(self, topic: str, records: Sequence[Sent], *, codec: str, idempotent: bool = True) -> list[int]:
        offsets: list[int] = []

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)

        producer = confluent_kafka.Producer(
            {**self._bootstrap, "compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5}
        )
        for sent in records:
            producer.produce(
                topic,
                key=sent.key,
                value=sent.value,
                headers=list(sent.headers),
                timestamp=sent.timestamp_ms,
                partition=0,
                on_delivery=delivered,
            )
        assert producer.flush(TIMEOUT_S) == 0
        return offsets

    def read(self, topic: str, count: int, *, from_offset: int = 0) -> list[Read]:
        results: list[Read] = []
        with closing(self._consumer()) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, from_offset)])
            deadline = time.monotonic() + TIMEOUT_S
            while len(results) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(results), timeout=1.0):
                    assert message.error() is None, message.error()
                    results.append(_read(message))
        return results

    def ends(self, topic: str) -> tuple[int, int]:
        with closing(self._consumer()) as consumer:
            low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=TIMEOUT_S)
            return low, high

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        with closing(self._consumer()) as consumer:
            requests = [confluent_kafka.TopicPartition(topic, 0, timestamp_ms)]
            (result,) = consumer.offsets_for_times(requests, timeout=TIMEOUT_S)
            return result.offset if result.offset >= 0 else None


class KafkaPython:
    codecs: ClassVar = ALL_CODECS if kafka.codec.has_snappy() else ALL_CODECS - {"snappy"}

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _admin(self) -> kafka.KafkaAdminClient:
        return kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)

    def _consumer(self) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None, enable_auto_commit=False)

    def member(self, topic: str, group: str) -> kafka.KafkaConsumer:
        """A consumer in a group, with heartbeats so short that rebalances are quick."""
        return kafka.KafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
            session_timeout_ms=10_000,
        )

    def create(self, topic: str, partitions: int) -> None:
        with closing(self._admin()) as admin:
            admin.create_topics([kafka.admin.NewTopic(topic, partitions, 1)])

    def delete(self, topic: str) -> None:
        with closing(self._admin()) as admin:
            admin.delete_topics([topic])

    def topics(self) -> set[str]:
        with closing(self._admin()) as admin:
            return set(admin.list_topics())

    def partitions(self, topic: str) -> int:
        with closing(self._consumer()) as consumer:
            return len(consumer.partitions_for_topic(topic) or ())

    def produce(self, topic: str, records: Sequence[Sent], *, codec: str, idempotent: bool = True) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
        )
        with closing(producer):
            sent = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=0,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(TIMEOUT_S).offset for future in sent]

    def read(self, topic: str, count: int, *, from_offset: int = 0) -> list[Read]:
        results: list[Read] = []
        partition = kafka.TopicPartition(topic, 0)
        with closing(self._consumer()) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, from_offset)
            deadline = time.monotonic() + TIMEOUT_S
            while len(results) < count and time.monotonic() < deadline:
                for batch in consumer.poll(timeout_ms=1000, max_records=count - len(results)).values():
                    results += [Read(r.offset, r.key, r.value, tuple(r.headers), r.timestamp) for r in batch]
        return results

    def ends(self, topic: str) -> tuple[int, int]:
        partition = kafka.TopicPartition(topic, 0)
        with closing(self._consumer()) as consumer:
            first, end = consumer.beginning_offsets([partition]), consumer.end_offsets([partition])
            return first[partition], end[partition]

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        partition = kafka.TopicPartition(topic, 0)
        with closing(self._consumer()) as consumer:
            result = consumer.offsets_for_times({partition: timestamp_ms})[partition]
            return result.offset if result is not None else None


class AioKafka:
    """aiokafka, whose calls each run on a loop of their own."""

    codecs: ClassVar = ALL_CODECS

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create(self, topic: str, partitions: int) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                new = aiokafka.admin.NewTopic(topic, num_partitions=partitions, replication_factor=1)
                await admin.create_topics([new])

        asyncio.run(run())

    def delete(self, topic: str) -> None:
        async def run() -> None:
            async with self._admin() as admin:
                await admin.delete_topics([topic])

        asyncio.run(run())

    def topics(self) -> set[str]:
        async def run() -> set[str]:
            async with self._admin() as admin:
                return set(await admin.list_topics())

        return asyncio.run(run())

    def partitions(self, topic: str) -> int:
        async def run() -> int:
            async with self._admin() as admin:
                (described,) = await admin.describe_topics([topic])
                return len(described["partitions"])

        return asyncio.run(run())

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[aiokafka.admin.AIOKafkaAdminClient]:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def produce(self, topic: str, records: Sequence[Sent], *, codec: str, idempotent: bool = True) -> list[int]:
        async def run() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks="all",
                linger_ms=5,
            )
            async with producer:
                futures = [
                    await producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        partition=0,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                async with asyncio.timeout(TIMEOUT_S):
                    return [(await future).offset for future in futures]

        return asyncio.run(run())

    def read(self, topic: str, count: int, *, from_offset: int = 0) -> list[Read]:
        async def run() -> list[Read]:
            results: list[Read] = []
            partition = aiokafka.TopicPartition(topic, 0)
            async with self._consumer() as consumer:
                consumer.assign([partition])
                consumer.seek(partition, from_offset)
                async with asyncio.timeout(TIMEOUT_S):
                    while len(results) < count:
                        r = await consumer.getone()
                        results.append(Read(r.offset, r.key, r.value, tuple(r.headers), r.timestamp))
            return results

        return asyncio.run(run())

    def _consumer(self) -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None, enable_auto_commit=False)

    def ends(self, topic: str) -> tuple[int, int]:
        async def run() -> tuple[int, int]:
            partition = aiokafka.TopicPartition(topic, 0)
            async with self._consumer() as consumer:
                first = await consumer.beginning_offsets([partition])
                end = await consumer.end_offsets([partition])
                return first[partition], end[partition]

        return asyncio.run(run())

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        async def run() -> int | None:
            partition = aiokafka.TopicPartition(topic, 0)
            async with self._consumer() as consumer:
                result = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
                return result.offset if result is not None else None

        return asyncio.run(run())


CLIENTS: dict[str, type[KafkaClient]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
