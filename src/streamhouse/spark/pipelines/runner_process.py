"""Runner process: starts, commands and kills the process in which Spark runs, for its supervisor.

Data path   supervisor -> **runner_process** -> stdin of a runner; its stdout -> events
Owns        start, commands, kill; everything that a runner started ends with it
Leaves      which commands to the supervisor

A runner has its own process group: killing the group ends Python and the JVM at once.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from streamhouse.spark.pipelines.runner_protocol import Command, Event, Exit, Ready, encode_message, read_event

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
MODULE: Final = "streamhouse.spark.pipelines.runner"

OnEvent = Callable[["RunnerProcess", Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerCommand:
    """The common arguments of all runners of a supervisor."""

    agents: str
    checkpoints: str
    log: Path
    master: str | None = None
    conf: tuple[str, ...] = ()
    module: str = MODULE
    without: tuple[str, ...] = ()
    """Variables of the environment that runners don't get: pipelines act only as their owners."""

    def command(self, name: str) -> list[str]:
        flags = ["--agents", self.agents, "--checkpoints", self.checkpoints, "--name", name]
        flags += [] if self.master is None else ["--master", self.master]
        flags += [part for setting in self.conf for part in ("--conf", setting)]
        return [sys.executable, "-m", self.module, *flags]


class RunnerProcess:
    """A runner. `wait` returns when it is gone, whatever the reason."""

    def __init__(self, key: str, process: asyncio.subprocess.Process, on_event: OnEvent) -> None:
        self.key = key
        self._process, self._on_event = process, on_event
        self.is_ready = False
        self.jvm_pid: int | None = None

    def __repr__(self) -> str:
        return f"<Child {self.key} pid={self._process.pid} {'ready' if self.is_ready else 'starting'}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """Nothing is sent to a child that has ended; `wait` returns then."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(encode_message(command))

    async def wait(self) -> None:
        """Hand on its events until it is gone."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while line := await stdout.readline():
                self._on_line(line)
        except ValueError:
            pass  # a line without an end: this is no runner any more
        finally:
            self.kill()
            await self._process.wait()

    def _on_line(self, line: bytes) -> None:
        try:
            event = read_event(line)
        except msgspec.DecodeError:
            return
        if isinstance(event, Ready):
            self.is_ready, self.jvm_pid = True, event.jvm_pid
        self._on_event(self, event)

    def exit(self) -> None:
        self.send(Exit())

    def kill(self) -> None:
        """At once, with everything that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def start_runner(key: str, plan: RunnerCommand, on_event: OnEvent) -> RunnerProcess:
    command: Sequence[str] = plan.command(f"streamhouse-pipelines-{key}")
    handle = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=handle,
            env={name: value for name, value in os.environ.items() if name not in plan.without},
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
    finally:
        os.close(handle)
    return RunnerProcess(key, process, on_event)
