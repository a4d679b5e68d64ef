"""What tests of transactions share: producers of librdkafka, a topic with commits, aborts and one that stays open."""

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Producer

from tests.support.agent import LiveAgent

TIMEOUT_S = 30
Pair = tuple[str, str | None]

FINAL = {b"a": b"committed", b"b": b"plain", b"c": b"first", b"e": b"last"}
"""What readers of committed records know in the end, while bob's transaction is open."""
ABORTED = (b"aborted", b"aborted-too", b"aborted-alone")


def transactional(agent: LiveAgent, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def transaction(producer: Producer, topic: str, *pairs: Pair, ends: bool | None = True) -> None:
    """One with these records: committed, aborted, or with None left open."""
    producer.begin_transaction()
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    if ends is not None:
        (producer.commit_transaction if ends else producer.abort_transaction)(TIMEOUT_S)


def plain(agent: LiveAgent, topic: str, pairs: Sequence[Pair]) -> None:
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def write_history(agent: LiveAgent, topic: str, *, name: str) -> Producer:
    """Some of everything; returns the producer whose transaction is still open."""
    alice, bob = transactional(agent, f"{name}-alice"), transactional(agent, f"{name}-bob")
    plain(agent, topic, [("a", "old"), ("b", "old"), ("c", "first")])
    transaction(alice, topic, ("a", "aborted"), ("c", "aborted-too"), ends=False)
    transaction(alice, topic, ("a", "between"), ("b", "between"))
    transaction(bob, topic, ("d", "aborted-alone"), ends=False)
    transaction(alice, topic, ("a", "committed"), ("f", "deleted"))
    transaction(alice, topic, ("f", None))
    plain(agent, topic, [("b", "plain"), ("e", "last")])
    transaction(bob, topic, ("a", "open"), ("e", "open"), ends=None)
    plain(agent, topic, [("c", "behind")])
    return bob


def wait_until(is_so: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
