"""Load: what a cluster does all day, at a bounded rate, and what comes and goes in it.

Data path   **load** -> agents, with librdkafka, HTTP and bare sockets
Owns        steady traffic; topics, groups, transactional ids and connections that come and go; counting what was done
Leaves      agents that come and go to `cluster`, pipelines to `pipelines`

Each part runs in a thread of its own until it is told to stop. A round that fails is counted and the part goes on: an
agent that comes and goes is part of the day. Who did too little is named at the end.
"""

import json
import random
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamhouse.config import Address

STEADY: Final = "steady"
KEYED: Final = "keyed"
DEALS: Final = "deals"
EVENTS: Final = "events"
"""JSON, which pipelines read."""
RETENTION: Final = {"retention.ms": "30000"}
TOPICS: Final = {
    STEADY: (6, RETENTION),
    KEYED: (2, {"cleanup.policy": "compact", "delete.retention.ms": "10000"}),
    DEALS: (3, RETENTION),
    EVENTS: (2, RETENTION),
}
CALL_S: Final = 20.0
STREAM_S: Final = 1.0
KEPT_ERRORS: Final = 200


@dataclass
class Tally:
    """What all parts did, and what failed."""

    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, number: int = 1) -> None:
        with self.lock:
            self.done[what] += number

    def fail(self, what: str, error: object) -> None:
        with self.lock:
            self.failed[what] += 1
            if len(self.errors) < KEPT_ERRORS:
                self.errors.append(f"{what}: {error}")


@dataclass(frozen=True, kw_only=True)
class Target:
    bootstrap: str
    http: Sequence[Address]
    kafka: Sequence[Address]
    per_second: float
    tally: Tally
    stop: threading.Event

    def client(self, **settings: Any) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500, **named}

    def rounds(self, what: str, every_s: float) -> Iterator[int]:
        """Number after number, one every so often, until the end; of each it is known whether it failed."""
        for number in count():
            if self.stop.wait(every_s):
                return
            yield number

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        try:
            yield
        except (KafkaException, BufferError, OSError, ValueError, TimeoutError) as error:
            self.tally.fail(what, error)
        else:
            self.tally.count(what)


def create_topics(target: Target) -> None:
    admin = AdminClient(target.client())
    topics = [NewTopic(name, parts, config=settings) for name, (parts, settings) in TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result(CALL_S)


# --- the parts ----------------------------------------------------------------------------------------------------


def produce(target: Target) -> None:
    """One producer for the whole run, in the steady and in the keyed topic."""
    producer = Producer(target.client(enable_idempotence=True, linger_ms=20))

    def told(error: object, _: object) -> None:
        target.tally.fail("acks", error) if error is not None else target.tally.count("acks")

    every_s = max(0.02, 1 / target.per_second)
    batch = max(1, round(target.per_second * every_s))
    for number in target.rounds("records", every_s):
        for _ in range(batch):
            with suppress(BufferError):
                producer.produce(STEADY, value=b"%d " % number + b"x" * 200, on_delivery=told)
        if number % 5 == 0:
            with suppress(BufferError):
                producer.produce(KEYED, key=b"%d" % random.randrange(500), value=b"y" * 100, on_delivery=told)
        producer.poll(0)
    producer.flush(CALL_S)


def consume(target: Target) -> None:
    """A member of one group for the whole run, which commits what it read."""
    consumer = Consumer(
        target.client(
            group_id="steady-group", auto_offset_reset="earliest", session_timeout_ms=6000, auto_commit_interval_ms=1000
        )
    )
    consumer.subscribe([STEADY, KEYED])
    try:
        while not target.stop.is_set():
            messages = consumer.consume(num_messages=500, timeout=0.5)
            target.tally.count("records read", sum(each.error() is None for each in messages))
    finally:
        consumer.close()


def churn_topics(target: Target) -> None:
    """A topic and a group come, are used, and are deleted."""
    admin = AdminClient(target.client())
    for number in target.rounds("topics", 3.0):
        with target.counted("topics and groups that came and went"):
            name, group = f"passing-{number}", f"passing-group-{number}"
            admin.create_topics([NewTopic(name, 3, config=RETENTION)])[name].result(CALL_S)
            try:
                _pass_through(target, name, group)
            finally:
                if number % 3:  # the others' offsets expire
                    with suppress(KafkaException):
                        admin.delete_consumer_groups([group])[group].result(CALL_S)
                admin.delete_topics([name])[name].result(CALL_S)


def _pass_through(target: Target, name: str, group: str) -> None:
    producer = Producer(target.client(enable_idempotence=True))
    for each in range(20):
        producer.produce(name, value=b"%d" % each, partition=each % 3)
    if producer.flush(CALL_S):
        raise TimeoutError("records of a passing topic were not acknowledged")
    with closing(Consumer(target.client(group_id=group, auto_offset_reset="earliest"))) as consumer:
        consumer.subscribe([name])
        read, until = 0, time.monotonic() + CALL_S
        while read < 20 and time.monotonic() < until and not target.stop.is_set():
            read += sum(each.error() is None for each in consumer.consume(num_messages=20, timeout=0.5))
        consumer.commit(asynchronous=False)
    target.tally.count("records read", read)


def transact(target: Target) -> None:
    """Transactions of a few ids that stay and of others that are used once; some are left open."""
    for number in target.rounds("transactions", 1.0):
        with target.counted("transactions"):
            name = f"deal-{number}" if number % 10 == 0 else f"deal-of-{number % 4}"
            producer = Producer(target.client(transactional_id=name, transaction_timeout_ms=5000))
            producer.init_transactions(CALL_S)
            producer.begin_transaction()
            for each in range(5):
                producer.produce(DEALS, value=b"%d" % number, partition=each % 3)
            producer.send_offsets_to_transaction([TopicPartition(STEADY, 0, number)], _membership(target), CALL_S)
            if number % 7 == 3:
                producer.flush(CALL_S)  # and its time is up
            elif number % 5 == 2:
                producer.abort_transaction(CALL_S)
            else:
                producer.commit_transaction(CALL_S)


def _membership(target: Target) -> Any:
    with closing(Consumer(target.client(group_id="dealers"))) as consumer:
        return consumer.consumer_group_metadata()


def connect(target: Target) -> None:
    """Connections that ask and go, go in the middle of a frame, or say nothing."""
    chance = random.Random(1)
    for number in target.rounds("connections", 0.1):
        with target.counted("connections"):
            at = chance.choice(target.kafka)
            with socket.create_connection((at.host, at.port), timeout=CALL_S) as client:
                match number % 3:
                    case 0:
                        client.sendall(_frame(18, 0, b""))
                        client.settimeout(CALL_S)
                        client.recv(65_536)
                    case 1:
                        client.sendall(_frame(18, 0, b"")[: chance.randrange(1, 14)])


def _frame(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 7, 4) + b"soak"
    return struct.pack(">i", len(head) + len(body)) + head + body


def ask_http(target: Target) -> None:
    """The requests of consoles and curl: lists, records published and read, streams that are left."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    paths = (
        "/v1/topics",
        "/v1/groups",
        f"/v1/topics/{STEADY}",
        "/v1/agents",
        "/v1/metrics",
        "/metrics",
        "/health/ready",
    )
    body = json.dumps({"records": [{"key": "k", "value": {"item": 7}}]}).encode()
    for number in target.rounds("http", 0.25):
        at = target.http[number % len(target.http)]
        with target.counted("requests over HTTP"):
            match number % 4:
                case 1:
                    _read(opener, f"http://{at}/v1/topics/{EVENTS}/records", data=body)
                case 3:
                    _leave_stream(opener, f"http://{at}/v1/topics/{EVENTS}/records?limit=100000")
                case _:
                    _read(opener, f"http://{at}{paths[number % len(paths)]}")


def _read(opener: urllib.request.OpenerDirector, url: str, *, data: bytes | None = None) -> None:
    headers = {"content-type": "application/json"} if data else {}
    with opener.open(urllib.request.Request(url, data=data, headers=headers), timeout=CALL_S) as response:
        response.read()


def _leave_stream(opener: urllib.request.OpenerDirector, url: str) -> None:
    """Read a little of a stream of events, and go."""
    request = urllib.request.Request(url, headers={"accept": "text/event-stream"})
    with opener.open(request, timeout=STREAM_S) as response, suppress(TimeoutError):
        response.readline()


PARTS: Final[Sequence[Callable[[Target], None]]] = (
    produce,
    consume,
    consume,
    churn_topics,
    transact,
    connect,
    ask_http,
)
LEAST_PER_MINUTE: Final = {
    "acks": 600,
    "records read": 600,
    "topics and groups that came and went": 4,
    "transactions": 10,
    "connections": 100,
    "requests over HTTP": 40,
}
"""A run in which less happened proves nothing."""


def too_little(tally: Tally, minutes: float) -> list[str]:
    return [
        f"{what}: {tally.done[what]:,}, at least {least * minutes:,.0f} are asked for"
        for what, least in LEAST_PER_MINUTE.items()
        if tally.done[what] < least * minutes
    ]


class Load:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._threads = [threading.Thread(target=self._run, args=(part,), name=part.__name__) for part in PARTS]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run(self, part: Callable[[Target], None]) -> None:
        try:
            part(self._target)
        except Exception as error:  # noqa: BLE001 - a part that ended is a failure of the run
            self._target.tally.fail(f"{part.__name__} ended", repr(error))

    def stop(self) -> None:
        self._target.stop.set()
        for thread in self._threads:
            thread.join(3 * CALL_S)
