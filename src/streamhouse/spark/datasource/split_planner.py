"""Split planner: gets read plans from agents, and cuts segment ranges into splits of even size, one per task.

Data path   options -> agents -> segment ranges -> **split_planner** -> executors
Owns        which runs hold an offset range, where they are cut, which ranges share a task
Leaves      requests to `agents.client`, start and end offsets to `offsets`, reading to `split_reader` and
            `tail_reader`

A segment range is a range of offsets, so a cut is exact: both neighbours read the block at a cut, and each keeps its
own records. A range stays readable after its run was merged into another one.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from streamhouse.errors import Misconfigured, UnknownTopic
from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.spark.agents.client import AgentClient, OffsetRange, PartitionPlan, ReadPlan, RunLocation
from streamhouse.spark.datasource.offsets import (
    AtTimes,
    LogBounds,
    Offsets,
    data_loss_reporter,
    ends_at,
    spans_between,
    starts_at,
)
from streamhouse.spark.datasource.pushed_filters import PushedFilters
from streamhouse.spark.datasource.read_options import (
    Assign,
    OffsetLimit,
    ReadOptions,
    SpecificTimestamps,
    StoreAccess,
    Subscribe,
    SubscribePattern,
    Subscription,
)

MIB: Final = 1024 * 1024
MIN_SPLIT_BYTES: Final = 16 * MIB
"""Less than this is not worth a task of its own: Spark spends as much CPU on a task of nothing as on reading 2 to 6."""
TARGET_SPLITS: Final = 8
"""Target number of tasks of a medium-sized read: enough for the cores of a small machine to end at the same time."""
TAIL_RECORD_BYTES: Final = 256
"""Assumed size of a record of the tail, if there is no run to estimate it from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """Offsets [start, end) of a partition, in a run, or at the leader if `run` is None.

    In a run there may be records of `aborted` transactions; a leader leaves them out itself.
    """

    partition: TopicPartition
    start: int
    end: int
    weight: float
    run: RunLocation | None = None
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSplit:
    """The splits of one task, in read order."""

    store: str
    pieces: tuple[SegmentRange, ...]


SegmentRanges: TypeAlias = Sequence[SegmentRange]


def segment_ranges(plan: PartitionPlan, span: OffsetRange, *, from_ms: int | None = None) -> Iterator[SegmentRange]:
    """The runs and the tail that hold a span, oldest first; of runs only those that have records since `from_ms`."""
    start = max(span.start, plan.log_start)
    end = plan.end if span.end is None else min(span.end, plan.end)
    aborted_transactions = plan.aborted_transactions
    for run in plan.runs:
        first, last = max(start, run.base), min(end, run.end, plan.segments_end)
        if first < last and (from_ms is None or run.max_timestamp_ms >= from_ms):
            weight = max(1.0, run.length * (last - first) / (run.end - run.base))
            aborted = aborted_transactions.within(first, last)
            yield SegmentRange(
                partition=plan.topic_partition, start=first, end=last, weight=weight, run=run, aborted=aborted
            )
    first = max(start, plan.segments_end)
    if first < end:
        weight = (end - first) * _record_bytes(plan.runs)
        yield SegmentRange(partition=plan.topic_partition, start=first, end=end, weight=max(1.0, weight))


def _record_bytes(runs: Sequence[RunLocation]) -> float:
    offsets = sum(run.end - run.base for run in runs)
    return sum(run.length for run in runs) / offsets if offsets else TAIL_RECORD_BYTES


def count_splits(total_bytes: float, *, split_bytes: int, min_partitions: int) -> int:
    """The number of tasks for this many bytes."""
    least = min(MIN_SPLIT_BYTES, split_bytes)
    by_size = total_bytes / split_bytes
    by_cores = min(TARGET_SPLITS, total_bytes / least)
    return max(1, min_partitions, round(max(by_size, by_cores)))


def splits_of(
    pieces: SegmentRanges, *, store: str, split_bytes: int, min_partitions: int = 1, max_records: int | None = None
) -> list[InputSplit]:
    """Cut segment ranges into splits of the same weight, none with more offsets than `max_records`; none is empty."""
    if not pieces:
        return []
    total = sum(piece.weight for piece in pieces)
    count = count_splits(total, split_bytes=split_bytes, min_partitions=min_partitions)
    shares: Iterable[SegmentRanges] = _distribute(pieces, total, count)
    if max_records is not None:
        shares = [part for share in shares for part in _small(share, max_records)]
    return [InputSplit(store=store, pieces=tuple(share)) for share in shares if share]


def _distribute(pieces: Iterable[SegmentRange], total: float, count: int) -> Iterator[list[SegmentRange]]:
    """A share ends where its part of the whole ends, so that roundings don't add up; the last one takes the rest."""
    share: list[SegmentRange] = []
    number, used = 1, 0.0
    for piece in pieces:
        rest: SegmentRange | None = piece
        while rest is not None:
            share_left = total * number / count - used if number < count else rest.weight
            if share_left <= 0:
                yield share
                share, number = [], number + 1
                continue
            taken, rest = cut(rest, share_left)
            share.append(taken)
            used += taken.weight
    yield share


def _small(share: SegmentRanges, most: int) -> Iterator[list[SegmentRange]]:
    """The fewest even parts with at most this many offsets each."""
    offsets = sum(piece.end - piece.start for piece in share)
    parts = -(-offsets // most)
    return _distribute([replace(piece, weight=piece.end - piece.start) for piece in share], offsets, max(1, parts))


def cut(piece: SegmentRange, weight: float) -> tuple[SegmentRange, SegmentRange | None]:
    """Split a range at a weight: the first part has at least one offset, the second may be None."""
    offsets = piece.end - piece.start
    fitting = max(1, round(offsets * weight / piece.weight))
    if fitting >= offsets:
        return piece, None
    middle, share = piece.start + fitting, fitting / offsets
    taken = replace(piece, end=middle, weight=piece.weight * share)
    return taken, replace(piece, start=middle, weight=piece.weight * (1 - share))


def select_partitions(subscription: Subscription, topics: dict[str, int]) -> list[TopicPartition]:
    """The existing partitions of a subscription."""
    if isinstance(subscription, Assign):
        for partition in subscription.partitions:
            if not 0 <= partition.partition < topics.get(partition.topic, 0):
                raise _unknown(str(partition), topics)
        return list(subscription.partitions)
    if isinstance(subscription, Subscribe):
        for topic in subscription.topics:
            if topic not in topics:
                raise _unknown(topic, topics)
        names: Iterable[str] = subscription.topics
    else:
        names = _matching(subscription, topics)
    return [TopicPartition(topic, number) for topic in names for number in range(topics[topic])]


def _matching(subscription: SubscribePattern, topics: dict[str, int]) -> list[str]:
    try:
        pattern = re.compile(subscription.pattern)
    except re.error as error:
        why = f"option=subscribePattern value={subscription.pattern[:80]!r} why={error}"
        raise Misconfigured(
            f"not a regular expression; {why} do=write one for whole names, such as orders_.*"
        ) from None
    return [topic for topic in sorted(topics) if pattern.fullmatch(topic)]


def _unknown(name: str, topics: dict[str, int]) -> UnknownTopic:
    known = ", ".join(sorted(topics)[:10]) or "none"
    return UnknownTopic(f"{name} known={known} do=create it, or look at the options topic, subscribe, assign")


async def find_log_bounds(agents: AgentClient, subscription: Subscription) -> LogBounds:
    partitions = select_partitions(subscription, await agents.topics())
    return await agents.log_bounds(partitions) if partitions else {}


async def find_times(agents: AgentClient, limit: OffsetLimit, partitions: Iterable[TopicPartition]) -> AtTimes:
    """The offsets of a limit's timestamps; empty if it has none."""
    if not isinstance(limit, SpecificTimestamps):
        return {}
    by_time: dict[tuple[str, int], list[TopicPartition]] = {}
    for partition in partitions:
        time_ms = limit.of(partition)
        if time_ms is not None:
            by_time.setdefault((partition.topic, time_ms), []).append(partition)
    responses = await asyncio.gather(*(agents.offsets_for_timestamp(topic, time_ms) for topic, time_ms in by_time))
    return {
        partition: offsets.get(partition.partition)
        for partitions, offsets in zip(by_time.values(), responses, strict=True)
        for partition in partitions
    }


async def find_starts(agents: AgentClient, options: ReadOptions, log_bounds: LogBounds) -> Offsets:
    times = await find_times(agents, options.start, log_bounds)
    report_loss = data_loss_reporter(fails=options.fail_on_data_loss)
    return starts_at(
        options.start, log_bounds, times, late_is_latest=options.late_start_is_latest, report_loss=report_loss
    )


async def plan_batch(options: ReadOptions, pushed: PushedFilters) -> list[InputSplit]:
    """The splits of a batch read."""
    async with AgentClient(options.agents) as agents:
        log_bounds = await find_log_bounds(agents, options.subscription)
        starts = await find_starts(agents, options, log_bounds)
        report_loss = data_loss_reporter(fails=options.fail_on_data_loss)
        ends = ends_at(
            options.end, log_bounds, await find_times(agents, options.end, log_bounds), report_loss=report_loss
        )
        spans = pushed.prune(spans_between(starts, ends))
        if not spans:
            return []
        return make_splits(await agents.plan(spans), spans, options, pushed)


def make_splits(
    plan: ReadPlan, spans: Sequence[OffsetRange], options: ReadOptions, pushed: PushedFilters
) -> list[InputSplit]:
    if options.access is StoreAccess.SIGNED and not plan.can_sign:
        raise Misconfigured(
            "agents can't sign reads of this store: it is no S3, its records are encrypted, or the agents' credentials"
            " are none that they can sign with; option=storeAccess do=set it to agents"
        )
    plans = {each.topic_partition: each for each in plan.partitions}
    pieces = [
        piece
        for span in spans
        if span.partition in plans
        for piece in segment_ranges(plans[span.partition], span, from_ms=pushed.from_ms)
    ]
    return splits_of(
        pieces,
        store=plan.store,
        split_bytes=options.split_bytes,
        min_partitions=options.min_partitions,
        max_records=options.max_split_records,
    )
