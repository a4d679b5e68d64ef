"""Drivers are killed at every step of a commit, tasks and their Python die: each row comes once.

Nightly. With every change, `test_sink_placing` repeats a commit and leaves tries of a task uncommitted.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.client.sync import SyncClient
from tests.spark.datasource import killed_driver
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, LINES = 4, 20
RUN_TIMEOUT_S = 90
KILLS = ["before-commit:1", "after-commit:1"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(FILES):
        file = folder / f"{number}.txt"
        file.write_text("".join(f"{number}-{line}\n" for line in range(LINES)))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # in this order
    return folder


@pytest.fixture
def killed_agent(tmp_path: Path) -> Iterator[LiveAgent]:
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    with LiveAgent(tmp_path / "data") as running:
        yield running


class Drivers:
    """One after the other, on one checkpoint."""

    def __init__(self, agent: LiveAgent, lines: Path, work: Path) -> None:
        self._arguments = [agent.http, "copies", str(lines), str(work / "checkpoint")]
        self._work = work

    def run(self, fault: str, *, master: str = "local[2]") -> int:
        environment = {**os.environ, "FAULT": fault, "PIDS": str(self._work / "pids"), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(killed_driver.__file__).parents[3])}
        log = self._work / "driver.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _RUN, *self._arguments, master],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            return process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver hangs:\n{log.read_text(errors='replace')[-3000:]}") from None
        finally:
            _end_group(process.pid)


_RUN = "import sys; from tests.spark.datasource.killed_driver import main; main(*sys.argv[1:])"


def _end_group(leader: int) -> None:
    """What a killed driver leaves behind: Spark's own helpers, which are of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@pytest.mark.timeout(600)
def test_each_row_comes_once_whatever_is_killed(killed_agent: LiveAgent, lines: Path, tmp_path: Path) -> None:
    drivers = Drivers(killed_agent, lines, tmp_path)
    with SyncClient(killed_agent.http) as client:
        client.topics.create("copies", partitions=3)
        for fault in KILLS:
            assert drivers.run(fault) == -signal.SIGKILL
            results = [record.text() for record in client.consume("copies", until="end")]
            assert len(results) == len(set(results))
            assert len(results) % LINES == 0  # whole micro-batches
        assert drivers.run("task:2", master="local[2,4]") == 0
        results = [record.text() for record in client.consume("copies", until="end")]
    assert sorted(results) == sorted(f"{number}-{line}" for number in range(FILES) for line in range(LINES))
    stored = [path for path in (killed_agent.data / "objects" / "placed").rglob("*") if path.is_file()]
    assert len(stored) > FILES  # tries that nobody committed are the collector's
