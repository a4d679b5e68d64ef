"""Command `streamhouse recover`: shows objects that the metadata database lacks, and registers them with --apply.

Owns the options, the table, the JSON and the summary Leaves finding and registering objects to `agent`
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamhouse.cli.dependencies import dependencies_of
from streamhouse.cli.options import AsJson, ConfigFile, DataFolder, MetadataUrl, SettingFlags, StoreUrl, setting_flags
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
MAX_ROWS: Final = 100


def recover(
    context: typer.Context,
    apply: Annotated[bool, typer.Option("--apply", help="Register the objects; without it, only show them.")] = False,
    data: DataFolder = None,
    metadata: MetadataUrl = None,
    store: StoreUrl = None,
    take_over: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER_ID", help="Cluster id of the object store, if the database has a different one."),
    ] = None,
    setting: SettingFlags = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    named = {"agent.data": data, "metadata.url": metadata, "store.url": store}
    flags = setting_flags(setting, named)
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
                finding.action,
                finding.topic,
                "" if finding.partition < 0 else str(finding.partition),
                "" if finding.partition < 0 else f"[{finding.base}, {finding.end})",
                "" if finding.partition < 0 else count(finding.records),
                finding.source,
                finding.why,
            ]
            for finding in report.findings[:MAX_ROWS]
        ]
        print_table(columns, rows)
        if len(report.findings) > MAX_ROWS:
            print_line(f"the first {MAX_ROWS} of {count(len(report.findings))}; --json names them all", dim=True)
    _show_sums(report)


def _show_sums(report: "AdoptionReport") -> None:
    registered = "registered" if report.is_applied else "to register"
    print_line(
        f"{counted(report.count('register'), 'record')} {registered}, "
        f"{counted(report.count('missing'), 'record')} missing"
    )
    if report.new_topics:
        created = "created" if report.is_applied else "to create"
        print_line(f"topics {created}, with retention turned off until you set it: {', '.join(report.new_topics)}")
    if report.is_applied:
        print_line(f"agents start with generation {report.generation}", color="green")
    else:
        print_line("nothing was changed; stop all agents and add --apply", dim=True)


_PAIRINGS: Final = {
    "same": "database and object store belong together",
    "new": "neither has an id yet",
    "empty database": "the database is empty",
    "older database": "the database is older than the object store",
    "empty bucket": "the object store was emptied, or belongs to another cluster",
    "older bucket": "the object store is older than the database",
    "foreign": "the database belongs to another cluster",
}


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """Show progress on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, number: None
        return
    from rich import progress

    columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"))
    with progress.Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda what, number: bar.update(task, description=f"reading {what}: {count(number)}")
