"""Stream reader: the source of a streaming query, as PySpark's DataSourceStreamReader.

Data path   Spark's micro-batches -> **stream_reader** -> planning on the driver, reading on executors
Owns        the end of the next batch, new partitions, what is kept between two calls
Leaves      offset arithmetic to `offsets`, splits to `split_planner`

A batch never ends above the last stable offset: nothing in it is of a transaction that could still be aborted, so
nothing that a query has seen can disappear. While no agent is available, a query has no new data.

A stream without new data long-polls an agent at the partition that grew last, so that it sees the next record at once.
It does so from the second empty poll on: a query's other sources may have data, and don't wait for this one.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import SystemClock
from streamhouse.errors import Unavailable, UnknownTopic
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import AgentClient, OffsetRange, PartitionPlan, ReadPlan
from streamhouse.spark.datasource.offsets import (
    START_LATER,
    Offsets,
    batch_start,
    checkpoint,
    data_loss_reporter,
    is_initial,
    of_other_topics,
    rate_limit,
    read_checkpoint,
    read_ids,
    recreated_topics,
    report_recreated_topic,
    resume_offsets,
    spans_between,
)
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS
from streamhouse.spark.datasource.read_options import ReadOptions
from streamhouse.spark.datasource.split_planner import (
    find_log_bounds,
    find_starts,
    make_splits,
    segment_ranges,
    select_partitions,
)
from streamhouse.spark.datasource.split_reader import OutputSchema, StreamhouseInputPartition, read

log = logging.getLogger(__name__)

PARTITIONS_TTL_S: Final = 2.0
"""How long the list of partitions is cached, so that a poll for new records is one request, not two."""
WAIT_S: Final = 0.05
"""How long a poll waits at one partition: the others are polled so often."""
WAIT_ALONE_S: Final = 0.2
"""The same where there is no other partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """The read plan of everything from `starts` on, at one moment."""

    starts: Offsets
    plan: ReadPlan
    is_whole: bool

    @property
    def ends(self) -> Offsets:
        return {each.topic_partition: each.end for each in self.plan.partitions}

    @property
    def ids(self) -> dict[str, str]:
        return ids_of(self.plan.partitions)

    def holds(self, spans: list[OffsetRange]) -> bool:
        """Whether the plan covers all of these ranges."""
        plans = {each.topic_partition: each for each in self.plan.partitions}
        return self.is_whole and all(
            span.partition in plans
            and self.starts.get(span.partition, 0) <= span.start
            and (span.end or 0) <= plans[span.partition].end
            for span in spans
        )


class StartPosition(NamedTuple):
    """The offsets at which a query begins, and the ids of its topics."""

    starts: Offsets
    ids: dict[str, str]


class OffsetPoller:
    """Polls agents for new records; lives in the driver's Python process only."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._loop = LoopThread(name="streamhouse-spark")
        self._agents = self._loop.run(_connect(options.agents))
        self._snapshot: LogSnapshot | None = None
        self._partitions: tuple[float, list[TopicPartition]] | None = None
        self._grew: TopicPartition | None = None
        self._skip_wait = False

    def close(self) -> None:
        self._loop.run(self._agents.__aexit__(None, None, None))
        self._loop.close()

    def start(self) -> StartPosition:
        return self._loop.run(self._start())

    async def _start(self) -> StartPosition:
        log_bounds = await find_log_bounds(self._agents, self._options.subscription)
        return StartPosition(await find_starts(self._agents, self._options, log_bounds), ids_of(log_bounds.values()))

    def poll(self, starts: Offsets) -> LogSnapshot:
        """The read plan of everything from `starts` on, new partitions included."""
        before, self._snapshot = self._snapshot, self._loop.run(self._poll(starts))
        grown = grown_since(before, self._snapshot)
        self._grew, self._skip_wait = grown or self._grew, self._skip_wait and grown is None
        return self._snapshot

    def wait_for_data(self) -> None:
        """Wait a moment for a record after those that the last poll saw."""
        ends = {} if self._snapshot is None else self._snapshot.ends
        self._loop.run(self._wait(ends))

    async def _wait(self, ends: Offsets) -> None:
        partition = self._grew if self._grew in ends else next(iter(ends), None)
        wait_s = WAIT_ALONE_S if len(ends) == 1 else WAIT_S
        if partition is None or self._skip_wait:
            await self._clock.sleep(WAIT_S)
            return
        try:
            # If no poll sees it, its transaction is still open, and the next wait would end at once.
            self._skip_wait = await self._agents.wait_for_records(partition, ends[partition], wait_s=wait_s)
        except Unavailable:
            await self._clock.sleep(WAIT_S)

    async def _poll(self, starts: Offsets) -> LogSnapshot:
        """One request as a rule: the list of partitions is cached for a while."""
        was_known = self._partitions is not None and self._clock.monotonic() < self._partitions[0]
        try:
            snapshot = await self._take_snapshot(await self._subscribed(), starts)
        except UnknownTopic:
            self._partitions = None
            if not was_known:
                raise
        else:
            if not was_known or self._snapshot is None or not recreated_topics(self._snapshot.ids, snapshot.ids):
                return snapshot
            self._partitions = None  # those of the old topic: the new one may have more
        return await self._take_snapshot(await self._subscribed(), starts)

    async def _subscribed(self) -> list[TopicPartition]:
        if self._partitions is None or self._clock.monotonic() >= self._partitions[0]:
            partitions = select_partitions(self._options.subscription, await self._agents.topics())
            self._partitions = self._clock.monotonic() + PARTITIONS_TTL_S, partitions
        return self._partitions[1]

    async def _take_snapshot(self, partitions: list[TopicPartition], starts: Offsets) -> LogSnapshot:
        spans = [OffsetRange(partition, starts.get(partition, 0)) for partition in partitions]
        if not spans:
            return LogSnapshot(starts=starts, plan=ReadPlan(store="", grace_s=0, partitions=[]), is_whole=True)
        first = await self._agents.page(spans)
        if first.next is None:
            return LogSnapshot(starts=starts, plan=first, is_whole=True)
        # Far behind: the batch is planned in full once its end is known.
        runs = {each.topic_partition: each.runs for each in first.partitions}
        log_bounds = await self._agents.log_bounds(partitions)
        known = [_with_runs(bounds, runs.get(partition, [])) for partition, bounds in log_bounds.items()]
        return LogSnapshot(
            starts=starts, plan=ReadPlan(store=first.store, grace_s=first.grace_s, partitions=known), is_whole=False
        )

    def plan(self, spans: list[OffsetRange]) -> ReadPlan:
        """The read plan of a batch; the last snapshot is enough if it covers the batch."""
        if self._snapshot is not None and self._snapshot.holds(spans):
            return self._snapshot.plan
        return self._loop.run(self._agents.plan(spans))


async def _connect(address: AgentAddress) -> AgentClient:
    return AgentClient(address)


def grown_since(before: LogSnapshot | None, now: LogSnapshot) -> TopicPartition | None:
    """The partition that has grown most since a snapshot, if any has."""
    ends = {} if before is None else before.ends
    more = {partition: end - ends.get(partition, end) for partition, end in now.ends.items()}
    most = max(more, key=more.__getitem__, default=None)
    return most if most is not None and more[most] > 0 else None


def _with_runs(plan: PartitionPlan, runs: list[Any]) -> PartitionPlan:
    return msgspec.structs.replace(plan, runs=runs)


def ids_of(plans: Iterable[PartitionPlan]) -> dict[str, str]:
    return {each.topic: each.topic_id for each in plans if each.topic_id}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Implements Spark's interface over `OffsetPoller`."""

    def __init__(self, options: ReadOptions, output: OutputSchema) -> None:
        self._options, self._output = options, output
        self._opened: OffsetPoller | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._is_idle = False
        self._clock = SystemClock()
        self._went_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _poller(self) -> OffsetPoller:
        if self._opened is None:
            self._opened = OffsetPoller(self._options)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        starts, ids = self._poller.start()
        return checkpoint(starts, since=starts, ids=ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._poller.poll({}).ends

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself if there is nothing new."""
        starts = read_checkpoint(start)
        if self._is_idle:
            self._poller.wait_for_data()
        self._is_idle = self._target is None
        try:
            snapshot = self._poller.poll(starts)
        except Unavailable as error:
            if self._target is not None:  # it would end here, as if everything were read
                raise
            log.warning("no agent available, so there is no new data: %s", error)
            return start
        except UnknownTopic as error:
            if self._target is not None or self._options.fail_on_data_loss:
                raise
            log.warning("a topic is gone, so there is no new data: %s", error)
            return start
        lost = recreated_topics(read_ids(start), snapshot.ids)
        for topic in lost:
            report_recreated_topic(topic, fails=self._options.fail_on_data_loss)
        starts = of_other_topics(starts, lost)
        ids = {**read_ids(start), **snapshot.ids}
        report_loss = data_loss_reporter(fails=self._options.fail_on_data_loss, has_checkpoint=not is_initial(start))
        plans = {each.topic_partition: each for each in snapshot.plan.partitions}
        begins = {
            **{partition: plan.log_start for partition, plan in plans.items()},
            **resume_offsets(starts, plans, report_loss=report_loss),
        }
        self._latest = snapshot.ends
        if not lost and self._is_below_minimum(begins, snapshot.ends):
            return start
        ends = rate_limit(begins, _targeted(begins, snapshot.ends, self._target), self._most(snapshot, begins, limit))
        ends = {**starts, **{partition: max(end, begins[partition]) for partition, end in ends.items()}}
        if not lost and all(starts.get(partition, begins.get(partition)) == end for partition, end in ends.items()):
            return start
        self._is_idle, self._went_s = False, self._clock.monotonic()
        return checkpoint(ends, since=starts if is_initial(start) else None, ids=ids)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has a new batch, if only of another source."""
        self._is_idle = False

    def _is_below_minimum(self, begins: Offsets, ends: Offsets) -> bool:
        """Whether there are too few new records for a batch; never for the first batch."""
        if self._options.min_records is None or self._target is not None or self._went_s is None:
            return False
        if (self._clock.monotonic() - self._went_s) * 1000 >= self._options.max_delay_ms:
            return False
        return sum(end - begins[partition] for partition, end in ends.items()) < self._options.min_records

    def _most(self, snapshot: LogSnapshot, begins: Offsets, limit: ReadLimit) -> float | None:
        """How many offsets the next batch may take."""
        if isinstance(limit, ReadAllAvailable):
            return None
        by_bytes = self._options.max_bytes
        most = [self._options.max_records, by_bytes and by_bytes / bytes_per_offset(snapshot.plan, begins)]
        return min((each for each in most if each is not None), default=None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else checkpoint(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        spans = spans_between(batch_start(start, end), read_checkpoint(end))
        if not spans:
            return []
        plan = self._poller.plan(spans)
        fails = self._options.fail_on_data_loss
        lost = recreated_topics(read_ids(end), ids_of(plan.partitions))
        for topic in lost:
            report_recreated_topic(topic, fails=fails)
        spans = [span for span in spans if span.partition.topic not in lost]
        _check_data_loss(spans, plan, fails=fails)
        return [StreamhouseInputPartition(split) for split in make_splits(plan, spans, self._options, NO_FILTERS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._output, partition)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _targeted(begins: Offsets, ends: Offsets, target: Mapping[TopicPartition, int] | None) -> Offsets:
    """Ends capped at those of the query's start; partitions that are new since then are left out."""
    if target is None:
        return ends
    return {
        partition: max(begins[partition], min(end, target[partition]))
        for partition, end in ends.items()
        if partition in target
    }


def bytes_per_offset(plan: ReadPlan, starts: Offsets) -> float:
    """The average number of bytes per offset in the plan."""
    pieces = [
        piece
        for each in plan.partitions
        for piece in segment_ranges(each, OffsetRange(each.topic_partition, starts.get(each.topic_partition, 0)))
    ]
    offsets = sum(piece.end - piece.start for piece in pieces)
    return max(1.0, sum(piece.weight for piece in pieces) / offsets) if offsets else 1.0


def _check_data_loss(spans: list[OffsetRange], plan: ReadPlan, *, fails: bool) -> None:
    """Report records that were lost since the batch was planned: a restarted query reads its last batch again."""
    report_loss = data_loss_reporter(fails=fails, has_checkpoint=True)
    plans = {each.topic_partition: each for each in plan.partitions}
    for span in spans:
        if span.partition not in plans:
            report_loss(f"a partition is gone; partition={span.partition}", START_LATER)
        elif 0 < span.start < plans[span.partition].log_start:
            first = plans[span.partition].log_start
            detail = f"partition={span.partition} requested={span.start} first={first}"
            report_loss(f"records expired before they were read; {detail}", START_LATER)
        elif (span.end or 0) > plans[span.partition].end:
            report_loss(
                f"the log ends before the batch; partition={span.partition} end={plans[span.partition].end}",
                START_LATER,
            )
