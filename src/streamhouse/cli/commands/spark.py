"""Commands `streamhouse spark shell|submit|pipelines|config`, and the options that all commands on Spark share.

`interruptible` and `JobProgress` belong to the jobs in `spark_jobs.py`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli.dependencies import SparkJobOptions, dependencies_of
from streamhouse.cli.options import AsJson, http_addresses, pairs
from streamhouse.cli.output import console, print_json, print_note, size
from streamhouse.cli.typer_setup import ADDRESSES, CONTEXT, Command, command_group, help_text
from streamhouse.clock import SystemClock

if TYPE_CHECKING:
    from streamhouse.spark.maintenance.job import Progress

app = command_group("Read and write topics with Apache Spark.")

# Arguments after our own options belong to Spark or the program, `--help` included.
_PASSED_ON: Final[dict[str, Any]] = {
    **CONTEXT,
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}

Agents = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar=ADDRESSES,
        help="HTTP addresses of agents, for reads and writes that name none. Default: $STREAMHOUSE_AGENTS, then "
        "`http.listen` (127.0.0.1:8080).",
        show_default=False,
    ),
]


@app.command(
    "shell",
    cls=Command,
    context_settings=_PASSED_ON,
    help=help_text(
        'Start the PySpark shell with format("streamhouse") registered. Further arguments are passed to `pyspark`. '
        "Buckets are opened with the credentials in the environment.",
        "streamhouse spark shell",
        "streamhouse spark shell --agents 10.0.0.5:8080 --master 'local[4]' --driver-memory 4g",
        "PYSPARK_DRIVER_PYTHON=ipython streamhouse spark shell",
    ),
)
def shell(context: typer.Context, agents: Agents = None) -> None:
    dependencies_of(context).start_spark("shell", context.args, agents=http_addresses(agents))


@app.command(
    "submit",
    cls=Command,
    context_settings=_PASSED_ON,
    help=help_text(
        "Run a program on Spark. Further arguments are passed to `spark-submit`, followed by the program and its "
        "arguments. Buckets are opened with the credentials in the environment.",
        "streamhouse spark submit orders.py --date 2026-11-15",
        "streamhouse spark submit --agents 10.0.0.5:8080 --master spark://10.0.0.9:7077 orders.py",
        "streamhouse spark submit --conf spark.sql.shuffle.partitions=32 orders.py",
    ),
)
def submit(context: typer.Context, agents: Agents = None) -> None:
    if not context.args:
        raise typer.BadParameter("name a program, such as orders.py", param_hint="PROGRAM")
    dependencies_of(context).start_spark("submit", context.args, agents=http_addresses(agents))


@app.command(
    "pipelines",
    cls=Command,
    context_settings=_PASSED_ON,
    help=help_text(
        "Run a project of Spark Declarative Pipelines with topics as sources and sinks. Further arguments are passed "
        "to `spark-pipelines`. For supervised streaming pipelines, see: streamhouse pipelines.",
        "streamhouse spark pipelines run --spec spark-pipeline.yml",
        "streamhouse spark pipelines --agents 10.0.0.5:8080 dry-run",
    ),
)
def pipelines(context: typer.Context, agents: Agents = None) -> None:
    dependencies_of(context).start_spark("pipelines", context.args, agents=http_addresses(agents))


@app.command(
    "config",
    cls=Command,
    help=help_text(
        "Print settings for your own Spark, as lines for spark-defaults.conf. Reading and writing work without them; "
        "they make micro-batches faster.",
        "streamhouse spark config >> conf/spark-defaults.conf",
        "streamhouse spark config --agents 10.0.0.5:8080 --json",
    ),
)
def config(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    settings, lines = dependencies_of(context).spark_settings(None if agents is None else http_addresses(agents))
    if as_json:
        print_json(settings)
    else:
        typer.echo(lines)


STOPPED: Final = 130
"""The exit code that shells expect after Ctrl-C."""
SURE_AFTER_S: Final = 5.0
SURE_PART: Final = 0.05
"""Part of a phase that must be done before its rate is used to estimate the rest."""

Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark master URL: local[4], spark://…, k8s://…, yarn. Default: local."),
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; may be repeated.")]
Log = Annotated[Path | None, typer.Option(metavar="FILE", help="Spark log file.")]


def spark_job_options(
    agents: str | None, master: str | None, conf: list[str] | None, log: Path | None
) -> SparkJobOptions:
    settings = dict(pairs(conf or [], "--conf"))
    return SparkJobOptions(agents=http_addresses(agents), master=master, settings=settings, log=log)


@contextmanager
def progress_bar() -> "Iterator[Callable[[Progress], None]]":
    """Show a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda at: None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[figures]}"),
    )
    phases, clock = JobProgress(), SystemClock()
    with progress.Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None, figures="")

        def show(at: "Progress") -> None:
            figures = phases.describe(at, clock.monotonic())
            bar.update(task, description=at.what, completed=at.done_bytes, total=at.total_bytes or None)
            bar.update(task, figures=figures)

        yield show


class JobProgress:
    """Formats the progress of a job. Each phase has its own rate."""

    def __init__(self) -> None:
        self._what = ""
        self._began_s = 0.0
        self._began_bytes = self._last_bytes = 0

    def describe(self, at: "Progress", now_s: float) -> str:
        """Return how much is done and, once it can be estimated, the time left."""
        if at.what != self._what or at.done_bytes < self._last_bytes:  # another phase, or another round of it
            self._what, self._began_s, self._began_bytes = at.what, now_s, at.done_bytes
        self._last_bytes = at.done_bytes
        if not at.total_bytes:
            return ""
        figures = f"{size(at.done_bytes)} of {size(at.total_bytes)}"
        moved, after_s = at.done_bytes - self._began_bytes, now_s - self._began_s
        if after_s < SURE_AFTER_S or moved < SURE_PART * at.total_bytes or at.done_bytes >= at.total_bytes:
            return figures
        return f"{figures}, about {_format_duration(after_s * (at.total_bytes - at.done_bytes) / moved)} left"


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def interruptible(hint: str) -> Iterator[None]:
    """On Ctrl-C, end the command with one line on how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        print_note(f"stopped; {hint}")
        raise typer.Exit(STOPPED) from None
