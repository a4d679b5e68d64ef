"""Transacting: producers whose transactions go to several partitions, and are committed, aborted, left or fenced.

Data path   **transacting** -> agents; what they were told -> history
Owns        what a transaction is made of and how it ends, by chance; one `Deal` for each
Leaves      copies to `copying`; judging to `checker`

Whoever can't go on is replaced by another instance with the same transactional id.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .history import History, Note
from .producers import LOGS_OF_CLIENTS, REQUEST_S, close_logger, file_logger
from .transactions import ABORTED, COMMITTED, DEALS, UNKNOWN, Deal, Entry

CALL_S: Final = 10.0
PATIENCE_S: Final = 150.0  # longer than all faults together may keep a coordinator from answering
FINISH_S: Final = 180.0
TIMEOUT_S: Final = 120.0
SHORT_TIMEOUT_S: Final = 5.0
HASTY: Final = ("steady-2", "late", "copier-2")
HASTE_S: Final = 1.5
MAX_RECORDS: Final = 8
# How transactions end, and how often against each other.
ENDINGS: Final = {
    "commit": 60,
    "abort": 14,
    "abort unsent": 6,
    "dawdle": 5,
    "be replaced": 5,
    "leave": 5,
    "be impatient": 8,
}
IMPATIENCE_S: Final = (0.002, 0.2)
LAST_TRIES: Final = 5


class Broken(Exception):
    """This instance can't go on."""


class Diary:
    """The transactions of one transactional id."""

    def __init__(self, family: str, topic: str, history: History, now: Callable[[], float]) -> None:
        self.family = family
        self._topic = topic
        self._history = history
        self._instances = count(1)
        self.partitions = history.transactional.partitions
        self.now = now

    def next_instance(self) -> str:
        return f"{self.family}#{next(self._instances)}"

    def begin(
        self, producer: str, number: int, partitions: Sequence[int], sources: Sequence[tuple[int, int]] = ()
    ) -> Deal:
        size = len(partitions)
        entries = [
            Entry(producer, number, index, size, partition, tuple(partitions), *sources[index : index + 1])
            for index, partition in enumerate(partitions)
        ]
        deal = Deal(topic=self._topic, entries=entries, begun_at=self.now())
        self._history.transactional.deals.append(deal)
        return deal

    def end(self, deal: Deal, outcome: str, error: str = "") -> None:
        deal.ended_at, deal.outcome, deal.error = self.now(), outcome, error[:200]

    def note(self, text: str) -> None:
        self._history.note(self.now(), self.family, text[:300])

    def trouble(self, text: str) -> None:
        self._history.troubles.append(Note(self.now(), self.family, text[:300]))


def patiently(call: Callable[[float], Any], patience_s: float = PATIENCE_S) -> None:
    """Call again as long as the client says that it may be called again."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            call(min(CALL_S, patience_s))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def conclude(producer: Producer, diary: Diary, deal: Deal, *, commits: bool, patience_s: float = PATIENCE_S) -> None:
    """Commit or abort, and write down what came of it; what fails is aborted if the client says that it can be. Who has
    little patience may never know, and is to be replaced."""
    try:
        if commits:
            deal.requested_at = diary.now()
            patiently(producer.commit_transaction, patience_s)
        else:
            patiently(producer.abort_transaction)
    except KafkaException as error:
        give_up(producer, diary, deal, error)
    else:
        diary.end(deal, COMMITTED if commits else ABORTED)


def give_up(producer: Producer, diary: Diary, deal: Deal, error: KafkaException) -> None:
    """Abort what can't be committed; raises `Broken` when that can't be done either."""
    reason: KafkaError = error.args[0]
    if reason.txn_requires_abort():
        try:
            patiently(producer.abort_transaction)
        except KafkaException as another:
            reason = another.args[0]
        else:
            diary.end(deal, ABORTED, str(reason))
            return
    diary.end(deal, UNKNOWN, str(reason))
    raise Broken(f"{deal.entries[0]}: {reason}")


def transactional_settings(
    family: str, instance: str, bootstrap: str, logger: logging.Logger, timeout_s: float
) -> dict[str, Any]:
    """Of a hasty one too: it asks the next agent while a paused one has not read yet what it was asked."""
    request_s = min(timeout_s, HASTE_S if family in HASTY else REQUEST_S)
    return {
        "bootstrap.servers": bootstrap,
        "transactional.id": family,
        "client.id": instance,
        "transaction.timeout.ms": int(timeout_s * 1000),
        "message.timeout.ms": int(timeout_s * 1000),
        "linger.ms": 5,
        "socket.timeout.ms": int(request_s * 1000),
        "request.timeout.ms": int(request_s * 1000),
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 5000,
        "debug": LOGS_OF_CLIENTS,
        "logger": logger,
    }


class Transactor(threading.Thread):
    """One transactional id; its transactions have a timeout that is long, or so short that some are too late."""

    def __init__(
        self, diary: Diary, bootstrap: str, *, chance: random.Random, per_second: float, logs: Path, timeout_s: float
    ) -> None:
        super().__init__(name=diary.family, daemon=True)
        self._diary = diary
        self._servers = bootstrap
        self._chance = chance
        self._every_s = 1 / per_second
        self._logger = file_logger(logs / f"{diary.family}.log")
        self._timeout_s = timeout_s
        self._stopping = threading.Event()
        self._instance = ""
        self._numbers = count()

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, FINISH_S)
        if self.is_alive():
            self._diary.trouble("did not end in time")
        close_logger(self._logger)

    def run(self) -> None:
        producer = self._open()
        while producer is not None and not self._stopping.is_set():
            (ending,) = self._chance.choices(list(ENDINGS), list(ENDINGS.values()))
            producer, _ = self._next(producer, ending)
            self._stopping.wait(self._chance.uniform(0, 2 * self._every_s))
        for _ in range(LAST_TRIES):  # by chance, it may have committed nothing since the faults were over
            if producer is None:
                return
            producer, deal = self._next(producer, "commit")
            if deal.outcome == COMMITTED:
                return

    def _next(self, producer: Producer, ending: str) -> tuple[Producer | None, Deal]:
        """One transaction, and who makes the next one."""
        deal = self._diary.begin(self._instance, next(self._numbers), self._partitions())
        try:
            successor = self._one(producer, deal, ending)
        except Broken as error:
            self._on_broken(str(error))
            successor = self._open()
        # Without `or`: a producer that has nothing to send counts as false.
        return (self._open() if successor is None else successor), deal

    def _on_broken(self, text: str) -> None:
        """Who may be too late is fenced now and then; who has all the time in the world is not."""
        late = self._timeout_s <= SHORT_TIMEOUT_S
        (self._diary.note if late else self._diary.trouble)(f"replaced after {text}")

    def _open(self) -> Producer | None:
        """Another instance; whoever was it before is fenced when this returns."""
        self._instance, self._numbers = self._diary.next_instance(), count()
        settings = transactional_settings(
            self._diary.family, self._instance, self._servers, self._logger, self._timeout_s
        )
        producer = Producer(settings)
        try:
            patiently(producer.init_transactions)
        except KafkaException as error:
            self._diary.trouble(f"{self._instance} can't begin: {error}")
            return None
        return producer

    def _one(self, producer: Producer, deal: Deal, ending: str) -> Producer | None:
        """Make a transaction; returns who makes the next one."""
        try:
            producer.begin_transaction()
            for entry in deal.entries:
                producer.produce(DEALS, entry.value(), partition=entry.partition)
                if self._chance.random() < 0.2:
                    producer.poll(self._chance.uniform(0, 0.1))
            if ending not in ("abort unsent", "commit"):
                producer.flush(CALL_S)
        except KafkaException as error:
            give_up(producer, self._diary, deal, error)
            return producer
        return self._end(producer, deal, ending)

    def _end(self, producer: Producer, deal: Deal, ending: str) -> Producer | None:
        if ending == "leave":  # nobody ends it: the successor does, or its timeout
            self._diary.end(deal, UNKNOWN, "left")
            if self._timeout_s <= SHORT_TIMEOUT_S:
                self._stopping.wait(self._chance.uniform(0, 2 * self._timeout_s))
            return self._open()
        if ending == "be replaced":
            successor = self._open()
            deal.fenced_at = self._diary.now()
            try:
                conclude(producer, self._diary, deal, commits=True)
            except Broken as error:
                self._diary.note(f"fenced as it should be: {error}")
            return successor
        if ending == "be impatient":
            try:
                conclude(producer, self._diary, deal, commits=True, patience_s=self._chance.uniform(*IMPATIENCE_S))
            except Broken:
                return self._open()
            return producer
        if ending == "dawdle":
            self._stopping.wait(self._chance.uniform(0, 2 * SHORT_TIMEOUT_S))
        conclude(producer, self._diary, deal, commits=not ending.startswith("abort"))
        return producer

    def _partitions(self) -> list[int]:
        size = self._chance.randint(1, MAX_RECORDS)
        return [self._chance.randrange(self._diary.partitions) for _ in range(size)]


class Single(threading.Thread):
    """An idempotent producer without transactions, whose records stand between those of transactions."""

    def __init__(self, diary: Diary, bootstrap: str, *, per_second: float, logs: Path) -> None:
        super().__init__(name=diary.family, daemon=True)
        self._diary = diary
        self._every_s = 1 / per_second
        self._stopping = threading.Event()
        self._logger = file_logger(logs / f"{diary.family}.log")
        settings = transactional_settings(diary.family, diary.family, bootstrap, self._logger, PATIENCE_S)
        del settings["transactional.id"], settings["transaction.timeout.ms"]
        self._producer = Producer({**settings, "enable.idempotence": True})

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, FINISH_S)
        close_logger(self._logger)

    def run(self) -> None:
        instance = self._diary.next_instance()
        for number in count():
            if self._stopping.is_set():
                break
            deal = self._diary.begin(instance, number, [number % self._diary.partitions])
            deal.requested_at = deal.begun_at
            (entry,) = deal.entries
            try:
                result = partial(self._on_delivery, deal)
                self._producer.produce(DEALS, entry.value(), partition=entry.partition, on_delivery=result)
            except (KafkaException, BufferError) as error:
                self._diary.trouble(f"gave up: {error}")
                break
            self._producer.poll(self._every_s)
        self._producer.flush(PATIENCE_S)

    def _on_delivery(self, deal: Deal, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._diary.end(deal, COMMITTED)
        else:
            self._diary.end(deal, UNKNOWN, str(error))
            self._diary.trouble(f"{deal.entries[0]} was not delivered: {error}")


def make_transactors(
    history: History, now: Callable[[], float], bootstrap: str, *, per_second: float, logs: Path
) -> Iterator[Transactor | Single]:
    for family, timeout_s in (("steady-1", TIMEOUT_S), ("steady-2", TIMEOUT_S), ("late", SHORT_TIMEOUT_S)):
        diary = Diary(family, DEALS, history, now)
        chance = random.Random(f"{history.seed}/{family}")
        yield Transactor(diary, bootstrap, chance=chance, per_second=per_second, logs=logs, timeout_s=timeout_s)
    yield Single(Diary("single", DEALS, history, now), bootstrap, per_second=per_second, logs=logs)
