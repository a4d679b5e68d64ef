"""Maintain: `streamhouse maintain …`: rewrite a topic's segments once, now, to the end.

Owns        the flags, the progress bar, what is said at the end
Leaves      the jobs to `spark.maintenance`
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from streamhouse.cli.doors import doors_of
from streamhouse.cli.help import HelpfulCommand, described, group
from streamhouse.cli.options import AsJson, http_addresses
from streamhouse.cli.output import console, print_json, say
from streamhouse.cli.pipelines import Agents
from streamhouse.cli.words import counted, size

if TYPE_CHECKING:
    from streamhouse.cli.doors import JobKind
    from streamhouse.spark.maintenance.compacting import Compacted
    from streamhouse.spark.maintenance.jobs import Done, Progress

app = group("Rewrite a topic's segments on Apache Spark: fewer and larger, or only the latest of each key.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master: local[4], spark://…, k8s://…, yarn. Default: this machine."),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
Log = Annotated[Path | None, typer.Option(metavar="FILE", help="Where Spark's own words go.")]


@app.command(
    "merge",
    cls=HelpfulCommand,
    help=described(
        "Move what a topic holds in many small pieces into large objects, so that it is read with few requests. "
        "Nothing changes for who reads or writes meanwhile. Agents merge by themselves, too: this is for what is much.",
        "streamhouse maintain merge orders",
        "streamhouse maintain merge orders --agents 10.0.0.5:8080 --master 'local[8]' --json",
    ),
)
def merge(
    context: typer.Context,
    topic: Topic,
    at_least: Annotated[
        int, typer.Option(min=2, help="Leave what is in fewer small pieces than so many, or would hardly grow.")
    ] = 2,
    agents: Agents = None,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    done = _run("merge", context, topic, agents, master, conf, log, at_least=at_least)
    if as_json:
        print_json(_as_json(done))
    elif not done.objects:
        say(f"nothing to merge in {done.topic}: {counted(done.runs_after, 'run')}")
    else:
        say(
            f"merged {done.topic}: {counted(done.runs_before, 'run')} became {done.runs_after:,};"
            f" {size(done.costs.read_bytes)} read with {counted(done.costs.gets, 'request')},"
            f" {counted(done.objects, 'object')} of {size(done.costs.written_bytes)} written",
            color="green",
        )


@app.command(
    "compact",
    cls=HelpfulCommand,
    help=described(
        "Keep only the latest record of each key, as Kafka does for topics whose cleanup.policy is compact. Any number "
        "of keys, in bounded memory. Agents compact by themselves, too: this is for what is much.",
        "streamhouse maintain compact accounts",
        "streamhouse maintain compact accounts --agents 10.0.0.5:8080 --master 'local[8]' --json",
    ),
)
def compact(
    context: typer.Context,
    topic: Topic,
    agents: Agents = None,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    done = cast("Compacted", _run("compact", context, topic, agents, master, conf, log))
    if as_json:
        print_json(_as_json(done))
    elif not done.objects:
        say(f"nothing to compact in {done.topic}")
    else:
        say(
            f"compacted {done.topic}: {counted(done.dropped_records, 'record')} of"
            f" {done.records + done.dropped_records:,} went;"
            f" {size(done.costs.read_bytes)} read with {counted(done.costs.gets, 'request')},"
            f" {counted(done.objects, 'object')} of {size(done.costs.written_bytes)} written",
            color="green",
        )


def _run(
    kind: "JobKind",
    context: typer.Context,
    topic: str,
    agents: str | None,
    master: str | None,
    conf: list[str] | None,
    log: Path | None,
    *,
    at_least: int = 2,
) -> "Done":
    settings = dict(_setting(text) for text in conf or ())
    with _bar() as on_progress:
        return doors_of(context).maintain(
            kind,
            topic,
            agents=http_addresses(agents),
            master=master,
            settings=settings,
            log=log,
            at_least=at_least,
            on_progress=on_progress,
        )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--conf")
    return name, value


def _as_json(done: "Done") -> dict[str, Any]:
    import msgspec

    told: dict[str, Any] = asdict(done)
    return {**told, "costs": msgspec.to_builtins(done.costs)}


@contextmanager
def _bar() -> "Iterator[Callable[[Progress], None]]":
    """A bar where somebody sees it: on a terminal's stderr, and nowhere else."""
    if not sys.stderr.isatty():
        yield lambda at: None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(binary_units=True),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None)
        yield lambda at: bar.update(task, description=at.what, completed=at.done_bytes, total=at.total_bytes)
