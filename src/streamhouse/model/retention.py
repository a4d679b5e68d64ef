"""Retention: where a partition's log should start, as a pure function.

Owns        the policy (Kafka's: by time and by size, in whole runs, oldest first)
Leaves      moving the log start to the metadata store, deleting bytes to `broker.maintenance.collector`
"""

from collections.abc import Sequence
from typing import NamedTuple

from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig


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
