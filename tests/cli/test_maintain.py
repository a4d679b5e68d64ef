"""maintain: flags reach the job, and its result is printed as text and as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.commands.spark import JobProgress
from streamhouse.cli.dependencies import Dependencies, SparkJobOptions
from streamhouse.cli.main import app
from streamhouse.errors import Unavailable
from streamhouse.spark.maintenance.compaction_job import CompactionResult
from streamhouse.spark.maintenance.job import JobResult, Progress
from streamhouse.spark.maintenance.segment_rewrite import IoStats

MERGED = JobResult(
    topic="orders",
    objects=2,
    runs_before=1204,
    runs_after=2,
    replaced_runs=1204,
    rounds=1,
    costs=IoStats(gets=602, read_bytes=4_103_022, puts=2, written_bytes=3_920_110),
)


class MadeUpJobs(Dependencies):
    def __init__(self, done: JobResult | BaseException) -> None:
        self.done = done
        self.requests: list[tuple[str, str, SparkJobOptions, int]] = []

    def maintain(self, kind: Any, topic: str, place: SparkJobOptions, *, at_least: int, on_progress: Any) -> JobResult:
        self.requests.append((kind, topic, place, at_least))
        if isinstance(self.done, BaseException):
            raise self.done
        return self.done


def run(deps: MadeUpJobs, *typed: str) -> Result:
    return CliRunner().invoke(app, ["maintain", *typed], obj=deps)


def test_a_merge_is_reported_in_one_line() -> None:
    result = run(MadeUpJobs(MERGED), "merge", "orders")
    assert result.exit_code == 0
    assert result.stdout.startswith("merged orders: 1,204 runs became 2; ")
    assert "602 requests" in result.stdout
    assert result.stderr == "", "a bar is for terminals"


def test_a_merge_without_anything_to_do_is_no_failure() -> None:
    result = run(MadeUpJobs(JobResult(topic="orders", runs_before=1, runs_after=1)), "merge", "orders")
    assert (result.exit_code, result.stdout) == (0, "nothing to merge in orders: 1 run\n")


@pytest.mark.parametrize(("kind", "done"), [("merge", JobResult), ("compact", CompactionResult)])
def test_where_others_were_quicker_nobody_is_named(kind: str, done: type[JobResult]) -> None:
    result = run(MadeUpJobs(done(topic="orders", runs_before=9, runs_after=1, conflicts=2)), kind, "orders")
    reported = f"nothing left to {kind} in orders: another process did it meanwhile\n"
    assert (result.exit_code, result.stdout) == (0, reported)


def test_ctrl_c_says_what_stays() -> None:
    result = run(MadeUpJobs(KeyboardInterrupt()), "compact", "orders")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "stopped; rewritten segments stay; run the command again for the rest\n"


def test_figures_begin_again_with_each_phase_and_promise_nothing_too_soon() -> None:
    phases, mib = JobProgress(), 1024 * 1024
    assert phases.describe(Progress("starting Spark", 0, 0), 0.0) == ""
    assert phases.describe(Progress("reading keys", 0, 100 * mib), 60.0) == "0 B of 100.0 MiB"
    assert phases.describe(Progress("reading keys", 50 * mib, 100 * mib), 61.0) == "50.0 MiB of 100.0 MiB", "too soon"
    assert phases.describe(Progress("reading keys", 50 * mib, 100 * mib), 70.0).endswith("MiB, about 0:10 left")
    assert phases.describe(Progress("rewriting", 0, 100 * mib), 80.0) == "0 B of 100.0 MiB"
    assert phases.describe(Progress("rewriting", 1 * mib, 100 * mib), 100.0) == "1.0 MiB of 100.0 MiB", "too little"
    assert phases.describe(Progress("rewriting", 10 * mib, 100 * mib), 480.0).endswith(", about 1:00:00 left")
    assert phases.describe(Progress("rewriting", 100 * mib, 100 * mib), 500.0) == "100.0 MiB of 100.0 MiB"
    assert phases.describe(Progress("rewriting", 0, 8 * mib), 600.0) == "0 B of 8.0 MiB", "another round"
    assert phases.describe(Progress("rewriting", 4 * mib, 8 * mib), 610.0).endswith(", about 0:10 left")


def test_programs_get_all_figures() -> None:
    result = json.loads(run(MadeUpJobs(MERGED), "merge", "orders", "--json").stdout)
    assert result["costs"] == {"gets": 602, "read_bytes": 4_103_022, "puts": 2, "written_bytes": 3_920_110}
    assert (result["topic"], result["runs_before"], result["runs_after"], result["conflicts"]) == ("orders", 1204, 2, 0)


def test_flags_reach_the_job() -> None:
    deps = MadeUpJobs(MERGED)
    flags = ("--agents", "a:1,b:2", "--master", "local[3]", "--conf", "x.y=z", "--log", "l", "--at-least", "16")
    run(deps, "merge", "orders", *flags)
    place = SparkJobOptions(agents="a:1,b:2", master="local[3]", settings={"x.y": "z"}, log=Path("l"))
    assert deps.requests == [("merge", "orders", place, 16)]
    run(deps, "compact", "orders", "--agents", "a:1")
    assert deps.requests[1][:2] == ("compact", "orders")


@pytest.mark.parametrize("flags", [("--conf", "x"), ("--at-least", "1"), ("--agents", "nowhere")])
def test_what_can_not_be_meant_is_refused(flags: tuple[str, ...]) -> None:
    deps = MadeUpJobs(MERGED)
    assert run(deps, "merge", "orders", *flags).exit_code == 2
    assert not deps.requests


def test_a_job_that_fails_says_why_in_one_line() -> None:
    result = run(MadeUpJobs(Unavailable("others rewrite the topic all the time")), "merge", "orders")
    assert result.exit_code == 1
    assert result.stderr == "error: others rewrite the topic all the time\n"
