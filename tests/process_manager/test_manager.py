"""Several agents under one process manager: real processes on one database and one folder of records."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamhouse.cli.commands.dev import lease_settings
from streamhouse.dev.postgres import find_binaries
from tests.support.agent import free_port
from tests.support.postgres import RealPostgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
LIMIT_S = 120.0
LEASE = [word for name, value in lease_settings("6s").items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def postgres() -> Iterator[RealPostgres]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL here")
    with RealPostgres(binaries) as server:
        yield server


class Managed:
    """`streamhouse up --agents N`, from the outside."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.health = f"127.0.0.1:{free_port()}"
        command = [
            *(sys.executable, "-m", "streamhouse", "up", "--data", str(folder / "data"), "--health", self.health),
            *("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "", *flags),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMHOUSE_")}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    @property
    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def ask(self) -> tuple[int, list[dict[str, Any]]]:
        try:
            with urllib.request.urlopen(f"http://{self.health}/health/ready", timeout=5) as response:
                return response.status, json.load(response)["agents"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["agents"]
        except OSError:
            return 0, []

    def until(self, done: Callable[[int, list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + LIMIT_S
        while not done(*(response := self.ask())):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline, response
            select.select([], [], [], 0.05)
        return response[1]

    def end(self) -> int:
        """The exit code, once every child has ended, too."""
        children = [os.pidfd_open(pid) for pid in self.children]
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=LIMIT_S)
        for child in children:
            assert select.select([child], [], [], LIMIT_S)[0], "a child outlived its parent"
            os.close(child)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="streamhouse-agents-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "streamhouse", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_agents_are_one_cluster_and_one_that_is_killed_comes_back(postgres: RealPostgres, folder: Path) -> None:
    stores = ("--metadata", postgres.dsn(), "--store", f"file://{folder}/records")
    managed = Managed(folder, "--agents", "2", *stores, *LEASE)
    try:
        agents = managed.until(lambda status, _: status == 200)
        assert [each["number"] for each in agents] == [1, 2]
        first, second = (each["http"] for each in agents)
        run("topics", "create", "orders", "--partitions", "4", "--agents", first)
        run("produce", "orders", "one", "two", "three", "--agents", second)
        killed = managed.children[0]
        os.kill(killed, signal.SIGKILL)
        managed.until(lambda status, _: status == 503)
        agents = managed.until(lambda status, _: status == 200)
        assert sorted(each["restarts"] for each in agents) == [0, 1]
        assert killed not in managed.children
        words = run("consume", "orders", "--agents", first, "-n", "3")
        assert {word for word in ("one", "two", "three") if word in words} == {"one", "two", "three"}
        assert managed.end() == 0
    finally:
        managed.close()


def test_embedded_stores_are_refused_before_anything_starts(folder: Path) -> None:
    managed = Managed(folder, "--agents", "2")
    _, error = managed.process.communicate(timeout=LIMIT_S)
    assert managed.process.returncode == 2
    assert "PostgreSQL" in error
    assert not (folder / "data").exists()
