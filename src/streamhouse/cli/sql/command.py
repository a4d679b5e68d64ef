"""Command `streamhouse sql`: run statements or a file, start the shell; `serve|status|stop` manage the SQL worker.

An argument that is no command name is a statement.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from streamhouse.cli.dependencies import dependencies_of
from streamhouse.cli.options import Agents, AsJson, http_addresses
from streamhouse.cli.output import count, on_terminal, print_json, print_line, print_note, print_properties, seconds
from streamhouse.cli.sql.query_request import Output, SqlRequest
from streamhouse.cli.typer_setup import CONTEXT, Command, CommandGroup, help_text

ASK: Final = "ask"
"""The default command."""


class SqlGroup(CommandGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = [ASK, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


app = typer.Typer(
    cls=SqlGroup,
    rich_markup_mode=None,
    context_settings=CONTEXT,
    no_args_is_help=False,
    help=help_text(
        "Query topics with SQL on Apache Spark. `streamhouse sql STATEMENT` runs a statement; without one, a shell "
        "starts. Every topic is a table; FROM STREAM(topic) shows rows as they are written. Spark starts on first use "
        "and keeps running for later queries. `streamhouse sql ask --help` lists the options.",
        "streamhouse sql",
        'streamhouse sql "SELECT country, count(*) FROM orders GROUP BY country"',
        'streamhouse sql "SELECT * FROM STREAM(orders) WHERE amount > 100" --json',
        'streamhouse sql "SELECT * FROM orders" --parquet orders.parquet',
        "streamhouse sql -f report.sql --csv",
    ),
)


@app.command(
    ASK,
    cls=Command,
    help=help_text(
        "Run statements, or start the shell. The command name `ask` is optional.",
        'streamhouse sql "SELECT * FROM orders LIMIT 10"',
        "streamhouse sql -f report.sql --csv",
        "cat report.sql | streamhouse sql --json",
    ),
)
def run_sql(
    context: typer.Context,
    statement: Annotated[str | None, typer.Argument(help="SQL statements, separated by semicolons.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Run the statements in a file.")] = None,
    agents: Agents = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write the rows to this Parquet file.")] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows",
            min=1,
            help="Maximum number of rows. Default: 1,000 on a terminal, 1,000,000 otherwise.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, help="Query timeout, in seconds. Default: 300.", show_default=False),
    ] = None,
    beginning: Annotated[
        str, typer.Option("--from", metavar="latest|earliest", help="Start position of FROM STREAM(…).")
    ] = "latest",
) -> None:
    if beginning not in ("latest", "earliest"):
        raise typer.BadParameter(f"{beginning!r} is neither latest nor earliest", param_hint="--from")
    if statement is not None and file is not None:
        raise typer.BadParameter("either a statement or a file, not both", param_hint="--file")
    if parquet is not None and not parquet.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {parquet.parent}", param_hint="--parquet")
    text, source = _statement_text(statement, file)
    request = SqlRequest(
        agents=http_addresses(agents),
        text=text or "",
        source=source,
        output=_output(as_json, as_csv, parquet),
        file=parquet,
        max_rows=max_rows,
        timeout_s=timeout,
        starting=beginning,
    )
    deps = dependencies_of(context)
    raise typer.Exit(deps.sql_shell(request) if text is None else deps.run_sql(request))


def _statement_text(statement: str | None, file: Path | None) -> tuple[str | None, str]:
    """Return the statements and the name of their file; None: start the shell."""
    if file is not None:
        return file.read_text(encoding="utf-8"), str(file)
    if statement is None and not (sys.stdin.isatty() and on_terminal()):
        return sys.stdin.read(), ""
    return statement, ""


def _output(as_json: bool, as_csv: bool, parquet: Path | None) -> Output:
    outputs = [
        output
        for output, chosen in ((Output.JSON, as_json), (Output.CSV, as_csv), (Output.PARQUET, parquet is not None))
        if chosen
    ]
    if len(outputs) > 1:
        raise typer.BadParameter("one of --json, --csv and --parquet", param_hint=f"--{outputs[1].value}")
    return outputs[0] if outputs else Output.TABLE


@app.command(
    "serve",
    cls=Command,
    help=help_text(
        "Run a SQL worker in the foreground, with your own limits. Shells of this user find it, and agents forward "
        "POST /v1/sql to it. Without it, the first query starts a worker.",
        "streamhouse sql serve",
        "streamhouse sql serve --agents 10.0.0.5:8080 --host 10.0.0.9 --port 8200 --memory 8g",
    ),
)
def serve(
    context: typer.Context,
    agents: Agents = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; agents must be able to reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    master: Annotated[str, typer.Option("--master", help="Spark master URL.")] = "local[*]",
    memory: Annotated[str, typer.Option("--memory", help="Memory of the JVM.")] = "2g",
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Maximum number of concurrent queries.")] = 8,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="Maximum number of rows of a result.")] = 1_000_000,
    timeout: Annotated[int, typer.Option("--timeout", min=1, help="Default query timeout, in seconds.")] = 300,
    idle: Annotated[int, typer.Option("--idle", min=0, help="Exit after this many idle seconds; 0: never.")] = 0,
) -> None:
    plan = {
        "agents": http_addresses(agents),
        "host": host,
        "port": port,
        "master": master,
        "memory": memory,
        "concurrency": concurrency,
        "max_rows": max_rows,
        "timeout_s": float(timeout),
        "idle_s": float(idle) or float("inf"),
    }
    print_note("starting Spark …")
    dependencies_of(context).run_sql_worker(
        plan, on_ready=lambda worker: print_line(f"ready on http://{worker.address} for the agents {worker.agents}")
    )


@app.command(
    "status",
    cls=Command,
    help=help_text("Show whether a SQL worker runs for these agents.", "streamhouse sql status"),
)
def status(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    worker_status = dependencies_of(context).sql_worker(http_addresses(agents))
    if as_json:
        address = (
            None
            if worker_status is None
            else {"address": worker_status[0].address, "pid": worker_status[0].pid, "log": worker_status[0].log}
        )
        print_json(
            {
                "running": address is not None,
                **(address or {}),
                **({} if worker_status is None else {"busy": worker_status[1].busy}),
            }
        )
    elif worker_status is None:
        print_line("no SQL worker is running; the first query starts one")
    else:
        worker, state = worker_status
        print_properties(
            [
                ("address", worker.address),
                ("agents", worker.agents),
                ("process", str(worker.pid)),
                ("log", worker.log),
                ("up", seconds(state.up_s)),
                ("queries", f"{count(state.busy)} now, {count(state.queries)} so far"),
            ]
        )


@app.command(
    "stop",
    cls=Command,
    help=help_text("Stop the SQL worker of these agents and its queries.", "streamhouse sql stop"),
)
def stop(context: typer.Context, agents: Agents = None) -> None:
    worker = dependencies_of(context).stop_sql_worker(http_addresses(agents))
    print_line("no SQL worker is running" if worker is None else f"stopped the SQL worker {worker.pid}")
