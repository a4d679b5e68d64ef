"""A real cluster is administered under load: producers see no errors."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.dev.test_cluster import LIMIT_S, Running, run, streamhouse

__all__ = ["run"]

PARTITIONS = 6
LEASE = ("--lease-ttl", "10s")
"""No agent is killed: agents keep their leases, however busy the machine is."""


class Writer:
    """Produces without a pause until it is stopped, and collects all errors."""

    def __init__(self, bootstrap: str) -> None:
        self.acked = 0
        self.errors: list[str] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "error_cb": self._error}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="writer")

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(str(error))

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acked += 1
        else:
            self.errors.append(str(error))

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            self._producer.produce("orders", str(number), partition=number % PARTITIONS, on_delivery=self._told)
            self._producer.poll(0)
            number += 1
        left = self._producer.flush(LIMIT_S)
        if left:
            self.errors.append(f"{left} records were not delivered")

    @contextmanager
    def working(self) -> Iterator["Writer"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(2 * LIMIT_S)


def reported(*args: str) -> Any:
    return json.loads(streamhouse(*args, "--json"))


def asked_for(*args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "streamhouse", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)


@pytest.mark.s3
@pytest.mark.postgres
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
def test_a_cluster_is_looked_after_while_it_is_written_to(run: Callable[..., Running]) -> None:
    cluster = run(*LEASE)
    first, second, third = (("--http", agent["http"]) for agent in cluster.ready["agents"])
    streamhouse("topics", "create", "orders", "--partitions", str(PARTITIONS), "-b", cluster.bootstrap)
    with Writer(cluster.bootstrap).working() as writer:
        assert [agent["state"] for agent in reported("agents", "list", *first)["agents"]] == ["live"] * 3
        move_one_to_each(first, second)
        drain_and_undo(second, third)
        examine(third)
    assert writer.errors == []
    assert writer.acked > 100
    listed = reported("partitions", "list", "orders", *second)
    assert listed["silent"] == []
    assert sum(each["high_watermark"] for each in listed["partitions"]) == writer.acked
    examine(first)
    assert asked_for("doctor", "--http", "127.0.0.1:1").returncode == 2


def move_one_to_each(requested: tuple[str, str], looked: tuple[str, str]) -> None:
    for node in (1, 2, 3):
        moved = reported("partitions", "move", "orders", "0", "--to", str(node), *requested)["partition"]
        assert (moved["owner"], moved["pinned_to"]) == (node, node)
        assert moved["leader"] in (None, node)
    listed = reported("partitions", "list", "orders", *looked)["partitions"]
    assert listed[0]["pinned_to"] == 3
    streamhouse("partitions", "move", "orders", "0", "--unpin", *looked)


def drain_and_undo(requested: tuple[str, str], looked: tuple[str, str]) -> None:
    drained = reported("agents", "drain", "1", "--wait", "--timeout", str(round(LIMIT_S)), *requested)["agent"]
    assert (drained["state"], drained["partitions"], drained["shards"]) == ("draining", 0, 0)
    assert 1 not in {each["leader"] for each in reported("partitions", "list", "orders", *looked)["partitions"]}
    assert asked_for("partitions", "move", "orders", "0", "--to", "1", *requested).returncode == 1
    streamhouse("agents", "drain", "1", "--undo", *looked)
    assert [agent["state"] for agent in reported("agents", "list", *requested)["agents"]] == ["live"] * 3


def examine(requested: tuple[str, str]) -> None:
    """Nothing is broken; on a busy machine a store may be slow, which is worth a warning and no more."""
    done = asked_for("doctor", "--json", *requested)
    result = json.loads(done.stdout)
    everything = [*result["cluster"], *(check for agent in result["agents"] for check in agent["checks"])]
    warned = [check["text"] for check in everything if check["verdict"] != "ok" and "slow" not in check["text"]]
    assert warned == []
    assert done.returncode == {"ok": 0, "warning": 1}[result["verdict"]]
    assert [agent["node"] for agent in result["agents"]] == [1, 2, 3]
    assert {check["name"] for check in result["cluster"]} >= {"sessions", "leases", "agreement"}
