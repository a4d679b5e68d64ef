"""Merging on a real Spark: by the command, under streams and sinks, and killed without a goodbye."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamhouse.spark.maintenance import merge_job
from streamhouse.spark.maintenance.job import SparkTasks
from tests.spark.maintenance.support import HASTY, QUICK, Seen, consumed, create, objects_of, run_count, trickle
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

RUN_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("merging") / "data", *QUICK) as running:
        yield running


def command(agent: LiveAgent, topic: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "streamhouse", "maintain", "merge", topic, "--agents", agent.http, *flags]


def consumed_now(agent: LiveAgent, topic: str, count: int) -> list[Seen]:
    return asyncio.run(consumed(agent, topic, count))


def placed_files(agent: LiveAgent) -> set[str]:
    return {path.name for path in agent.data.rglob("placed/**/*") if path.is_file()}


def environment(work: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(work), **more}


def test_what_a_sink_placed_is_merged_and_a_stream_over_it_notices_nothing(
    spark: SparkSession, quick: LiveAgent, tmp_path: Path
) -> None:
    create(quick, "mixed")
    for number in range(3):
        trickle(quick, "mixed", 4, start=4 * number)
        rows = spark.range(3).selectExpr(f"cast(id + {100 * number} as string) as value")
        rows.coalesce(1).write.format("streamhouse").option("agents", quick.http).option("topic", "mixed").mode(
            "append"
        ).save()
    trickle(quick, "mixed", 2, start=12)
    source = spark.readStream.format("streamhouse").option("agents", quick.http).option("topic", "mixed")
    stream = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "12").load()
    stream = stream.selectExpr("offset", "cast(value as string) as value")
    query = (
        stream.writeStream.format("memory").queryName("merged_mixed").option("checkpointLocation", str(tmp_path / "c"))
    ).start()
    try:
        done = merge_job.run("mixed", agents=quick.http, tasks=SparkTasks(lambda: spark))
        trickle(quick, "mixed", 1, start=14)
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while spark.table("merged_mixed").count() < 24:
            assert query.exception() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        query.stop()
    assert done.runs_before == 17
    assert done.objects == 1
    seen = {row.offset: row.value for row in spark.table("merged_mixed").collect()}
    read = spark.read.format("streamhouse").option("agents", quick.http).option("topic", "mixed").load()
    assert {row.offset: row.value.decode() for row in read.collect()} == seen
    assert sorted(seen) == list(range(24))


@pytest.mark.slow  # the same job runs in the shared Spark above; tests/cli has the command's output
def test_the_command_merges_and_says_what_it_did(spark: SparkSession, quick: LiveAgent, tmp_path: Path) -> None:
    create(quick, "told", partitions=2)
    trickle(quick, "told", 10, partitions=2)
    ran = subprocess.run(
        command(quick, "told", "--json", "--master", "local[2]", "--conf", "spark.driver.memory=600m"),
        env=environment(tmp_path),
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["runs_before"], result["runs_after"], result["objects"]) == (20, 2, 2)
    assert result["costs"]["puts"] == 2
    assert ran.stderr == b"", "Spark's own words are in a file, and a bar is for terminals"


def test_without_anything_to_do_no_java_is_needed(quick: LiveAgent, tmp_path: Path) -> None:
    create(quick, "idle")
    env = environment(tmp_path, JAVA_HOME=str(tmp_path / "nowhere"))
    ran = subprocess.run(command(quick, "idle"), env=env, capture_output=True, timeout=RUN_TIMEOUT_S)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"nothing to merge in idle: 0 runs\n", b"")
    ran = subprocess.run(command(quick, "nothing"), env=env, capture_output=True, timeout=RUN_TIMEOUT_S)
    assert ran.returncode == 1
    assert b"unknown topic" in ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_killed_at_random_points_leaves_old_or_new(tmp_path: Path) -> None:
    chance = random.Random(8)
    # What a job has stored may wait for its driver, on a machine that has other work, too.
    with LiveAgent(tmp_path / "data", *HASTY, "--set", "retention.orphan_age_s=30") as agent:
        create(agent, "shot", partitions=8)
        trickle(agent, "shot", 40, partitions=8)
        before = consumed_now(agent, "shot", 320)
        for number in range(6):
            process = subprocess.Popen(
                command(agent, "shot", "--master", "local[2]", "--conf", "spark.driver.memory=600m"),
                env=environment(tmp_path),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if number % 2:  # after its first object, before the agent knows all of them
                known = placed_files(agent)
                while process.poll() is None and placed_files(agent) <= known:
                    time.sleep(0.002)
                delay_s = chance.uniform(0, 0.3)
            else:
                delay_s = chance.uniform(1, 20)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay_s)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert consumed_now(agent, "shot", len(before)) == before
            trickle(agent, "shot", 2, partitions=8, start=1000)
            before = consumed_now(agent, "shot", len(before) + 16)
        ran = subprocess.run(
            command(agent, "shot", "--master", "local[2]"), env=environment(tmp_path), timeout=RUN_TIMEOUT_S
        )
        assert ran.returncode == 0
        assert run_count(agent, "shot") == 8
        assert consumed_now(agent, "shot", len(before)) == before
        deadline = time.monotonic() + 120
        while True:
            if placed_files(agent) == {key.rpartition("/")[2] for key in objects_of(agent, "shot")}:
                break
            assert time.monotonic() < deadline, "orphans stay"
            time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_supervisor_merges_what_has_become_too_much(quick: LiveAgent, tmp_path: Path) -> None:
    create(quick, "supervised")
    trickle(quick, "supervised", 40)
    flags = ["--maintain", "--agents", quick.http, "--master", "local[2]", "--log", str(tmp_path / "spark.log")]
    flags += ["--checkpoints", str(tmp_path / "checkpoints"), "--conf", "spark.driver.memory=600m"]
    policy = {"STREAMHOUSE_MAINTENANCE_EVERY_S": "1", "STREAMHOUSE_MAINTENANCE_MERGE_AT_RUNS": "30"}
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamhouse", "pipelines", "run", *flags],
            env=environment(tmp_path, **policy),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 200
        while run_count(quick, "supervised") > 1:
            assert process.poll() is None, (tmp_path / "out").read_text()
            assert time.monotonic() < deadline, (tmp_path / "out").read_text()
            time.sleep(0.2)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert "maintenance: merge supervised" in (tmp_path / "out").read_text()
