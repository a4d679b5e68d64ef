"""Jobs on Spark: what the commands share that start one and wait for its end.

Owns        their flags, where a job runs, its progress bar
Leaves      what a job does to `maintain` and `replaying`
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.options import http_addresses, pairs
from streamhouse.cli.output import console

if TYPE_CHECKING:
    from streamhouse.spark.maintenance.jobs import Progress

Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master: local[4], spark://…, k8s://…, yarn. Default: this machine."),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
Log = Annotated[Path | None, typer.Option(metavar="FILE", help="Where Spark's own words go.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """Which agents a job asks, and which Spark it runs on."""

    agents: str
    master: str | None
    settings: Mapping[str, str]
    log: Path | None


def job_place(agents: str | None, master: str | None, conf: list[str] | None, log: Path | None) -> JobPlace:
    settings = dict(pairs(conf or [], "--conf"))
    return JobPlace(agents=http_addresses(agents), master=master, settings=settings, log=log)


@contextmanager
def progress_bar() -> "Iterator[Callable[[Progress], None]]":
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
