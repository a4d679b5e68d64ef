"""Reaping: what a test starts ends with it, and what a run of tests starts ends with the run, however that ends.

Owns        a mark in the environment of everything that is started, and the process that waits for the end of a run
Leaves      an orderly end to fixtures; this is for what they have missed, or had no time for

Groups and sessions don't hold what is started: a SQL worker leaves them on purpose, Spark's Python daemons make groups
of their own, and a killed parent hands its children to somebody else. Their environment they keep. So it has a mark,
and whoever bears it is ended: by `marked` at the end of a test, and by a process of its own when pytest is gone, be it
at the end, by Ctrl-C, or because a time limit has killed it. Elsewhere than on Linux environments can't be read, and
nobody is found.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "TEST_RUN"
GRACE_S: Final = 10.0
"""For what stops in good order when it is asked: agents, supervisors, PostgreSQL."""
LOOK_S: Final = 0.05


def begin_run() -> None:
    """From here on, whatever this process starts is ended with it. A worker of xdist has a mark of its own."""
    mark = os.environ[VARIABLE] = secrets.token_hex(8)
    _reapers.append(
        subprocess.Popen(
            [sys.executable, "-E", "-S", __file__, mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )
    )


_reapers: Final[list[subprocess.Popen[bytes]]] = []  # kept, since each has the end of a pipe that closes with us


@contextlib.contextmanager
def marked(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """An environment for what ends with this block. Its mark begins with that of the run."""
    mark = f"{os.environ.get(VARIABLE, '')}.{secrets.token_hex(4)}"
    try:
        yield {**environment, VARIABLE: mark}
    finally:
        end_marked(mark)


def end_marked(mark: str) -> None:
    """End all who bear it: first by asking. Those that they start meanwhile bear it as well."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        requests: set[int] = set()
        deadline = time.monotonic() + GRACE_S
        while (result := bearers(mark)) and time.monotonic() < deadline:
            for pid in result - requests:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sign)
            requests |= result
            time.sleep(LOOK_S)


def bearers(mark: str) -> set[int]:
    """Processes that were started with this mark, or with one that begins with it."""
    expected = f"\0{VARIABLE}={mark}".encode()
    return {pid for pid in _all_processes() if expected in b"\0" + _environment_of(pid)}


def _all_processes() -> set[int]:
    return {int(folder.name) for folder in Path("/proc").glob("[0-9]*")} - {os.getpid()}


def _environment_of(pid: int) -> bytes:
    """Nothing of those that are ending, or are somebody else's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    sys.stdin.read()
    end_marked(sys.argv[1])
