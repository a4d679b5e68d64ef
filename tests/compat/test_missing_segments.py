"""Segments that vanish under an agent: real clients get errors, and all other records stay readable."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.compat.clients import TIMEOUT_S
from tests.compat.conftest import COMMAND
from tests.support.agent import LiveAgent

CORRUPT_MESSAGE = "INVALID_MSG"
"""As librdkafka calls it."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path / "data") as agent:
        yield agent


def send(agent: LiveAgent, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": agent.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def segments(agent: LiveAgent) -> set[Path]:
    return {path for path in agent.data.rglob("*") if path.is_file() and "segments" in path.parts}


def flushed(agent: LiveAgent, topic: str, *values: str) -> set[Path]:
    """Send records and have them in a segment of their own; returns its file."""
    before = segments(agent)
    send(agent, topic, *values)
    agent.stop()
    agent.start()
    return segments(agent) - before


def read(agent: LiveAgent, topic: str, offset: int, count: int) -> list[str]:
    """So many values, or errors, from an offset on."""
    config = {"bootstrap.servers": agent.bootstrap, "group.id": "g", "fetch.error.backoff.ms": 50}
    results: list[str] = []
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, offset)])
        deadline = time.monotonic() + TIMEOUT_S
        while len(results) < count and time.monotonic() < deadline:
            if (message := consumer.poll(0.2)) is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._ALL_BROKERS_DOWN:
                continue
            value = message.value()
            results.append(str(error.name()) if error is not None else (value or b"").decode())
    return results


def get(agent: LiveAgent, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{agent.http}{path}", timeout=TIMEOUT_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def doctor(agent: LiveAgent) -> tuple[int, str]:
    done = subprocess.run([COMMAND, "doctor", "--http", agent.http, "--json"], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_readers_of_a_vanished_segment_are_told_and_everything_else_is_served(agent: LiveAgent) -> None:
    flushed(agent, "orders", "o0")
    gone = flushed(agent, "orders", "o1", "o2")
    flushed(agent, "orders", "o3")
    flushed(agent, "clicks", "c0")
    assert doctor(agent)[0] == 0
    for path in gone:
        path.unlink()
    assert read(agent, "orders", 0, 2) == ["o0", CORRUPT_MESSAGE]
    assert set(read(agent, "orders", 1, 2)) == {CORRUPT_MESSAGE}
    assert read(agent, "orders", 3, 1) == ["o3"]
    assert read(agent, "clicks", 0, 1) == ["c0"]
    status, body = get(agent, "/v1/topics/orders/partitions/0/records?offset=1")
    assert status == 500
    assert "orders-0 offsets=[1,3)" in json.loads(body)["detail"]
    assert get(agent, "/v1/topics/orders/partitions/0/records?offset=3")[0] == 200
    code, result = doctor(agent)
    assert code == 2
    assert "orders-0[1,3)" in result
    assert "records are missing from the object store" in agent.output
    assert 'streamhouse_refused_reads_total{why="missing"}' in get(agent, "/metrics")[1]


def test_an_agent_whose_bucket_was_emptied_starts_serves_and_says_so(agent: LiveAgent) -> None:
    flushed(agent, "orders", "o0")
    flushed(agent, "orders", "o1")
    send(agent, "orders", "o2")
    agent.kill()
    for path in segments(agent):
        path.unlink()
    agent.start()
    send(agent, "orders", "o3")
    assert read(agent, "orders", 2, 2) == ["o2", "o3"]
    assert set(read(agent, "orders", 0, 1)) == {CORRUPT_MESSAGE}
    code, result = doctor(agent)
    assert code == 2
    assert "missing" in result
