"""Compare: what did the working tree change since another commit, and how sure is that?

Data path   `git archive BASE` -> two `streamhouse_peer`s -> `runner` -> **compare** -> the terminal
Owns        `python -m benchmarks.compare BASE`, the sources of BASE, ratios with their confidence
Leaves      measuring to the measures, turns to `runner`

Both agents are asked in the same run, in turns, with the packages of this environment. A ratio is that of two turns
that follow each other; the interval is a bootstrap over those pairs. Where others use the machine, CPU seconds say more
than rates.
"""

import argparse
import io
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.__main__ import MEASURES
from benchmarks.measure import FULL, METRICS
from benchmarks.peer import raise_open_file_limit
from benchmarks.results import Run, is_better
from benchmarks.runner import MakePeer, Runner
from benchmarks.streamhouse_peer import StreamHousePeer
from benchmarks.table import label, number

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ("src", "setup.py", "pyproject.toml", "README.md")
BASE: Final = "base"
CHANGE: Final = "change"
CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000
SEED: Final = 20


class Change(NamedTuple):
    """A metric of both commits, the median ratio of change to base, and the interval that holds it."""

    scenario: str
    metric: str
    base: float
    change: float
    ratio: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        return not self.low <= 1.0 <= self.high


def changes(run: Run) -> list[Change]:
    """One change for each metric that both commits have; paired by repetition."""
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for sample in run.samples:
        if METRICS[sample.metric].shown:
            peers = values.setdefault((sample.scenario, sample.metric), {BASE: {}, CHANGE: {}})
            peers[sample.peer][sample.repetition] = sample.value
    found = []
    for (scenario, metric), peers in values.items():
        base, change = peers[BASE], peers[CHANGE]
        if ratios := [change[turn] / base[turn] for turn in base if turn in change and base[turn]]:
            medians = statistics.median(base.values()), statistics.median(change.values())
            found.append(Change(scenario, metric, *medians, statistics.median(ratios), *interval(ratios)))
    return found


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Where the median of the ratios lies, with `CONFIDENCE`; from resampling them."""
    chance = random.Random(SEED)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return medians[cut], medians[-1 - cut]


def unpack(commit: str, folder: Path) -> Path:
    """The sources of a commit with their C extensions, built and compiled; returns what goes into PYTHONPATH."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit, *SOURCES], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    for command in (["setup.py", "-q", "build_ext", "--inplace"], ["-m", "compileall", "-qq", "src"]):
        subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, check=True)
    return folder / "src"


def show(run: Run, console: Console) -> None:
    table = Table("", "", *run.peers, "ratio", f"{CONFIDENCE:.0%} interval", title=", ".join(run.peers.values()))
    for each in changes(run):
        colour = "dim" if not each.is_sure else "green" if is_better(each.metric, each.ratio) else "red"
        shown = (number(each.base), number(each.change), f"[{colour}]{each.ratio:.2f}[/]")
        table.add_row(each.scenario, label(each.metric), *shown, f"{each.low:.2f} to {each.high:.2f}")
    console.print(table)
    console.print(f"others kept {statistics.median(run.busy_cores):.1f} cores busy (median)")
    for note in run.notes:
        console.print(f"[yellow]{note}[/]", highlight=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="Two commits side by side.")
    parser.add_argument("base", help="the commit that the working tree is compared with")
    parser.add_argument("--only", action="append", choices=[each.name for each in MEASURES], metavar="NAME")
    parser.add_argument("--load", default="", metavar="TEXT", help="loads whose names have this, such as '1 KB, 16'")
    parser.add_argument("--rounds", type=int, default=5, help="how often each commit is measured")
    return parser.parse_args()


def main() -> None:
    asked, console = arguments(), Console()
    raise_open_file_limit()
    measures = [each for each in MEASURES if each.name in (asked.only or ["throughput"])]
    plan = replace(
        FULL,
        repetitions=asked.rounds,
        broker_for_each_measure=False,
        loads=tuple(load for load in FULL.loads if asked.load in str(load)),
        warm_up_s=1.5,
        short_warm_up_s=1.5,
        load_max_s=2.0,
        settle_max_s=1.0,
        patience_s=0.0,
    )
    with tempfile.TemporaryDirectory(prefix="bench-base-") as folder:
        base = unpack(asked.base, Path(folder))
        makers: dict[str, MakePeer] = {
            BASE: partial(StreamHousePeer, source=base, label=asked.base),
            CHANGE: partial(StreamHousePeer, source=ROOT / "src", label=results.commit()),
        }
        runner = Runner(makers, plan, "compare")
        for turn, measure in runner.run(measures):
            console.print(f"[dim]{measure.name}: {turn.peer}, {turn.repetition + 1} of {plan.repetitions}[/]")
    run = runner.result()
    show(run, console)
    console.print(f"[dim]{results.save(run, results.FOLDER / 'compare')}[/]", soft_wrap=True)


if __name__ == "__main__":
    main()
