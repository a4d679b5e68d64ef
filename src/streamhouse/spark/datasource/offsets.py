"""Offsets: from which to which a read goes, decided from what agents told.

Data path   options, ends of logs, offsets of times -> **offsets** -> plans; a stream's checkpoint
Owns        starts and ends of a batch and of a stream, limits of a trigger, what counts as lost, the checkpoint's JSON
Leaves      asking to `split_planner`

The checkpoint has {"offsets": {"orders": {"0": 17}}, "topics": {"orders": "uuid"}}: the next offset of each partition,
and the ids of topics, by which one that was deleted and made again is known; old checkpoints have none. The first batch
of a query has its own start in it too, as `since`: Spark asks a query that failed in its first batch where it begins
once more, and "latest" is elsewhere by then.
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
"""What is missing, and what to do."""

OFFSETS: Final = "offsets"
SINCE: Final = "since"
TOPICS: Final = "topics"

START_LATER: Final = "start later (startingOffsets), or set failOnDataLoss=false to go on without them"
END_EARLIER: Final = "end earlier (endingOffsets), or set failOnDataLoss=false to end where the log does"
START_EARLIER: Final = "start earlier (startingOffsets), or set failOnDataLoss=false to go on at the log's end"
NEW_QUERY: Final = "start with a new checkpointLocation, or set failOnDataLoss=false to go on without them"


def data_loss_reporter(*, fails: bool, has_checkpoint: bool = False) -> ReportDataLoss:
    """What is done when records are gone: fail with what to do, or say so and go on.

    Where a checkpoint says where to start, options don't: a query with another one does.
    """

    def lose(what: str, cure: str) -> None:
        if fails:
            raise DataLost(f"{what} do={NEW_QUERY if has_checkpoint else cure}")
        log.warning(what)

    return lose


def starts_at(
    edge: OffsetLimit, log_bounds: LogBounds, at_times: AtTimes, *, late_is_latest: bool, lose: ReportDataLoss
) -> Offsets:
    """The first offset to read of each partition."""
    found: Offsets = {}
    for place, extent in log_bounds.items():
        if isinstance(edge, SpecificTimestamps) and edge.of(place) is not None and at_times.get(place) is None:
            if not late_is_latest:
                raise Misconfigured(
                    f"no record is so late; partition={place}"
                    " do=start earlier, or set startingOffsetsByTimestampStrategy=latest"
                )
            found[place] = extent.end
            continue
        asked = _requested_offset(edge, place, at_times, default=EARLIEST)
        found[place] = _start(place, asked, extent, lose)
    _check_named(edge, log_bounds)
    return found


def _start(place: TopicPartition, asked: int, extent: PartitionPlan, lose: ReportDataLoss) -> int:
    if asked == EARLIEST:
        return extent.log_start
    if asked == LATEST:
        return extent.end
    if asked < extent.log_start:
        told = f"partition={place} wanted={asked} first={extent.log_start}"
        lose(f"records expired before they were read; {told}", START_LATER)
        return extent.log_start
    if asked > extent.end:
        lose(f"the log ends before the start; partition={place} wanted={asked} end={extent.end}", START_EARLIER)
        return extent.end
    return asked


def ends_at(edge: OffsetLimit, log_bounds: LogBounds, at_times: AtTimes, *, lose: ReportDataLoss) -> Offsets:
    """The end of a batch for each partition: never beyond what is there now."""
    found: Offsets = {}
    for place, extent in log_bounds.items():
        asked = _requested_offset(edge, place, at_times, default=LATEST)
        if asked > extent.end:
            lose(f"the log ends before the end; partition={place} wanted={asked} end={extent.end}", END_EARLIER)
        found[place] = extent.end if asked == LATEST else min(asked, extent.end)
    _check_named(edge, log_bounds)
    return found


def _requested_offset(edge: OffsetLimit, place: TopicPartition, at_times: AtTimes, *, default: int) -> int:
    if isinstance(edge, UniformOffset):
        return edge.offset
    if isinstance(edge, SpecificOffsets):
        return edge.offsets.get(place, default)
    found = at_times.get(place)
    return default if found is None else found


def _check_named(edge: OffsetLimit, log_bounds: LogBounds) -> None:
    """A partition that isn't read has no business in the offsets: most often its topic is misspelt."""
    named = (
        edge.offsets
        if isinstance(edge, SpecificOffsets)
        else edge.by_partition
        if isinstance(edge, SpecificTimestamps)
        else {}
    )
    for place in named:
        if place not in log_bounds:
            read = ", ".join(str(each) for each in sorted(log_bounds)[:10]) or "none"
            raise Misconfigured(
                f"offsets are given for a partition that isn't read; partition={place} read={read}"
                " do=leave it out of the offsets, or have its topic read too"
            )


def spans_between(starts: Offsets, ends: Offsets) -> list[OffsetRange]:
    """What there is to read; partitions without a start are new, and read from their beginning."""
    spans = [OffsetRange(place, starts.get(place, 0), end) for place, end in sorted(ends.items())]
    return [span for span in spans if span.end is not None and span.start < span.end]


# --- streams --------------------------------------------------------------------------------------------------------


def resume_offsets(starts: Offsets, log_bounds: LogBounds, *, lose: ReportDataLoss) -> Offsets:
    """Where a stream goes on: behind what it had, or where the log begins now, for what it must do without."""
    return {
        place: _start(place, offset, log_bounds[place], lose) for place, offset in starts.items() if place in log_bounds
    }


def recreated_topics(known: TopicIds, now: TopicIds) -> list[str]:
    """Topics that are others than they were, under the same name."""
    return sorted(topic for topic, was in known.items() if was and now.get(topic, was) not in ("", was))


def report_recreated_topic(topic: str, *, fails: bool) -> None:
    """What is done when the topic that a stream has read is gone, and another one has its name."""
    told = f"the topic was deleted and made again; topic={topic}"
    if fails:
        raise DataLost(
            f"{told} do=start with a new checkpointLocation, or set failOnDataLoss=false to read the new one"
            " from its beginning"
        )
    log.warning("%s; the new one is read from its beginning", told)


def of_other_topics(offsets: Offsets, topics: Collection[str]) -> Offsets:
    return {place: offset for place, offset in offsets.items() if place.topic not in topics}


def rate_limit(starts: Offsets, ends: Offsets, most: float | None) -> Offsets:
    """Ends so that at most `most` offsets are read, and one at least: each partition by its share of what is waiting.

    No partition waits for ever beside a backlog: a share is one offset at least, and where there are fewer offsets
    than partitions, partitions take turns.
    """
    waiting = {place: end - starts.get(place, 0) for place, end in ends.items() if end > starts.get(place, 0)}
    if most is None or sum(waiting.values()) <= most:
        return dict(ends)
    taken = _turns(starts, waiting, ends, max(1, int(most))) if most < len(waiting) else _shares(waiting, most)
    return {place: starts.get(place, 0) + taken.get(place, 0) for place in ends}


def _shares(waiting: Offsets, most: float) -> Offsets:
    """Proportional shares, rounded down; one for each partition whose share would be less."""
    small: set[TopicPartition] = set()
    while True:
        total = sum(count for place, count in waiting.items() if place not in small)
        share = (most - len(small)) / total if total else 0.0
        too_small = {place for place, count in waiting.items() if count * share < 1} - small
        if not too_small:
            return {place: 1 if place in small else int(count * share) for place, count in waiting.items()}
        small |= too_small


def _turns(starts: Offsets, waiting: Offsets, places: Collection[TopicPartition], most: int) -> Offsets:
    """One offset for each of `most` partitions. Whose turn it is follows from how many offsets were read so far, which
    grow by `most` with each batch: it needs no memory, so a query that is restarted goes on with the next ones."""
    ordered = sorted(places)
    first = sum(starts.get(place, 0) for place in ordered) % len(ordered)
    turns = (place for place in ordered[first:] + ordered[:first] if place in waiting)
    return dict.fromkeys(islice(turns, most), 1)


def write_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    written: dict[str, dict[str, int]] = {}
    for place, offset in sorted(offsets.items()):
        written.setdefault(place.topic, {})[str(place.partition)] = offset
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


def read_checkpoint(told: Mapping[str, Any]) -> Offsets:
    return read_offsets(told[OFFSETS])


def read_ids(told: Mapping[str, Any]) -> dict[str, str]:
    return {str(topic): str(topic_id) for topic, topic_id in told.get(TOPICS, {}).items()}


def batch_start(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Where a batch begins: where it began when it was planned first, if it is a query's first one; at the beginning
    for a topic that was made again since the batch before."""
    if SINCE in end:
        return read_offsets(end[SINCE])
    return of_other_topics(read_checkpoint(start), recreated_topics(read_ids(start), read_ids(end)))


def is_initial(told: Mapping[str, Any]) -> bool:
    """Whether these are the offsets that a query begins with, before its first batch."""
    return SINCE in told and told[SINCE] == told[OFFSETS]
