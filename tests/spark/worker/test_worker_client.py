"""starting: one worker for one user and set of agents, whoever asks first, and words where it can't be."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.errors import ChildFailed, Misconfigured
from streamhouse.spark.worker import worker_client
from streamhouse.spark.worker.discovery import RuntimeDir, Worker, runtime_dir
from streamhouse.spark.worker.worker_client import ensure_worker, find_worker, stop_worker, worker_status

AGENTS = "127.0.0.1:8080"
STAND_IN = Path(__file__).with_name("stand_in.py")


class Launches:
    """Starts stand-ins, and ends those that are left."""

    def __init__(self) -> None:
        self.what = "serve"
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, agents: str, home: RuntimeDir) -> "subprocess.Popen[bytes]":
        with home.log.open("wb") as log:
            command = [sys.executable, str(STAND_IN), str(home.folder), self.what]
            self.started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return self.started[-1]


def wait_for_life(home: RuntimeDir) -> None:
    while not home.has_worker():
        time.sleep(0.01)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Launches]:
    monkeypatch.setenv("STREAMHOUSE_SQL_FOLDER", str(tmp_path))
    result = Launches()
    monkeypatch.setattr(worker_client, "launch", result)
    yield result
    for process in result.started:
        process.returncode = None
        process.kill()
        process.wait()


async def test_a_worker_is_started_once_for_those_who_ask_at_the_same_time(launches: Launches) -> None:
    waited: list[float] = []
    workers = await asyncio.gather(*(ensure_worker(AGENTS, on_wait=waited.append) for _ in range(4)))
    assert len(launches.started) == 1
    assert {worker.pid for worker in workers} == {launches.started[0].pid}
    assert waited


async def test_a_worker_that_runs_is_found_also_when_agents_are_named_in_another_order(launches: Launches) -> None:
    first = await ensure_worker("a:1,b:2")
    assert await ensure_worker(" b:2, a:1") == first
    assert await find_worker("a:1") is None


async def test_one_that_died_is_replaced(launches: Launches) -> None:
    first = await ensure_worker(AGENTS)
    os.kill(first.pid, signal.SIGKILL)
    launches.started[0].returncode = None
    launches.started[0].wait()
    second = await ensure_worker(AGENTS)
    assert second.pid != first.pid
    assert await worker_status(second) is not None


async def test_one_that_another_process_started_and_left_is_waited_for(launches: Launches) -> None:
    home = runtime_dir(AGENTS)
    process = launches(AGENTS, home)
    await asyncio.to_thread(wait_for_life, home)
    result = await ensure_worker(AGENTS)
    assert result.pid == process.pid
    assert len(launches.started) == 1


async def test_one_that_can_not_start_shows_its_last_words_and_where_its_log_is(launches: Launches) -> None:
    launches.what = "fail"
    with pytest.raises(ChildFailed, match="no luck today") as failure:
        await ensure_worker(AGENTS)
    assert str(runtime_dir(AGENTS).log) in str(failure.value)
    assert failure.value.last_lines == ("no luck today",)


async def test_a_wrong_token_is_nobodys_worker(launches: Launches) -> None:
    result = await ensure_worker(AGENTS)
    runtime_dir(AGENTS).publish(Worker(address=result.address, token="guessed", pid=result.pid))
    assert await find_worker(AGENTS) is None


async def test_stopping_ends_it_and_nobody_else(launches: Launches) -> None:
    result = await ensure_worker(AGENTS)
    assert await stop_worker(AGENTS) == result
    assert not runtime_dir(AGENTS).has_worker()
    assert await stop_worker(AGENTS) is None  # the number may be another process's by now: it is not touched


def test_the_folder_is_the_users_alone(tmp_path: Path) -> None:
    environ = {"STREAMHOUSE_SQL_FOLDER": str(tmp_path)}
    home = runtime_dir(AGENTS, environ)
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    home.publish(Worker(address="a:1", token="t"))
    assert stat.S_IMODE((home.folder / "worker.json").stat().st_mode) == 0o600
    home.folder.chmod(0o755)
    with pytest.raises(Misconfigured, match="others can look into"):
        runtime_dir(AGENTS, environ)


def test_without_java_the_shell_says_so_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise Misconfigured("no Java")

    monkeypatch.setattr(worker_client, "java_home", none)
    with pytest.raises(Misconfigured, match="no Java"):
        worker_client.launch(AGENTS, RuntimeDir(tmp_path))
