"""Pipelines: `streamhouse pipelines …`: apply files, watch what runs, and run it.

Owns        the flags and what is said
Leaves      files and definitions to `spark.pipelines`, tables on the screen to `pipeline_view`
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli.doors import Doors, doors_of, run
from streamhouse.cli.help import HelpfulCommand, described, group
from streamhouse.cli.options import AsJson, http_addresses
from streamhouse.cli.output import StatusLine, console, fail, note, on_terminal, print_json, say
from streamhouse.cli.pipeline_asking import asked, path_of, until_running
from streamhouse.cli.pipeline_view import is_waiting_for_somebody, print_pipeline, print_pipelines
from streamhouse.cli.words import counted, when
from streamhouse.clock import SystemClock

if TYPE_CHECKING:
    from streamhouse.client.http import Http
    from streamhouse.spark.pipelines.applying import File, Outcome, Problem

app = group("Queries that never end: SQL and Python over topics, kept running on Apache Spark.")

Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="HOST:PORT,…",
        help="Agents to ask over HTTP. Default: STREAMHOUSE_AGENTS, else where the settings say that one listens, "
        "127.0.0.1:8080 unless changed.",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Files = Annotated[
    list[Path], typer.Argument(metavar="DIR|FILE…", help="SQL and Python files, or folders of them.", exists=True)
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="Where to begin: earliest, latest, a time like 2026-11-15T08:00:00Z, or offsets as JSON.",
    ),
]
OUTCOMES: Final = {"created": "green", "changed": "green", "deleted": "green", "refused": "red"}
LOGS_LIMIT: Final = 1000


@app.command(
    "run",
    cls=HelpfulCommand,
    help=described(
        "Run pipelines until Ctrl-C. Start as many of these as you like, anywhere: each pipeline is run by one of them "
        "at a time, and taken over when that one is gone.",
        "streamhouse pipelines run",
        "streamhouse pipelines run --master 'local[4]' --conf spark.driver.memory=4g",
        "streamhouse pipelines run --agents 10.0.0.5:8080 --checkpoints hdfs://10.0.0.9/checkpoints",
    ),
)
def run_pipelines(
    context: typer.Context,
    agents: Agents = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master: local[4], spark://…, k8s://…, yarn.")
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where pipelines keep their place: a folder that all supervisors see, or a path that this Spark "
            "knows. Default: checkpoints in the data folder.",
        ),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="How many pipelines it takes at most.")] = 16,
    name: Annotated[str | None, typer.Option(help="What it is called in lists. Default: the host's name.")] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Where Spark's own words go.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    maintain: Annotated[
        bool,
        typer.Option(
            "--maintain",
            help="Merge and compact topics, too, where agents can't keep up; one supervisor at a time does it. "
            "When: the settings maintenance.…",
        ),
    ] = False,
) -> None:
    for setting in conf or ():
        if "=" not in setting:
            raise typer.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--conf")

    def started(supervisor: str, log_path: Path) -> None:
        say(f"supervisor {supervisor} takes pipelines; Spark's own words are in {log_path}", bold=True)

    doors_of(context).run_supervisor(
        agents=http_addresses(agents),
        master=master,
        checkpoints=checkpoints,
        slots=slots,
        name=name,
        log=log,
        conf=tuple(conf or ()),
        maintain=maintain,
        on_start=started,
        on_news=lambda what, text: say(f"{when(SystemClock().now_ms())}  {what}: {text}"),
    )
    say("stopped")


# --- files


@app.command(
    "apply",
    cls=HelpfulCommand,
    help=described(
        "Create and change tables, pipelines and views as files say. Everything is validated first. A pipeline that is "
        "changed goes on where it stands, where Spark allows it; where not, that is said, and --from makes a new "
        "beginning.",
        "streamhouse pipelines apply orders.sql",
        "streamhouse pipelines apply pipelines/",
        "streamhouse pipelines apply orders.sql --from earliest",
    ),
)
def apply(
    context: typer.Context,
    files: Files,
    begin: From = None,
    validate_first: Annotated[
        bool, typer.Option("--validate/--no-validate", help="Ask a Spark whether it is right, before anything changes.")
    ] = True,
    wait: Annotated[
        bool, typer.Option("--wait", help="Come back when the pipelines run, or with the reason why one doesn't.")
    ] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    outcomes = run(_apply(doors_of(context), files, http_addresses(agents), begin, validate_first, as_json))
    if as_json:
        print_json([_outcome_json(outcome) for outcome in outcomes])
    for outcome in outcomes if not as_json else ():
        say(f"{outcome.outcome} {outcome.what} {outcome.name}", color=OUTCOMES.get(outcome.outcome))
    refused = [outcome for outcome in outcomes if outcome.outcome == "refused"]
    for outcome in refused:
        fail(f"{outcome.what} {outcome.name}: {outcome.why}")
    if refused:
        raise typer.Exit(1)
    if wait:
        names = [each.name for each in outcomes if each.what != "table" and each.outcome not in ("deleted", "absent")]
        run(until_running(doors_of(context), http_addresses(agents), list(dict.fromkeys(names))))


async def _apply(
    doors: Doors, paths: Sequence[Path], agents: str, begin: str | None, validate_first: bool, as_json: bool
) -> "list[Outcome]":
    async with doors.http(agents) as http:
        files = await _checked(doors, paths, agents, validate_first, as_json)
        applier = doors.applier(http, begin)
        outcomes = [await applier.apply(change) for file in files for change in file.changes]
        return outcomes + await applier.settle()


async def _checked(
    doors: Doors, paths: Sequence[Path], agents: str, validate_first: bool, as_json: bool
) -> "list[File]":
    """The files, which are right as far as anybody knows; ends the command where they aren't."""
    files, problems = doors.read_definitions(paths)
    if not problems and validate_first and any(file.path.suffix == ".sql" for file in files):
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


def _outcome_json(outcome: "Outcome") -> dict[str, object]:
    return {"what": outcome.what, "name": outcome.name, "outcome": outcome.outcome, "why": outcome.why}


@app.command(
    "validate",
    cls=HelpfulCommand,
    help=described(
        "Say what is wrong in files, with line and column; nothing is changed.",
        "streamhouse pipelines validate orders.sql",
        "streamhouse pipelines validate pipelines/ --json",
    ),
)
def validate(context: typer.Context, files: Files, agents: Agents = None, as_json: AsJson = False) -> None:
    checked = run(_checked(doors_of(context), files, http_addresses(agents), True, as_json))
    if as_json:
        print_json({"problems": []})
    else:
        number = sum(len(file.changes) for file in checked)
        say(f"{counted(number, 'statement')} in {counted(len(checked), 'file')}: all right", color="green")


# --- watching


@app.command(
    "list",
    cls=HelpfulCommand,
    help=described(
        "Show all pipelines: what they do, how fast, how far behind.",
        "streamhouse pipelines list",
        "streamhouse pipelines list --watch",
        "streamhouse pipelines list --json",
    ),
)
def list_pipelines(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second, until Ctrl-C.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    doors, address = doors_of(context), http_addresses(agents)
    if watch:
        run(_watch(doors, address, as_json))
        return
    pipelines = run(_pipelines(doors, address))
    print_json(pipelines) if as_json else print_pipelines(pipelines)
    if not as_json and is_waiting_for_somebody(pipelines):
        note("nobody runs them; start a supervisor, here or elsewhere: streamhouse pipelines run")


async def _pipelines(doors: Doors, address: str) -> list[dict[str, Any]]:
    async with doors.http(address) as http:
        return await _listed(http)


async def _listed(http: "Http") -> list[dict[str, Any]]:
    told = await asked(http, "GET", "/v1/pipelines")
    pipelines: list[dict[str, Any]] = told["pipelines"]
    return pipelines


async def _watch(doors: Doors, address: str, as_json: bool) -> None:
    """On a terminal the table is drawn over the last one; a pipe gets one after the other."""
    async with doors.http(address) as http:
        while True:
            pipelines = await _listed(http)
            if on_terminal() and not as_json:
                console().clear()
            print_json(pipelines) if as_json else print_pipelines(pipelines)
            await SystemClock().sleep(1.0)


@app.command(
    "describe",
    cls=HelpfulCommand,
    help=described(
        "Show everything that is known of a pipeline: figures, place, state, watermark, last error, text.",
        "streamhouse pipelines describe revenue",
    ),
)
def describe(context: typer.Context, name: Name, agents: Agents = None, as_json: AsJson = False) -> None:
    pipeline = run(_one(doors_of(context), http_addresses(agents), "GET", name))
    print_json(pipeline) if as_json else print_pipeline(pipeline)


@app.command(
    "logs",
    cls=HelpfulCommand,
    help=described(
        "Show what a pipeline's supervisors said about it: starts, failures and why, restarts.",
        "streamhouse pipelines logs revenue",
        "streamhouse pipelines logs revenue --follow",
    ),
)
def logs(
    context: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=LOGS_LIMIT, help="How many lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    run(_logs(doors_of(context), http_addresses(agents), name, limit, follow, as_json))


async def _logs(doors: Doors, address: str, name: str, limit: int, follow: bool, as_json: bool) -> None:
    path = f"{path_of(name)}/events?limit={{}}"
    async with doors.http(address) as http:
        seen: list[Any] = []
        while True:
            told = await asked(http, "GET", path.format(limit if not seen else LOGS_LIMIT))
            events = told["events"]
            fresh = [event for event in events if event not in seen]
            if as_json:
                for event in fresh:
                    typer.echo(_json_line(event))
            else:
                for event in fresh:
                    _print_event(event)
            seen = events or seen
            if not follow:
                return
            await SystemClock().sleep(1.0)


def _json_line(event: dict[str, Any]) -> str:
    import json

    return json.dumps(event, ensure_ascii=False)


def _print_event(event: dict[str, Any]) -> None:
    color = {"error": "red", "warning": "yellow"}.get(event["level"])
    say(f"{when(event['at_ms'])}  {event['level']:<7}  {event['text']}", color=color)


# --- changing


@app.command(
    "pause",
    cls=HelpfulCommand,
    help=described("Stop a pipeline; it keeps its place.", "streamhouse pipelines pause revenue"),
)
def pause(context: typer.Context, name: Name, agents: Agents = None, as_json: AsJson = False) -> None:
    _changed(context, name, agents, as_json, "POST", "pause", f"paused {name}")


@app.command(
    "resume",
    cls=HelpfulCommand,
    help=described("Let a paused pipeline go on where it stands.", "streamhouse pipelines resume revenue"),
)
def resume(context: typer.Context, name: Name, agents: Agents = None, as_json: AsJson = False) -> None:
    _changed(context, name, agents, as_json, "POST", "resume", f"resumed {name}")


@app.command(
    "restart",
    cls=HelpfulCommand,
    help=described(
        "Try a failed pipeline again from where it stands; with --from give it a new beginning, without its old state. "
        "What it wrote before stays.",
        "streamhouse pipelines restart revenue",
        "streamhouse pipelines restart revenue --from earliest",
        "streamhouse pipelines restart revenue --from 2026-11-15T08:00:00Z",
    ),
)
def restart(
    context: typer.Context, name: Name, begin: From = None, agents: Agents = None, as_json: AsJson = False
) -> None:
    told = f"restarted {name}" + (f" from {begin}" if begin else " where it stood")
    _changed(context, name, agents, as_json, "POST", "restart", told, {"from": begin})


@app.command(
    "delete",
    cls=HelpfulCommand,
    help=described(
        "Stop a pipeline and forget it, with its place. What it wrote stays; a view's rows go with it. Asks first, "
        "unless told --yes.",
        "streamhouse pipelines delete revenue",
        "streamhouse pipelines delete revenue --yes",
    ),
)
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    if not yes:
        typer.confirm(f"Delete the pipeline {name} and its place?", abort=True, err=True)
    run(_one(doors_of(context), http_addresses(agents), "DELETE", name))
    print_json({"deleted": name}) if as_json else say(f"deleted {name}", color="green")


def _changed(
    context: typer.Context,
    name: str,
    agents: str | None,
    as_json: bool,
    method: str,
    verb: str,
    told: str,
    body: object = None,
) -> None:
    answer = run(_one(doors_of(context), http_addresses(agents), method, name, f"/{verb}", body or {}))
    print_json(answer) if as_json else say(told, color="green")


async def _one(
    doors: Doors, address: str, method: str, name: str, behind: str = "", body: object = None
) -> dict[str, Any]:
    async with doors.http(address) as http:
        return await asked(http, method, f"{path_of(name)}{behind}", body)
