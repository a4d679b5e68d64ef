"""Damage at rest under jobs and readers that come past the agents: no record comes out changed, none is passed over."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from streamhouse.errors import CorruptObject
from streamhouse.spark.agents.run_replacements import RunRow
from streamhouse.spark.columns.record_columns import RecordBatchBuilder
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.datasource.split_planner import plan_batch
from streamhouse.spark.datasource.split_reader import ReadTask, read_split
from streamhouse.spark.maintenance import merge_job
from streamhouse.spark.maintenance.compaction_job import compact
from tests.spark.maintenance.compacting import HereExecutors
from tests.spark.maintenance.support import QUICK, HereTasks, ask, create, plan, run_count, trickle
from tests.support.agent import LiveAgent

FLUSHES = 5


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path / "data", *QUICK) as running:
        yield running


def runs_of(agent: LiveAgent, topic: str) -> list[RunRow]:
    return [run for each in plan(agent, topic).partitions for run in each.runs]


def flip(agent: LiveAgent, run: RunRow, position: int) -> None:
    (path,) = agent.data.rglob(run.key.rpartition("/")[2])
    body = bytearray(path.read_bytes())
    body[position] ^= 1
    path.unlink()
    path.write_bytes(body)


@pytest.mark.parametrize("what", ["block", "index"])
def test_a_job_does_not_merge_damage_into_a_run_that_looks_sound(agent: LiveAgent, what: str) -> None:
    create(agent, "orders")
    trickle(agent, "orders", FLUSHES)
    run = runs_of(agent, "orders")[2]
    flip(agent, run, run.position + 40 if what == "block" else run.index_position + 30)
    with pytest.raises(CorruptObject):
        merge_job.run("orders", agents=agent.http, tasks=HereTasks())
    assert run_count(agent, "orders") == FLUSHES


@pytest.mark.parametrize("what", ["block", "index"])
def test_a_task_that_reads_damage_fails_instead_of_passing_over_it(agent: LiveAgent, what: str) -> None:
    create(agent, "orders")
    trickle(agent, "orders", FLUSHES)
    run = runs_of(agent, "orders")[2]
    flip(agent, run, run.position + 40 if what == "block" else run.index_position + 30)
    options = read_options({"topic": "orders", "agents": agent.http}, streaming=False)
    splits = asyncio.run(plan_batch(options, NO_FILTERS))
    shape = RecordBatchBuilder.of(StructType().add("value", "binary"))
    task = ReadTask(agents=agent.http, fail_on_data_loss=False)
    with pytest.raises(CorruptObject, match=run.key):
        [batch for split in splits for batch in read_split(split, task, shape)]


@pytest.mark.parametrize("what", ["block", "index"])
def test_a_job_does_not_compact_by_damage(agent: LiveAgent, what: str) -> None:
    create(agent, "keyed")
    trickle(agent, "keyed", FLUSHES)
    ask(agent, "/v1/topics/keyed", {"settings": {"cleanup.policy": "compact"}}, method="PATCH")
    run = runs_of(agent, "keyed")[2]
    flip(agent, run, run.position + 40 if what == "block" else run.index_position + 30)
    before = runs_of(agent, "keyed")
    with pytest.raises(CorruptObject):
        compact("keyed", agents=agent.http, executors=HereExecutors())
    assert runs_of(agent, "keyed") == before
