"""Kafka's own tools on a cluster: partitions are given to other brokers, and sizes add up."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.kafka_jars import java
from tests.dev.test_cluster import Running, run, streamhouse
from tests.java.conftest import JVM_FLAGS, Java

__all__ = ["run"]

PARTITIONS = 3


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
        assert verified(kafka, tmp_path / "plan.json", node) == PARTITIONS
        told = json.loads(kafka.tool("LogDirsCommand", "--describe", "--topic-list", "orders").splitlines()[-1])
        held = {
            broker["broker"]: {each["partition"]: each["size"] for each in broker["logDirs"][0]["partitions"]}
            for broker in told["brokers"]
        }
        assert set(held.pop(node)) == {f"orders-{number}" for number in range(PARTITIONS)}
        assert held == {other: {} for other in held}


def verified(kafka: Java, plan: Path, node: int) -> int:
    """How many partitions have arrived, once the tool finds none on its way."""
    parts = [{"topic": "orders", "partition": number, "replicas": [node]} for number in range(PARTITIONS)]
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    tool = "reassign.ReassignPartitionsCommand"
    started = kafka.tool(tool, "--reassignment-json-file", str(plan), "--execute")
    assert "Successfully started partition reassignments for orders-0,orders-1,orders-2" in started
    for _ in range(20):
        if "No partition reassignments found" in kafka.tool(tool, "--list"):
            break
    return kafka.tool(tool, "--reassignment-json-file", str(plan), "--verify").count("is completed.")
