"""Forked agents: an agent's process begins as a fork of one that has imported the agent's modules.

Owns        the process that forks, one for each worker; `ForkedProcess`, with what tests need of `subprocess.Popen`
Leaves      starting `python -m streamhouse up` to tests of the command line, to clusters and to pages of the docs

Importing is nine tenths of the CPU time that an agent needs to start, and a run of tests starts some two hundred. From
its arguments on, a fork does what the command does: it is killed, stopped and waited for like one.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from streamhouse.cli.main import main

PRELOADED: Final = (
    "streamhouse.cli.main",
    "streamhouse.cli.commands.agent",
    "streamhouse.agent",
    # what an agent imports when it is needed first
    "streamhouse.wire.http.agent_requests",
    "streamhouse.wire.http.app",
    "streamhouse.wire.http.server",
    "streamhouse.stores.metadata.postgres",
    "streamhouse.stores.objects.remote_open",
)
"""None of these starts a thread, which a fork would lack."""

_context: Final = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(PRELOADED))


class ForkedProcess:
    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid: int = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code, or minus the signal; raises as `subprocess.Popen.wait` does."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("streamhouse", timeout_s or 0)
        return code

    def kill(self) -> None:
        self._process.kill()


def fork_command(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkedProcess:
    """Run `streamhouse` with these arguments; what it prints is appended to the log."""
    process = _context.Process(target=run_command, args=(list(arguments), dict(environment), os.fspath(log)))
    process.start()
    return ForkedProcess(process)


def run_command(arguments: list[str], environment: dict[str, str], log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["streamhouse", *arguments]
    main()
