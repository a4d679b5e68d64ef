"""Peer: a broker that the benchmarks start, watch and stop, whichever system it is.

Data path   `kafka_peer`, `streamhouse_peer` -> **peer** -> every measure
Owns        one broker process on loopback with a temporary data folder: its start, its readings, its end
Leaves      the command line and the configuration to the subclasses
Invariant   only processes that were started here are ever signalled, by their pid
"""

import os
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final, Self

from benchmarks import process
from benchmarks.raw_client import BrokerRefused, Connection, metadata_brokers

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.01
MAX_OPEN_FILES: Final = 16_384
HOST: Final = "127.0.0.1"


class PeerFailed(Exception):
    """A broker that should run did not start."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def raise_open_file_limit() -> None:
    """Let this process and the brokers it starts hold a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Peer(ABC):
    """A broker with a life of its own: `with KafkaPeer() as peer:` starts it and stops it."""

    name: ClassVar[str]
    start_timeout_s: ClassVar[float] = START_TIMEOUT_S

    def __init__(self) -> None:
        self.host, self.port = HOST, free_port()
        self.startup_s = 0.0
        self.life_cpu_s = 0.0
        self.folder = Path()
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self) -> list[str]:
        """Write what the broker needs into `self.folder`; the command that starts it."""

    @property
    @abstractmethod
    def version(self) -> str: ...

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PeerFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self.folder / "broker.log"

    def __repr__(self) -> str:
        state = f"pid={self._process.pid}" if self._process else "stopped"
        return f"<{type(self).__name__} {self.bootstrap} {state}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker and wait for its first Metadata answer; `startup_s` says how long that took."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        try:
            command = self.prepare()
            with self.log_file.open("wb") as log:
                began = time.perf_counter()
                self._process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=os.environ | self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._wait_until_it_answers(began + self.start_timeout_s)
            self.startup_s = time.perf_counter() - began
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that took too long; the data folder goes with the broker.

        `life_cpu_s` then says what the broker cost from its first moment to its last.
        """
        if self._process is not None:
            before = process.ended_children_cpu_s()
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            self.life_cpu_s = process.ended_children_cpu_s() - before
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, *, buffer_bytes: int = 64 * 1024) -> Connection:
        return Connection(self.host, self.port, buffer_bytes=buffer_bytes)

    def cpu_s(self) -> float:
        """CPU seconds of all threads since the start, user and system."""
        return process.cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return process.status_bytes(self.pid, "VmRSS")

    def rss_peak_bytes(self) -> int:
        return process.status_bytes(self.pid, "VmHWM")

    def _wait_until_it_answers(self, deadline: float) -> None:
        while not self._answers():
            if self._process is not None and self._process.poll() is not None:
                raise PeerFailed(f"{self.name} ended with code {self._process.returncode}: {self._last_words()}")
            if time.perf_counter() > deadline:
                raise PeerFailed(f"{self.name} gave no answer in {self.start_timeout_s:.0f} s: {self._last_words()}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            with Connection(self.host, self.port, timeout_s=5.0) as connection:
                return metadata_brokers(connection) > 0
        except (OSError, BrokerRefused):
            return False

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return " | ".join(lines[-5:])[-800:]
