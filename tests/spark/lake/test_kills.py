"""Drivers are killed at any moment: a table is always that of whole micro-batches, and each key is in it once."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.table import StaticTable

from streamhouse.spark.lake.table_options import lake_options, open_table
from streamhouse.spark.runtime.java import java_home
from tests.spark.lake import killed_driver
from tests.spark.lake.killed_driver import QUERY_ID, table_at

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]

BATCHES, CHANGES, KEYS = 14, 40, 60
KILLS, SPREAD_S = 4, 2.5
FIRST, LAST = 2, 4
"""A kill comes so long behind the beginning of a run's FIRST micro-batch at most, and not later than that of its LAST:
there is something left for each run."""
RUN_TIMEOUT_S = 180

Model = dict[int, int]


def change(offset: int, key: int, *, ends: bool) -> dict[str, Any]:
    about = {"_key": str(key), "_partition": 0, "_offset": offset, "_deleted": ends}
    return about if ends else {"id": key, "amount": offset, **about}


def written(folder: Path, chance: random.Random) -> list[Model]:
    """A file for each micro-batch, in their order; returns what the table is behind each of them."""
    folder.mkdir()
    model: Model = {}
    models = [dict(model)]
    for number in range(BATCHES):
        offsets = range(number * CHANGES, (number + 1) * CHANGES)
        changes = [change(each, chance.randrange(KEYS), ends=chance.random() < 0.2) for each in offsets]
        for each in changes:
            key = int(each["_key"])
            model.pop(key, None) if each["_deleted"] else model.update({key: each["amount"]})
        models.append(dict(model))
        file = folder / f"{number}.json"
        file.write_text("".join(json.dumps(each) + "\n" for each in changes))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return models


class Drivers:
    """One after the other, on one checkpoint."""

    def __init__(self, work: Path) -> None:
        self.location = str(work / "lake")
        self._began, self._log = work / "began", work / "driver.log"
        self._arguments = [self.location, str(work / "changes"), str(work / "checkpoint"), str(self._began)]

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """A driver; all of its processes are killed behind this."""
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(java_home())}
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(killed_driver.__file__).parents[3])}
        self._began.write_text("")
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.lake.killed_driver", *self._arguments],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def killed(self, delay_s: float) -> int:
        """Killed a while after a micro-batch began; returns the exit code."""
        with self.running() as process:
            self._until(process, FIRST, RUN_TIMEOUT_S)
            self._until(process, LAST, delay_s)
            assert process.poll() is None, self.output
        return process.returncode

    def _until(self, process: subprocess.Popen[bytes], batches: int, timeout_s: float) -> None:
        """Until so many micro-batches began, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while len(self._began.read_text()) < batches and time.monotonic() < deadline_s:
            assert process.poll() is None, self.output
            time.sleep(0.01)

    def finished(self) -> int:
        with self.running() as process:
            return process.wait(RUN_TIMEOUT_S)

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def by_key(rows: Sequence[tuple[int, int]]) -> Model:
    result = dict(rows)
    assert len(result) == len(rows)  # each key is there once
    return result


def of_pyiceberg(location: str) -> Model:
    rows = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    return by_key([(row["id"], row["amount"]) for row in rows])


@pytest.mark.timeout(900)
def test_each_key_is_there_once_with_its_last_value_whenever_the_driver_is_killed(
    duck: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    chance = random.Random(20)
    models = written(tmp_path / "changes", chance)
    drivers = Drivers(tmp_path)
    lake = open_table(lake_options(table_at(drivers.location)))
    for _ in range(KILLS):
        assert drivers.killed(chance.uniform(0, SPREAD_S)) == -signal.SIGKILL, drivers.output
        last = lake.last_batch(QUERY_ID)
        assert last is not None
        # The hint is written behind the metadata: who reads by it may see the version before.
        assert of_pyiceberg(drivers.location) in models[last : last + 2]
    assert drivers.finished() == 0, drivers.output
    assert lake.last_batch(QUERY_ID) == BATCHES - 1
    assert of_pyiceberg(drivers.location) == models[-1]
    result = duck.execute(f"SELECT id, amount FROM iceberg_scan('{drivers.location}')").fetchall()
    assert by_key([(row[0], row[1]) for row in result]) == models[-1]
