"""Consumers: groups of librdkafka's and of aiokafka's, which commit what they have read; and somebody who asks.

Data path   agents -> **consumers** -> history
Owns        one `Consumed` per record, one `Commit` per partition and commit, one `Observed` per answer; reading it all
Leaves      judging to `checker`

A member commits only offsets up to which it has read itself, in the assignment that it has.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from .history import Commit, Consumed, History, Observed, Stored, parse_value
from .producers import TOPIC

COMMIT_EVERY_S: Final = 1.0
ASK_EVERY_S: Final = 0.5
SESSION_MS: Final = 6000
READ_TIMEOUT_S: Final = 60.0
CALL_TIMEOUT_S: Final = 10.0


class Diary:
    """What one member has read and committed."""

    def __init__(self, group: str, member: str, history: History, now: Callable[[], float]) -> None:
        self.group = group
        self.member = member
        self._history = history
        self._now = now
        self.unsaved: dict[int, int] = {}
        """partition -> the offset behind the last record that was read"""

    def read(self, partition: int, offset: int, value: bytes | None) -> None:
        record = parse_value(value)
        self._history.consumed.append(Consumed(self._now(), self.group, self.member, partition, offset, record))
        self.unsaved[partition] = offset + 1

    def begin_commit(self) -> list[Commit]:
        sent_at = self._now()
        commits = [
            Commit(group=self.group, member=self.member, partition=partition, offset=offset, sent_at=sent_at)
            for partition, offset in self.unsaved.items()
        ]
        self._history.commits += commits
        return commits

    def answer(self, commits: list[Commit], refused: Mapping[int, bool]) -> None:
        """What became of them: `refused` says of a partition whether it was, and nothing if nobody knows."""
        answered_at = self._now()
        for commit in commits:
            if commit.partition in refused:
                commit.answered_at, commit.accepted = answered_at, not refused[commit.partition]
                if commit.accepted and self.unsaved.get(commit.partition) == commit.offset:
                    del self.unsaved[commit.partition]

    def forget(self, partitions: list[int]) -> None:
        for partition in partitions:
            self.unsaved.pop(partition, None)


class LibrdkafkaConsumer(threading.Thread):
    def __init__(self, diary: Diary, bootstrap: str) -> None:
        super().__init__(name=diary.member, daemon=True)
        self._diary = diary
        self._stopping = threading.Event()
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": diary.group,
            "client.id": diary.member,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 1000,
            "socket.timeout.ms": 8000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC], on_revoke=self._on_revoke, on_lost=self._on_lost)
        committed_at = time.monotonic()
        try:
            while not self._stopping.is_set():
                for message in consumer.consume(num_messages=200, timeout=0.1):
                    if message.error() is None:
                        self._diary.read(*_place(message))
                if time.monotonic() - committed_at > COMMIT_EVERY_S:
                    self._commit(consumer)
                    committed_at = time.monotonic()
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        commits = self._diary.begin_commit()
        if not commits:
            return
        expected = [TopicPartition(TOPIC, each.partition, each.offset) for each in commits]
        try:
            responses = consumer.commit(offsets=expected, asynchronous=False)
        except KafkaException:
            return  # also when every partition was refused, or the answer was lost: it may have happened
        self._diary.answer(commits, {part.partition: part.error is not None for part in responses or ()})

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(consumer)
        self._diary.forget([part.partition for part in partitions])

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._diary.forget([part.partition for part in partitions])

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, READ_TIMEOUT_S)


class AiokafkaConsumer(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, diary: Diary, bootstrap: str) -> None:
        self._diary = diary
        self._bootstrap = bootstrap
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._diary.member)

    def stop(self) -> None:
        self._stopping = True

    async def finished(self) -> None:
        assert self._task is not None
        await asyncio.wait([self._task], timeout=READ_TIMEOUT_S)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self._diary.group,
            client_id=self._diary.member,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1000,
            metadata_max_age_ms=3000,
            request_timeout_ms=8000,
            retry_backoff_ms=50,
        )
        await self._consumer.start()
        self._consumer.subscribe([TOPIC], listener=self)
        committed_at = time.monotonic()
        try:
            while not self._stopping:
                with suppress(AiokafkaError):
                    result = await self._consumer.getmany(timeout_ms=100)
                    for message in (each for messages in result.values() for each in messages):
                        self._diary.read(message.partition, message.offset, message.value)
                if time.monotonic() - committed_at > COMMIT_EVERY_S:
                    await self._commit()
                    committed_at = time.monotonic()
        finally:
            with suppress(AiokafkaError, OSError, TimeoutError):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await self._consumer.stop()

    async def _commit(self) -> None:
        commits = self._diary.begin_commit()
        if not commits:
            return
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._consumer.commit({AiokafkaPartition(TOPIC, each.partition): each.offset for each in commits})
        except (AiokafkaError, TimeoutError, ValueError):
            return  # it may have happened
        self._diary.answer(commits, {each.partition: False for each in commits})

    async def on_partitions_revoked(self, revoked: list[Any]) -> None:
        await self._commit()
        self._diary.forget([part.partition for part in revoked])

    async def on_partitions_assigned(self, assigned: list[Any]) -> None:
        self._diary.forget([part.partition for part in assigned])


class Auditor(threading.Thread):
    """Asks, again and again, what is committed."""

    def __init__(self, group: str, bootstrap: str, history: History, now: Callable[[], float]) -> None:
        super().__init__(name=f"auditor of {group}", daemon=True)
        self._group = group
        self._history = history
        self._now = now
        self._servers = bootstrap
        self._stopping = threading.Event()

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "socket.timeout.ms": 8000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        expected = [TopicPartition(TOPIC, number) for number in range(self._history.partitions)]
        while not self._stopping.wait(ASK_EVERY_S):
            sent_at = self._now()
            with suppress(KafkaException):
                for part in consumer.committed(expected, timeout=CALL_TIMEOUT_S):
                    if part.error is None:
                        offset = max(part.offset, -1)
                        self._history.observed.append(
                            Observed(sent_at, self._now(), self._group, part.partition, offset)
                        )
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, READ_TIMEOUT_S)


AnyConsumer = LibrdkafkaConsumer | AiokafkaConsumer | Auditor
GROUPS: Final = {"librdkafka": 3, "aiokafka": 2}


def make_consumers(history: History, now: Callable[[], float], bootstrap: str) -> Iterator[AnyConsumer]:
    for number in range(1, GROUPS["librdkafka"] + 1):
        yield LibrdkafkaConsumer(Diary("librdkafka", f"librdkafka-{number}", history, now), bootstrap)
    for number in range(1, GROUPS["aiokafka"] + 1):
        yield AiokafkaConsumer(Diary("aiokafka", f"aiokafka-{number}", history, now), bootstrap)
    for group in GROUPS:
        yield Auditor(group, bootstrap, history, now)


def read_log(bootstrap: str, partitions: int, topic: str = TOPIC) -> dict[int, list[Stored]]:
    """Every record of the topic, from zero to the end, in the order in which a consumer gets them. Blocks."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader of everything", "log_level": 0})
    try:
        starts = [TopicPartition(topic, number, 0) for number in range(partitions)]
        ends = {part.partition: _end_of(consumer, part) for part in starts}
        consumer.assign(starts)
        results: dict[int, list[Stored]] = {number: [] for number in range(partitions)}
        missing = {number for number, end in ends.items() if end > 0}
        deadline = time.monotonic() + READ_TIMEOUT_S
        while missing and time.monotonic() < deadline:
            for message in consumer.consume(num_messages=1000, timeout=0.2):
                if message.error() is not None:
                    continue
                deadline = time.monotonic() + READ_TIMEOUT_S
                partition, offset, value = _place(message)
                results[partition].append(Stored(offset, parse_value(value)))
                if offset + 1 >= ends[partition]:
                    missing.discard(partition)
        return results
    finally:
        consumer.close()


def _end_of(consumer: Consumer, part: TopicPartition) -> int:
    """Asked again while agents that have just started find out who leads."""
    deadline = time.monotonic() + READ_TIMEOUT_S
    while True:
        try:
            end: int = consumer.get_watermark_offsets(part, timeout=CALL_TIMEOUT_S)[1]
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return end


def _place(message: Message) -> tuple[int, int, bytes | None]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    return partition, offset, value if isinstance(value, bytes) else None
