"""Spark: `streamhouse spark shell|submit|pipelines|config` starts PySpark with everything set, or says what to set.

Owns        the flags, and the settings as text
Leaves      commands, settings and Java to `spark`; every other argument to Spark's own commands
"""

from typing import Annotated, Any, Final

import typer

from streamhouse.cli.doors import doors_of
from streamhouse.cli.help import CONTEXT, HelpfulCommand, described, group
from streamhouse.cli.options import AsJson, http_addresses
from streamhouse.cli.output import print_json

app = group("Read and write topics with Apache Spark.")

# What comes behind our own flags is Spark's, or the program's, `--help` among it.
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
        metavar="HOST:PORT,…",
        help="Agents to ask over HTTP where a read or a write names none. Default: STREAMHOUSE_AGENTS, else where the "
        "settings say that one listens, 127.0.0.1:8080 unless changed.",
        show_default=False,
    ),
]


@app.command(
    "shell",
    cls=HelpfulCommand,
    context_settings=_PASSED_ON,
    help=described(
        'Start PySpark\'s shell; `spark` is there, and format("streamhouse") known. Arguments behind our own are '
        "those of `pyspark`. Buckets are opened with the credentials in the environment.",
        "streamhouse spark shell",
        "streamhouse spark shell --agents 10.0.0.5:8080 --master 'local[4]' --driver-memory 4g",
        "PYSPARK_DRIVER_PYTHON=ipython streamhouse spark shell",
    ),
)
def shell(context: typer.Context, agents: Agents = None) -> None:
    doors_of(context).start_spark("shell", context.args, agents=http_addresses(agents))


@app.command(
    "submit",
    cls=HelpfulCommand,
    context_settings=_PASSED_ON,
    help=described(
        "Run a program on Spark. Arguments behind our own are those of `spark-submit`, then the program and its "
        "arguments. Buckets are opened with the credentials in the environment.",
        "streamhouse spark submit orders.py --date 2026-11-15",
        "streamhouse spark submit --agents 10.0.0.5:8080 --master spark://10.0.0.9:7077 orders.py",
        "streamhouse spark submit --conf spark.sql.shuffle.partitions=32 orders.py",
    ),
)
def submit(context: typer.Context, agents: Agents = None) -> None:
    if not context.args:
        raise typer.BadParameter("which program? Name one, such as orders.py", param_hint="PROGRAM")
    doors_of(context).start_spark("submit", context.args, agents=http_addresses(agents))


@app.command(
    "pipelines",
    cls=HelpfulCommand,
    context_settings=_PASSED_ON,
    help=described(
        "Run a project of Spark's own declarative pipelines, with topics as sources and sinks. Arguments behind our "
        "own are those of `spark-pipelines`. For pipelines that are kept running, see: streamhouse pipelines.",
        "streamhouse spark pipelines run --spec spark-pipeline.yml",
        "streamhouse spark pipelines --agents 10.0.0.5:8080 dry-run",
    ),
)
def pipelines(context: typer.Context, agents: Agents = None) -> None:
    doors_of(context).start_spark("pipelines", context.args, agents=http_addresses(agents))


@app.command(
    "config",
    cls=HelpfulCommand,
    help=described(
        "Print the settings for a Spark of your own, as lines of its spark-defaults.conf. None of them is needed to "
        "read and write; they make micro-batches quick.",
        "streamhouse spark config >> conf/spark-defaults.conf",
        "streamhouse spark config --agents 10.0.0.5:8080 --json",
    ),
)
def config(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    settings, lines = doors_of(context).spark_settings(None if agents is None else http_addresses(agents))
    if as_json:
        print_json(settings)
    else:
        typer.echo(lines)
