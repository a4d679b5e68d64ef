"""A copy is killed without a goodbye, and run again under its job's id: each record once, in order."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamhouse.client.sync import SyncClient
from streamhouse.spark.java import java_home
from tests.live import LiveAgent
from tests.spark.replaying import killed_copy
from tests.spark.replaying.kafka import fill, named, records_of
from tests.spark.replaying.test_copying import Copy, copy, loop

pytestmark = pytest.mark.spark
__all__ = ["copy", "loop"]

RUN_TIMEOUT_S = 120


def run(agent: LiveAgent, *arguments: str, fault: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "FAULT": fault,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
        "PYTHONPATH": str(Path(killed_copy.__file__).parents[3]),
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.replaying.killed_copy", agent.http, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        start_new_session=True,
        check=False,
    )


@pytest.mark.timeout(400)
def test_a_copy_that_is_killed_goes_on_under_its_id_and_writes_each_record_once(
    agent: LiveAgent, client: SyncClient, copy: Copy
) -> None:
    first, source, target, job = named("first"), named("from"), named("to"), named("job")
    fill(agent, client, first)
    copy(first, source)
    asked = (source, target, job, "500")
    for fault in ("before:1", "after:2"):
        assert run(agent, *asked, fault=fault).returncode == -signal.SIGKILL
    done = run(agent, *asked, fault="")
    assert done.returncode == 0, done.stderr[-3000:]
    records, resumed_at, steps = map(int, done.stdout.split())
    assert (resumed_at, steps > 3, records > 0) == (3, True, True)
    assert records_of(agent, target, 3) == records_of(agent, source, 3)
