"""Nothing that a test or a run of tests has started is left, whatever it does to get away."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import bearers, marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="environments of processes are read on Linux only")

LIMIT_S = 30.0
ESCAPES = {
    "into the background": "sleep 1000 & echo $! > pid",
    "into a session of its own": "setsid sh -c 'echo $$ > pid; exec sleep 1000' < /dev/null > /dev/null 2>&1 &",
    "away from its parent": "(setsid sh -c 'echo $$ > pid; exec sleep 1000' &) &",
    "from being asked": "setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1; done' &",
    "by beginning anew": (
        "setsid sh -c 'trap \"setsid sleep 1000 & exit\" TERM; echo $$ > pid; while :; do sleep 0.1; done' &"
    ),
}
RUN = """
import subprocess, sys
from tests.support.processes import begin_run
begin_run()
subprocess.Popen(["setsid", "sh", "-c", "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"])
sys.stdin.read()
"""


def pid_in(folder: Path) -> int:
    deadline = time.monotonic() + LIMIT_S
    while not ((file := folder / "pid").exists() and (text := file.read_text()).endswith("\n")):
        assert time.monotonic() < deadline, "nothing was started"
        time.sleep(0.01)
    return int(text)


def is_there(pid: int) -> bool:
    """Not if all that is left is for a parent to take note of."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while is_there(pid):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.01)


@pytest.mark.parametrize("script", ESCAPES.values(), ids=ESCAPES)
def test_what_a_test_started_is_gone_after_it(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.processes.GRACE_S", 1.0)
    with marked(os.environ) as environment:
        subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=True, timeout=LIMIT_S)
        pid = pid_in(tmp_path)
        assert is_there(pid)
    assert not is_there(pid)
    assert bearers(environment["TEST_RUN"]) == set()


def test_what_others_started_goes_on() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        with marked(os.environ):
            pass
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda sign: sign.name)
def test_what_a_run_started_is_gone_when_it_was_cut_off(sign: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as run:
        pid = pid_in(tmp_path)
        run.send_signal(sign)
        run.wait(LIMIT_S)
    wait_until_gone(pid)


def test_every_test_of_this_run_is_watched() -> None:
    assert "TEST_RUN" in os.environ
