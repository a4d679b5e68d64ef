"""Transactions with the clients that people use: all or nothing, once, by one producer at a time."""

import asyncio
import time
import uuid
import warnings
from collections.abc import Sequence
from contextlib import closing

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamhouse.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.wire.kafka.producing import Transactional
from tests.wire.kafka.talk import Client

from .clients import TIMEOUT_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
COUNT = 40


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"txn-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(TIMEOUT_S)
    return name


def a_producer(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
    producer.init_transactions(TIMEOUT_S)
    return producer


def read(bootstrap: str, topic: str, level: str, *, partition: int = 0) -> list[bytes]:
    """The records that a reader of this isolation level has read up to the end."""
    seen: list[bytes] = []
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "isolation.level": level,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return seen
            seen.append(message.value() or b"")
        raise AssertionError("the end never came")
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": COMMITTED})
    try:
        (result,) = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
        return int(result.offset)
    finally:
        consumer.close()


# --- librdkafka


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(bootstrap: str, topic: str) -> None:
    producer = a_producer(bootstrap, topic)
    for number, commits in enumerate([True, False, True, False, True]):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition)
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    for partition in (0, 1):
        assert read(bootstrap, topic, COMMITTED, partition=partition) == [b"0", b"2", b"4"]
        assert read(bootstrap, topic, UNCOMMITTED, partition=partition) == [b"0", b"1", b"2", b"3", b"4"]


async def send_as(bootstrap: str, transactional_id: str, topic: str, value: bytes) -> None:
    """The first batch of the producer in partition 0, whose response is lost."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    client = await Client.connect(host, int(port))
    try:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (result,) = (await client.call(request, DescribeTransactionsResponse, 0)).transaction_states
        same = Transactional(
            client=client,
            transactional_id=transactional_id,
            producer_id=result.producer_id,
            epoch=result.producer_epoch,
        )
        assert await same.add(topic, 0) == [0]
        assert (await same.send(topic, 0, value)).error_code == 0
    finally:
        await client.close()


def test_librdkafka_aborts_and_goes_on_where_it_uses_the_numbers_of_an_aborted_batch_again(
    bootstrap: str, topic: str
) -> None:
    """As it does when the response to the aborted batch was lost with its leader."""
    producer = a_producer(bootstrap, topic)
    producer.begin_transaction()
    producer.produce(topic, b"elsewhere", partition=1)
    producer.flush(TIMEOUT_S)
    asyncio.run(send_as(bootstrap, topic, topic, b"aborted"))
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"refused", partition=0)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].txn_requires_abort(), refused.value
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"sent again", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    assert read(bootstrap, topic, COMMITTED) == [b"sent again"]


def test_an_open_transaction_holds_up_those_who_want_committed_records_and_nobody_else(
    bootstrap: str, topic: str
) -> None:
    producer, plain = a_producer(bootstrap, topic), Producer({"bootstrap.servers": bootstrap})
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(TIMEOUT_S)
    plain.produce(topic, b"after", partition=0)
    plain.flush(TIMEOUT_S)
    assert read(bootstrap, topic, COMMITTED) == []
    assert read(bootstrap, topic, UNCOMMITTED) == [b"open", b"after"]
    producer.commit_transaction(TIMEOUT_S)
    assert read(bootstrap, topic, COMMITTED) == [b"open", b"after"]


def test_transactions_may_be_empty(bootstrap: str, topic: str) -> None:
    producer = a_producer(bootstrap, topic)
    for _ in range(3):
        producer.begin_transaction()
        producer.commit_transaction(TIMEOUT_S)
        producer.begin_transaction()
        producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    assert read(bootstrap, topic, COMMITTED) == [b"a"]


def test_offsets_are_committed_with_the_records_or_not_at_all(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = a_producer(bootstrap, topic)
    try:
        for offset, commits in [(5, False), (7, True), (9, False)]:
            producer.begin_transaction()
            producer.produce(topic, b"%d" % offset, partition=1)
            results = [TopicPartition(topic, 0, offset)]
            producer.send_offsets_to_transaction(results, consumer.consumer_group_metadata(), TIMEOUT_S)
            (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_S)
    finally:
        consumer.close()
    assert committed(bootstrap, group, topic) == 7
    assert read(bootstrap, topic, COMMITTED, partition=1) == [b"7"]


def test_a_second_producer_fences_the_first(bootstrap: str, topic: str) -> None:
    first = a_producer(bootstrap, topic)
    first.begin_transaction()
    first.produce(topic, b"of the first", partition=0)
    first.flush(TIMEOUT_S)
    second = a_producer(bootstrap, topic)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=0)
    second.commit_transaction(TIMEOUT_S)
    assert read(bootstrap, topic, COMMITTED) == [b"of the second"]


def test_a_transaction_that_takes_too_long_is_aborted(bootstrap: str, topic: str) -> None:
    settings: dict[str, object] = {"transaction.timeout.ms": 1000, "message.timeout.ms": 1000}
    producer = a_producer(bootstrap, topic, **settings)
    producer.begin_transaction()
    producer.produce(topic, b"slow", partition=0)
    producer.flush(TIMEOUT_S)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"after", partition=0)
    plain.flush(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while not (seen := read(bootstrap, topic, COMMITTED)) and time.monotonic() < deadline:
        pass
    assert seen == [b"after"]
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()


def test_records_are_moved_from_topic_to_topic_once_each(bootstrap: str, topic: str) -> None:
    """Consume, transform, produce, by workers that die between two steps of a transaction."""
    group = f"movers-of-{topic}"
    feed = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        feed.produce(topic, b"%d" % number, partition=0)
    feed.flush(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    for worker in range(100):
        # Being the producer aborts what the worker before left open; until then its offsets are nobody's to know.
        producer = a_producer(bootstrap, topic)
        if (start := max(committed(bootstrap, group, topic), 0)) >= COUNT:
            break
        assert time.monotonic() < deadline
        move(bootstrap, topic, group, start, producer, dies_at=worker % 4)
    assert read(bootstrap, topic, COMMITTED, partition=1) == [b"%d" % number for number in range(COUNT)]


def move(bootstrap: str, topic: str, group: str, start: int, producer: Producer, *, dies_at: int) -> None:
    """Two transactions of five records each; a worker that dies leaves the second as it is at that step."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "isolation.level": COMMITTED})
    consumer.assign([TopicPartition(topic, 0, start)])
    try:
        for turn in range(min(2, (COUNT - start) // 5)):
            records = consumer.consume(5, TIMEOUT_S)
            last = turn == 1
            producer.begin_transaction()
            for record in records:
                producer.produce(topic, record.value(), partition=1)
            if last and dies_at == 0:
                return
            producer.flush(TIMEOUT_S)
            if last and dies_at == 1:
                return
            place = [TopicPartition(topic, 0, start + 5 * (turn + 1))]
            producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), TIMEOUT_S)
            if last and dies_at == 2:
                return
            producer.commit_transaction(TIMEOUT_S)
    finally:
        consumer.close()


# --- aiokafka


async def test_aiokafka_commits_aborts_and_is_fenced(bootstrap: str, topic: str) -> None:
    async def begun() -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        await producer.start()
        return producer

    first = await begun()
    group = f"group-of-{topic}"
    async with asyncio.timeout(TIMEOUT_S):
        async with first.transaction():
            await first.send_and_wait(topic, b"a", partition=0)
            await first.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 1): 3}, group)
        await first.begin_transaction()
        await first.send_and_wait(topic, b"b", partition=0)
        await first.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 1): 4}, group)
        await first.abort_transaction()
        async with first.transaction():
            await first.send_and_wait(topic, b"c", partition=0)
        second = await begun()
        with pytest.raises(aiokafka.errors.ProducerFenced):
            async with first.transaction():
                await first.send_and_wait(topic, b"d", partition=0)
        await first.stop()
        await second.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level=COMMITTED,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        seen = [(await consumer.getone()).value for _ in range(2)]
        place = await consumer.committed(aiokafka.TopicPartition(topic, 1))
        await consumer.stop()
    assert (seen, place) == ([b"a", b"c"], 3)
    assert await asyncio.to_thread(read, bootstrap, topic, COMMITTED) == [b"a", b"c"]


# --- kafka-python


def test_kafka_python_commits_and_aborts(bootstrap: str, topic: str) -> None:
    group = f"group-of-{topic}"
    with closing(kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0)
            place = {kafka.TopicPartition(topic, 1): kafka.structs.OffsetAndMetadata(value[0], "", -1)}
            producer.send_offsets_to_transaction(place, kafka.ConsumerGroupMetadata(group))
            producer.flush(TIMEOUT_S)
            (producer.commit_transaction if commits else producer.abort_transaction)()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level=COMMITTED,
        auto_offset_reset="earliest",
        consumer_timeout_ms=2000,
        enable_auto_commit=False,
    )
    with closing(consumer):
        consumer.assign([kafka.TopicPartition(topic, 0)])
        seen = values(consumer, 2)
        assert consumer.committed(kafka.TopicPartition(topic, 1)) == b"c"[0]
    assert seen == [b"a", b"c"]


def values(consumer: "kafka.KafkaConsumer", count: int) -> Sequence[bytes]:
    results: list[bytes] = []
    for record in consumer:
        results.append(record.value)
        if len(results) == count:
            break
    return results
