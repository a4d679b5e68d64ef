"""An agent that is killed, and whose log in the object store then loses an object, serves all the rest and says so."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.support.agent import LiveAgent

pytestmark = pytest.mark.timeout(120)

RECORDS = 40
LOST = 10


def run(agent: LiveAgent, *arguments: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "streamhouse", *arguments, "--json", "--http", agent.http]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, json.loads(done.stdout)


def produce(agent: LiveAgent, values: list[bytes]) -> dict[bytes, int]:
    """Each in an object of its own; returns the offsets that were acknowledged."""
    acked: dict[bytes, int] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None
        acked[message.value() or b""] = message.offset() or 0

    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce("orders", value, partition=0, on_delivery=delivered)
        assert producer.flush(30) == 0
    return acked


def consume(agent: LiveAgent, expected: int) -> dict[bytes, int]:
    consumer = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    result: dict[bytes, int] = {}
    try:
        while len(result) < expected:
            messages = consumer.consume(expected, timeout=30)
            assert messages, f"only {len(result)} records came back"
            result |= {message.value() or b"": message.offset() or 0 for message in messages}
    finally:
        consumer.close()
    return result


def test_a_log_that_lost_an_object_is_recovered_around_it_and_kept(tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path / "data", "--set", "wal.kind=object", "--set", "wal.window_ms=0")
    with agent:
        acked = produce(agent, [b"value %d" % number for number in range(RECORDS)])
        agent.kill()
        objects = sorted(path for path in (tmp_path / "data" / "objects" / "wal").rglob("*") if path.is_file())
        assert len(objects) >= RECORDS
        objects[LOST].unlink()
        agent.start()

        result = consume(agent, len(acked) - 1)
        lost = {value: offset for value, offset in acked.items() if value not in result}
        assert len(lost) == 1
        assert result == {value: offset for value, offset in acked.items() if value not in lost}
        (offset,) = produce(agent, [b"later"]).values()
        assert offset > max(acked.values())
        assert all(path.exists() for path in objects if path != objects[LOST])

        code, report = run(agent, "doctor")
        (check,) = [each for each in report["cluster"] if each["name"] == "damaged log objects"]
        assert (code, check["verdict"]) == (2, "failure")
        _, listed = run(agent, "wal", "damaged")
        (log,) = listed["logs"]
        (partition,) = [each for each in log["partitions"] if each["topic"] == "orders"]
        assert partition["gaps"] == [[offset, offset + 1] for offset in lost.values()]

        code, _ = run(agent, "wal", "discard", log["session"], "--yes")
        assert code == 0
        assert not any(path.exists() for path in objects)
        _, report = run(agent, "doctor")
        assert {each["verdict"] for each in report["cluster"]} == {"ok"}
    assert "write-ahead log is damaged" in agent.output
