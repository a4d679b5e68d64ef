"""Groups through confluent-kafka, kafka-python and aiokafka, unchanged: sharing, committing, static members."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.cimpl import NewPartitions

from tests.compat.clients import TIMEOUT_S, Confluent, KafkaPython, Sent

COUNT = 600
PARTITIONS = 4


@pytest.fixture
def group(topic: str) -> str:
    return f"{topic}-group"


@pytest.fixture
def filled(group_bootstrap: str, topic: str) -> str:
    """A topic with numbered values in all its partitions."""
    Confluent(group_bootstrap).create(topic, PARTITIONS)
    fill(group_bootstrap, topic, range(COUNT))
    return topic


def fill(bootstrap: str, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in numbers:
        producer.produce(topic, value=b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def admin(bootstrap: str) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})


def state_of(bootstrap: str, group: str) -> str:
    client = admin(bootstrap)  # kept, because its answers go with it
    described = client.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    name: str = described.state.name
    return name


def committed(bootstrap: str, group: str) -> dict[int, int]:
    requests = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
    client = admin(bootstrap)
    result = client.list_consumer_group_offsets(requests)[group].result(TIMEOUT_S)
    return {part.partition: part.offset for part in result.topic_partitions}


def number_of(message: Message) -> int:
    assert message.error() is None, message.error()
    value = message.value()
    assert isinstance(value, bytes)
    return int(value)


# --- confluent-kafka


def a_consumer(bootstrap: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 10_000,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )


def poll_all(consumers: list[Consumer], until: Callable[[], bool], seen: "Counter[int]") -> None:
    """Serve all of them in turn; a group that never gets there fails here."""
    for _ in range(int(TIMEOUT_S / 0.02)):
        for consumer in consumers:
            seen.update(map(number_of, consumer.consume(200, timeout=0.02)))
        if until():
            return
    raise AssertionError(f"waited in vain; read={len(seen)} shares={[len(c.assignment()) for c in consumers]}")


@contextmanager
def closed_later() -> Iterator[Callable[[Consumer], Consumer]]:
    with ExitStack() as stack:
        yield lambda consumer: stack.enter_context(closing(consumer))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_consumers_share_come_and_go(group_bootstrap: str, filled: str, group: str, strategy: str) -> None:
    seen: Counter[int] = Counter()
    consumers = [a_consumer(group_bootstrap, group, partition_assignment_strategy=strategy) for _ in range(4)]

    def shares() -> list[int]:
        return sorted(len(consumer.assignment()) for consumer in consumers)

    for consumer in consumers:
        consumer.subscribe([filled])
    poll_all(consumers, lambda: shares() == [1, 1, 1, 1] and len(seen) == COUNT, seen)
    consumers.pop().close()
    consumers.pop().close()
    poll_all(consumers, lambda: shares() == [2, 2], seen)
    fill(group_bootstrap, filled, range(COUNT, 2 * COUNT))
    poll_all(consumers, lambda: len(seen) == 2 * COUNT, seen)
    for consumer in consumers:
        consumer.close()
    assert state_of(group_bootstrap, group) == "EMPTY"  # closing left the group, and committed what was read
    assert committed(group_bootstrap, group) == dict.fromkeys(range(PARTITIONS), 2 * COUNT // PARTITIONS)


def test_a_cooperative_member_keeps_reading_what_it_keeps(group_bootstrap: str, filled: str, group: str) -> None:
    """Of four partitions two move to the newcomer; the other two are never taken away."""
    revoked: list[int] = []
    strategy = "cooperative-sticky"
    seen: Counter[int] = Counter()
    with closed_later() as opened:
        first = opened(a_consumer(group_bootstrap, group, partition_assignment_strategy=strategy))
        first.subscribe([filled], on_revoke=lambda _, parts: revoked.extend(part.partition for part in parts))
        poll_all([first], lambda: len(first.assignment()) == PARTITIONS, seen)
        second = opened(a_consumer(group_bootstrap, group, partition_assignment_strategy=strategy))
        second.subscribe([filled])
        poll_all([first, second], lambda: len(second.assignment()) == len(first.assignment()) == 2, seen)
        assert len(revoked) == 2
        assert not set(revoked) & {part.partition for part in first.assignment()}


def test_a_static_member_comes_back_without_a_rebalance(group_bootstrap: str, filled: str, group: str) -> None:
    rounds: list[str] = []
    seen: Counter[int] = Counter()
    with closed_later() as opened:
        stays = opened(a_consumer(group_bootstrap, group, group_instance_id="stays"))
        stays.subscribe(
            [filled],
            on_assign=lambda *_: rounds.append("assigned"),
            on_revoke=lambda *_: rounds.append("revoked"),
        )
        restarts = a_consumer(group_bootstrap, group, group_instance_id="restarts")
        restarts.subscribe([filled])
        poll_all([stays, restarts], lambda: len(stays.assignment()) == len(restarts.assignment()) == 2, seen)
        before, had = list(rounds), restarts.assignment()
        restarts.close()
        again = opened(a_consumer(group_bootstrap, group, group_instance_id="restarts"))
        again.subscribe([filled])
        poll_all([stays, again], lambda: len(again.assignment()) == 2, seen)
        assert {part.partition for part in again.assignment()} == {part.partition for part in had}
        assert rounds == before


def test_a_second_consumer_of_the_same_name_fences_the_first(group_bootstrap: str, filled: str, group: str) -> None:
    seen: Counter[int] = Counter()
    with closed_later() as opened:
        old = opened(a_consumer(group_bootstrap, group, group_instance_id="one"))
        old.subscribe([filled])
        poll_all([old], lambda: len(old.assignment()) == PARTITIONS, seen)
        new = opened(a_consumer(group_bootstrap, group, group_instance_id="one"))
        new.subscribe([filled])
        poll_all([new], lambda: len(new.assignment()) == PARTITIONS, seen)
        results = [error for message in old.consume(1000, timeout=5) if (error := message.error()) is not None]
        assert {error.code() for error in results} == {confluent_kafka.KafkaError._FATAL}


def test_manual_commits_are_found_by_the_next_consumer(group_bootstrap: str, filled: str, group: str) -> None:
    with closing(a_consumer(group_bootstrap, group, enable_auto_commit=False)) as consumer:
        consumer.subscribe([filled])
        while (message := consumer.poll(TIMEOUT_S)) is None or message.partition() != 0:
            assert message is not None
        consumer.commit(message=message, asynchronous=False)
        requests = [confluent_kafka.TopicPartition(filled, number) for number in range(PARTITIONS)]
        result = consumer.committed(requests, timeout=TIMEOUT_S)
        offset = message.offset()
        assert offset is not None
        assert [part.offset for part in result] == [offset + 1, *[confluent_kafka.OFFSET_INVALID] * 3]
    seen: Counter[int] = Counter()
    with closing(a_consumer(group_bootstrap, group)) as consumer:
        consumer.subscribe([filled])
        left = COUNT - (offset + 1)
        poll_all([consumer], lambda: len(seen) >= left, seen)
    assert len(seen) == sum(seen.values()) == left


def test_the_admin_client_sees_moves_and_deletes_groups(group_bootstrap: str, filled: str, group: str) -> None:
    seen: Counter[int] = Counter()
    client = admin(group_bootstrap)
    consumer = a_consumer(group_bootstrap, group, client_id="seen")
    consumer.subscribe([filled])
    poll_all([consumer], lambda: len(seen) == COUNT, seen)
    described = client.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    (member,) = described.members
    assert (described.state.name, described.partition_assignor, member.client_id) == ("STABLE", "range", "seen")
    assert {part.partition for part in member.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        client.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    consumer.close()
    states = {confluent_kafka.ConsumerGroupState.EMPTY}
    listed = client.list_consumer_groups(states=states).result(TIMEOUT_S)
    assert group in {each.group_id for each in listed.valid}
    to = [confluent_kafka.TopicPartition(filled, 0, 7)]
    moved = confluent_kafka.ConsumerGroupTopicPartitions(group, to)
    client.alter_consumer_group_offsets([moved])[group].result(TIMEOUT_S)
    assert committed(group_bootstrap, group)[0] == 7
    client.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert committed(group_bootstrap, group) == {}


# --- kafka-python


def test_kafka_python_consumers_share_and_commit(group_bootstrap: str, filled: str, group: str) -> None:
    seen: list[int] = []
    enough = threading.Event()

    def member() -> None:
        with closing(KafkaPython(group_bootstrap).member(filled, group)) as consumer:
            while not enough.is_set():
                for batch in consumer.poll(timeout_ms=100).values():
                    seen.extend(int(record.value) for record in batch)
                if len(set(seen)) == COUNT:
                    enough.set()

    members = [threading.Thread(target=member, daemon=True) for _ in range(3)]
    for thread in members:
        thread.start()
    assert enough.wait(TIMEOUT_S)
    for thread in members:
        thread.join(TIMEOUT_S)
    assert state_of(group_bootstrap, group) == "EMPTY"
    assert committed(group_bootstrap, group) == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)


# --- aiokafka


async def test_aiokafka_consumers_share_and_commit(group_bootstrap: str, filled: str, group: str) -> None:
    seen: list[int] = []

    async def member() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            filled,
            bootstrap_servers=group_bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        async with consumer:
            while len(set(seen)) < COUNT:
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    seen.extend(int(record.value or b"") for record in batch)
                if consumer.assignment():
                    await consumer.commit()

    async with asyncio.timeout(TIMEOUT_S):
        await member()  # alone: every record once
    assert sorted(seen) == list(range(COUNT))
    assert committed(group_bootstrap, group) == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
    assert state_of(group_bootstrap, group) == "EMPTY"


def test_a_topic_that_grows_is_read_whole(group_bootstrap: str, topic: str, group: str) -> None:
    """Consumers find out by themselves."""
    client = Confluent(group_bootstrap)
    client.create(topic, 1)
    client.produce(topic, [Sent(key=None, value=b"0")], codec="none")
    seen: Counter[int] = Counter()
    with closing(a_consumer(group_bootstrap, group, topic_metadata_refresh_interval_ms=200)) as consumer:
        consumer.subscribe([topic])
        poll_all([consumer], lambda: len(seen) == 1, seen)
        new = NewPartitions(topic, 2)
        administrator = admin(group_bootstrap)
        administrator.create_partitions([new])[topic].result(TIMEOUT_S)
        poll_all([consumer], lambda: len(consumer.assignment()) == 2, seen)
