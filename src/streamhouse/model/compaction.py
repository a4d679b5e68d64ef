"""Compaction: which partitions are due, and up to which offset, as pure functions.

Owns        the policy (Kafka's: dirty ratio, smallest and largest lag, in whole runs)
Leaves      which records stay to `format.compaction`, the work to `broker.maintenance.compaction` and, for jobs, to
            `spark.maintenance.compacting`
"""

from collections.abc import Iterator, Sequence

from streamhouse.model.merging import MergeLimits
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig


def compact_up_to(runs: Sequence[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int) -> int | None:
    """The offset up to which a partition should be compacted now; None when it isn't due.

    `runs` are all that the partition has, oldest first. All below `cleaned_to` was compacted before.
    """
    dirty = _dirty(runs, config, cleaned_to, now_ms)
    if not dirty:
        return None
    dirty_bytes = sum(_bytes_above(run, cleaned_to) for run in dirty)
    clean_bytes = sum(run.length - _bytes_above(run, cleaned_to) for run in runs if run.base < cleaned_to)
    is_dirty_enough = dirty_bytes > config.min_cleanable_dirty_ratio * (dirty_bytes + clean_bytes)
    has_waited_enough = dirty[0].max_timestamp_ms < now_ms - config.max_compaction_lag_ms
    return dirty[-1].end if is_dirty_enough or has_waited_enough else None


def compactable_up_to(runs: Sequence[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int) -> int | None:
    """The offset up to which a partition may be compacted now, however little is new; None where nothing is."""
    dirty = _dirty(runs, config, cleaned_to, now_ms)
    return dirty[-1].end if dirty else None


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


def _dirty(runs: Sequence[Run], config: TopicConfig, cleaned_to: int, now_ms: int) -> Sequence[Run]:
    """What was not compacted yet and may be, oldest first."""
    if not config.compacts:
        return ()
    return _old_enough([run for run in runs if run.end > cleaned_to], config, now_ms)


def _old_enough(dirty: Sequence[Run], config: TopicConfig, now_ms: int) -> Sequence[Run]:
    """Those before the first run that has a record which must stay as it is for a while."""
    if not config.min_compaction_lag_ms:
        return dirty
    newest_ms = now_ms - config.min_compaction_lag_ms
    count = next((n for n, run in enumerate(dirty) if run.max_timestamp_ms > newest_ms), len(dirty))
    return dirty[:count]


def _bytes_above(run: Run, offset: int) -> int:
    """A run's bytes at and above an offset; where that lies inside, in proportion."""
    above = min(max(run.end - offset, 0), run.end - run.base)
    return run.length * above // (run.end - run.base)
