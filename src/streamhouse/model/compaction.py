"""Compaction: which partitions are due, and up to which offset, as pure functions.

Owns        the policy (Kafka's: dirty ratio, smallest and largest lag, in whole runs)
Leaves      which records stay to `format.compaction`, the work to `broker.maintenance.compaction`
"""

from collections.abc import Sequence

from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig


def compact_up_to(runs: Sequence[Run], config: TopicConfig, *, cleaned_to: int, now_ms: int) -> int | None:
    """The offset up to which a partition should be compacted now; None when it isn't due.

    `runs` are all that the partition has, oldest first. All below `cleaned_to` was compacted before.
    """
    if not config.compacts:
        return None
    dirty = _old_enough([run for run in runs if run.end > cleaned_to], config, now_ms)
    if not dirty:
        return None
    dirty_bytes = sum(_bytes_above(run, cleaned_to) for run in dirty)
    clean_bytes = sum(run.length - _bytes_above(run, cleaned_to) for run in runs if run.base < cleaned_to)
    is_dirty_enough = dirty_bytes > config.min_cleanable_dirty_ratio * (dirty_bytes + clean_bytes)
    has_waited_enough = dirty[0].max_timestamp_ms < now_ms - config.max_compaction_lag_ms
    return dirty[-1].end if is_dirty_enough or has_waited_enough else None


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
