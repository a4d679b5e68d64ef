"""Script: what the scripts beside `runner` have in common: their flags, the frame of a run, how it is shown.

Data path   a script's samples -> **script** -> `results`, `table`, `readme`
Owns        `--write-readme` and `--no-run`; when a run began, at which commit, on how busy a machine
Leaves      measuring to the scripts
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import readme, results, table
from benchmarks.process import busy_cores
from benchmarks.results import Run, Sample


class Frame:
    """Made before anything is measured."""

    def __init__(self) -> None:
        self._began_at, self._began, self._commit = results.now(), time.perf_counter(), results.commit()
        self._busy_cores = busy_cores()

    def __repr__(self) -> str:
        return f"<Frame began_at={self._began_at} commit={self._commit}>"

    def run(
        self, samples: Sequence[Sample], *, plan: str, notes: Sequence[str] = (), peers: Mapping[str, str] | None = None
    ) -> Run:
        """`peers` have names of their own, unless the names in the samples say enough."""
        return Run(
            began_at=self._began_at,
            plan=plan,
            commit=self._commit,
            machine=results.machine(),
            peers=dict(peers or {sample.peer: sample.peer for sample in samples}),
            notes=list(dict.fromkeys(notes)),
            took_s=round(time.perf_counter() - self._began, 1),
            busy_cores=[round(self._busy_cores, 2)],
            samples=list(samples),
            curves=[],
        )


def load_at_the_end(own: str) -> str:
    return f"the machine's load was {os.getloadavg()[0]:.1f} at the end, of which this makes {own}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write-readme", action="store_true", help="put the newest numbers into benchmarks/README.md")
    parser.add_argument("--no-run", action="store_true", help="show and write the newest results; measure nothing")


def show(
    asked: argparse.Namespace, measure: Callable[[], Run], *, folder: Path, marks: readme.Marks, console: Console
) -> None:
    """Measure, unless the newest results will do; keep, show and write them."""
    path = results.newest(folder) if asked.no_run else results.save(measure(), folder)
    if path is None:
        raise SystemExit("no results yet: run without --no-run first")
    shown = results.load(path)
    table.show(shown, console)
    if asked.write_readme:
        readme.write(shown, marks=marks)
