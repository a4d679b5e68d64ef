"""ChildProcess processes that end with their parent, and free ports of loopback.

A child has its own process group (Ctrl-C is passed on by the parent) and a log file; it is stopped by SIGTERM, then by
SIGKILL. On systems other than Linux, a parent killed with SIGKILL leaves its children behind.
"""

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Self

from streamhouse.clock import SystemClock
from streamhouse.errors import ChildFailed, Stopping

START_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.02
LAST_LINES: Final = 20
_LAST_BYTES: Final = 16_384
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None

clock: Final = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The user and group of a child, if not the current ones."""

    user: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to start."""

    name: str
    command: Sequence[str]
    log_path: Path | None
    """None: its standard error is this process's, and its standard output is discarded."""
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    run_as: RunAs | None = None
    open_files: tuple[int, ...] = ()
    """Descriptors that the child inherits, under the same numbers."""
    stop_signal: signal.Signals = signal.SIGTERM
    orphan_signal: signal.Signals = signal.SIGKILL


@dataclass(frozen=True, slots=True)
class StopSignals:
    """Interrupts waits: `stop` ends the wait for a start, `hurry` the wait for a graceful end."""

    stop: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)


@contextmanager
def stopped_by_signals(stop_signals: StopSignals) -> Iterator[None]:
    def on_signal(number: int, frame: object) -> None:
        (stop_signals.hurry if stop_signals.stop.is_set() else stop_signals.stop).set()

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [(number, signal.signal(number, on_signal)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


class ChildProcess:
    """One process, which can be started again after it ended."""

    def __init__(self, program: Program, stop_signals: StopSignals | None = None) -> None:
        self.program = program
        self._stop_signals = stop_signals or StopSignals()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __repr__(self) -> str:
        return f"<ChildProcess {self.program.name} {self._process.pid if self._process else 'down'}>"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.program.name} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "not ended"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def start(self) -> None:
        program = self.program
        with self._open_log() as log:
            self._process = subprocess.Popen(
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if log is None else log,
                stderr=log,
                env=program.environment,
                cwd=program.folder,
                pass_fds=program.open_files,
                process_group=0,
                preexec_fn=_end_with_parent(program.orphan_signal),
                user=program.run_as.user if program.run_as else None,
                group=program.run_as.group if program.run_as else None,
                extra_groups=[] if program.run_as else None,
            )

    @contextmanager
    def _open_log(self) -> Iterator[BinaryIO | None]:
        path = self.program.log_path
        if path is None:
            yield None
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as log:
            self._log_start = log.tell()
            yield log

    def wait_until(self, done: Callable[[], bool], *, what: str = "start", timeout_s: float = START_TIMEOUT_S) -> None:
        """Raises `ChildFailed` when the process ends or takes too long, `Stopping` when the cluster stops."""
        deadline = clock.monotonic() + timeout_s
        while not done():
            if not self.running:
                raise self.failed(f"{self.program.name} did not {what}; {self.ending}")
            if clock.monotonic() > deadline:
                raise self.failed(f"{self.program.name} did not {what} within {timeout_s:g} s")
            self.pause()

    def pause(self) -> None:
        """Wait a moment; raises `Stopping` when the cluster stops."""
        if self._stop_signals.stop.wait(POLL_S):
            raise Stopping(f"stopped before {self.program.name} was ready")

    def failed(self, text: str) -> ChildFailed:
        """The error that shows the last lines of this life's log."""
        return ChildFailed(text, log_path=str(self.program.log_path or "above"), last_lines=self.last_lines())

    def last_lines(self) -> tuple[str, ...]:
        if self.program.log_path is None:
            return ()
        try:
            with self.program.log_path.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, end - _LAST_BYTES))
                return tuple(log.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:])
        except OSError:
            return ()

    def send(self, number: int) -> None:
        if self.running:
            os.kill(self.pid, number)

    def ask_to_stop(self) -> None:
        """Without waiting. A process that was paused with SIGSTOP is continued first, or it would never get the
        signal."""
        self.send(self.program.stop_signal)
        self.send(signal.SIGCONT)

    def wait_to_stop(self, grace_s: float) -> None:
        """Wait for the end that was requested."""
        deadline = clock.monotonic() + grace_s
        while self.running and clock.monotonic() < deadline and not self._stop_signals.hurry.is_set():
            with suppress(subprocess.TimeoutExpired):
                self._wait(POLL_S)
        self.kill()

    def stop(self, grace_s: float) -> None:
        self.ask_to_stop()
        self.wait_to_stop(grace_s)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._wait(None)

    def _wait(self, timeout_s: float | None) -> None:
        assert self._process is not None
        self._process.wait(timeout_s)


def _end_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """Return a function for the new process that requests a signal from the kernel for when its parent ends.

    The kernel means the thread that started it, so this is for children of the main thread: others end too late.
    """
    if _LIBC is None or threading.current_thread() is not threading.main_thread():
        return None
    prctl, parent = _LIBC.prctl, os.getpid()

    def request_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it ended before the request
            os._exit(1)

    return request_signal


LOOPBACK: Final = "127.0.0.1"
# Below those that the system gives to outgoing connections, also with SeaweedFS's offset of 10,000.
_RANGE: Final = range(11_000, 21_000)


class Reservation:
    """Free ports of loopback, held until all are chosen, so that none is chosen twice."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []
        self._chance = random.SystemRandom()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._held:
            each.close()

    def take(self, *, offset: int = 0) -> int:
        """A port that is free, together with its neighbour at `offset`."""
        while True:
            port = self._chance.choice(_RANGE)
            if self.hold(port) and (offset == 0 or self.hold(port + offset)):
                return port

    def hold(self, port: int) -> bool:
        """Reserve the port; returns whether it was free."""
        probe = socket.socket()
        self._held.append(probe)
        try:
            # As listeners do: connections of an earlier process in TIME_WAIT don't matter.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            probe.listen(1)  # two that are only bound would not be in each other's way
        except (OSError, OverflowError):
            return False
        return True
