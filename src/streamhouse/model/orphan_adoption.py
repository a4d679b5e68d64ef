"""Orphan adoption: which unreferenced objects to register after a database was lost or restored from an older dump.

Owns        the types, and the choice for one partition
Leaves      finding objects to `admin.orphan_adoption`, writing rows to the metadata store

Records of one epoch never contradict each other, so of objects with the same epoch and overlapping offsets any may be
used. A later epoch begins where the previous one ended: records of the older leader above that were never published.
Objects that don't fit are rejected with the reason, and kept.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamhouse.model.names import Epoch, PartitionId, SessionId
from streamhouse.model.segment import Run, SegmentCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRange:
    """Offsets [base, end) under an epoch."""

    epoch: int
    base: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An unregistered run. `is_rewritten`: written by merging or compaction in place of registered ones."""

    run: Run
    is_rewritten: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRun:
    run: Run
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoice:
    """The choice for one partition: runs to register, runs whose rows they replace, and runs that aren't registered.
    All records of `covered` runs are in registered ones."""

    kept: tuple[Run, ...] = ()
    replaced: tuple[Run, ...] = ()
    covered: tuple[Run, ...] = ()
    refused: tuple[RejectedRun, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The content of one metadata transaction. `commits` have the runs to register, `replaced` the rows to delete;
    counters are raised to these values, never lowered; `ended` are sessions whose logs have no further records."""

    cluster_id: str
    commits: Sequence[SegmentCommit] = ()
    replaced: Sequence[Run] = ()
    epoch: int = 0
    producer_id: int = 0
    generation: int = 0
    ended: Sequence[SessionId] = ()
    epochs: Mapping[PartitionId, Epoch] = field(default_factory=dict)


class EpochEnds:
    """The ends of epochs: the first offset of a later epoch."""

    def __init__(self, spans: Iterable[EpochRange]) -> None:
        starts: dict[int, int] = {}
        for span in spans:
            starts[span.epoch] = min(span.base, starts.get(span.epoch, span.base))
        self._epochs = sorted(starts)
        self._ends: list[int] = []
        end = 2**63
        for epoch in reversed(self._epochs):
            end = min(end, starts[epoch])
            self._ends.append(end)
        self._ends.reverse()

    def end_of(self, epoch: int) -> int:
        at = bisect_right(self._epochs, epoch)
        return self._ends[at] if at < len(self._ends) else 2**63


class Coverage:
    """Offsets in registered runs, and in those chosen so far."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._spans = sorted(spans)

    def add(self, base: int, end: int) -> None:
        self._spans.insert(bisect_left(self._spans, (base, end)), (base, end))

    def overlaps(self, base: int, end: int) -> bool:
        at = bisect_left(self._spans, (base, base))
        return (at > 0 and self._spans[at - 1][1] > base) or (at < len(self._spans) and self._spans[at][0] < end)

    def holds(self, base: int, end: int) -> bool:
        """Whether all of [base, end) is covered."""
        at = max(bisect_right(self._spans, (base, 2**63)) - 1, 0)
        for start, stop in self._spans[at:]:
            if start > base:
                return False
            base = max(base, stop)
            if base >= end:
                return True
        return False


def choose_runs(
    named: Sequence[Run], candidates: Sequence[Candidate], *, log_start: int, epoch_ends: EpochEnds
) -> RunChoice:
    """The candidates of one partition to register besides the existing registered runs."""
    refused: list[RejectedRun] = []
    fitting: list[Candidate] = []
    below: list[Run] = []
    for each in candidates:
        if each.run.end <= log_start:
            below.append(each.run)
        elif each.run.end > (end := epoch_ends.end_of(each.run.epoch)):
            refused.append(RejectedRun(run=each.run, why=f"a later leader went on at offset {end}"))
        else:
            fitting.append(each)
    replacing, replaced = _replacements(named, fitting)
    gone = {run.base for run in replaced}
    held = Coverage((run.base, run.end) for run in (*(run for run in named if run.base not in gone), *replacing))
    free = [each.run for each in fitting if each.run not in replacing]
    kept = [*replacing, *_longest_cover([run for run in free if not held.overlaps(run.base, run.end)])]
    for run in kept:
        held.add(run.base, run.end)
    left = [run for run in free if run not in kept]
    covered = [run for run in left if held.holds(max(run.base, log_start), run.end)]
    refused += [RejectedRun(run=run, why="it overlaps runs that are registered") for run in left if run not in covered]
    return RunChoice(
        kept=tuple(sorted(kept, key=lambda run: run.base)),
        replaced=tuple(replaced),
        covered=(*below, *covered),
        refused=tuple(refused),
    )


def _replacements(named: Sequence[Run], candidates: Sequence[Candidate]) -> tuple[list[Run], list[Run]]:
    """Rewritten runs that contain registered ones and more: the additional records may exist only there."""
    remaining: list[Run] = []
    replaced: list[Run] = []
    rewritten = sorted((each.run for each in candidates if each.is_rewritten), key=_size, reverse=True)
    for run in rewritten:
        over = [each for each in named if each.base < run.end and run.base < each.end]
        fits = all(run.base <= each.base and each.end <= run.end and each.epoch == run.epoch for each in over)
        is_free = not any(each.base < run.end and run.base < each.end for each in remaining)
        if over and fits and is_free and _size(run) > sum(map(_size, over)):
            remaining.append(run)
            replaced += over
    return remaining, replaced


def _longest_cover(runs: Sequence[Run]) -> list[Run]:
    """The runs without overlap that cover the most offsets; with equal coverage the fewest runs."""
    ordered = sorted(runs, key=lambda run: (run.end, run.base, run.object_key))
    ends = [run.end for run in ordered]
    best: list[tuple[int, int]] = [(0, 0)]
    taken: list[int | None] = []
    for number, run in enumerate(ordered):
        before = bisect_right(ends, run.base, 0, number)
        with_it = (best[before][0] + _size(run), best[before][1] - 1)
        takes = with_it > best[-1]
        best.append(with_it if takes else best[-1])
        taken.append(before if takes else None)
    chosen: list[Run] = []
    at = len(ordered)
    while at > 0:
        before_it = taken[at - 1]
        if before_it is None:
            at -= 1
        else:
            chosen.append(ordered[at - 1])
            at = before_it
    return chosen


def _size(run: Run) -> int:
    return run.end - run.base
