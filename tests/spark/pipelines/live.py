"""Supervisors in processes of their own, for tests that kill them, their runners and their agents."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typer.testing import CliRunner

from streamhouse.cli.main import app
from streamhouse.client.sync import SyncClient
from tests.support.agent import LiveAgent

TIMEOUT_S = 150.0
STOP_TIMEOUT_S = 60.0
CONF = ("spark.driver.memory=600m", "spark.sql.shuffle.partitions=2")


class LiveSupervisor:
    """`streamhouse pipelines run`; what it starts ends with it."""

    def __init__(
        self,
        agent: LiveAgent,
        work: Path,
        name: str,
        environment: Mapping[str, str] | None = None,
        *,
        master: str = "local[2]",
        checkpoints: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._master = master
        self.checkpoints = work / "checkpoints"
        self._checkpoints = checkpoints or str(self.checkpoints)
        self._settings = CONF + tuple(f"{name}={value}" for name, value in (settings or {}).items())
        self.log = work / f"{name}.log"
        self._agent = agent
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def start(self) -> None:
        command = [sys.executable, "-m", "streamhouse", "pipelines", "run", "--agents", self._agent.address]
        command += ["--checkpoints", self._checkpoints, "--name", self.name, "--log", str(self.log)]
        command += ["--master", self._master, *(part for setting in self._settings for part in ("--conf", setting))]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **self._environment}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the supervisor is not running"
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: its runners see that it is gone, and go too."""
        started = list(below(self.pid))
        os.kill(self.pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None
        try:
            until(lambda: not any(_is_alive(pid) for pid in started), "the runners of a killed supervisor end")
        finally:
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @property
    def runners(self) -> dict[str, int]:
        """Processes with a Spark, by the name that they were given."""
        results = {}
        for pid in _children(self.pid):
            words = _words(pid)
            if "--name" in words:  # not one that has ended and wasn't waited for yet
                results[words[words.index("--name") + 1].removeprefix("streamhouse-pipelines-")] = pid
        return results

    def kill_jvm(self) -> None:
        jvms = [pid for pid in below(self.pid) if _program(pid) == "java"]
        assert jvms, "there is no JVM"
        for pid in jvms:
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        assert self._process is not None
        code = self._process.wait(STOP_TIMEOUT_S)
        self._process = None
        return code


def below(pid: int) -> Iterable[int]:
    """Every process that one has started, and those that they have."""
    for child in _children(pid):
        yield child
        yield from below(child)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _words(pid: int) -> list[str]:
    """The command line of a process, empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def _program(pid: int) -> str:
    """Workers of Spark's come and go while one looks."""
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], what: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it didn't come about: {what}"
        time.sleep(0.3)


class Pipelines:
    """What a user sees of pipelines."""

    def __init__(self, agent: LiveAgent, client: SyncClient, work: Path) -> None:
        self._agent, self.client, self._work = agent, client, work

    def run(self, *args: str) -> str:
        """A command of `streamhouse pipelines`, which succeeds."""
        result = CliRunner().invoke(app, ["pipelines", *args, "--agents", self._agent.http])
        assert result.exit_code == 0, result.output + result.stderr
        return result.stdout

    def apply(self, text: str, *flags: str, suffix: str = ".sql") -> str:
        file = self._work / f"pipelines{suffix}"
        file.write_text(text)
        return self.run("apply", str(file), "--no-validate", *flags)

    def of(self, name: str) -> dict[str, Any]:
        results: dict[str, Any] = json.loads(self.run("describe", name, "--json"))
        return results

    def phase(self, name: str) -> str:
        phase: str = self.of(name)["status"]["phase"]
        return phase

    def reach(self, phase: str, *names: str) -> None:
        try:
            until(lambda: all(self.phase(name) == phase for name in names), f"{names} is {phase}")
        except AssertionError:
            result = "\n".join(f"{name}: {self.of(name)}\n{self.run('logs', name)}" for name in names)
            raise AssertionError(f"not {phase}:\n{result}") from None

    def read(self, topic: str) -> list[Any]:
        try:
            return [record.json() for record in self.client.consume(topic, until="end")]
        except Exception as error:
            if "unknown topic" in str(error):
                return []
            raise

    def reads(self, topic: str, expected: list[Any]) -> None:
        """Exactly these rows come, in whatever order, each once."""
        definition = sorted(map(canonical, expected))
        try:
            until(lambda: len(self.read(topic)) >= len(definition), f"{len(definition)} rows in {topic}")
        finally:
            results = sorted(map(canonical, self.read(topic)))
            assert results == definition

    def shows(self, view: str, expected: list[Any]) -> None:
        """A view comes to have exactly these rows."""
        definition = sorted(map(canonical, expected))
        results: list[str] = []

        def is_right() -> bool:
            results[:] = sorted(map(canonical, self.client.views.rows(view)))
            return results == definition

        try:
            until(is_right, f"{view} is right")
        finally:
            assert results == definition

    def send(self, topic: str, rows: Iterable[Any]) -> None:
        with self.client.producer(topic) as producer:
            for row in rows:
                producer.enqueue(row if isinstance(row, str) else json.dumps(row), key=None)


def canonical(row: Any) -> str:
    return json.dumps(row, sort_keys=True)


def owner_of(agent: LiveAgent, name: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://{agent.http}/v1/pipelines/{name}", timeout=5) as response:
            owner = json.load(response)["owner"]
    except (urllib.error.URLError, OSError):
        return None
    return None if owner is None else str(owner["supervisor"])
