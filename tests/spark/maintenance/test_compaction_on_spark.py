"""Compaction on a real Spark: many updates of many keys, readers that begin meanwhile, and jobs killed without a
goodbye."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.maintenance import compaction_job, compaction_plan, merge_job
from streamhouse.spark.maintenance.job import Progress, SparkTasks
from tests.spark.maintenance.compacting import (
    STILL,
    Seen,
    cleaned,
    create,
    final,
    left_by_kafka,
    produce,
    put,
    read_all,
)
from tests.spark.maintenance.support import HASTY, HereTasks, plan
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

RUN_TIMEOUT_S = 300
PARTITIONS = 3
EASY = (
    *("--set", "flush.age_s=0.2", "--set", "flush.check_s=0.05"),
    *("--set", "compaction.merge_runs=0", "--set", "compaction.interval_s=1h"),
)
"""Runs are small, and agents leave them to jobs."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("compaction") / "data", *EASY) as running:
        yield running


def updates(count: int, keys: int, *, seed: int = 1) -> Iterator[tuple[bytes, bytes | None]]:
    """One in twenty deletes its key."""
    chance = random.Random(seed)
    for number in range(count):
        key = b"key-%d" % chance.randrange(keys)
        yield key, None if chance.random() < 0.05 else b"value-%d-" % number + b"x" * 40


def wait_flushed(agent: LiveAgent, topic: str, records: int) -> None:
    deadline = time.monotonic() + 60
    while sum(each.flushed_end for each in plan(agent, topic).partitions) < records:
        assert time.monotonic() < deadline, "records are not flushed"
        time.sleep(0.05)


def check_many(agent: LiveAgent, spark: SparkSession, topic: str, *, count: int, keys: int) -> None:
    """Updates, deletions, and readers from zero all the time: each of them ends with every key's final value."""
    create(agent, topic, partitions=PARTITIONS, cleanup_policy="compact")
    latest = produce(agent, topic, updates(count, keys), partitions=PARTITIONS)
    wait_flushed(agent, topic, count)
    expected = {key: value for key, (_, value) in latest.items() if value is not None}
    seen: list[dict[bytes, bytes]] = []
    is_over = threading.Event()

    def read_on() -> None:
        while not is_over.is_set():
            seen.append(final(read_all(agent, topic, partitions=PARTITIONS)))

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        done = compaction_job.run(topic, agents=agent.http, tasks=SparkTasks(lambda: spark))
    finally:
        is_over.set()
        reader.join()
    assert seen
    assert all(each == expected for each in seen)
    left = read_all(agent, topic, partitions=PARTITIONS)
    assert len(left) == len(latest) == done.records == count - done.dropped_records
    assert {each.key: (each.partition, each.value) for each in left} == latest
    rows = spark.read.format("streamhouse").option("agents", agent.http).option("topic", topic).load()
    assert sorted(Seen(row.partition, row.offset, bytes(row.key), row.value) for row in rows.collect()) == sorted(left)
    assert done.costs.gets > 0
    assert sum(cleaned(agent, topic).values()) == count


def test_many_updates_of_many_keys_are_read_meanwhile(agent: LiveAgent, spark: SparkSession) -> None:
    check_many(agent, spark, "fifty-thousand", count=50_000, keys=1_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_updates_of_ten_thousand_keys(agent: LiveAgent, spark: SparkSession) -> None:
    check_many(agent, spark, "million", count=1_000_000, keys=10_000)


def test_offsets_find_their_groups_though_runs_are_others_by_then(
    agent: LiveAgent, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_plan, "MAX_RUNS", 2)
    create(agent, "regrouped", cleanup_policy="compact")
    for number in range(6):
        put(agent, "regrouped", ("a", str(number)), (f"k{number % 4}", str(number)))
    log = read_all(agent, "regrouped")
    merged: list[Progress] = []

    def merge(at: Progress) -> None:
        if at == Progress("reading keys", 0, at.total_bytes) and not merged:
            merged.append(at)
            merge_job.run("regrouped", agents=agent.http, tasks=HereTasks())

    done = compaction_job.run("regrouped", agents=agent.http, tasks=SparkTasks(lambda: spark), on_progress=merge)
    assert done.conflicts == 1
    assert sorted(read_all(agent, "regrouped")) == left_by_kafka(log)


def command(agent: LiveAgent, topic: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "streamhouse", "maintain", "compact", topic, "--agents", agent.http, *flags]


def environment(work: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(work), **more}


@pytest.mark.slow  # the same job runs in the shared Spark above; tests/cli has the command's output
def test_the_command_compacts_and_says_what_it_did(agent: LiveAgent, spark: SparkSession, tmp_path: Path) -> None:
    create(agent, "told", cleanup_policy="compact")
    for number in range(4):
        put(agent, "told", ("a", str(number)), ("b", str(number)))
    ran = subprocess.run(
        command(agent, "told", "--json", "--master", "local[2]", "--conf", "spark.driver.memory=600m"),
        env=environment(tmp_path),
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["records"], result["dropped_records"], result["up_to"]) == (2, 6, {"0": 8})
    assert ran.stderr == b"", "Spark's own words are in a file, and a bar is for terminals"


def test_a_topic_that_is_not_compacted_needs_no_java_to_say_so(agent: LiveAgent, tmp_path: Path) -> None:
    create(agent, "plain", cleanup_policy="delete")
    env = environment(tmp_path, JAVA_HOME=str(tmp_path / "nowhere"))
    ran = subprocess.run(command(agent, "plain"), env=env, capture_output=True, timeout=RUN_TIMEOUT_S)
    assert ran.returncode == 2
    assert b"not compacted" in ran.stderr
    assert b"cleanup.policy=compact" in ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_killed_at_random_points_leaves_every_final_value(tmp_path: Path) -> None:
    chance = random.Random(8)
    with LiveAgent(tmp_path / "data", *STILL) as agent:
        create(agent, "shot", partitions=PARTITIONS, cleanup_policy="compact")
        latest = produce(agent, "shot", updates(60_000, 2_000), partitions=PARTITIONS)
        for number in range(6):
            wait_flushed(agent, "shot", 60_000 + number * 5_000)
            process = subprocess.Popen(
                command(agent, "shot", "--master", "local[2]", "--conf", "spark.driver.memory=600m"),
                env=environment(tmp_path),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(4, 20))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            expected = {key: value for key, (_, value) in latest.items() if value is not None}
            assert final(read_all(agent, "shot", partitions=PARTITIONS)) == expected
            latest |= produce(agent, "shot", updates(5_000, 2_000, seed=number), partitions=PARTITIONS)
        wait_flushed(agent, "shot", 90_000)
        ran = subprocess.run(
            command(agent, "shot", "--master", "local[2]"), env=environment(tmp_path), timeout=RUN_TIMEOUT_S
        )
        assert ran.returncode == 0
        left = read_all(agent, "shot", partitions=PARTITIONS)
        assert {each.key: (each.partition, each.value) for each in left} == latest
        assert len(left) == len(latest)
    with LiveAgent(tmp_path / "data", *HASTY, "--set", "compaction.interval_s=1h") as agent:
        deadline = time.monotonic() + 60
        while True:
            files = {path.name for path in agent.data.rglob("placed/**/*") if path.is_file()}
            known = {run.key.rpartition("/")[2] for each in plan(agent, "shot").partitions for run in each.runs}
            if files <= known:
                break
            assert time.monotonic() < deadline, "orphans stay"
            time.sleep(0.2)
        assert sorted(read_all(agent, "shot", partitions=PARTITIONS)) == sorted(left)
