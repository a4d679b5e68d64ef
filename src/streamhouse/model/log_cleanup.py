"""Log cleanup policies as pure functions: retention, compaction and merging of runs.

Owns        where a log should start (by time and by size, in whole runs, oldest first); which partitions are due for
            compaction and up to which offset (dirty ratio, smallest and largest lag, open transactions); which small
            neighbouring runs of one epoch become one
Leaves      which records stay to `format.compaction`, the work to `broker.maintenance` and `spark.maintenance`

A run joins a merge only if the result is several times as large, so a byte is moved a few times in all, however small
the runs are that a partition is written in.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final, NamedTuple

from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

GROWTH: Final = 4
"""Minimum size of a merged run, as a multiple of its largest input run."""

SHARE_OF_RETENTION: Final = 10
"""Maximum share of the retention that a merged run may span, because retention deletes whole runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    at_least: int
    below_bytes: int
    max_bytes: int
    max_span_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """The total of consecutive runs."""

    size_bytes: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None

    def plus(self, run: Run) -> "Extent":
        at_ms = run.max_timestamp_ms
        return Extent(
            self.size_bytes + run.length,
            at_ms if self.earliest_ms is None else min(self.earliest_ms, at_ms),
            at_ms if self.latest_ms is None else max(self.latest_ms, at_ms),
        )

    def may_be_one(self, limits: MergeLimits) -> bool:
        """Whether retention could still delete them in time if they were one run."""
        span_ms = (self.latest_ms or 0) - (self.earliest_ms or 0)
        return self.size_bytes <= limits.max_bytes and (limits.max_span_ms is None or span_ms <= limits.max_span_ms)


def merge_limits(config: TopicConfig, *, at_least: int, below_bytes: int, max_bytes: int) -> MergeLimits:
    """The agent's limits, narrowed by the topic's retention."""
    span_ms = None
    if config.deletes and config.retention_ms >= 0:
        span_ms = config.retention_ms // SHARE_OF_RETENTION
    if config.deletes and config.retention_bytes >= 0:
        max_bytes = min(max_bytes, config.retention_bytes // SHARE_OF_RETENTION)
    return MergeLimits(at_least=at_least, below_bytes=below_bytes, max_bytes=max_bytes, max_span_ms=span_ms)


def runs_to_merge(runs: Sequence[Run], limits: MergeLimits) -> Sequence[Run]:
    """The first consecutive runs that should become one; none when it isn't worth it. `runs` are oldest first."""
    for small in _small_neighbours(runs, limits):
        for start in range(len(small) - limits.at_least + 1):
            window = _window(small[start:], limits)
            if len(window) >= limits.at_least and _grows(window, limits):
                return window
    return ()


def next_check(runs: Sequence[Run], limits: MergeLimits, *, is_all: bool) -> int:
    """From which offset runs need to be looked at next time, after nothing in these was to be merged."""
    start = runs[-1].end
    for run in reversed(runs):
        if run.length >= limits.below_bytes or run.epoch != runs[-1].epoch:
            break
        start = run.base
    return start if is_all else max(start, runs[-min(limits.at_least, len(runs))].base)


def merges(runs: Sequence[Run], limits: MergeLimits, *, max_runs: int, apart_at: int = 0) -> Iterator[Sequence[Run]]:
    """All that a job should merge, oldest first: small neighbours, whatever their epochs, as one object each.

    What retention deletes at different times stays apart by a grid of time, not by the distance to a neighbour: of a
    merged run only the latest time is known, and with every merge it would seem shorter than it is. Runs on both
    sides of the offset `apart_at` stay apart, too.
    """
    latest_ms = accumulate((run.max_timestamp_ms for run in runs), max)
    kinds = [
        (run.length < limits.below_bytes, _cell(at_ms, limits), run.base >= apart_at)
        for run, at_ms in zip(runs, latest_ms, strict=True)
    ]
    for (is_small, _, _), group in groupby(zip(kinds, runs, strict=True), lambda each: each[0]):
        if is_small:
            yield from _filled([run for _, run in group], limits, max_runs)


def _cell(at_ms: int, limits: MergeLimits) -> int:
    return at_ms // limits.max_span_ms if limits.max_span_ms else 0


def _filled(runs: Sequence[Run], limits: MergeLimits, max_runs: int) -> Iterator[Sequence[Run]]:
    """Groups as large as they may be, those left out that gain too little."""
    start = 0
    while start < len(runs):
        end = _fitting(runs, start, limits, max_runs)
        window = runs[start:end]
        if len({run.object_key for run in window}) >= max(2, limits.at_least) and _grows(window, limits):
            yield window
        else:  # the largest gains nothing; those behind it may
            end = start + 1 + max(range(len(window)), key=lambda number: window[number].length)
        start = end


def _fitting(runs: Sequence[Run], start: int, limits: MergeLimits, max_runs: int) -> int:
    size, most = 0, min(len(runs), start + max_runs)
    for end in range(start, most):
        size += runs[end].length
        if size > limits.max_bytes and end > start:
            return end
    return most


def _small_neighbours(runs: Sequence[Run], limits: MergeLimits) -> Iterator[list[Run]]:
    for (is_small, _), group in groupby(runs, lambda run: (run.length < limits.below_bytes, run.epoch)):
        if is_small:
            yield list(group)


def _window(runs: Sequence[Run], limits: MergeLimits) -> Sequence[Run]:
    """As many of the first ones as the limits let become one."""
    extent = Extent()
    for count, run in enumerate(runs):
        extent = extent.plus(run)
        if not extent.may_be_one(limits):
            return runs[:count]
    return runs


def _grows(window: Sequence[Run], limits: MergeLimits) -> bool:
    growth = min(GROWTH, limits.at_least / 2)
    return sum(run.length for run in window) >= growth * max(run.length for run in window)


ALL_STABLE: Final = 2**63 - 1
"""A stable end above every log."""


class DirtyRange:
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
        return f"<DirtyRange dirty={self._dirty_bytes} clean={self._clean_bytes} up_to={self._up_to}>"

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
    return _dirty_range(runs, config, cleaned_to, now_ms, stable_end).due_up_to


def compactable_up_to(
    runs: Iterable[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int, stable_end: int = ALL_STABLE
) -> int | None:
    """The offset up to which a partition may be compacted now, however little is new; None where nothing is."""
    return _dirty_range(runs, config, cleaned_to, now_ms, stable_end).up_to


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


def _dirty_range(runs: Iterable[Run], config: TopicConfig, cleaned_to: int, now_ms: int, stable_end: int) -> DirtyRange:
    dirt = DirtyRange(config, cleaned_to=cleaned_to, now_ms=now_ms, stable_end=stable_end)
    for run in runs:
        dirt.add(run)
    return dirt


def _bytes_above(run: Run, offset: int) -> int:
    """A run's bytes at and above an offset; where that lies inside, in proportion."""
    above = min(max(run.end - offset, 0), run.end - run.base)
    return run.length * above // (run.end - run.base)


class RetentionStep(NamedTuple):
    """Where a log should start, as far as the runs that were looked at tell, and what all from there on come to."""

    start: int
    size_bytes: int


def is_past(run: Run, config: TopicConfig, *, now_ms: int) -> bool:
    return config.retention_ms >= 0 and run.max_timestamp_ms < now_ms - config.retention_ms


def is_undated(run: Run) -> bool:
    """Whether its records came without times, so that somebody else must tell how old they are."""
    return run.max_timestamp_ms < 0 and run.records > 0


def retained_from(runs: Sequence[Run], config: TopicConfig, *, log_start: int, now_ms: int) -> int:
    """The log start that the settings ask for; `runs` are the partition's, oldest first. Never goes back."""
    size_bytes = sum(run.length for run in runs if run.end > log_start)
    return retention_step(runs, config, log_start=log_start, now_ms=now_ms, size_bytes=size_bytes).start


def retention_step(
    runs: Sequence[Run], config: TopicConfig, *, log_start: int, now_ms: int, size_bytes: int
) -> RetentionStep:
    """As `retained_from`, of the oldest runs of a partition whose runs come to `size_bytes` in all.

    A run of which nobody has told how old it is counts as young: what is without a time must not seem ancient.
    """
    start, size = log_start, size_bytes
    for run in runs if config.deletes else ():
        if run.end <= start:
            continue
        too_old = is_past(run, config, now_ms=now_ms) and not is_undated(run)
        too_much = config.retention_bytes >= 0 and size - run.length >= config.retention_bytes
        if not (too_old or too_much):
            break
        start = run.end
        size -= run.length
    return RetentionStep(start, size)
