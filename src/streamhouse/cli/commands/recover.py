"""Recover: `streamhouse recover`: what the object store holds and the metadata database lacks; shown, then registered.

Owns        the options, the table, the JSON and the summary
Leaves      finding and registering to the agent's module
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamhouse.cli.dependencies import dependencies_of
from streamhouse.cli.options import AsJson, ConfigFile, pairs
from streamhouse.cli.output import Column, console, count, counted, print_json, print_line, print_table
from streamhouse.cli.typer_setup import help_text
from streamhouse.config import load_settings

if TYPE_CHECKING:
    from streamhouse.agent import AdoptionReport

HELP: Final = help_text(
    "Rebuild metadata after the database was lost or restored from a backup: find segments and WAL entries that the "
    "database does not know, and register them at their offsets. Nothing changes without --apply. Stop all agents "
    "first.",
    "streamhouse recover",
    "streamhouse recover --apply",
    "streamhouse recover --metadata postgresql://db/streamhouse --store s3://bucket/prefix --json",
)
PAINT: Final = {"register": "green", "leave": "dim", "missing": "bold red", "set aside": "yellow"}
SHOWN: Final = 100


def recover(
    context: typer.Context,
    apply: Annotated[bool, typer.Option("--apply", help="Register the objects; without it, only show them.")] = False,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the embedded stores and the disk WAL.")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="URL", help="Metadata store URL. Default: SQLite in the data directory.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Object store URL. Default: a directory in the data directory.")
    ] = None,
    take_over: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER_ID", help="Cluster id of the object store, if the database has a different one."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of `streamhouse config show`; may be repeated."),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    flags: dict[str, object] = dict(pairs(setting or [], "--set"))
    named = {"agent.data": data, "metadata.url": metadata, "store.url": store}
    flags |= {name: value for name, value in named.items() if value is not None}
    settings = load_settings(flags, os.environ, config)
    with _progress() as on_progress:
        report = dependencies_of(context).recover(settings, apply=apply, take_over=take_over, on_progress=on_progress)
    if as_json:
        print_json(asdict(report))
    else:
        _show(report)


def _show(report: "AdoptionReport") -> None:
    print_line(
        f"cluster {report.cluster_id or 'without an id'}: {_PAIRINGS.get(report.pairing, report.pairing)}", bold=True
    )
    if report.findings:
        columns = [
            Column("action", paint=PAINT),
            Column("topic", style="cyan"),
            Column("part", "right"),
            Column("offsets", "right"),
            Column("records", "right"),
            Column("from", style="dim", drop=1),
            Column("why", fold=True),
        ]
        rows = [
            [
                each.action,
                each.topic,
                "" if each.partition < 0 else str(each.partition),
                "" if each.partition < 0 else f"[{each.base}, {each.end})",
                "" if each.partition < 0 else count(each.records),
                each.source,
                each.why,
            ]
            for each in report.findings[:SHOWN]
        ]
        print_table(columns, rows)
        if len(report.findings) > SHOWN:
            print_line(f"the first {SHOWN} of {count(len(report.findings))}; --json names them all", dim=True)
    _show_sums(report)


def _show_sums(report: "AdoptionReport") -> None:
    done = "registered" if report.is_applied else "to register"
    print_line(
        f"{counted(report.count('register'), 'record')} {done}, {counted(report.count('missing'), 'record')} missing"
    )
    if report.new_topics:
        made = "made anew" if report.is_applied else "to make anew"
        print_line(f"topics {made}, with retention turned off until you set it: {', '.join(report.new_topics)}")
    if report.is_applied:
        print_line(f"agents start with generation {report.generation}", color="green")
    else:
        print_line("nothing was changed; --apply does it, while all agents are stopped", dim=True)


_PAIRINGS: Final = {
    "same": "database and object store belong together",
    "new": "neither has an id yet",
    "empty database": "the database is empty",
    "older database": "the database is older than the object store",
    "empty bucket": "the object store was emptied, or is another one",
    "older bucket": "the object store is older than the database",
    "foreign": "the database is of another cluster",
}


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """A line on a terminal's stderr, and nowhere else."""
    if not sys.stderr.isatty():
        yield lambda what, number: None
        return
    from rich import progress

    columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"))
    with progress.Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda what, number: bar.update(task, description=f"reading {what}: {count(number)}")
