"""Requests of the pipeline commands: list, describe, apply files, wait until pipelines run, follow events.

Definitions are read and validated before anything changes. `pipelines.py` has the commands and their options.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import typer

from streamhouse.cli.dependencies import Dependencies
from streamhouse.cli.output import (
    Column,
    StatusLine,
    console,
    count,
    format_time,
    on_terminal,
    print_error,
    print_json,
    print_line,
    print_properties,
    print_table,
    seconds,
    size,
)
from streamhouse.clock import SystemClock
from streamhouse.errors import Rejected, Unavailable

if TYPE_CHECKING:
    from streamhouse.client.http import Http
    from streamhouse.spark.agents.definition_applier import DefinitionFile, FileDiagnostic, Outcome

UNKNOWN: Final = "-"
PHASES: Final = {
    "running": "green",
    "done": "green",
    "starting": "cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "backing off": "yellow",
    "failed": "bold red",
}
COLUMNS: Final = (
    Column("name", style="bold"),
    Column("phase", paint=PHASES),
    Column("target", drop=3),
    Column("rows/s", "right"),
    Column("lag", "right"),
    Column("batch", "right", drop=2),
    Column("state", "right", drop=4),
    Column("late", "right", drop=5),
    Column("restarts", "right", drop=5),
    Column("supervisor", drop=6, style="dim"),
    Column("error", style="red", fold=True),
)


def phase_of(pipeline: Mapping[str, Any]) -> str:
    """Return the phase to show: the reported one, or the desired one if no supervisor has the pipeline."""
    phase = str(_status(pipeline).get("phase") or "waiting")
    if pipeline.get("wish") == "pause":
        return "paused"
    return phase if pipeline.get("owner") or phase in ("done", "failed") else "waiting"


def row_of(pipeline: Mapping[str, Any]) -> list[str]:
    status = _status(pipeline)
    runs = phase_of(pipeline) == "running"
    return [
        pipeline["name"],
        phase_of(pipeline),
        str(pipeline.get("target") or UNKNOWN),
        _number(status.get("input_rate")) if runs else UNKNOWN,
        _number(status.get("lag_records")),
        _milliseconds(status.get("batch_ms")) if runs else UNKNOWN,
        _size(status.get("state_bytes")),
        count(status.get("late_rows") or 0),
        count(status.get("restarts") or 0),
        str((pipeline.get("owner") or {}).get("supervisor") or UNKNOWN),
        str(status.get("error") or ""),
    ]


def print_pipelines(pipelines: Sequence[Mapping[str, Any]]) -> None:
    if not pipelines:
        print_line("no pipelines yet; write one into a file and: streamhouse pipelines apply FILE")
        return
    print_table(COLUMNS, map(row_of, pipelines))


NO_FREE_SLOTS: Final = "supervisors take no more; raise their --slots, or start another one: streamhouse pipelines run"


def has_no_supervisor(pipelines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pipeline should run and no supervisor has it."""
    return any(
        pipeline.get("wish") == "run" and phase_of(pipeline) not in ("done", "failed") and not pipeline.get("owner")
        for pipeline in pipelines
    )


def has_no_free_slots(supervisors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are supervisors, and all their slots are used."""
    return bool(supervisors) and all(len(supervisor["pipelines"]) >= supervisor["slots"] for supervisor in supervisors)


def print_pipeline(pipeline: Mapping[str, Any]) -> None:
    """Print all properties of a pipeline."""
    print_properties(properties_of(pipeline))
    columns = pipeline.get("columns")
    if columns:
        print_line()
        print_table(
            (Column("column", style="bold"), Column("type")), [(source["name"], source["type"]) for source in columns]
        )
    print_line()
    print_line(str(pipeline.get("text") or "").strip(), dim=True)


def properties_of(pipeline: Mapping[str, Any]) -> list[tuple[str, str]]:
    status, owner = _status(pipeline), pipeline.get("owner") or {}
    shape = pipeline.get("shape") or {}
    watermark = status.get("watermark_ms")
    reported_at_ms = status.get("told_at_ms")
    facts = [
        ("name", pipeline["name"]),
        ("kind", str(pipeline.get("kind"))),
        ("phase", phase_of(pipeline)),
        ("reads", ", ".join(shape.get("streams") or ()) or UNKNOWN),
        ("writes", str(pipeline.get("target") or UNKNOWN)),
        ("state", "; ".join(shape.get("state") or ()) or "none"),
        ("options", ", ".join(f"{name}={value}" for name, value in (pipeline.get("options") or {}).items()) or "none"),
        ("revision", f"{pipeline.get('revision')}, generation {pipeline.get('generation')}"),
        ("query", str(pipeline.get("query_id"))),
        ("supervisor", f"{owner['supervisor']} on {owner.get('host')}" if owner else UNKNOWN),
        *([("runs as", str(pipeline["runs_as"]))] if pipeline.get("runs_as") else []),
        ("rows in", count(status.get("rows_in") or 0)),
        ("rate", f"{_number(status.get('input_rate'))} rows/s in, {_number(status.get('processed_rate'))} processed"),
        ("lag", f"{_number(status.get('lag_records'))} records"),
        ("batch", f"{_number(status.get('batch_id'))} in {_milliseconds(status.get('batch_ms'))}"),
        ("state size", f"{_number(status.get('state_rows'))} rows, {_size(status.get('state_bytes'))}"),
        ("watermark", UNKNOWN if watermark is None else format_time(watermark)),
        ("late rows", count(status.get("late_rows") or 0)),
        ("dead letters", count(status.get("dead_letters") or 0)),
        ("restarts", count(status.get("restarts") or 0)),
        ("reported", UNKNOWN if not reported_at_ms else format_time(reported_at_ms)),
    ]
    return [*facts, ("error", str(status["error"]))] if status.get("error") else facts


def _status(pipeline: Mapping[str, Any]) -> Mapping[str, Any]:
    return pipeline.get("status") or {}


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else count(value) if value >= 10 or value == int(value) else f"{value:.1f}"


def _milliseconds(value: float | None) -> str:
    return UNKNOWN if value is None else seconds(value / 1000)


def _size(value: float | None) -> str:
    return UNKNOWN if value is None else size(value)


def path_of(name: str) -> str:
    return f"/v1/pipelines/{quote(name, safe='')}"


async def send_request(http: "Http", method: str, path: str, body: object = None) -> dict[str, Any]:
    """Send a request and return the JSON response; raises `Rejected` or `Unavailable` with the detail of an error."""
    import msgspec

    response = await http.send(method, path, body=body)
    try:
        content: dict[str, Any] = msgspec.json.decode(response.content) if response.content else {}
    except msgspec.DecodeError:
        content = {}
    if response.status >= 500:
        raise Unavailable(str(content.get("detail") or f"refused; status={response.status}"))
    if response.status >= 400:
        raise Rejected(str(content.get("detail") or f"refused; status={response.status}"))
    return content


def current_phase(pipeline: Mapping[str, Any]) -> str:
    """Return the phase of the current revision; a status of an older revision counts as waiting."""
    revision = (pipeline.get("status") or {}).get("revision") or 0
    is_older = 0 < revision < pipeline.get("revision", 0) and pipeline.get("wish") == "run"
    return "waiting" if is_older else phase_of(pipeline)


async def wait_until_running(deps: Dependencies, address: str, names: Sequence[str]) -> None:
    """Wait until these pipelines run with their current definition, and print them; raises `Rejected` if one fails."""
    status = StatusLine()
    async with deps.http(address) as http:
        while True:
            pipelines = [await send_request(http, "GET", path_of(name)) for name in names]
            waiting = [
                pipeline for pipeline in pipelines if current_phase(pipeline) not in ("running", "done", "paused")
            ]
            failed = [pipeline for pipeline in waiting if current_phase(pipeline) == "failed"]
            if failed:
                status.clear()
                raise Rejected(
                    "; ".join(f"{pipeline['name']} failed: {pipeline['status']['error']}" for pipeline in failed)
                )
            if not waiting:
                break
            supervisors = (await send_request(http, "GET", "/v1/supervisors"))["supervisors"]
            hint = "" if supervisors else "; no supervisor is running; start one: streamhouse pipelines run"
            if has_no_free_slots(supervisors) and has_no_supervisor(waiting):
                hint = f"; {NO_FREE_SLOTS}"
            status.show(f"waiting for {', '.join(pipeline['name'] for pipeline in waiting)}{hint}")
            await SystemClock().sleep(0.5)
    status.clear()
    for pipeline in pipelines:
        print_line(f"{phase_of(pipeline)} {pipeline['name']}", color="green")


async def apply_files(
    deps: Dependencies, paths: Sequence[Path], agents: str, begin: str | None, validate_first: bool, as_json: bool
) -> list["Outcome"]:
    async with deps.http(agents) as http:
        files = await validate_files(deps, paths, agents, validate_first, as_json)
        applier = deps.applier(http, begin)
        outcomes = [await applier.apply(change) for file in files for change in file.changes]
        return outcomes + await applier.settle()


async def validate_files(
    deps: Dependencies, paths: Sequence[Path], agents: str, validate_first: bool, as_json: bool
) -> list["DefinitionFile"]:
    """Return the files if they are valid; otherwise print the errors and exit."""
    files, problems = deps.read_definitions(paths)
    if not problems and validate_first and any(file.changes for file in files):
        status = StatusLine()
        try:
            files, problems = await deps.validate_definitions(
                files, agents, on_wait=lambda waited_s: status.show(_starting(waited_s))
            )
        finally:
            status.clear()
    if problems:
        _print_sql_errors(problems, as_json)
        raise typer.Exit(1)
    return files


def _starting(waited_s: float) -> str:
    """The elapsed seconds are shown on a terminal only: into a pipe, the line is printed once."""
    return "starting Spark to validate …" + (f" {waited_s:.0f} s" if sys.stderr.isatty() else "")


def _print_sql_errors(problems: "Sequence[FileDiagnostic]", as_json: bool) -> None:
    if as_json:
        print_json({"problems": [_sql_error_json(problem) for problem in problems]})
    for problem in problems if not as_json else ():
        print_error(str(problem))


def _sql_error_json(problem: "FileDiagnostic") -> dict[str, object]:
    return {
        "file": str(problem.path),
        "line": problem.line,
        "column": problem.column,
        "text": problem.text,
        "hint": problem.hint,
    }


def outcome_json(outcome: "Outcome") -> dict[str, object]:
    return {"what": outcome.what, "name": outcome.name, "outcome": outcome.outcome, "why": outcome.why}


LOGS_LIMIT: Final = 1000


async def print_list(deps: Dependencies, address: str) -> list[dict[str, Any]]:
    async with deps.http(address) as http:
        return await fetch_pipelines(http)


async def find_supervisors(deps: Dependencies, address: str) -> list[dict[str, Any]]:
    """Return the live supervisors with their pipelines."""
    async with deps.http(address) as http:
        supervisors: list[dict[str, Any]] = (await send_request(http, "GET", "/v1/supervisors"))["supervisors"]
        return supervisors


async def fetch_pipelines(http: "Http") -> list[dict[str, Any]]:
    response = await send_request(http, "GET", "/v1/pipelines")
    pipelines: list[dict[str, Any]] = response["pipelines"]
    return pipelines


async def watch_list(deps: Dependencies, address: str, as_json: bool) -> None:
    """Redraw the table on a terminal; print one after the other into a pipe."""
    async with deps.http(address) as http:
        while True:
            pipelines = await fetch_pipelines(http)
            if on_terminal() and not as_json:
                console().clear()
            print_json(pipelines) if as_json else print_pipelines(pipelines)
            await SystemClock().sleep(1.0)


async def show_events(deps: Dependencies, address: str, name: str, limit: int, follow: bool, as_json: bool) -> None:
    path = f"{path_of(name)}/events?limit={{}}"
    async with deps.http(address) as http:
        seen: list[Any] = []
        while True:
            response = await send_request(http, "GET", path.format(limit if not seen else LOGS_LIMIT))
            events = response["events"]
            fresh = [event for event in events if event not in seen]
            for event in fresh:
                _print_event(event, as_json)
            seen = events or seen
            if not follow:
                return
            await SystemClock().sleep(1.0)


def _print_event(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(event, ensure_ascii=False))
        return
    color = {"error": "red", "warning": "yellow"}.get(event["level"])
    print_line(f"{format_time(event['at_ms'])}  {event['level']:<7}  {event['text']}", color=color)
