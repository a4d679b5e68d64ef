"""Supervisors, and all that they started, are stopped beyond their lease while another takes over, and go on: each row
is once in every target, and nothing is committed by who isn't the owner any more."""

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamhouse.client.sync import SyncClient
from streamhouse.model.table import Connector, Table
from streamhouse.spark.lake.table_options import lake_options, open_table
from tests.spark.pipelines.live import LiveSupervisor, Pipelines, below, owner_of, until
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 20
LAKES = (Connector.ICEBERG, Connector.DELTA, Connector.PARQUET)
NAMES = ("copies", "totals", *(f"to_{connector.value}" for connector in LAKES))


def sql_of(lake: Path, *, starting: str = "earliest") -> str:
    columns = "(id BIGINT, part BIGINT)"
    text = f"CREATE TABLE orders {columns} WITH (connector = 'topic', format = 'json');\n"
    options = f"trigger = '300 milliseconds', max_records_per_trigger = '3', starting = '{starting}'"
    pipeline = f"WITH ({options}, dead_letters = 'none')"
    for each in LAKES:
        place = f"connector = '{each.value}', location = '{lake / each.value}'"
        text += f"CREATE TABLE {each.value} {columns} WITH ({place});\n"
        text += (
            f"CREATE PIPELINE to_{each.value} {pipeline} AS INSERT INTO {each.value} SELECT * FROM STREAM(orders);\n"
        )
    text += f"CREATE PIPELINE copies {pipeline} AS INSERT INTO copies SELECT * FROM STREAM(orders);\n"
    text += (
        f"CREATE MATERIALIZED VIEW totals {pipeline} AS SELECT part, count(*) AS n FROM STREAM(orders) GROUP BY part;"
    )
    return text


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    given = ("pipelines.ttl_s=6s", f"tables.files_under={tmp_path}")
    with LiveAgent(tmp_path / "data", *(flag for each in given for flag in ("--set", each))) as running:
        yield running


class Targets:
    def __init__(self, agent: LiveAgent, pipelines: Pipelines, lake: Path) -> None:
        self._agent, self._pipelines, self._lake = agent, pipelines, lake
        self._sent = 0
        self.before = 0
        """How many rows were sent before the view was created."""

    def begin_views_anew(self) -> None:
        self.before = self._sent

    def send(self) -> None:
        rows = [{"id": self._sent + number, "part": number % 2} for number in range(ROWS)]
        self._pipelines.send("orders", rows)
        self._sent += ROWS

    def are_right(self) -> None:
        """Every row that was sent is once in each of them."""
        ids = list(range(self._sent))
        self._pipelines.reads("copies", [{"id": each, "part": each % 2} for each in ids])
        self._pipelines.shows("totals", [{"part": part, "n": (self._sent - self.before) // 2} for part in (0, 1)])
        for connector in LAKES:
            until(partial(self._has, connector), f"rows are in {connector.value}")
            assert self.ids_in(connector) == ids, connector

    def _has(self, connector: Connector) -> bool:
        return len(self.ids_in(connector)) >= self._sent

    def ids_in(self, connector: Connector) -> list[int]:
        options = {"location": str(self._lake / connector.value)}
        lake = open_table(lake_options(Table(name=connector.value, connector=connector, options=options)))
        lake.last_batch("")
        reader = lake.reader()
        batches = [batch for file in lake.data_files() for batch in reader.batches(file.token, ["id"])]
        return sorted(row["id"] for batch in batches for row in batch.to_pylist())

    def are_owned_by(self, supervisor: LiveSupervisor) -> bool:
        owners: set[Any] = {(owner_of(self._agent, name) or "").rpartition("-")[0] for name in NAMES}
        return owners == {supervisor.name}


def signalled(supervisor: LiveSupervisor, number: int, *, is_all: bool) -> None:
    for pid in [supervisor.pid, *(below(supervisor.pid) if is_all else ())]:
        os.kill(pid, number)


def runner_of(supervisor: LiveSupervisor) -> list[int]:
    """The processes of a supervisor's only runner, without the one that would kill it in time."""
    (runner,) = supervisor.runners.values()
    guarding = b"streamhouse.spark.pipelines.lease_guard"
    return [runner, *(pid for pid in below(runner) if guarding not in Path(f"/proc/{pid}/cmdline").read_bytes())]


@pytest.mark.parametrize("how", ["created again", "restarted"])
def test_a_stopped_runner_of_what_begins_anew_commits_nothing(agent: LiveAgent, tmp_path: Path, how: str) -> None:
    first, second = (LiveSupervisor(agent, tmp_path, name) for name in ("first", "second"))
    with SyncClient(agent.http) as client, first:
        client.topics.create("orders", partitions=2)
        pipelines = Pipelines(agent, client, tmp_path)
        targets = Targets(agent, pipelines, tmp_path / "lake")
        pipelines.apply(sql_of(tmp_path / "lake"))
        pipelines.reach("running", *NAMES)
        targets.send()
        targets.are_right()
        signalled(first, signal.SIGSTOP, is_all=True)
        try:
            for name in NAMES:
                if how == "restarted":
                    client.pipelines.restart(name, from_="latest")
                else:
                    client.pipelines.delete(name)
            if how == "created again":
                pipelines.apply(sql_of(tmp_path / "lake", starting="latest"))
            targets.begin_views_anew()
            with second:
                until(lambda: targets.are_owned_by(second), "the second has all")
                pipelines.reach("running", *NAMES)
                targets.send()
                for pid in runner_of(first):  # its supervisor and its guard stay stopped
                    os.kill(pid, signal.SIGCONT)
                results = [f"pipeline moved; pipeline={name}" for name in NAMES]
                until(lambda: all(each in first.output for each in results), "each query of the first is refused")
                targets.are_right()
                targets.send()
                targets.are_right()
        finally:
            signalled(first, signal.SIGCONT, is_all=True)


def test_each_row_is_there_once_whichever_agent_is_stopped(agent: LiveAgent, tmp_path: Path) -> None:
    first, second = (LiveSupervisor(agent, tmp_path, name) for name in ("first", "second"))
    with SyncClient(agent.http) as client, first:
        client.topics.create("orders", partitions=2)
        pipelines = Pipelines(agent, client, tmp_path)
        targets = Targets(agent, pipelines, tmp_path / "lake")
        pipelines.apply(sql_of(tmp_path / "lake"))
        pipelines.reach("running", *NAMES)
        targets.send()
        signalled(first, signal.SIGSTOP, is_all=False)  # in the middle of it: three records at a time
        with second:
            until(lambda: targets.are_owned_by(second), "the second has all")
            targets.are_right()
            signalled(first, signal.SIGCONT, is_all=False)
            targets.send()
            targets.are_right()

            until(lambda: bool(first.runners), "the first has a runner again")
            targets.send()
            signalled(second, signal.SIGSTOP, is_all=True)
            try:
                until(lambda: targets.are_owned_by(first), "the first has all")
                targets.are_right()
            finally:
                signalled(second, signal.SIGCONT, is_all=True)
            targets.send()
            targets.are_right()
