"""Pipeline view: pipelines as tables and facts.

Owns        what `pipelines list` and `pipelines describe` show, and how it looks
Leaves      asking to the commands, figures to whoever runs the pipelines
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamhouse.cli.output import Column, print_facts, print_table, say
from streamhouse.cli.words import count, seconds, size, when

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
    """What it does; what it was told to do, where nobody runs it."""
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
        say("no pipelines yet; write one into a file and: streamhouse pipelines apply FILE")
        return
    print_table(COLUMNS, map(row_of, pipelines))


NO_ROOM: Final = "supervisors take no more; raise their --slots, or start another one: streamhouse pipelines run"


def is_waiting_for_somebody(pipelines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pipeline should run, and is nobody's."""
    return any(
        each.get("wish") == "run" and phase_of(each) not in ("done", "failed") and not each.get("owner")
        for each in pipelines
    )


def has_no_room(supervisors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are supervisors, and each has as many pipelines as it takes."""
    return bool(supervisors) and all(len(each["pipelines"]) >= each["slots"] for each in supervisors)


def print_pipeline(pipeline: Mapping[str, Any]) -> None:
    """Everything that is known of one."""
    print_facts(facts_of(pipeline))
    columns = pipeline.get("columns")
    if columns:
        say()
        print_table(
            (Column("column", style="bold"), Column("type")), [(each["name"], each["type"]) for each in columns]
        )
    say()
    say(str(pipeline.get("text") or "").strip(), dim=True)


def facts_of(pipeline: Mapping[str, Any]) -> list[tuple[str, str]]:
    status, owner = _status(pipeline), pipeline.get("owner") or {}
    shape = pipeline.get("shape") or {}
    watermark = status.get("watermark_ms")
    told = status.get("told_at_ms")
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
        ("rows in", count(status.get("rows_in") or 0)),
        ("rate", f"{_number(status.get('input_rate'))} rows/s in, {_number(status.get('processed_rate'))} processed"),
        ("lag", f"{_number(status.get('lag_records'))} records"),
        ("batch", f"{_number(status.get('batch_id'))} in {_milliseconds(status.get('batch_ms'))}"),
        ("state size", f"{_number(status.get('state_rows'))} rows, {_size(status.get('state_bytes'))}"),
        ("watermark", UNKNOWN if watermark is None else when(watermark)),
        ("late rows", count(status.get("late_rows") or 0)),
        ("dead letters", count(status.get("dead_letters") or 0)),
        ("restarts", count(status.get("restarts") or 0)),
        ("told", UNKNOWN if not told else when(told)),
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
