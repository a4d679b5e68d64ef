"""Copying: what others have committed is read, written to another topic, and its offsets committed with it: once.

Data path   agents -> **copying** -> agents; what was told -> history
Owns        the loop of consume, transform and produce; instances that are replaced while they are at work
Leaves      ending transactions to `transacting`; judging to `checker`

The group's metadata is taken when partitions are assigned, and goes with every transaction about them: who reads on
with partitions that were given to somebody else is refused. A batch that met a rebalance is dropped, for everything is
read from the committed offsets again.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from .history import History
from .producers import close_logger, file_logger
from .transacting import (
    CALL_S,
    FINISH_S,
    IMPATIENCE_S,
    PATIENCE_S,
    TIMEOUT_S,
    Broken,
    Diary,
    conclude,
    give_up,
    patiently,
    transactional_settings,
)
from .transactions import COMMITTED, COPIERS, COPIES, DEALS, Deal

BATCH: Final = 20
SESSION_MS: Final = 6000
MAX_POLL_MS: Final = 10_000
REPLACED_S: Final = (6.0, 20.0)
RETIRED_S: Final = 15.0
SLOTS: Final = 2
LEAVE_S: Final = 10.0
FREEZES: Final = 0.08
IMPATIENT: Final = 0.05
ABORTS: Final = 0.1


class Copier(threading.Thread):
    """One instance: it ends when it is fenced, or told to."""

    def __init__(
        self,
        diary: Diary,
        bootstrap: str,
        *,
        chance: random.Random,
        on_ready: Callable[[], None],
        calm: threading.Event,
        logger: logging.Logger,
    ) -> None:
        self._instance = diary.next_instance()
        super().__init__(name=self._instance, daemon=True)
        self._diary = diary
        self._servers = bootstrap
        self._chance = chance
        self._on_ready = on_ready
        self._calm = calm
        self._logger = logger
        self._stopping = threading.Event()
        self._numbers = count()
        self.deal: Deal | None = None
        """the transaction under way"""
        self._metadata: Any = None
        self._assignments = 0
        self._again: dict[int, int] = {}
        """partition -> where it was sent back to: what comes before that was on its way"""

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        settings = transactional_settings(self._diary.family, self._instance, self._servers, self._logger, TIMEOUT_S)
        producer = Producer(settings)
        try:
            patiently(producer.init_transactions)
        except KafkaException as error:
            self._diary.note(f"{self._instance} can't begin: {error}")  # another one came meanwhile
            return
        self._on_ready()
        consumer = Consumer(_consumer_settings(self._servers, self._instance))
        consumer.subscribe([DEALS], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        try:
            while not self._stopping.is_set():
                if batch := self._read(consumer):
                    self._copy(producer, consumer, batch)
        except Broken as error:
            self._diary.note(f"{self._instance} ends: {error}")
        finally:
            self._leave(consumer)

    def _leave(self, consumer: Consumer) -> None:
        """Give all partitions up before closing: who closes while some are taken away may wait for ever, in a callback
        of confluent-kafka that lets no other thread run."""
        consumer.unsubscribe()
        until = time.monotonic() + LEAVE_S
        while time.monotonic() < until and (self._metadata is not None or time.monotonic() < until - LEAVE_S + 0.5):
            consumer.poll(0.1)
        consumer.close()

    # --- reading --------------------------------------------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._assignments += 1
        self._again.clear()
        self._metadata = consumer.consumer_group_metadata()

    def _on_revoke(self, _consumer: Consumer, _: list[TopicPartition]) -> None:
        self._assignments += 1
        self._metadata = None

    def _read(self, consumer: Consumer) -> list[Message]:
        """What is there, up to a batch; what was read before partitions came or went is dropped."""
        batch: list[Message] = []
        assignment = self._assignments
        while len(batch) < BATCH:
            message = consumer.poll(0.02 if batch else 0.3)
            if self._assignments != assignment:  # what this very call brings comes after that
                assignment = self._assignments
                batch.clear()
            if message is None:
                break
            if message.error() is None and self._is_due(message):
                batch.append(message)
        return batch

    def _is_due(self, message: Message) -> bool:
        partition, offset = _place(message)
        if self._again.get(partition, offset) != offset:
            return False
        self._again.pop(partition, None)
        return True

    # --- writing --------------------------------------------------------------------------------------------------

    def _copy(self, producer: Producer, consumer: Consumer, batch: list[Message]) -> None:
        sources = [_place(message) for message in batch]
        partitions = [(partition + offset) % self._diary.partitions for partition, offset in sources]
        deal = self._diary.begin(self._instance, next(self._numbers), partitions, sources)
        self.deal = deal
        deal.offsets = {partition: offset + 1 for partition, offset in sources}
        try:
            self._send(producer, deal)
        except KafkaException as error:
            give_up(producer, self._diary, deal, error)
        else:
            patience_s = self._chance.uniform(*IMPATIENCE_S) if self._happens(IMPATIENT) else PATIENCE_S
            conclude(producer, self._diary, deal, commits=not self._happens(ABORTS), patience_s=patience_s)
        finally:
            self.deal = None
        if deal.outcome != COMMITTED:
            self._go_back(consumer, sources)

    def _send(self, producer: Producer, deal: Deal) -> None:
        producer.begin_transaction()
        for entry in deal.entries:
            producer.produce(COPIES, entry.value(), partition=entry.partition)
        expected = [TopicPartition(DEALS, partition, offset) for partition, offset in deal.offsets.items()]
        metadata = self._metadata
        patiently(lambda timeout_s: producer.send_offsets_to_transaction(expected, metadata, timeout_s))
        if self._happens(FREEZES):
            producer.flush(CALL_S)
            self._calm.wait(self._chance.uniform(0, 1.5 * MAX_POLL_MS / 1000))

    def _happens(self, share: float) -> bool:
        return self._chance.random() < share and not self._calm.is_set()

    def _go_back(self, consumer: Consumer, sources: list[tuple[int, int]]) -> None:
        firsts: dict[int, int] = {}
        for partition, offset in sources:
            firsts.setdefault(partition, offset)
        for partition, offset in firsts.items():
            try:
                consumer.seek(TopicPartition(DEALS, partition, offset))
            except KafkaException as error:  # no longer ours, or not yet again
                raise Broken(f"can't go back to {offset} in partition {partition}: {error}") from error
            self._again[partition] = offset


class CopierSlot(threading.Thread):
    """A transactional id whose instance is replaced now and then; the one before goes on until it is fenced."""

    def __init__(self, diary: Diary, bootstrap: str, *, chance: random.Random, logs: Path) -> None:
        super().__init__(name=f"slot of {diary.family}", daemon=True)
        self._diary = diary
        self._servers = bootstrap
        self._chance = chance
        self._logger = file_logger(logs / f"{diary.family}.log")
        self._stopping = threading.Event()
        self._all: list[Copier] = []
        self._calm = threading.Event()
        self._retiring: dict[Copier, float] = {}
        """those that were replaced: should one have nothing to do, and so not hear of it, it is told to stop"""

    def calm_down(self) -> None:
        """From now on whoever is at work stays, and does nothing but work."""
        self._calm.set()

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, FINISH_S)
        if alive := [each.name for each in self._all if each.is_alive()]:
            self._diary.trouble(f"did not end in time: {alive}")
        close_logger(self._logger)

    def run(self) -> None:
        while not self._stopping.is_set():
            self._begin()
            self._wait_for_the_next()
        for each in self._all:
            each.stop()
        for each in self._all:
            each.join(FINISH_S)

    def _begin(self) -> None:
        before = self._all[-1] if self._all else None
        chance = random.Random(self._chance.random())
        copier = Copier(
            self._diary,
            self._servers,
            chance=chance,
            on_ready=lambda: self._fence(before),
            calm=self._calm,
            logger=self._logger,
        )
        self._all.append(copier)
        copier.start()
        if before is not None:
            self._retiring[before] = time.monotonic() + RETIRED_S

    def _fence(self, before: Copier | None) -> None:
        deal = before.deal if before is not None else None
        if deal is not None and deal.fenced_at is None:
            deal.fenced_at = self._diary.now()

    def _wait_for_the_next(self) -> None:
        """Until it is time, or the one at work has ended by itself."""
        until = time.monotonic() + self._chance.uniform(*REPLACED_S)
        while time.monotonic() < until or self._calm.is_set():
            for each, latest in self._retiring.items():
                if time.monotonic() > latest or self._calm.is_set():
                    each.stop()
            if self._stopping.wait(0.2) or not self._all[-1].is_alive():
                return


def make_copiers(history: History, now: Callable[[], float], bootstrap: str, *, logs: Path) -> Iterator[CopierSlot]:
    for number in range(1, SLOTS + 1):
        diary = Diary(f"copier-{number}", COPIES, history, now)
        yield CopierSlot(diary, bootstrap, chance=random.Random(f"{history.seed}/{diary.family}"), logs=logs)


def _consumer_settings(bootstrap: str, instance: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": COPIERS,
        "client.id": instance,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "range",  # all partitions are given up and read anew from what is committed
        "session.timeout.ms": SESSION_MS,
        "max.poll.interval.ms": MAX_POLL_MS,
        "heartbeat.interval.ms": 1000,
        "socket.timeout.ms": 8000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset
