"""Producers: librdkafka and aiokafka, idempotent and plain, and stubborn ones that talk to one agent only.

Data path   **producers** -> agents; what they were told -> history
Owns        numbering records, the rate, one `Send` per record
Leaves      the topic to `run`; judging to `checker`

Whoever can't go on (an idempotent producer after a fatal error) is replaced under another name, and that is a trouble.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .history import History, Note, RecordId, Send

TOPIC: Final = "chaos"
MAX_OUTSTANDING: Final = 500
DELIVERY_S: Final = 180.0  # longer than all faults together may keep a partition from its leader
FINISH_S: Final = 90.0
REQUEST_S: Final = 8.0
STUBBORN_S: Final = 60.0
LOGS_OF_CLIENTS: Final = "eos"  # why a producer retries, waits or begins another epoch


class Ledger:
    """The records of one producer: it takes partitions in turn and counts in each."""

    def __init__(self, name: str, history: History, now: Callable[[], float], *, idempotent: bool) -> None:
        self.name = name
        self._family = name
        self._history = history
        self._now = now
        self._idempotent = idempotent
        self._generations = count(2)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._numbers: Counter[int] = Counter()
        self._turn = 0
        self.outstanding = 0
        if self._idempotent:
            self._history.idempotent.append(self.name)

    def begin_anew(self, reason: str) -> None:
        """Under another name, for nothing is promised about the order of two producers."""
        self._history.troubles.append(Note(self._now(), self.name, f"gave up: {reason}"))
        self.name = f"{self._family}.{next(self._generations)}"
        self._begin()

    def next(self, by: str = "") -> Send:
        partition = self._turn % self._history.partitions
        self._turn += 1
        record = RecordId(self.name, partition, self._numbers[partition])
        self._numbers[partition] += 1
        self.outstanding += 1
        send = Send(record=record, sent_at=self._now(), by=by)
        self._history.sends.append(send)
        return send

    def close(self) -> None:
        """Answers that come now come too late: the log is about to be read."""
        self._closed = True

    def acked(self, send: Send, offset: int | None) -> None:
        if self._closed:
            return
        send.answered_at, send.offset = self._now(), offset
        self.outstanding -= 1

    def refused(self, send: Send, reason: str) -> None:
        if self._closed:
            return
        send.answered_at, send.error = self._now(), reason[:200]
        self.outstanding -= 1


class LibrdkafkaProducer(threading.Thread):
    def __init__(
        self,
        ledger: Ledger,
        bootstrap: str,
        *,
        idempotent: bool,
        per_second: float,
        log_path: Path,
        topic: str = TOPIC,
    ) -> None:
        """Why it retries, waits or begins another epoch goes to `log_path`."""
        super().__init__(name=ledger.name, daemon=True)
        self._topic = topic
        self._ledger = ledger
        self._every_s = 1 / per_second
        self._stopping = threading.Event()
        self._logger = file_logger(log_path)
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 5,
            "max.in.flight.requests.per.connection": 5,
            "message.timeout.ms": int(DELIVERY_S * 1000),
            "socket.timeout.ms": int(REQUEST_S * 1000),
            "request.timeout.ms": int(REQUEST_S * 1000),
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5000,
            "debug": LOGS_OF_CLIENTS,
            "logger": self._logger,
        }
        self._producer = Producer(self._settings)

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._send_one()
            except (KafkaException, BufferError) as error:
                self._replace(str(error))
            self._producer.poll(self._every_s)
        self._producer.flush(FINISH_S)

    def _send_one(self) -> None:
        if self._ledger.outstanding >= MAX_OUTSTANDING:
            return
        send = self._ledger.next()
        try:
            self._producer.produce(
                self._topic,
                value=send.record.value(),
                partition=send.record.partition,
                on_delivery=partial(self._on_delivery, send),
            )
        except (KafkaException, BufferError) as error:
            self._ledger.refused(send, str(error))
            raise

    def _replace(self, reason: str) -> None:
        self._producer.flush(1)
        self._ledger.begin_anew(reason)
        self._producer = Producer(self._settings)

    def _on_delivery(self, send: Send, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._ledger.acked(send, message.offset())
        else:
            self._ledger.refused(send, str(error))

    def stop(self) -> None:
        self._stopping.set()

    async def finished(self) -> None:
        await asyncio.to_thread(self.join, FINISH_S)
        self._ledger.close()
        close_logger(self._logger)


class AiokafkaProducer:
    def __init__(
        self, ledger: Ledger, bootstrap: str, *, idempotent: bool, per_second: float, topic: str = TOPIC
    ) -> None:
        self._ledger = ledger
        self._topic = topic
        self._every_s = 1 / per_second
        self._settings = {
            "bootstrap_servers": bootstrap,
            "acks": "all",
            "enable_idempotence": idempotent,
            "linger_ms": 5,
            "metadata_max_age_ms": 3000,
            "request_timeout_ms": int(DELIVERY_S * 1000),  # also the time after which it gives a record up
            "retry_backoff_ms": 50,
        }
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._ledger.name)

    def stop(self) -> None:
        self._stopping = True

    async def finished(self) -> None:
        assert self._task is not None
        await asyncio.wait([self._task], timeout=FINISH_S)
        self._ledger.close()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while not self._stopping:
            producer = AIOKafkaProducer(**self._settings)
            await producer.start()
            try:
                await self._send_all(producer)
                await producer.flush()
            except AiokafkaError as error:
                self._ledger.begin_anew(repr(error))
            finally:
                await asyncio.shield(_closed(producer))

    async def _send_all(self, producer: Any) -> None:
        while not self._stopping:
            if self._ledger.outstanding < MAX_OUTSTANDING:
                send = self._ledger.next()
                try:
                    future = await producer.send(self._topic, send.record.value(), partition=send.record.partition)
                except AiokafkaError as error:
                    self._ledger.refused(send, repr(error))
                    raise
                future.add_done_callback(partial(self._on_delivery, send))
            await asyncio.sleep(self._every_s)

    def _on_delivery(self, send: Send, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._ledger.acked(send, future.result().offset)
        else:
            self._ledger.refused(send, repr(error))


class StubbornProducer:
    """Sends to one agent whether it leads or not, and doesn't wait for answers.

    What it sends to a paused agent is read when that one wakes up, and believes to be what it was.
    """

    def __init__(self, ledger: Ledger, agent: str, host: str, port: int, *, per_second: float) -> None:
        self._ledger = ledger
        self._agent = agent
        self._host, self._port = host, port
        self._every_s = 1 / per_second
        self._answers: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._ledger.name)

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def finished(self) -> None:
        for task in (self._task, *self._answers):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._ledger.close()

    async def _run(self) -> None:
        while True:
            with suppress(OSError, AiokafkaError):
                connection = await create_conn(
                    self._host, self._port, client_id=self._ledger.name, request_timeout_ms=int(STUBBORN_S * 1000)
                )
                try:
                    await self._send_all(connection)
                finally:
                    connection.close()
            await asyncio.sleep(1)

    async def _send_all(self, connection: AIOKafkaConnection) -> None:
        while connection.connected():
            if self._ledger.outstanding < MAX_OUTSTANDING:
                task = asyncio.create_task(self._send(connection, self._ledger.next(by=self._agent)))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
            await asyncio.sleep(self._every_s)

    async def _send(self, connection: AIOKafkaConnection, send: Send) -> None:
        request = ProduceRequest(
            transactional_id=None,
            required_acks=-1,
            timeout=int(STUBBORN_S * 1000),
            topics=[(TOPIC, [(send.record.partition, _batch(send.record.value()))])],
        )
        try:
            response = await connection.send(request)
        except (OSError, AiokafkaError, asyncio.CancelledError) as error:
            self._ledger.refused(send, repr(error))
            return
        ((_, ((_, code, offset, *_rest),)),) = response.topics
        if code:
            self._ledger.refused(send, f"error code {code}")
        else:
            self._ledger.acked(send, offset)


AnyProducer = LibrdkafkaProducer | AiokafkaProducer | StubbornProducer


def make_producers(
    history: History, now: Callable[[], float], bootstrap: str, *, per_second: float, logs: Path
) -> Iterator[AnyProducer]:
    """Two of each library. Requests of librdkafka's plain one to an old and to a new leader may meet: no order then."""
    history.unordered.append("librdkafka-plain")
    for idempotent in (True, False):
        kind = "idempotent" if idempotent else "plain"
        ledger = Ledger(f"librdkafka-{kind}", history, now, idempotent=idempotent)
        log_path = logs / f"{ledger.name}.log"
        yield LibrdkafkaProducer(ledger, bootstrap, idempotent=idempotent, per_second=per_second, log_path=log_path)
        ledger = Ledger(f"aiokafka-{kind}", history, now, idempotent=idempotent)
        yield AiokafkaProducer(ledger, bootstrap, idempotent=idempotent, per_second=per_second)


def make_pair(
    history: History, now: Callable[[], float], bootstrap: str, *, topic: str, logs: Path, per_second: float = 10.0
) -> Iterator[AnyProducer]:
    """An idempotent one of each library, for another topic."""
    ledger = Ledger(f"librdkafka-{topic}", history, now, idempotent=True)
    log_path = logs / f"{ledger.name}.log"
    yield LibrdkafkaProducer(ledger, bootstrap, idempotent=True, per_second=per_second, log_path=log_path, topic=topic)
    ledger = Ledger(f"aiokafka-{topic}", history, now, idempotent=True)
    yield AiokafkaProducer(ledger, bootstrap, idempotent=True, per_second=per_second, topic=topic)


def make_stubborn(
    history: History, now: Callable[[], float], agent: str, host: str, port: int, *, per_second: float
) -> StubbornProducer:
    ledger = Ledger(f"stubborn-{agent.removeprefix('agent ')}", history, now, idempotent=False)
    history.stubborn.append(ledger.name)
    history.unordered.append(ledger.name)
    return StubbornProducer(ledger, agent, host, port, per_second=per_second)


def _batch(value: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=0,
    )
    builder.append(0, timestamp=None, key=None, value=value, headers=[])
    return bytes(builder.build())


def file_logger(path: Path) -> logging.Logger:
    """One that writes to a file and belongs to nobody else."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
    logger = logging.Logger(path.stem, logging.DEBUG)
    logger.addHandler(handler)
    return logger


def close_logger(logger: logging.Logger) -> None:
    for handler in tuple(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


async def _closed(producer: Any) -> None:
    with suppress(AiokafkaError, OSError, TimeoutError):
        async with asyncio.timeout(10):
            await producer.stop()
