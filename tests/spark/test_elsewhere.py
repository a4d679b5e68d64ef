"""Sparks that aren't local: a standalone cluster of a master and two workers, and a server that is talked to."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pyspark
import pytest

from streamhouse.client.sync import SyncClient
from streamhouse.spark.runtime.java import java_home
from tests.spark import elsewhere_driver
from tests.spark.elsewhere_driver import ROWS, SMALL, TASKS
from tests.spark.pipelines.live import LiveSupervisor, Pipelines
from tests.support.agent import LiveAgent, free_port

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

LIMIT_S = 600
"""It takes half a minute, on a machine that has nothing else to do."""
HOSTS = ("127.0.0.1", "127.0.0.2")
"""A second try of a task goes to another host, so there are two."""
FOUND = {"rows": ROWS, "total": sum(range(ROWS))}


def environment() -> dict[str, str]:
    root = str(Path(elsewhere_driver.__file__).parents[2])
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": root,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }


class Started:
    """A process, and those that it starts, which end with it."""

    def __init__(self, command: list[str], log: Path, **more: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env={**environment(), **more}, stdout=output, stderr=output, start_new_session=True
            )

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def wait(self) -> int:
        try:
            return self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it hangs:\n{self.output}") from None

    def wait_for_port(self, host: str, port: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            with suppress(OSError), socket.create_connection((host, port), timeout=1):
                return
            assert self._process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone cluster with two workers of one core each."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    address = f"spark://{HOSTS[0]}:{port}"
    begin = [spark_class, "org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", str(port)]
    with ExitStack() as stack:
        running = stack.enter_context(Started([*begin, "--webui-port", "0"], tmp_path / "master.log"))
        running.wait_for_port(HOSTS[0], port)
        for number, host in enumerate(HOSTS):
            begin = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0"]
            begin += ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work-{number}"), address]
            stack.enter_context(Started(begin, tmp_path / f"worker-{number}.log", SPARK_LOCAL_IP=host))
        yield address


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server, which has Spark to itself."""
    spark_submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    port = free_port()
    command = [spark_submit, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    settings = {**SMALL, "spark.connect.grpc.binding.port": str(port), "spark.connect.grpc.binding.address": HOSTS[0]}
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with Started([*command, "--master", "local[2]"], tmp_path / "server.log", SPARK_LOCAL_IP=HOSTS[0]) as running:
        running.wait_for_port(HOSTS[0], port)
        yield f"sc://{HOSTS[0]}:{port}"


def run_driver(tmp_path: Path, where: str, *arguments: str) -> dict[str, object]:
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "tests.spark.elsewhere_driver", str(result), where, *arguments]
    with Started(command, tmp_path / "driver.log", SPARK_LOCAL_IP=HOSTS[0]) as driver:
        assert driver.wait() == 0, driver.output
    results: dict[str, object] = json.loads(result.read_text())
    return results


def values(client: SyncClient, topic: str) -> list[int]:
    return sorted(int(record.text()) for record in client.consume(topic, until="end"))


@pytest.mark.slow
def test_a_task_that_runs_twice_on_a_standalone_cluster_writes_its_rows_once(
    master: str, agent: LiveAgent, client: SyncClient, tmp_path: Path
) -> None:
    client.topics.create("speculated", partitions=3)
    before = placed_objects(agent)
    assert run_driver(tmp_path, master, agent.http, "speculated") == FOUND
    assert values(client, "speculated") == list(range(ROWS))
    assert len(placed_objects(agent) - before) > TASKS  # the one that slept had stored its rows, too


@pytest.mark.slow
def test_a_pipeline_runs_on_a_standalone_cluster(
    master: str, agent: LiveAgent, client: SyncClient, tmp_path: Path
) -> None:
    client.topics.create("numbers", partitions=2)
    pipelines = Pipelines(agent, client, tmp_path)
    pipelines.send("numbers", [{"n": number} for number in range(100)])
    pipelines.apply("CREATE PIPELINE doubled AS INSERT INTO doubles SELECT n * 2 AS m FROM STREAM(numbers);")
    with LiveSupervisor(agent, tmp_path, "elsewhere", environment(), master=master):
        pipelines.reads("doubles", [{"m": number * 2} for number in range(100)])
    assert "Registered app streamhouse-pipelines-" in (tmp_path / "master.log").read_text()


def placed_objects(agent: LiveAgent) -> set[Path]:
    return {path for path in (agent.data / "objects" / "placed").rglob("*") if path.is_file()}


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="no Spark Connect here")
@pytest.mark.slow
def test_topics_are_read_and_written_through_spark_connect(
    server: str, agent: LiveAgent, client: SyncClient, tmp_path: Path
) -> None:
    client.topics.create("connected", partitions=3)
    client.topics.create("connected-copies", partitions=1)
    result = run_driver(tmp_path, server, agent.http, "connected", str(tmp_path / "checkpoint"))
    assert result == {**FOUND, "is_connect": True}
    assert values(client, "connected") == list(range(ROWS))
    assert values(client, "connected-copies") == list(range(ROWS))
