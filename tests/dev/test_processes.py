"""Child processes: start, errors at the start, stop, and the end of their parent."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamhouse.dev.processes import ChildProcess, Program, StopSignals
from streamhouse.errors import ChildFailed, Stopping

LIMIT_S = 30.0

Start = Callable[..., ChildProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a shell script and wait until it has said `ready`."""
    children = []

    def started(script: str, stop_signals: StopSignals | None = None) -> ChildProcess:
        log = tmp_path / "child.log"
        child = ChildProcess(Program(name="it", command=["/bin/sh", "-c", script], log_path=log), stop_signals)
        children.append(child)
        child.start()
        child.wait_until(lambda: "ready" in "".join(child.last_lines()), timeout_s=LIMIT_S)
        return child

    yield started
    for child in children:
        child.kill()


def test_a_child_that_is_asked_ends_by_itself(start: Start) -> None:
    child = start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")
    child.stop(grace_s=LIMIT_S)
    assert child.ending == "exit code 7"


def test_a_child_that_does_not_want_to_end_is_killed(start: Start) -> None:
    child = start("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    child.stop(grace_s=0.2)
    assert child.ending == "killed by SIGKILL"


def test_nobody_waits_for_a_gentle_end_when_someone_is_in_a_hurry(start: Start) -> None:
    stop_signals = StopSignals()
    child = start("trap '' TERM; echo ready; while :; do sleep 0.01; done", stop_signals)
    stop_signals.hurry.set()
    child.stop(grace_s=3600)
    assert child.ending == "killed by SIGKILL"


def test_a_paused_child_hears_that_it_shall_stop(start: Start) -> None:
    child = start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")
    child.send(signal.SIGSTOP)
    child.stop(grace_s=LIMIT_S)
    assert child.ending == "exit code 7"


def test_ctrl_c_in_a_terminal_is_not_sent_to_a_child(start: Start) -> None:
    child = start("echo ready; exec sleep 1000")
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)


def test_a_child_that_fails_to_start_is_quoted_and_earlier_lives_are_not(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "it.log"
    for word in ("first", "second"):
        child = ChildProcess(
            Program(name="it", command=["/bin/sh", "-c", f"echo the {word} life; exit 3"], log_path=log)
        )
        child.start()
        with pytest.raises(ChildFailed, match="it did not start; exit code 3") as raised:
            child.wait_until(lambda: False, timeout_s=LIMIT_S)
        assert raised.value.last_lines == (f"the {word} life",)
    assert log.read_text() == "the first life\nthe second life\n"


def test_a_child_that_is_never_ready_is_not_waited_for_forever(start: Start) -> None:
    child = start("echo ready; exec sleep 1000")
    with pytest.raises(ChildFailed, match=r"it did not answer within 0\.1 s"):
        child.wait_until(lambda: False, what="answer", timeout_s=0.1)


def test_a_wait_ends_when_nobody_wants_the_child_any_more(start: Start) -> None:
    stop_signals = StopSignals()
    child = start("echo ready; exec sleep 1000", stop_signals)
    stop_signals.stop.set()
    with pytest.raises(Stopping):
        child.wait_until(lambda: False)


PARENT = """
import sys
from pathlib import Path
from streamhouse.dev.processes import ChildProcess, Program
child = ChildProcess(Program(name="it", command=["/bin/sleep", "1000"], log_path=Path(sys.argv[1])))
child.start()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent is gone")
def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.kill()
        parent.communicate(timeout=LIMIT_S)
        readable, _, _ = select.select([child], [], [], LIMIT_S)  # which a process is once it has ended
        assert readable
    finally:
        os.close(child)


def test_a_child_of_a_thread_lives_on_when_the_thread_has_ended(tmp_path: Path) -> None:
    child = ChildProcess(Program(name="it", command=["/bin/sleep", "1000"], log_path=tmp_path / "log"))
    thread = threading.Thread(target=child.start)
    thread.start()
    thread.join()
    assert child.running
    child.kill()
    assert child.ending == "killed by SIGKILL"
