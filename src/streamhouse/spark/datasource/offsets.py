"""Offsets: start and end of a read, computed from options and from log bounds.

Data path   options, ends of logs, offsets of times -> **offsets** -> plans; a stream's checkpoint
Owns        starts and ends of a batch and of a stream, limits of a trigger, what counts as lost, the checkpoint's JSON
Leaves      requests to `split_planner`

The checkpoint has {"offsets": {"orders": {"0": 17}}, "topics": {"orders": "uuid"}}: the next offset of each partition,
and the ids of topics, by which a deleted and recreated topic is recognised; old checkpoints have none. The first batch
of a query has its own start in it too, as `since`: Spark calls `initialOffset` again for a query that failed in its
first batch, and "latest" is another offset by then.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from streamhouse.errors import DataLost, Misconfigured
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.client import OffsetRange, PartitionPlan
from streamhouse.spark.datasource.read_options import (
    EARLIEST,
    LATEST,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
    UniformOffset,
)

log = logging.getLogger(__name__)

Offsets: TypeAlias = dict[TopicPartition, int]
LogBounds: TypeAlias = Mapping[TopicPartition, PartitionPlan]
AtTimes: TypeAlias = Mapping[TopicPartition, int | None]
TopicIds: TypeAlias = Mapping[str, str]
ReportDataLoss: TypeAlias = Callable[[str, str], None]
"""Called with the lost range and a hint."""

OFFSETS: Final = "offsets"
SINCE: Final = "since"
TOPICS: Final = "topics"

START_LATER: Final = "start later (startingOffsets), or set failOnDataLoss=false to continue without them"
END_EARLIER: Final = "end earlier (endingOffsets), or set failOnDataLoss=false to end where the log does"
START_EARLIER: Final = "start earlier (startingOffsets), or set failOnDataLoss=false to continue at the log's end"
NEW_QUERY: Final = "start with a new checkpointLocation, or set failOnDataLoss=false to continue without them"


def data_loss_reporter(*, fails: bool, has_checkpoint: bool = False) -> ReportDataLoss:
    """Return what to do when records are gone: raise `DataLost` with a remedy, or log a warning and continue.

    A query with a checkpoint starts there, so its remedy is a new checkpoint instead of other options.
    """

    def report(what: str, cure: str) -> None:
        if fails:
            raise DataLost(f"{what} do={NEW_QUERY if has_checkpoint else cure}")
        log.warning(what)

    return report


def starts_at(
    edge: OffsetLimit, log_bounds: LogBounds, at_times: AtTimes, *, late_is_latest: bool, report_loss: ReportDataLoss
) -> Offsets:
    """The first offset to read of each partition."""
    offsets: Offsets = {}
    for partition, bounds in log_bounds.items():
        if isinstance(edge, SpecificTimestamps) and edge.of(partition) is not None and at_times.get(partition) is None:
            if not late_is_latest:
                raise Misconfigured(
                    f"no record has this timestamp or a later one; partition={partition}"
                    " do=start earlier, or set startingOffsetsByTimestampStrategy=latest"
                )
            offsets[partition] = bounds.end
            continue
        requested = _requested_offset(edge, partition, at_times, default=EARLIEST)
        offsets[partition] = _start(partition, requested, bounds, report_loss)
    _check_named(edge, log_bounds)
    return offsets


def _start(partition: TopicPartition, requested: int, bounds: PartitionPlan, report_loss: ReportDataLoss) -> int:
    if requested == EARLIEST:
        return bounds.log_start
    if requested == LATEST:
        return bounds.end
    if requested < bounds.log_start:
        detail = f"partition={partition} requested={requested} first={bounds.log_start}"
        report_loss(f"records expired before they were read; {detail}", START_LATER)
        return bounds.log_start
    if requested > bounds.end:
        report_loss(
            f"the log ends before the start; partition={partition} requested={requested} end={bounds.end}",
            START_EARLIER,
        )
        return bounds.end
    return requested


def ends_at(edge: OffsetLimit, log_bounds: LogBounds, at_times: AtTimes, *, report_loss: ReportDataLoss) -> Offsets:
    """The end of a batch for each partition, at most the log's end now."""
    offsets: Offsets = {}
    for partition, bounds in log_bounds.items():
        requested = _requested_offset(edge, partition, at_times, default=LATEST)
        if requested > bounds.end:
            report_loss(
                f"the log ends before the end; partition={partition} requested={requested} end={bounds.end}",
                END_EARLIER,
            )
        offsets[partition] = bounds.end if requested == LATEST else min(requested, bounds.end)
    _check_named(edge, log_bounds)
    return offsets


def _requested_offset(edge: OffsetLimit, partition: TopicPartition, at_times: AtTimes, *, default: int) -> int:
    if isinstance(edge, UniformOffset):
        return edge.offset
    if isinstance(edge, SpecificOffsets):
        return edge.offsets.get(partition, default)
    offset = at_times.get(partition)
    return default if offset is None else offset


def _check_named(edge: OffsetLimit, log_bounds: LogBounds) -> None:
    """Raise `Misconfigured` for offsets of a partition that isn't read: most often its topic is misspelt."""
    named = (
        edge.offsets
        if isinstance(edge, SpecificOffsets)
        else edge.by_partition
        if isinstance(edge, SpecificTimestamps)
        else {}
    )
    for partition in named:
        if partition not in log_bounds:
            read = ", ".join(str(known) for known in sorted(log_bounds)[:10]) or "none"
            raise Misconfigured(
                f"offsets are given for a partition that isn't read; partition={partition} read={read}"
                " do=leave it out of the offsets, or have its topic read too"
            )


def spans_between(starts: Offsets, ends: Offsets) -> list[OffsetRange]:
    """The ranges to read; partitions without a start are new, and read from offset 0."""
    spans = [OffsetRange(partition, starts.get(partition, 0), end) for partition, end in sorted(ends.items())]
    return [span for span in spans if span.end is not None and span.start < span.end]


# --- streams --------------------------------------------------------------------------------------------------------


def resume_offsets(starts: Offsets, log_bounds: LogBounds, *, report_loss: ReportDataLoss) -> Offsets:
    """Where a stream continues: at its own offset, or at the log's start if records have expired."""
    return {
        partition: _start(partition, offset, log_bounds[partition], report_loss)
        for partition, offset in starts.items()
        if partition in log_bounds
    }


def recreated_topics(checkpoint_ids: TopicIds, current_ids: TopicIds) -> list[str]:
    """Topics that were deleted and created again since the checkpoint. A topic without an id counts as unchanged."""
    return sorted(
        topic
        for topic, old_id in checkpoint_ids.items()
        if old_id and current_ids.get(topic, old_id) not in ("", old_id)
    )


def report_recreated_topic(topic: str, *, fails: bool) -> None:
    """Raise `DataLost`, or log a warning, for a topic that was deleted and created again."""
    problem = f"the topic was deleted and made again; topic={topic}"
    if fails:
        raise DataLost(
            f"{problem} do=start with a new checkpointLocation, or set failOnDataLoss=false to read the new one"
            " from its beginning"
        )
    log.warning("%s; the new one is read from its beginning", problem)


def of_other_topics(offsets: Offsets, topics: Collection[str]) -> Offsets:
    return {partition: offset for partition, offset in offsets.items() if partition.topic not in topics}


def rate_limit(starts: Offsets, ends: Offsets, most: float | None) -> Offsets:
    """Ends such that at most `most` offsets are read, and at least one: each partition by its share of the backlog.

    No partition starves beside a backlog: a share is one offset at least, and where there are fewer offsets
    than partitions, partitions take turns.
    """
    waiting = {
        partition: end - starts.get(partition, 0) for partition, end in ends.items() if end > starts.get(partition, 0)
    }
    if most is None or sum(waiting.values()) <= most:
        return dict(ends)
    taken = _turns(starts, waiting, ends, max(1, int(most))) if most < len(waiting) else _shares(waiting, most)
    return {partition: starts.get(partition, 0) + taken.get(partition, 0) for partition in ends}


def _shares(waiting: Offsets, most: float) -> Offsets:
    """Proportional shares, rounded down; one for each partition whose share would be less."""
    small: set[TopicPartition] = set()
    while True:
        total = sum(count for partition, count in waiting.items() if partition not in small)
        share = (most - len(small)) / total if total else 0.0
        too_small = {partition for partition, count in waiting.items() if count * share < 1} - small
        if not too_small:
            return {partition: 1 if partition in small else int(count * share) for partition, count in waiting.items()}
        small |= too_small


def _turns(starts: Offsets, waiting: Offsets, partitions: Collection[TopicPartition], most: int) -> Offsets:
    """One offset for each of `most` partitions. Whose turn it is follows from how many offsets were read so far, which
    grow by `most` with each batch: it needs no memory, so a query that is restarted continues with the next ones."""
    ordered = sorted(partitions)
    first = sum(starts.get(partition, 0) for partition in ordered) % len(ordered)
    turns = (partition for partition in ordered[first:] + ordered[:first] if partition in waiting)
    return dict.fromkeys(islice(turns, most), 1)


def write_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    written: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        written.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return written


def read_offsets(written: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, offsets in written.items()
        for number, offset in offsets.items()
    }


def checkpoint(ends: Offsets, *, since: Offsets | None = None, ids: TopicIds | None = None) -> dict[str, Any]:
    written: dict[str, Any] = {OFFSETS: write_offsets(ends)}
    if ids:
        written[TOPICS] = dict(sorted(ids.items()))
    return written if since is None else {**written, SINCE: write_offsets(since)}


def read_checkpoint(saved: Mapping[str, Any]) -> Offsets:
    return read_offsets(saved[OFFSETS])


def read_ids(saved: Mapping[str, Any]) -> dict[str, str]:
    return {str(topic): str(topic_id) for topic, topic_id in saved.get(TOPICS, {}).items()}


def batch_start(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Where a batch begins. The first batch of a query begins where it was planned first; a recreated topic begins at
    its first offset."""
    if SINCE in end:
        return read_offsets(end[SINCE])
    return of_other_topics(read_checkpoint(start), recreated_topics(read_ids(start), read_ids(end)))


def is_initial(saved: Mapping[str, Any]) -> bool:
    """Whether these are the offsets that a query begins with, before its first batch."""
    return SINCE in saved and saved[SINCE] == saved[OFFSETS]
