"""Log cleanup policies as pure functions: retention, compaction and merging of runs.

Owns        the log start by retention time and size, in whole runs; when and up to which offset a partition is
            compacted (dirty ratio, minimum and maximum lag, open transactions); which small adjacent runs are merged
Leaves      the choice of records to `format.compaction`, the work to `broker.maintenance` and `spark.maintenance`

Runs are merged only if the result is several times as large, so a byte is rewritten only a few times, however small the
original runs are. Merged runs share an object, and those of one epoch become one run: the ends of epochs are kept, so a
log that is never deleted keeps a run for each change of its leader, but not an object.
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
        """Whether the runs may be merged: retention must still be able to delete the result in time."""
        span_ms = (self.latest_ms or 0) - (self.earliest_ms or 0)
        return self.size_bytes <= limits.max_bytes and (limits.max_span_ms is None or span_ms <= limits.max_span_ms)


def merge_limits(config: TopicConfig, *, at_least: int, below_bytes: int, max_bytes: int) -> MergeLimits:
    """The agent's merge limits, reduced by the topic's retention."""
    span_ms = None
    if config.deletes and config.retention_ms >= 0:
        span_ms = config.retention_ms // SHARE_OF_RETENTION
    if config.deletes and config.retention_bytes >= 0:
        max_bytes = min(max_bytes, config.retention_bytes // SHARE_OF_RETENTION)
    return MergeLimits(at_least=at_least, below_bytes=below_bytes, max_bytes=max_bytes, max_span_ms=span_ms)


def runs_to_merge(runs: Sequence[Run], limits: MergeLimits) -> Sequence[Run]:
    """The first consecutive runs, of any epochs, that should be merged into one object; empty if no merge is worth it.
    `runs` are oldest first."""
    for small in _small_neighbours(runs, limits):
        parts = list(parts_of(small))
        for start in range(len(parts) - limits.at_least + 1):
            window = _window(parts[start:], limits)
            if len(window) >= limits.at_least and _grows(map(_size_of, window), limits):
                return [run for part in window for run in part]
    return ()


def next_check(runs: Sequence[Run], limits: MergeLimits, *, is_all: bool) -> int:
    """The offset from which the next check needs to look at runs, if none of these is to be merged."""
    start = runs[-1].end
    for run in reversed(runs):
        if run.length >= limits.below_bytes:
            break
        start = run.base
    return start if is_all else max(start, runs[-min(limits.at_least, len(runs))].base)


def merges(runs: Sequence[Run], limits: MergeLimits, *, max_runs: int, apart_at: int = 0) -> Iterator[Sequence[Run]]:
    """All merges that a Spark job should do, oldest first: groups of small adjacent runs, of any epochs; each becomes
    one object.

    Runs of different cells of a time grid are not merged, because retention deletes them at different times. The
    distance between neighbours can't be used instead: a merged run keeps only its latest timestamp, so its span would
    seem to shrink with every merge. Runs on different sides of the offset `apart_at` are not merged either.
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
    """Groups of runs as large as the limits allow, without those that gain too little."""
    start = 0
    while start < len(runs):
        end = _fitting(runs, start, limits, max_runs)
        window = runs[start:end]
        sizes = (run.length for run in window)
        if len({run.object_key for run in window}) >= max(2, limits.at_least) and _grows(sizes, limits):
            yield window
        else:  # too little gain for the largest run; merges after it may be worth it
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
    for is_small, group in groupby(runs, lambda run: run.length < limits.below_bytes):
        if is_small:
            yield list(group)


def parts_of(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """The runs in parts that a merge leaves as they are: neighbours in one object that have different epochs."""
    part: list[Run] = []
    for run in runs:
        if part and (run.object_key != part[-1].object_key or run.epoch == part[-1].epoch):
            yield part
            part = []
        part.append(run)
    if part:
        yield part


def _size_of(part: Sequence[Run]) -> int:
    return sum(run.length for run in part)


def _window(parts: Sequence[Sequence[Run]], limits: MergeLimits) -> Sequence[Sequence[Run]]:
    """The longest prefix of the parts that the limits allow to merge."""
    extent = Extent()
    for count, part in enumerate(parts):
        for run in part:
            extent = extent.plus(run)
        if not extent.may_be_one(limits):
            return parts[:count]
    return parts


def _grows(sizes: Iterable[int], limits: MergeLimits) -> bool:
    known = list(sizes)
    return sum(known) >= min(GROWTH, limits.at_least / 2) * max(known)


ALL_STABLE: Final = 2**63 - 1
"""For partitions without open transactions: above the end of every log."""


class DirtyRange:
    """The dirty part of a partition, computed run by run, oldest first, in constant memory.

    Everything below `cleaned_to` has been compacted before. The dirty part ends before the first run with a record that
    is younger than the minimum compaction lag or at or above `stable_end`, where a transaction may be open.
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
        """The offset up to which the partition may be compacted, whatever its dirty ratio; None if nothing is dirty."""
        return self._up_to

    @property
    def due_up_to(self) -> int | None:
        """The offset up to which the partition should be compacted now; None if it isn't due."""
        ratio = self._config.min_cleanable_dirty_ratio
        is_dirty_enough = self._dirty_bytes > ratio * (self._dirty_bytes + self._clean_bytes)
        has_waited_enough = self._first_ms < self._now_ms - self._config.max_compaction_lag_ms
        return self._up_to if is_dirty_enough or has_waited_enough else None


def compact_up_to(
    runs: Iterable[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int, stable_end: int = ALL_STABLE
) -> int | None:
    """The offset up to which a partition with these runs should be compacted now; None if it isn't due."""
    return _dirty_range(runs, config, cleaned_to, now_ms, stable_end).due_up_to


def compactable_up_to(
    runs: Iterable[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int, stable_end: int = ALL_STABLE
) -> int | None:
    """The offset up to which a partition with these runs may be compacted, whatever its dirty ratio; None if nothing is
    dirty."""
    return _dirty_range(runs, config, cleaned_to, now_ms, stable_end).up_to


def rewritten_together(
    runs: Sequence[Run], limits: MergeLimits, *, max_runs: int, max_records: int
) -> Iterator[Sequence[Run]]:
    """The runs that one task compacts into one object, oldest first: as many as fit into its memory, within one cell of
    the time grid (see `merges`)."""
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
    """A run's bytes at and above an offset; if the offset is inside the run, in proportion."""
    above = min(max(run.end - offset, 0), run.end - run.base)
    return run.length * above // (run.end - run.base)


class RetentionStep(NamedTuple):
    """The log start after a number of runs, and the size of the remaining ones."""

    start: int
    size_bytes: int


def is_past(run: Run, config: TopicConfig, *, now_ms: int) -> bool:
    return config.retention_ms >= 0 and run.max_timestamp_ms < now_ms - config.retention_ms


def is_undated(run: Run) -> bool:
    """Whether the records have no timestamps, so that their age is known only from when the segment was created."""
    return run.max_timestamp_ms < 0 and run.records > 0


def retention_step(
    runs: Sequence[Run], config: TopicConfig, *, log_start: int, now_ms: int, size_bytes: int
) -> RetentionStep:
    """The log start by the topic's settings, never below `log_start`, after the oldest runs of a partition whose total
    size is `size_bytes`.

    A run of unknown age counts as young, so that records without timestamps are not deleted early.
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
