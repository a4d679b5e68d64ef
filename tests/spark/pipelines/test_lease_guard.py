"""When a runner has to end, and what ends with it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from streamhouse.spark.pipelines.lease_guard import Deadline, below

JVM = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(os.getpid(), worker.pid, flush=True)
time.sleep(600)
"""
RUNNER = (
    f"JVM = {JVM!r}"
    + """
import subprocess, sys, time
from streamhouse.spark.pipelines.lease_guard import DeadlineProcess
deadline = DeadlineProcess.start()
jvm = subprocess.Popen([sys.executable, "-c", JVM], stdout=subprocess.PIPE)
print(jvm.stdout.readline().decode().strip(), flush=True)
for line in sys.stdin:
    deadline.renew(None if line == "none\\n" else time.monotonic() + float(line))
    print("heard", flush=True)
"""
)


def test_the_last_whole_line_counts() -> None:
    deadline = Deadline()
    assert (deadline.left_s(10.0), deadline.is_over(10.0)) == (None, False)
    deadline.hear(b"11\n12.5\n13.", 10.0)
    assert (deadline.left_s(10.0), deadline.is_over(12.4), deadline.is_over(12.5)) == (2.5, False, True)
    deadline.hear(b"5\n", 12.0)
    assert (deadline.left_s(14.0), deadline.is_over(13.4)) == (0.0, False)
    deadline.hear(b"-\n", 13.0)
    assert (deadline.left_s(1000.0), deadline.is_over(1000.0)) == (None, False)


def test_a_line_that_is_read_behind_the_end_of_one_before_it_changes_nothing() -> None:
    deadline = Deadline()
    deadline.hear(b"12\n30\n", 20.0)
    assert deadline.is_over(20.0)
    deadline.hear(b"40\n-\n", 20.0)
    assert deadline.is_over(20.0)


def test_what_processes_of_a_group_started_belongs_to_it_whatever_their_group() -> None:
    result = {10: (1, 10), 11: (10, 10), 12: (11, 12), 13: (12, 12), 20: (1, 20), 21: (20, 20)}
    assert below(10, result) == {10, 11, 12, 13}


class Runner:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout is not None
        self.others = [int(pid) for pid in self.process.stdout.readline().split()]
        """A JVM, as it were, and a worker that it has started in a group of its own."""

    def renew(self, text: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{text}\n")
        assert self.process.stdout.readline() == "heard\n"

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever is left of it."""
        for pid in (self.process.pid, *self.others):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def is_gone(self) -> bool:
        return self.process.poll() is not None and not any(map(_is_alive, self.others))


@pytest.fixture
def runner() -> Iterator[Runner]:
    with Runner() as started:
        yield started


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until_gone(runner: Runner) -> None:
    deadline = time.monotonic() + 30
    while not runner.is_gone():
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.02)


def test_a_runner_that_is_not_renewed_ends_with_all_that_it_started(runner: Runner) -> None:
    runner.renew("60")
    runner.renew("none")
    assert not runner.is_gone()
    runner.renew("0.2")
    _until_gone(runner)
    assert runner.process.returncode == -signal.SIGKILL


def test_a_stopped_runner_ends_without_going_on(runner: Runner) -> None:
    runner.renew("1")
    os.kill(runner.process.pid, signal.SIGSTOP)
    for pid in runner.others:
        os.kill(pid, signal.SIGSTOP)
    _until_gone(runner)


def test_a_runner_of_which_everything_was_stopped_ends_when_it_goes_on(runner: Runner) -> None:
    runner.renew("1")
    os.killpg(runner.process.pid, signal.SIGSTOP)
    assert runner.process.stdin is not None
    runner.process.stdin.write("60\n")  # a renewal that comes too late
    time.sleep(1.2)
    assert not runner.is_gone()
    os.killpg(runner.process.pid, signal.SIGCONT)
    _until_gone(runner)


def test_what_a_killed_runner_started_ends_with_it(runner: Runner) -> None:
    runner.process.kill()
    _until_gone(runner)
