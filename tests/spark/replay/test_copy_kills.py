"""A copy is killed without a goodbye, and run again under its job's id: each record once, in order."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from streamhouse.client.sync import SyncClient
from streamhouse.spark.runtime.java import java_home
from tests.spark.replay import killed_copy
from tests.spark.replay.kafka import fill, named, records_of
from tests.spark.replay.test_copy_job import Copy, copy, loop
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.slow]
__all__ = ["copy", "loop"]

RUN_TIMEOUT_S = 120


class Ran(NamedTuple):
    code: int
    said: str


def run(agent: LiveAgent, folder: Path, *arguments: str, fault: str) -> Ran:
    """Into files: what a killed driver leaves behind would keep a pipe open."""
    environment = {
        **os.environ,
        "FAULT": fault,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
        "PYTHONPATH": str(Path(killed_copy.__file__).parents[3]),
    }
    with (folder / "said").open("wb") as said, (folder / "errors").open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.replay.killed_copy", agent.http, *arguments],
            env=environment,
            stdout=said,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the copy hangs:\n{(folder / 'errors').read_text()[-3000:]}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return Ran(code, (folder / "said").read_text())


@pytest.mark.timeout(400)
def test_a_copy_that_is_killed_goes_on_under_its_id_and_writes_each_record_once(
    agent: LiveAgent, client: SyncClient, copy: Copy, tmp_path: Path
) -> None:
    first, source, target, job = named("first"), named("from"), named("to"), named("job")
    fill(agent, client, first)
    copy(first, source)
    request = (source, target, job, "500")
    for fault in ("before:1", "after:2"):
        assert run(agent, tmp_path, *request, fault=fault).code == -signal.SIGKILL
    done = run(agent, tmp_path, *request, fault="")
    assert done.code == 0
    records, resumed_at, steps = map(int, done.said.split())
    assert (resumed_at, steps > 3, records > 0) == (3, True, True)
    assert records_of(agent, target, 3) == records_of(agent, source, 3)
