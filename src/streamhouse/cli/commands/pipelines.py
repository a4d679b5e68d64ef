"""Commands `streamhouse pipelines …`: apply files, list pipelines and their events, run a supervisor.

Owns the options Leaves requests and output to `pipeline_requests`, definitions in files to `spark.pipelines`
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli.commands.pipeline_requests import (
    LOGS_LIMIT,
    NO_FREE_SLOTS,
    apply_files,
    find_supervisors,
    has_no_free_slots,
    has_no_supervisor,
    outcome_json,
    path_of,
    print_list,
    print_pipeline,
    print_pipelines,
    send_request,
    show_events,
    validate_files,
    wait_until_running,
    watch_list,
)
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Yes, confirm, http_addresses
from streamhouse.cli.output import counted, format_time, print_error, print_json, print_line, print_note
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.clock import SystemClock

if TYPE_CHECKING:
    pass

app = command_group("Manage streaming pipelines, in SQL or Python, on Apache Spark.")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Files = Annotated[
    list[Path], typer.Argument(metavar="DIR|FILE…", help="SQL and Python files, or directories of them.", exists=True)
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="Start position: earliest, latest, a time like 2026-11-15T08:00:00Z, or offsets as JSON.",
    ),
]
OUTCOMES: Final = {"created": "green", "changed": "green", "deleted": "green", "refused": "red"}


@app.command(
    "run",
    cls=Command,
    help=help_text(
        "Start a supervisor and run pipelines until Ctrl-C. Several supervisors share the pipelines and take over from "
        "each other.",
        "streamhouse pipelines run",
        "streamhouse pipelines run --master 'local[4]' --conf spark.driver.memory=4g",
        "streamhouse pipelines run --agents 10.0.0.5:8080 --checkpoints hdfs://10.0.0.9/checkpoints",
    ),
)
def run_pipelines(
    context: typer.Context,
    agents: Agents = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master URL: local[4], spark://…, k8s://…, yarn.")
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Checkpoint directory, visible to all supervisors, or a path that Spark can open. "
            "Default: checkpoints in the data directory.",
        ),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Maximum number of pipelines.")] = 64,
    name: Annotated[str | None, typer.Option(help="Name of the supervisor. Default: the host name.")] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Spark log file.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; may be repeated.")
    ] = None,
    maintain: Annotated[
        bool,
        typer.Option(
            "--maintain",
            help="Also merge and compact topics where agents can't keep up; one supervisor at a time does it. "
            "See the settings maintenance.*.",
        ),
    ] = False,
) -> None:
    for setting in conf or ():
        if "=" not in setting:
            raise typer.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--conf")

    def started(supervisor: str, log_path: Path) -> None:
        print_line(f"supervisor {supervisor} is ready for pipelines; Spark log: {log_path}", bold=True)

    dependencies_of(context).run_supervisor(
        agents=http_addresses(agents),
        master=master,
        checkpoints=checkpoints,
        slots=slots,
        name=name,
        log=log,
        conf=tuple(conf or ()),
        maintain=maintain,
        on_start=started,
        on_event=lambda what, text: print_line(f"{format_time(SystemClock().now_ms())}  {what}: {text}"),
    )
    print_line("stopped")


# --- files


@app.command(
    "apply",
    cls=Command,
    help=help_text(
        "Create and change tables, pipelines and views from files, after validating all of them. A changed pipeline "
        "continues from its checkpoint if its state and rows stay compatible. Otherwise the change is rejected; use "
        "--from to start without the old state.",
        "streamhouse pipelines apply orders.sql",
        "streamhouse pipelines apply pipelines/",
        "streamhouse pipelines apply orders.sql --from earliest",
    ),
)
def apply(
    context: typer.Context,
    files: Files,
    begin: From = None,
    validate_first: Annotated[bool, typer.Option("--validate/--no-validate", help="Validate with Spark first.")] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the pipelines run; fail if one does not.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    outcomes = run(apply_files(dependencies_of(context), files, http_addresses(agents), begin, validate_first, as_json))
    if as_json:
        print_json([outcome_json(outcome) for outcome in outcomes])
    for outcome in outcomes if not as_json else ():
        print_line(f"{outcome.outcome} {outcome.what} {outcome.name}", color=OUTCOMES.get(outcome.outcome))
    rejected = [outcome for outcome in outcomes if outcome.outcome == "refused"]
    for outcome in rejected:
        print_error(f"{outcome.what} {outcome.name}: {outcome.why}")
    if rejected:
        raise typer.Exit(1)
    if wait:
        kept = [outcome for outcome in outcomes if outcome.outcome not in ("deleted", "absent")]
        names = [outcome.name for outcome in kept if outcome.what != "table"]
        run(wait_until_running(dependencies_of(context), http_addresses(agents), list(dict.fromkeys(names))))


@app.command(
    "validate",
    cls=Command,
    help=help_text(
        "Validate files and show errors with line and column. Nothing is changed.",
        "streamhouse pipelines validate orders.sql",
        "streamhouse pipelines validate pipelines/ --json",
    ),
)
def validate(context: typer.Context, files: Files, agents: Agents = None, as_json: AsJson = False) -> None:
    checked = run(validate_files(dependencies_of(context), files, http_addresses(agents), True, as_json))
    if as_json:
        print_json({"problems": []})
    else:
        number = sum(len(file.changes) for file in checked)
        print_line(f"{counted(number, 'statement')} in {counted(len(checked), 'file')}: all right", color="green")


# --- watching


@app.command(
    "list",
    cls=Command,
    help=help_text(
        "List pipelines with state, throughput and lag.",
        "streamhouse pipelines list",
        "streamhouse pipelines list --watch",
        "streamhouse pipelines list --json",
    ),
)
def list_pipelines(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C.")] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    deps, address = dependencies_of(context), http_addresses(agents)
    if watch:
        run(watch_list(deps, address, as_json))
        return
    pipelines = run(print_list(deps, address))
    print_json(pipelines) if as_json else print_pipelines(pipelines)
    if as_json or not has_no_supervisor(pipelines):
        return
    supervisors = run(find_supervisors(deps, address))
    if not supervisors:
        print_note("no supervisor is running; start one: streamhouse pipelines run")
    elif has_no_free_slots(supervisors):
        print_note(NO_FREE_SLOTS)


@app.command(
    "describe",
    cls=Command,
    help=help_text(
        "Show a pipeline: metrics, offsets, state, watermark, last error, definition.",
        "streamhouse pipelines describe revenue",
    ),
)
def describe(context: typer.Context, name: Name, agents: Agents = None, as_json: AsJson = False) -> None:
    pipeline = run(_fetch_pipeline(dependencies_of(context), http_addresses(agents), "GET", name))
    print_json(pipeline) if as_json else print_pipeline(pipeline)


@app.command(
    "logs",
    cls=Command,
    help=help_text(
        "Show a pipeline's events: starts, failures with their cause, restarts.",
        "streamhouse pipelines logs revenue",
        "streamhouse pipelines logs revenue --follow",
    ),
)
def logs(
    context: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=LOGS_LIMIT, help="Maximum number of events.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new events as they arrive, until Ctrl-C.")
    ] = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    run(show_events(dependencies_of(context), http_addresses(agents), name, limit, follow, as_json))


# --- changing


@app.command(
    "pause",
    cls=Command,
    help=help_text("Pause a pipeline.", "streamhouse pipelines pause revenue"),
)
def pause(context: typer.Context, name: Name, agents: Agents = None, as_json: AsJson = False) -> None:
    _change_state(context, name, agents, as_json, "POST", "pause", f"paused {name}")


@app.command(
    "resume",
    cls=Command,
    help=help_text("Resume a paused pipeline from its checkpoint.", "streamhouse pipelines resume revenue"),
)
def resume(context: typer.Context, name: Name, agents: Agents = None, as_json: AsJson = False) -> None:
    _change_state(context, name, agents, as_json, "POST", "resume", f"resumed {name}")


@app.command(
    "restart",
    cls=Command,
    help=help_text(
        "Restart from the checkpoint, or with --from at a new position, without state. Rows that were already written "
        "stay.",
        "streamhouse pipelines restart revenue",
        "streamhouse pipelines restart revenue --from earliest",
        "streamhouse pipelines restart revenue --from 2026-11-15T08:00:00Z",
    ),
)
def restart(
    context: typer.Context, name: Name, begin: From = None, agents: Agents = None, as_json: AsJson = False
) -> None:
    message = f"restarted {name}" + (f" from {begin}" if begin else " from its checkpoint")
    _change_state(context, name, agents, as_json, "POST", "restart", message, {"from": begin})


@app.command(
    "delete",
    cls=Command,
    help=help_text(
        "Stop and delete a pipeline and its offsets. Rows that it wrote stay, except those of a view. Asks for "
        "confirmation unless --yes is given.",
        "streamhouse pipelines delete revenue",
        "streamhouse pipelines delete revenue --yes",
    ),
)
def delete(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    confirm(f"Delete the pipeline {name} and its offsets?", yes)
    run(_fetch_pipeline(dependencies_of(context), http_addresses(agents), "DELETE", name))
    print_json({"deleted": name}) if as_json else print_line(f"deleted {name}", color="green")


def _change_state(
    context: typer.Context,
    name: str,
    agents: str | None,
    as_json: bool,
    method: str,
    verb: str,
    message: str,
    body: object = None,
) -> None:
    response = run(
        _fetch_pipeline(dependencies_of(context), http_addresses(agents), method, name, f"/{verb}", body or {})
    )
    print_json(response) if as_json else print_line(message, color="green")


async def _fetch_pipeline(
    deps: Dependencies, address: str, method: str, name: str, behind: str = "", body: object = None
) -> dict[str, Any]:
    async with deps.http(address) as http:
        return await send_request(http, method, f"{path_of(name)}{behind}", body)
