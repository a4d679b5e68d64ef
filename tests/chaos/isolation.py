"""Isolation: readers of committed records, while everything happens and at the end; and whoever asks for offsets.

Data path   agents -> **isolation** -> history
Owns        one `Seen` per record and reader, the views of both levels, waiting until nothing is open any more
Leaves      judging to `checker`
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from .consumers import ASK_EVERY_S, CALL_TIMEOUT_S, READ_TIMEOUT_S
from .history import History, Note
from .transactions import COPIERS, DEALS, TOPICS, Kept, Seen, Told, View, parse_entry

LEVELS: Final = ("read_committed", "read_uncommitted")
PAUSE_BETWEEN_S: Final = 6.0
SETTLE_S: Final = 60.0
POLL_S: Final = 0.1
FOLLOWER: Final = "follower"
AIOKAFKA: Final = "aiokafka"
FOLLOWERS: Final = (FOLLOWER, AIOKAFKA)


def settings_of(bootstrap: str, level: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": COPIERS if level == "" else "reader of transactions",
        "isolation.level": level or "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "socket.timeout.ms": 8000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }


class LibrdkafkaReader(threading.Thread):
    """Reads from zero and follows, or stops at the end and starts over."""

    def __init__(self, history: History, now: Callable[[], float], bootstrap: str, *, follows: bool) -> None:
        super().__init__(name=FOLLOWER if follows else "rereader", daemon=True)
        self._history = history
        self._now = now
        self._servers = bootstrap
        self._follows = follows
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, READ_TIMEOUT_S)

    def run(self) -> None:
        passes = 0
        while not self._stopping.is_set():
            passes += 1
            self._read(self.name if self._follows else f"{self.name}/{passes}")
            self._stopping.wait(PAUSE_BETWEEN_S)

    def _read(self, reader: str) -> None:
        consumer = Consumer(settings_of(self._servers, "read_committed"))
        ends: set[tuple[str, int]] = set()
        expected = all_partitions(self._history.transactional.partitions)
        try:
            consumer.assign(expected)
            while not self._stopping.is_set() and (self._follows or len(ends) < len(expected)):
                for message in consumer.consume(num_messages=200, timeout=0.1):
                    place, offset, error = *_place(message), message.error()
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF:
                            ends.add(place)
                        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                            self._history.troubles.append(Note(self._now(), reader, f"{place}: {error}"))
                        continue
                    seen = Seen(self._now(), reader, *place, offset, parse_entry(message.value()))
                    self._history.transactional.seen.append(seen)
        finally:
            consumer.close()


class AiokafkaReader:
    """The same, with another library that leaves out by itself what was aborted."""

    def __init__(self, history: History, now: Callable[[], float], bootstrap: str) -> None:
        self._history = history
        self._now = now
        self._servers = bootstrap
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="aiokafka follower")

    def stop(self) -> None:
        self._stopping = True

    async def finished(self) -> None:
        assert self._task is not None
        await asyncio.wait([self._task], timeout=READ_TIMEOUT_S)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            metadata_max_age_ms=3000,
            request_timeout_ms=8000,
            retry_backoff_ms=50,
        )
        await consumer.start()
        try:
            expected = [
                AiokafkaPartition(each.topic, each.partition)
                for each in all_partitions(self._history.transactional.partitions)
            ]
            consumer.assign(expected)
            for each in expected:
                consumer.seek(each, 0)
            while not self._stopping:
                with suppress(AiokafkaError):
                    result = await consumer.getmany(timeout_ms=100)
                    for message in (each for messages in result.values() for each in messages):
                        place = message.topic, message.partition, message.offset
                        seen = Seen(self._now(), AIOKAFKA, *place, parse_entry(message.value))
                        self._history.transactional.seen.append(seen)
        finally:
            with suppress(AiokafkaError, OSError, TimeoutError):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await consumer.stop()


class StableAuditor(threading.Thread):
    """Asks, again and again, what transactions have committed for the copiers."""

    def __init__(self, history: History, now: Callable[[], float], bootstrap: str) -> None:
        super().__init__(name="auditor of copiers", daemon=True)
        self._history = history
        self._now = now
        self._servers = bootstrap
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, READ_TIMEOUT_S)

    def run(self) -> None:
        consumer = Consumer(settings_of(self._servers, ""))
        expected = [TopicPartition(DEALS, number) for number in range(self._history.transactional.partitions)]
        while not self._stopping.wait(ASK_EVERY_S):
            sent_at = self._now()
            with suppress(KafkaException):
                for part in consumer.committed(expected, timeout=CALL_TIMEOUT_S):
                    if part.error is None:
                        result = Told(sent_at, self._now(), part.partition, max(part.offset, -1))
                        self._history.transactional.told.append(result)
        consumer.close()


AnyReader = LibrdkafkaReader | AiokafkaReader | StableAuditor


def make_readers(history: History, now: Callable[[], float], bootstrap: str) -> Iterator[AnyReader]:
    for follows in (True, False):
        yield LibrdkafkaReader(history, now, bootstrap, follows=follows)
    yield AiokafkaReader(history, now, bootstrap)
    yield StableAuditor(history, now, bootstrap)


# --- at the end ---------------------------------------------------------------------------------------------------


def wait_until_stable(bootstrap: str, partitions: int) -> dict[str, float | None]:
    """How long it takes until committed records are all records, by partition; blocks, for a minute at most."""
    stable, everything = (Consumer(settings_of(bootstrap, level)) for level in LEVELS)
    begun = time.monotonic()
    waited: dict[str, float | None] = {}
    left = all_partitions(partitions)
    try:
        while left and time.monotonic() - begun < SETTLE_S:
            for part in tuple(left):
                with suppress(KafkaException):
                    end = everything.get_watermark_offsets(part, timeout=CALL_TIMEOUT_S)[1]
                    if stable.get_watermark_offsets(part, timeout=CALL_TIMEOUT_S)[1] >= end:
                        waited[f"{part.topic}/{part.partition}"] = time.monotonic() - begun
                        left.remove(part)
            time.sleep(POLL_S)
        return waited | dict.fromkeys(f"{part.topic}/{part.partition}" for part in left)
    finally:
        stable.close()
        everything.close()


def read_views(bootstrap: str, partitions: int) -> tuple[View, View]:
    """What is committed, and everything."""
    committed, everything = (_read_view(bootstrap, partitions, level) for level in LEVELS)
    return committed, everything


def _read_view(bootstrap: str, partitions: int, level: str) -> View:
    consumer = Consumer(settings_of(bootstrap, level))
    view: View = {topic: {number: [] for number in range(partitions)} for topic in TOPICS}
    expected = all_partitions(partitions)
    ends: set[tuple[str, int]] = set()
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        consumer.assign(expected)
        while len(ends) < len(expected):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{level} did not come to the end of all partitions")
            for message in consumer.consume(num_messages=1000, timeout=0.2):
                (topic, partition), offset, error = *_place(message), message.error()
                if error is None:
                    deadline = time.monotonic() + READ_TIMEOUT_S
                    view[topic][partition].append(Kept(offset, parse_entry(message.value())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.add((topic, partition))
        return view
    finally:
        consumer.close()


def _place(message: Message) -> tuple[tuple[str, int], int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    return (topic, partition), -1 if offset is None else offset


def all_partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number, 0) for topic in TOPICS for number in range(count)]
