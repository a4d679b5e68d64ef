"""Retention: where a partition's log should start, as a pure function.

Owns        the policy (Kafka's: by time and by size, in whole runs, oldest first)
Leaves      moving the log start to the metadata store, deleting bytes to `broker.maintenance.collector`
"""

from collections.abc import Sequence

from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig


def retained_from(runs: Sequence[Run], config: TopicConfig, *, log_start: int, now_ms: int) -> int:
    """The log start that the settings ask for; `runs` are the partition's, oldest first. Never goes back."""
    if not config.deletes:
        return log_start
    start = log_start
    size = sum(run.length for run in runs if run.end > log_start)
    for run in runs:
        if run.end <= start:
            continue
        too_old = config.retention_ms >= 0 and run.max_timestamp_ms < now_ms - config.retention_ms
        too_much = config.retention_bytes >= 0 and size - run.length >= config.retention_bytes
        if not (too_old or too_much):
            break
        start = run.end
        size -= run.length
    return start
