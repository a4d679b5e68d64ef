"""Ctrl-C in the middle of a copy: the command says how to go on, ends soon, and Java ends with it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamhouse.client.sync import SyncClient
from streamhouse.spark.runtime.java import java_home
from tests.spark.replay.kafka import fill, named, records_of
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SLEEPY = "reflect('java.lang.Thread', 'sleep', 300000L)"
"""Longer than the test waits: the copy is in the middle of a step whenever it is stopped."""


def eventually(condition: Callable[[], bool], *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.timeout(240)
def test_a_copy_that_is_stopped_says_how_to_go_on_and_leaves_no_java(
    agent: LiveAgent, client: SyncClient, tmp_path: Path
) -> None:
    source, target = named("from"), named("to")
    fill(agent, client, source, count=12)
    command = [sys.executable, "-m", "streamhouse", "copy", source, target, "--agents", agent.http, "--job", target]
    flags = ["--value", SLEEPY, "--master", "local[2]", "--conf", "spark.driver.memory=600m"]
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
    }
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [*command, *flags, "--log", str(tmp_path / "spark.log")],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            # The topic is made when everything was looked at, right before the first step.
            eventually(lambda: target in [each.name for each in client.topics.list()], within_s=120)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
            assert process.wait(60) == 130
            eventually(lambda: is_gone(process.pid), within_s=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert (tmp_path / "errors").read_text() == (
        f"stopped; written records stay; to resume without duplicates, run the same command with --job {target}\n"
    )
    assert records_of(agent, target, 3) == {0: [], 1: [], 2: []}
