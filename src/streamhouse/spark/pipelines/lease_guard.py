"""Lease guard: a process beside a runner that kills it and all that it started if its lease isn't renewed.

Data path   supervisor -> runner -> deadlines, a line each -> **the process's stdin** -> SIGKILL
Owns        when it is too late; which processes end then
Leaves      how long a lease lasts to the supervisor

A runner can't be trusted to end itself: it may be stopped, or hang in a native call with Python's lock held. This
process has one thread that waits for the next line. A deadline that has passed counts before a line that came later is
read, so nothing continues that was stopped for longer than its lease. It kills, too, when the runner is gone: the JVM
would go on for a while. Deadlines are times of the machine's monotonic clock, which all processes share."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamhouse.clock import Clock, SystemClock

NONE: Final = b"-"
MAX_BYTES: Final = 64 * 1024


class Deadline:
    """The last deadline received; None: nothing runs, so nothing has to end."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._rest = b""

    def __repr__(self) -> str:
        return f"<Deadline {self._at}>"

    def hear(self, data: bytes, now: float) -> None:
        """Some bytes of lines; the last whole one counts, unless one before it is over: it was read too late."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not self.is_over(now):
                self._at = None if line == NONE else float(line)

    def left_s(self, now: float) -> float | None:
        return None if self._at is None else max(0.0, self._at - now)

    def is_over(self, now: float) -> bool:
        return self._at is not None and now >= self._at


class DeadlineProcess:
    """As a runner sees it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __repr__(self) -> str:
        return f"<DeadlineProcess pid={self._process.pid}>"

    @classmethod
    def start(cls) -> "DeadlineProcess":
        command = [sys.executable, "-m", "streamhouse.spark.pipelines.lease_guard"]
        return cls(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0))

    def renew(self, at: float | None) -> None:
        """Raises `BrokenPipeError` if the guard is gone: then the runner would not be ended in time."""
        assert self._process.stdin is not None
        self._process.stdin.write((NONE if at is None else repr(at).encode()) + b"\n")


def main(clock: Clock | None = None) -> None:
    clock, deadline = clock or SystemClock(), Deadline()
    while True:
        ready, _, _ = select.select([0], [], [], deadline.left_s(clock.monotonic()))
        if deadline.is_over(clock.monotonic()):
            end("the lease of its pipelines was not renewed in time")
        if ready:
            data = os.read(0, MAX_BYTES)
            if not data:
                end("the runner is gone")
            deadline.hear(data, clock.monotonic())


def end(why: str) -> None:
    """Kill the process group, this process with it, and what its processes started in groups of their own."""
    with contextlib.suppress(OSError):
        os.write(2, f"everything of this runner is killed; why={why}\n".encode())
    own = os.getpgid(0)
    for pid in below(own, processes()):
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    os.killpg(own, signal.SIGKILL)


def below(group: int, processes: Mapping[int, tuple[int, int]]) -> set[int]:
    """Processes of a group and all that they started; `processes` has the parent and the group of each."""
    chosen = {pid for pid, (_, its) in processes.items() if its == group}
    while more := {pid for pid, (parent, _) in processes.items() if parent in chosen} - chosen:
        chosen |= more
    return chosen


def processes() -> dict[int, tuple[int, int]]:
    """Where there is no /proc, none: then the group has to do."""
    processes: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            processes[int(folder.name)] = int(words[1]), int(words[2])
    return processes


if __name__ == "__main__":
    main()
