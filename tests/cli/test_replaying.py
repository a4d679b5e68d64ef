"""copy and restore: flags reach the job, errors are reported before anything starts, and Ctrl-C shows how to resume."""

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.dependencies import Dependencies
from streamhouse.cli.main import app
from streamhouse.errors import UnknownTopic
from streamhouse.spark.replay.resumable_job import ReplayResult


class MadeUpReplays(Dependencies):
    def __init__(self, done: ReplayResult | BaseException) -> None:
        self.done = done
        self.requests: list[tuple[str, dict[str, Any], str]] = []

    def copy(self, request: Any, place: Any, *, job_id: str, on_progress: Any) -> ReplayResult:
        return self._did("copy", request, job_id)

    def restore(self, request: Any, place: Any, *, job_id: str, on_progress: Any) -> ReplayResult:
        return self._did("restore", request, job_id)

    def _did(self, what: str, request: Any, job_id: str) -> ReplayResult:
        self.requests.append((what, dict(request), job_id))
        if isinstance(self.done, BaseException):
            raise self.done
        return self.done


COPIED = ReplayResult(job="nightly", topic="b", records=200, written_bytes=2048, steps=1)


def run(deps: MadeUpReplays, *typed: str) -> Result:
    return CliRunner().invoke(app, typed, obj=deps)


def test_a_copy_is_reported_in_one_line() -> None:
    deps = MadeUpReplays(COPIED)
    result = run(deps, "copy", "a", "b", "--where", "key = 'x'", "--job", "nightly")
    assert (result.exit_code, result.stdout) == (0, "wrote 200 records (2.0 KiB) to b\n")
    [(what, request, job)] = deps.requests
    assert (what, request["source"], request["target"], request["where"], job) == (
        "copy",
        "a",
        "b",
        "key = 'x'",
        "nightly",
    )


def test_a_topic_is_not_copied_into_itself() -> None:
    deps = MadeUpReplays(COPIED)
    result = run(deps, "copy", "a", "a")
    assert result.exit_code == 2
    assert "a topic can't be copied into itself; topic=a" in result.stderr
    assert not deps.requests


def test_what_is_not_there_is_reported_once() -> None:
    result = run(MadeUpReplays(UnknownTopic("nope")), "copy", "nope", "b")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: unknown topic or partition; name=nope; see which there are with: streamhouse topics list\n"
    )


@pytest.mark.parametrize("typed", [("copy", "a", "b"), ("restore", "./backup", "--topic", "b")])
def test_ctrl_c_says_how_to_go_on(typed: tuple[str, ...]) -> None:
    result = run(MadeUpReplays(KeyboardInterrupt()), *typed, "--job", "cc1")
    assert result.exit_code == 130
    assert result.stderr == (
        "stopped; written records stay; to resume without duplicates, run the same command with --job cc1\n"
    )


def test_ctrl_c_shows_the_id_that_was_made_for_the_job() -> None:
    deps = MadeUpReplays(KeyboardInterrupt())
    result = run(deps, "copy", "a", "b")
    assert f"--job {deps.requests[0][2]}\n" in result.stderr
