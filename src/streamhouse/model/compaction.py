"""Compaction: which partitions are due, and up to which offset, as pure functions.

Owns        the policy (Kafka's: dirty ratio, smallest and largest lag, open transactions, in whole runs)
Leaves      which records stay to `format.compaction`, the work to `broker.maintenance.compaction` and, for jobs, to
            `spark.maintenance.compacting`
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from streamhouse.model.merging import MergeLimits
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

ALL_STABLE: Final = 2**63 - 1
"""An end of what is stable that no log reaches."""


class Dirt:
    """How much of a partition is new, told run by run, oldest first; of any number of runs it keeps sums alone.

    All below `cleaned_to` was compacted before. What is new ends before the first run that has a record which must
    stay as it is for a while, or whose transaction may be open: one at or above `stable_end`.
    """

    __slots__ = (
        "_clean_bytes",
        "_cleaned_to",
        "_config",
        "_dirty_bytes",
        "_ended",
        "_first_ms",
        "_now_ms",
        "_stable_end",
        "_up_to",
    )

    def __init__(self, config: TopicConfig, *, cleaned_to: int, now_ms: int, stable_end: int = ALL_STABLE) -> None:
        self._config = config
        self._cleaned_to = cleaned_to
        self._now_ms = now_ms
        self._stable_end = stable_end
        self._clean_bytes = self._dirty_bytes = 0
        self._ended = not config.compacts
        self._first_ms = 0
        self._up_to: int | None = None

    def __repr__(self) -> str:
        return f"<Dirt dirty={self._dirty_bytes} clean={self._clean_bytes} up_to={self._up_to}>"

    def add(self, run: Run) -> None:
        above = _bytes_above(run, self._cleaned_to)
        if run.base < self._cleaned_to:
            self._clean_bytes += run.length - above
        if run.end <= self._cleaned_to or self._ended:
            return
        if run.end > self._stable_end or self._is_young(run):
            self._ended = True
            return
        if self._up_to is None:
            self._first_ms = run.max_timestamp_ms
        self._dirty_bytes += above
        self._up_to = run.end

    def _is_young(self, run: Run) -> bool:
        lag_ms = self._config.min_compaction_lag_ms
        return bool(lag_ms) and run.max_timestamp_ms > self._now_ms - lag_ms

    @property
    def up_to(self) -> int | None:
        """The offset up to which the partition may be compacted now, however little is new; None where nothing is."""
        return self._up_to

    @property
    def due_up_to(self) -> int | None:
        """The offset up to which the partition should be compacted now; None when it isn't due."""
        ratio = self._config.min_cleanable_dirty_ratio
        is_dirty_enough = self._dirty_bytes > ratio * (self._dirty_bytes + self._clean_bytes)
        has_waited_enough = self._first_ms < self._now_ms - self._config.max_compaction_lag_ms
        return self._up_to if is_dirty_enough or has_waited_enough else None


def compact_up_to(
    runs: Iterable[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int, stable_end: int = ALL_STABLE
) -> int | None:
    """The offset up to which a partition with these runs should be compacted now; None when it isn't due."""
    return _dirt(runs, config, cleaned_to, now_ms, stable_end).due_up_to


def compactable_up_to(
    runs: Iterable[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int, stable_end: int = ALL_STABLE
) -> int | None:
    """The offset up to which a partition may be compacted now, however little is new; None where nothing is."""
    return _dirt(runs, config, cleaned_to, now_ms, stable_end).up_to


def rewritten_together(
    runs: Sequence[Run], limits: MergeLimits, *, max_runs: int, max_records: int
) -> Iterator[Sequence[Run]]:
    """Runs that a task compacts as one, oldest first: as many as it has memory for, and retention may delete as one.

    Times are kept apart by a grid: of a run that was made of others only the latest is known, so that distances
    between neighbours would seem shorter with every pass.
    """
    start, size, records, latest_ms, first_cell = 0, 0, 0, 0, 0
    for at, run in enumerate(runs):
        latest_ms = max(latest_ms, run.max_timestamp_ms)
        cell = latest_ms // limits.max_span_ms if limits.max_span_ms else 0
        is_full = size + run.length > limits.max_bytes or records + run.records > max_records
        if at > start and (is_full or at - start >= max_runs or cell != first_cell):
            yield runs[start:at]
            start, size, records = at, 0, 0
        if at == start:
            first_cell = cell
        size, records = size + run.length, records + run.records
    if start < len(runs):
        yield runs[start:]


def _dirt(runs: Iterable[Run], config: TopicConfig, cleaned_to: int, now_ms: int, stable_end: int) -> Dirt:
    dirt = Dirt(config, cleaned_to=cleaned_to, now_ms=now_ms, stable_end=stable_end)
    for run in runs:
        dirt.add(run)
    return dirt


def _bytes_above(run: Run, offset: int) -> int:
    """A run's bytes at and above an offset; where that lies inside, in proportion."""
    above = min(max(run.end - offset, 0), run.end - run.base)
    return run.length * above // (run.end - run.base)
