"""Jobs on Spark: what the commands share that start one and wait for its end.

Owns        their flags, where a job runs, its progress bar, what Ctrl-C says
Leaves      what a job does to `maintain` and `replaying`
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamhouse.cli.options import http_addresses, pairs
from streamhouse.cli.output import console, note
from streamhouse.cli.words import size
from streamhouse.clock import SystemClock

if TYPE_CHECKING:
    from streamhouse.spark.maintenance.jobs import Progress

STOPPED: Final = 130
"""What shells expect of a command that Ctrl-C ended."""
SURE_AFTER_S: Final = 5.0
SURE_PART: Final = 0.05
"""So much of it has to be done before its pace says anything about the rest."""

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
        progress.TextColumn("{task.fields[figures]}"),
    )
    phases, clock = Phases(), SystemClock()
    with progress.Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None, figures="")

        def show(at: "Progress") -> None:
            figures = phases.told(at, clock.monotonic())
            bar.update(task, description=at.what, completed=at.done_bytes, total=at.total_bytes or None)
            bar.update(task, figures=figures)

        yield show


class Phases:
    """A job does one thing after another, and each has its own pace: figures begin again with each."""

    def __init__(self) -> None:
        self._what = ""
        self._began_s = 0.0
        self._began_bytes = self._last_bytes = 0

    def told(self, at: "Progress", now_s: float) -> str:
        """How much of it is done, and how long the rest takes, as soon as that can be known."""
        if at.what != self._what or at.done_bytes < self._last_bytes:  # another thing, or another round of it
            self._what, self._began_s, self._began_bytes = at.what, now_s, at.done_bytes
        self._last_bytes = at.done_bytes
        if not at.total_bytes:
            return ""
        figures = f"{size(at.done_bytes)} of {size(at.total_bytes)}"
        moved, after_s = at.done_bytes - self._began_bytes, now_s - self._began_s
        if after_s < SURE_AFTER_S or moved < SURE_PART * at.total_bytes or at.done_bytes >= at.total_bytes:
            return figures
        return f"{figures}, about {_clock_face(after_s * (at.total_bytes - at.done_bytes) / moved)} left"


def _clock_face(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def stoppable(how_on: str) -> Iterator[None]:
    """Ctrl-C ends the command with one line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"stopped; {how_on}")
        raise typer.Exit(STOPPED) from None
