"""A real agent in a process of its own, for tests that kill it or talk to it with real clients."""

import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.forked_agent import ForkedProcess, fork_command

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class LiveAgent:
    """`streamhouse up` on a folder, with ports that stay the same over restarts."""

    def __init__(self, data: Path, *flags: str, grpc: bool = False, ca: Path | None = None) -> None:
        self.data = data
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.grpc = f"127.0.0.1:{free_port()}" if grpc else ""
        self._flags = flags
        self._ca = ca
        """Of HTTP's certificate, if it has one."""
        self._process: ForkedProcess | None = None
        self.log_path = data.parent / f"{data.name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    @property
    def address(self) -> str:
        """Where HTTP clients find it."""
        return self.http

    @property
    def pid(self) -> int:
        assert self._process is not None, "the agent is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def output(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start and wait until it is ready."""
        arguments = ["up", "--data", str(self.data), "--kafka", self.bootstrap, "--http", self.http]
        arguments += ["--grpc", self.grpc, *self._flags]
        self._process = fork_command(arguments, _clean_environment(), self.log_path)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the agent did not start:\n{self.output[-4000:]}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            context = None if self._ca is None else ssl.create_default_context(cafile=str(self._ca))
            url = f"{'http' if context is None else 'https'}://{self.http}/health/ready"
            with urllib.request.urlopen(url, timeout=1, context=context) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """SIGKILL: no flush, no goodbye."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the agent did not stop:\n{self.output[-4000:]}") from None
        self._process = None
        return code


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("STREAMHOUSE_")}
