"""maintain: a job's flags reach it, and what it did is told to people and to programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.doors import Doors
from streamhouse.cli.main import app
from streamhouse.cli.spark_jobs import JobPlace
from streamhouse.errors import Unavailable
from streamhouse.spark.maintenance.jobs import Done
from streamhouse.spark.maintenance.rewriting import Costs

MERGED = Done(
    topic="orders",
    objects=2,
    runs_before=1204,
    runs_after=2,
    replaced_runs=1204,
    rounds=1,
    costs=Costs(gets=602, read_bytes=4_103_022, puts=2, written_bytes=3_920_110),
)


class MadeUpJobs(Doors):
    def __init__(self, done: Done | Exception) -> None:
        self.done = done
        self.asked: list[tuple[str, str, JobPlace, int]] = []

    def maintain(self, kind: Any, topic: str, place: JobPlace, *, at_least: int, on_progress: Any) -> Done:
        self.asked.append((kind, topic, place, at_least))
        if isinstance(self.done, Exception):
            raise self.done
        return self.done


def run(doors: MadeUpJobs, *typed: str) -> Result:
    return CliRunner().invoke(app, ["maintain", *typed], obj=doors)


def test_a_merge_is_told_in_one_line() -> None:
    result = run(MadeUpJobs(MERGED), "merge", "orders")
    assert result.exit_code == 0
    assert result.stdout.startswith("merged orders: 1,204 runs became 2; ")
    assert "602 requests" in result.stdout
    assert result.stderr == "", "a bar is for terminals"


def test_a_merge_without_anything_to_do_is_no_failure() -> None:
    result = run(MadeUpJobs(Done(topic="orders", runs_before=1, runs_after=1)), "merge", "orders")
    assert (result.exit_code, result.stdout) == (0, "nothing to merge in orders: 1 run\n")


def test_programs_get_all_figures() -> None:
    told = json.loads(run(MadeUpJobs(MERGED), "merge", "orders", "--json").stdout)
    assert told["costs"] == {"gets": 602, "read_bytes": 4_103_022, "puts": 2, "written_bytes": 3_920_110}
    assert (told["topic"], told["runs_before"], told["runs_after"], told["conflicts"]) == ("orders", 1204, 2, 0)


def test_flags_reach_the_job() -> None:
    doors = MadeUpJobs(MERGED)
    flags = ("--agents", "a:1,b:2", "--master", "local[3]", "--conf", "x.y=z", "--log", "l", "--at-least", "16")
    run(doors, "merge", "orders", *flags)
    place = JobPlace(agents="a:1,b:2", master="local[3]", settings={"x.y": "z"}, log=Path("l"))
    assert doors.asked == [("merge", "orders", place, 16)]
    run(doors, "compact", "orders", "--agents", "a:1")
    assert doors.asked[1][:2] == ("compact", "orders")


@pytest.mark.parametrize("flags", [("--conf", "x"), ("--at-least", "1"), ("--agents", "nowhere")])
def test_what_can_not_be_meant_is_refused(flags: tuple[str, ...]) -> None:
    doors = MadeUpJobs(MERGED)
    assert run(doors, "merge", "orders", *flags).exit_code == 2
    assert not doors.asked


def test_a_job_that_fails_says_why_in_one_line() -> None:
    result = run(MadeUpJobs(Unavailable("others rewrite the topic all the time")), "merge", "orders")
    assert result.exit_code == 1
    assert result.stderr == "error: others rewrite the topic all the time\n"
