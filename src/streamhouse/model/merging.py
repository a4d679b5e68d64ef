"""Merging: which small runs of a partition should become one, as pure functions.

Owns        the policy: enough small neighbours of one epoch, none of them much larger than the rest; what a job merges
Leaves      the work to `broker.maintenance.compaction` and `spark.maintenance.merging`

A run joins a merge only where the result is several times as large, so that a byte is moved a few times in all, however
small the runs are that a partition is written in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final

from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

GROWTH: Final = 4
"""A merged run is at least so many times as large as the largest that it is made of, where that many are asked for."""

SHARE_OF_RETENTION: Final = 10
"""A merged run spans at most this part of what retention keeps: it deletes whole runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    at_least: int
    below_bytes: int
    max_bytes: int
    max_span_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """How much consecutive runs are together."""

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
    """The agent's limits, made narrower by what the topic's retention needs."""
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


def next_look(runs: Sequence[Run], limits: MergeLimits, *, is_all: bool) -> int:
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
