"""Pipeline files: what `streamhouse pipelines apply` and `validate` do with files of definitions.

Owns        the order: read, validate, then change; how problems and outcomes are told
Leaves      flags to `pipelines`, what is in files and what becomes of it to `spark.pipelines`
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamhouse.cli.doors import Doors
from streamhouse.cli.output import StatusLine, fail, print_json

if TYPE_CHECKING:
    from streamhouse.spark.pipelines.applying import File, Outcome, Problem


async def apply_files(
    doors: Doors, paths: Sequence[Path], agents: str, begin: str | None, validate_first: bool, as_json: bool
) -> list["Outcome"]:
    async with doors.http(agents) as http:
        files = await checked_files(doors, paths, agents, validate_first, as_json)
        applier = doors.applier(http, begin)
        outcomes = [await applier.apply(change) for file in files for change in file.changes]
        return outcomes + await applier.settle()


async def checked_files(
    doors: Doors, paths: Sequence[Path], agents: str, validate_first: bool, as_json: bool
) -> list["File"]:
    """The files, which are right as far as anybody knows; ends the command where they aren't."""
    files, problems = doors.read_definitions(paths)
    if not problems and validate_first and any(file.changes for file in files):
        status = StatusLine()
        try:
            files, problems = await doors.validate_definitions(
                files, agents, on_wait=lambda waited_s: status.show(_starting(waited_s))
            )
        finally:
            status.clear()
    if problems:
        _print_problems(problems, as_json)
        raise typer.Exit(1)
    return files


def _starting(waited_s: float) -> str:
    """A pipe gets it once, a terminal sees the seconds go."""
    return "starting Spark to validate …" + (f" {waited_s:.0f} s" if sys.stderr.isatty() else "")


def _print_problems(problems: "Sequence[Problem]", as_json: bool) -> None:
    if as_json:
        print_json({"problems": [_problem_json(problem) for problem in problems]})
    for problem in problems if not as_json else ():
        fail(str(problem))


def _problem_json(problem: "Problem") -> dict[str, object]:
    return {
        "file": str(problem.path),
        "line": problem.line,
        "column": problem.column,
        "text": problem.text,
        "hint": problem.hint,
    }


def outcome_json(outcome: "Outcome") -> dict[str, object]:
    return {"what": outcome.what, "name": outcome.name, "outcome": outcome.outcome, "why": outcome.why}
