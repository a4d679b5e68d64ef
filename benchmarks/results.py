"""Results: the numbers of a run as a file, and the medians that people compare.

Data path   `runner` -> **results** -> `table`, `plot`, `readme`, `compare`
Owns        the JSON file of a run, and what is made of repetitions
Leaves      showing to the modules above
Invariant   the file holds every single number; medians are made when it is read
"""

import os
import platform
import statistics
import subprocess
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from benchmarks.measure import METRICS

FOLDER: Final = Path(__file__).resolve().parent / "results"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading, and where it comes from."""

    measure: str
    scenario: str
    metric: str
    peer: str
    repetition: int
    value: float


class CurveSample(msgspec.Struct, frozen=True, kw_only=True):
    """One latency distribution, and where it comes from."""

    measure: str
    scenario: str
    peer: str
    repetition: int
    quantiles_ms: list[float]


Kind = TypeVar("Kind", Sample, CurveSample)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run: what was compared, on what machine, and every number."""

    began_at: str
    plan: str
    commit: str
    machine: str
    peers: dict[str, str]
    notes: list[str]
    took_s: float
    busy_cores: list[float]
    samples: list[Sample]
    curves: list[CurveSample]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario's metric: the median of each peer, and the least and the greatest number it comes from."""

    measure: str
    scenario: str
    metric: str
    medians: dict[str, float]
    spans: dict[str, tuple[float, float]] = {}

    def ratio(self, ours: str, theirs: str) -> float | None:
        if ours not in self.medians or not self.medians.get(theirs):
            return None
        return self.medians[ours] / self.medians[theirs]


def rows(run: Run) -> list[Row]:
    """Medians over the repetitions, in the order in which the numbers were first seen."""
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for sample in run.samples:
        key = (sample.measure, sample.scenario, sample.metric)
        values.setdefault(key, {}).setdefault(sample.peer, []).append(sample.value)
    return [
        Row(
            measure=measure,
            scenario=scenario,
            metric=metric,
            medians={peer: statistics.median(found) for peer, found in by_peer.items()},
            spans={peer: (min(found), max(found)) for peer, found in by_peer.items()},
        )
        for (measure, scenario, metric), by_peer in values.items()
    ]


def merged(old: Run, new: Run, measures: Collection[str]) -> Run:
    """A run whose named measures are those of a newer run; a note says so. Peers are never mixed in a measure."""
    kept = [note for note in old.notes if not any(note.startswith(f"{peer} skipped") for peer in new.peers)]
    note = f"{', '.join(measures)}: measured again on {new.began_at} at commit {new.commit}"
    return msgspec.structs.replace(
        old,
        began_at=new.began_at,
        peers=old.peers | new.peers,
        notes=[*kept, *new.notes, note],
        took_s=round(old.took_s + new.took_s, 1),
        busy_cores=old.busy_cores + new.busy_cores,
        samples=_replaced(old.samples, new.samples, measures),
        curves=_replaced(old.curves, new.curves, measures),
    )


def _replaced(old: list[Kind], new: list[Kind], measures: Collection[str]) -> list[Kind]:
    return [each for each in old if each.measure not in measures] + [each for each in new if each.measure in measures]


def is_better(metric: str, ratio: float) -> bool:
    return ratio > 1 if METRICS[metric].better == "higher" else ratio < 1


def save(run: Run, folder: Path = FOLDER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = run.began_at.replace(":", "").replace("-", "")
    path = folder / f"{stamp}-{run.plan}-{run.commit}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
    return path


def load(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def newest(folder: Path = FOLDER) -> Path | None:
    """The latest results file, by the time in its name; None when there is none."""
    return max(folder.glob("*.json"), default=None, key=lambda path: path.name)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit() -> str:
    """The checked-out commit, with a plus when the sources differ from it."""
    root = FOLDER.parent.parent
    head = _git(root, "rev-parse", "--short", "HEAD")
    return head + "+" * bool(_git(root, "status", "--porcelain", "--untracked-files=no", "--", "src"))


CROWDED_CORES: Final = 0.5
"""Cores that others keep busy, at the median, from which a run says too little to be published."""


def is_tree_dirty() -> bool:
    """Whether files differ from the commit that a run would name; unknown ones don't count."""
    return bool(_git(FOLDER.parent.parent, "status", "--porcelain", "--untracked-files=no"))


def unfit(run: Run) -> list[str]:
    """Why a run's numbers are not to be published; empty if they may be."""
    reasons = []
    if run.commit.endswith("+"):
        reasons.append(f"the sources differed from the commit; commit={run.commit}")
    if run.busy_cores and (busy := statistics.median(run.busy_cores)) > CROWDED_CORES:
        reasons.append(f"the machine was crowded; busy_cores={busy:.1f} allowed={CROWDED_CORES}")
    if run.plan == "quick":
        reasons.append("a quick run is too short for a JVM to reach its best")
    return reasons


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("unknown" if done.returncode else "")


def machine() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.machine()}, Python {platform.python_version()}"
