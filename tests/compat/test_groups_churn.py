"""Fifty members come and go while producers write, and an agent is killed under its groups: nothing is lost."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest

from tests.compat.clients import TIMEOUT_S, Confluent, Sent
from tests.support.agent import LiveAgent

PARTITIONS = 12
SIZES = (10, 50, 15, 50, *[20, 21] * 6, 3)
"""How many members there are, stage by stage."""
PER_STAGE = 300
CHURN_S = 150.0


class Book:
    """What members did: who had which partition, and what was read of it in each turn."""

    def __init__(self) -> None:
        self.read: Counter[tuple[int, int]] = Counter()
        self.wrong: list[str] = []
        self._owner: dict[int, str] = {}
        self._next: dict[tuple[str, int, int], int] = {}
        self._turn: Counter[str] = Counter()

    def assigned(self, name: str, partitions: Iterable[int]) -> None:
        self._turn[name] += 1
        for partition in partitions:
            if (owner := self._owner.get(partition)) is not None:
                self.wrong.append(f"partition {partition} was given to {name} while {owner} had it")
            self._owner[partition] = name

    def has_joined(self, name: str) -> bool:
        return self._turn[name] > 0

    def revoked(self, name: str) -> None:
        for partition in [partition for partition, owner in self._owner.items() if owner == name]:
            del self._owner[partition]

    def note(self, name: str, partition: int, offset: int) -> None:
        """Within one turn of one member every offset is read once, and none is left out."""
        turn = (name, self._turn[name], partition)
        expected = self._next.get(turn, offset)
        if offset != expected:
            self.wrong.append(f"{name} read {offset} of partition {partition} instead of {expected}")
        self._next[turn] = offset + 1
        self.read[partition, offset] += 1


class Turns(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, book: Book, name: str) -> None:
        self._book, self._name = book, name

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._book.revoked(self._name)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._book.assigned(self._name, [part.partition for part in assigned])


class Member:
    def __init__(self, name: str, bootstrap: str, topic: str, book: Book) -> None:
        self.name = name
        self._book = book
        self._stop = asyncio.Event()
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=name,
            group_id="churn",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=60_000,  # nobody here is ever slow on purpose
        )
        self._consumer.subscribe([topic], listener=Turns(book, name))
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._consumer:
            while not self._stop.is_set():
                result = await self._consumer.getmany(timeout_ms=200, max_records=50)
                done = {}
                for part, records in result.items():
                    for record in records:
                        self._book.note(self.name, part.partition, record.offset)
                    done[part] = records[-1].offset + 1
                if done:
                    # What the group has taken away meanwhile is read again by somebody else.
                    with suppress(aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError):
                        await self._consumer.commit(done)
            self._book.revoked(self.name)

    async def leave(self) -> None:
        self._stop.set()
        await self.task


class Writer:
    """Writes numbered records into all partitions until it is stopped; `ends` are the acknowledged ends."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        self._topic = topic
        self._stop = asyncio.Event()
        self.ends: dict[int, int] = defaultdict(int)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._producer:
            while not self._stop.is_set():
                sent = [
                    await self._producer.send(self._topic, b"x", partition=number)
                    for number in range(PARTITIONS)
                    for _ in range(5)
                ]
                for promise in sent:
                    stored = await promise
                    self.ends[stored.partition] = max(self.ends[stored.partition], stored.offset + 1)

    async def stop(self) -> None:
        self._stop.set()
        await self.task


async def until(condition: Callable[[], bool], tasks: Iterable["asyncio.Task[None]"], what: str) -> None:
    deadline = time.monotonic() + CHURN_S
    while not condition():
        for task in tasks:
            if task.done():
                task.result()
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.02)


async def test_members_come_and_go_and_every_record_is_processed(group_bootstrap: str, topic: str) -> None:
    chance = random.Random(1)
    await asyncio.to_thread(Confluent(group_bootstrap).create, topic, PARTITIONS)
    book, writer, members, started = Book(), Writer(group_bootstrap, topic), list[Member](), 0
    for size in SIZES:
        while len(members) < size:
            started += 1
            members.append(Member(f"m{started}", group_bootstrap, topic, book))
        leaving = [members.pop(chance.randrange(len(members))) for _ in range(len(members) - size)]
        await asyncio.gather(*(member.leave() for member in leaving))
        goal = len(book.read) + PER_STAGE
        running = [writer.task, *(member.task for member in members)]
        await until(lambda: all(book.has_joined(member.name) for member in members), running, f"{size} members join")
        await until(lambda goal=goal: len(book.read) >= goal, running, f"{size} members read")  # type: ignore[misc]
    await writer.stop()
    everything = {(number, offset) for number, end in writer.ends.items() for offset in range(end)}
    running = [member.task for member in members]
    await until(lambda: set(book.read) >= everything, running, "the last records")
    await asyncio.gather(*(member.leave() for member in members))
    assert book.wrong == []
    assert set(book.read) == everything
    assert len(everything) >= PER_STAGE * len(SIZES)


# --- an agent that is killed


def positions(consumer: confluent_kafka.Consumer, topic: str) -> dict[int, int]:
    requests = [confluent_kafka.TopicPartition(topic, number) for number in range(4)]
    return {part.partition: part.offset for part in consumer.committed(requests, timeout=TIMEOUT_S)}


@pytest.fixture
def doomed(tmp_path: Path) -> Iterable[LiveAgent]:
    with LiveAgent(tmp_path / "data", "--set", "groups.initial_rebalance_delay_s=0") as agent:
        yield agent


def test_committed_offsets_and_generations_survive_kill_9(doomed: LiveAgent, topic: str) -> None:
    clients = Confluent(doomed.bootstrap)
    clients.create(topic, 4)
    rounds: list[str] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": doomed.bootstrap,
            "group.id": "survivor",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    consumer.subscribe(
        [topic], on_assign=lambda *_: rounds.append("assigned"), on_revoke=lambda *_: rounds.append("revoked")
    )
    read: list[bytes] = []
    for life in range(3):
        values = [b"%d-%d" % (life, n) for n in range(200)]
        clients.produce(topic, [Sent(key=None, value=value) for value in values], codec="none")
        deadline = time.monotonic() + TIMEOUT_S
        while len(read) < 200 * (life + 1):
            assert time.monotonic() < deadline, f"read {len(read)} in life {life}"
            for message in consumer.consume(50, timeout=0.5):
                assert message.error() is None, message.error()
                value = message.value()
                assert isinstance(value, bytes)
                read.append(value)
                consumer.commit(message=message, asynchronous=False) if len(read) % 50 == 0 else None
        committed = positions(consumer, topic)
        assert committed[0] == 200 * (life + 1)
        doomed.kill()
        doomed.start()
        assert positions(consumer, topic) == committed
    assert read == [b"%d-%d" % (life, n) for life in range(3) for n in range(200)]
    assert rounds == ["assigned"]
    consumer.close()
