"""Kafka's own tools on a cluster: partitions are given to other brokers, sizes add up, and calls outlive a broker."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.kafka_jars import java
from tests.dev.test_cluster import Running, run, streamhouse
from tests.java.conftest import HERE, JVM_FLAGS, TIMEOUT_S, Java

__all__ = ["run"]

PARTITIONS = 3
LASTS_MS = 12_000
CALL_TIMEOUT_MS = 60_000
"""How long Java's Admin waits for an answer unless told otherwise."""


@pytest.mark.s3
@pytest.mark.postgres
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
def test_partitions_are_reassigned_and_log_directories_add_up(
    run: Callable[..., Running], jars: str, tmp_path: Path
) -> None:
    cluster = run()
    kafka = Java(command=(java(), *JVM_FLAGS, "-cp", jars), bootstrap=cluster.bootstrap)
    streamhouse("topics", "create", "orders", "--partitions", str(PARTITIONS), "-b", cluster.bootstrap)
    streamhouse("produce", "orders", *map(str, range(30)), "-b", cluster.bootstrap)
    for node in (1, 2):
        assert verified(kafka, tmp_path / "plan.json", [node]) == PARTITIONS
        response = json.loads(kafka.tool("LogDirsCommand", "--describe", "--topic-list", "orders").splitlines()[-1])
        held = {
            broker["broker"]: {each["partition"]: each["size"] for each in broker["logDirs"][0]["partitions"]}
            for broker in response["brokers"]
        }
        assert set(held.pop(node)) == {f"orders-{number}" for number in range(PARTITIONS)}
        assert held == {other: {} for other in held}
    assert "ReplicationFactor: 1" in kafka.tool("TopicCommand", "--describe", "--topic", "orders")
    assert verified(kafka, tmp_path / "plan.json", [2, 1, 3]) == PARTITIONS
    described = kafka.tool("TopicCommand", "--describe", "--topic", "orders")
    assert "ReplicationFactor: 3" in described
    assert described.count("Leader: 2\tReplicas: 2,1,3\tIsr: 2,1,3") == PARTITIONS
    assert kafka.tool("TopicCommand", "--describe", "--under-replicated-partitions").strip() == ""


def verified(kafka: Java, plan: Path, replicas: list[int]) -> int:
    """How many partitions have arrived, once the tool finds none on its way."""
    parts = [{"topic": "orders", "partition": number, "replicas": replicas} for number in range(PARTITIONS)]
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    tool = "reassign.ReassignPartitionsCommand"
    started = kafka.tool(tool, "--reassignment-json-file", str(plan), "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments for orders-0,orders-1,orders-2" in started
    for _ in range(20):
        if "No partition reassignments found" in kafka.tool(tool, "--list"):
            break
    return kafka.tool(tool, "--reassignment-json-file", str(plan), "--verify").count("is completed.")


@pytest.mark.s3
@pytest.mark.postgres
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
@pytest.mark.parametrize("flags", [(), ("--restart",)], ids=["gone for good", "back at once"])
def test_groups_are_listed_again_as_soon_as_the_death_of_an_agent_is_noticed(
    run: Callable[..., Running], jars: str, flags: tuple[str, ...]
) -> None:
    cluster = run("--lease-ttl", "3s", *flags)
    program = [str(HERE / "ListGroups.java"), cluster.bootstrap, str(LASTS_MS)]
    command = [java(), *JVM_FLAGS, "-cp", jars, *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listing:
        assert listing.stdout is not None
        assert listing.stdout.readline() == "listed\n"
        os.kill(cluster.ready["agents"][1]["pid"], signal.SIGKILL)
        said, errors = listing.communicate(timeout=TIMEOUT_S)
    assert listing.returncode == 0, errors
    assert int(said.removeprefix("slowest: ")) < CALL_TIMEOUT_MS / 2
