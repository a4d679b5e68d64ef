"""Stream: the source of a streaming query, one call of Spark after the other.

Data path   Spark's micro-batches -> **stream** -> planning on the driver, reading on executors
Owns        how far the next batch goes, partitions that are new, what is remembered between two calls
Leaves      decisions to `offsets`, splits to `split_planner`

A batch never ends above the last stable offset: nothing in it is of a transaction that could still be aborted, so
nothing that a query has seen can disappear. While no agent answers, a query has no new data, and goes on when one does.

A stream without new data waits at the agent, at the partition that grew last, and so is there with the first record. It
does so from the second look on that finds nothing: a query's other sources may have data, and don't wait for this one.
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
"""For so long it holds which partitions there are: a look for new records is one question, not two."""
WAIT_S: Final = 0.05
"""How long a look waits for the first record of one partition: other partitions are looked at so often."""
WAIT_ALONE_S: Final = 0.2
"""The same where there is no other partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """What agents told at one moment, of everything behind `starts`."""

    starts: Offsets
    plan: ReadPlan
    is_whole: bool

    @property
    def ends(self) -> Offsets:
        return {each.place: each.end for each in self.plan.partitions}

    @property
    def ids(self) -> dict[str, str]:
        return ids_of(self.plan.partitions)

    def holds(self, spans: list[OffsetRange]) -> bool:
        """Whether the plan says where all of these stand."""
        plans = {each.place: each for each in self.plan.partitions}
        return self.is_whole and all(
            span.place in plans
            and self.starts.get(span.place, 0) <= span.start
            and (span.end or 0) <= plans[span.place].end
            for span in spans
        )


class StartPosition(NamedTuple):
    """Where a query begins, and of which topics."""

    starts: Offsets
    ids: dict[str, str]


class OffsetPoller:
    """A stream's connection to the agents; lives in the driver's Python process only."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._loop = LoopThread(name="streamhouse-spark")
        self._agents = self._loop.run(_connect(options.agents))
        self._look: LogSnapshot | None = None
        self._places: tuple[float, list[TopicPartition]] | None = None
        self._grew: TopicPartition | None = None
        self._is_deaf = False

    def close(self) -> None:
        self._loop.run(self._agents.__aexit__(None, None, None))
        self._loop.close()

    def start(self) -> StartPosition:
        return self._loop.run(self._start())

    async def _start(self) -> StartPosition:
        log_bounds = await find_log_bounds(self._agents, self._options.subscription)
        return StartPosition(await find_starts(self._agents, self._options, log_bounds), ids_of(log_bounds.values()))

    def look(self, starts: Offsets) -> LogSnapshot:
        """Where everything behind `starts` stands now, partitions among it that are new."""
        before, self._look = self._look, self._loop.run(self._looked(starts))
        grown = grown_since(before, self._look)
        self._grew, self._is_deaf = grown or self._grew, self._is_deaf and grown is None
        return self._look

    def listen(self) -> None:
        """Wait for a record behind those that the last look saw, a moment at most."""
        ends = {} if self._look is None else self._look.ends
        self._loop.run(self._waited(ends))

    async def _waited(self, ends: Offsets) -> None:
        place = self._grew if self._grew in ends else next(iter(ends), None)
        wait_s = WAIT_ALONE_S if len(ends) == 1 else WAIT_S
        if place is None or self._is_deaf:
            await self._clock.sleep(WAIT_S)
            return
        try:
            # If no look finds it, it is of a transaction that is open, and would be told again at once.
            self._is_deaf = await self._agents.wait_for_records(place, ends[place], wait_s=wait_s)
        except Unavailable:
            await self._clock.sleep(WAIT_S)

    async def _looked(self, starts: Offsets) -> LogSnapshot:
        """Asks one question, as a rule: which partitions there are holds for a while."""
        was_known = self._places is not None and self._clock.monotonic() < self._places[0]
        try:
            look = await self._look_at(await self._chosen(), starts)
        except UnknownTopic:
            self._places = None
            if not was_known:
                raise
        else:
            if not was_known or self._look is None or not recreated_topics(self._look.ids, look.ids):
                return look
            self._places = None  # which were another topic's: the new one may have more
        return await self._look_at(await self._chosen(), starts)

    async def _chosen(self) -> list[TopicPartition]:
        if self._places is None or self._clock.monotonic() >= self._places[0]:
            places = select_partitions(self._options.subscription, await self._agents.topics())
            self._places = self._clock.monotonic() + PARTITIONS_TTL_S, places
        return self._places[1]

    async def _look_at(self, places: list[TopicPartition], starts: Offsets) -> LogSnapshot:
        spans = [OffsetRange(place, starts.get(place, 0)) for place in places]
        if not spans:
            return LogSnapshot(starts=starts, plan=ReadPlan(store="", grace_s=0, partitions=[]), is_whole=True)
        first = await self._agents.page(spans)
        if first.next is None:
            return LogSnapshot(starts=starts, plan=first, is_whole=True)
        # A long way behind: what this batch takes is planned when that is known.
        runs = {each.place: each.runs for each in first.partitions}
        log_bounds = await self._agents.log_bounds(places)
        known = [_with_runs(extent, runs.get(place, [])) for place, extent in log_bounds.items()]
        return LogSnapshot(
            starts=starts, plan=ReadPlan(store=first.store, grace_s=first.grace_s, partitions=known), is_whole=False
        )

    def plan(self, spans: list[OffsetRange]) -> ReadPlan:
        """Where a batch's records stand; the last look is enough where it reached that far."""
        if self._look is not None and self._look.holds(spans):
            return self._look.plan
        return self._loop.run(self._agents.plan(spans))


async def _connect(address: str) -> AgentClient:
    return AgentClient(address)


def grown_since(before: LogSnapshot | None, now: LogSnapshot) -> TopicPartition | None:
    """The partition that has become longest since a look, if any has."""
    ends = {} if before is None else before.ends
    more = {place: end - ends.get(place, end) for place, end in now.ends.items()}
    most = max(more, key=more.__getitem__, default=None)
    return most if most is not None and more[most] > 0 else None


def _with_runs(extent: PartitionPlan, runs: list[Any]) -> PartitionPlan:
    return msgspec.structs.replace(extent, runs=runs)


def ids_of(plans: Iterable[PartitionPlan]) -> dict[str, str]:
    return {each.topic: each.topic_id for each in plans if each.topic_id}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's names, our offsets."""

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
    def _driver(self) -> OffsetPoller:
        if self._opened is None:
            self._opened = OffsetPoller(self._options)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        starts, ids = self._driver.start()
        return checkpoint(starts, since=starts, ids=ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._driver.look({}).ends

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes; `start` itself where there is nothing new."""
        starts = read_checkpoint(start)
        if self._is_idle:
            self._driver.listen()
        self._is_idle = self._target is None
        try:
            look = self._driver.look(starts)
        except Unavailable as error:
            if self._target is not None:  # it would end here, as if everything were read
                raise
            log.warning("no agent answers, so there is nothing new: %s", error)
            return start
        except UnknownTopic as error:
            if self._target is not None or self._options.fail_on_data_loss:
                raise
            log.warning("a topic is gone, so there is nothing new: %s", error)
            return start
        lost = recreated_topics(read_ids(start), look.ids)
        for topic in lost:
            report_recreated_topic(topic, fails=self._options.fail_on_data_loss)
        starts = of_other_topics(starts, lost)
        ids = {**read_ids(start), **look.ids}
        lose = data_loss_reporter(fails=self._options.fail_on_data_loss, has_checkpoint=not is_initial(start))
        plans = {each.place: each for each in look.plan.partitions}
        begins = {
            **{place: plan.log_start for place, plan in plans.items()},
            **resume_offsets(starts, plans, lose=lose),
        }
        self._latest = look.ends
        if not lost and self._waits(begins, look.ends):
            return start
        ends = rate_limit(begins, _targeted(begins, look.ends, self._target), self._most(look, begins, limit))
        ends = {**starts, **{place: max(end, begins[place]) for place, end in ends.items()}}
        if not lost and all(starts.get(place, begins.get(place)) == end for place, end in ends.items()):
            return start
        self._is_idle, self._went_s = False, self._clock.monotonic()
        return checkpoint(ends, since=starts if is_initial(start) else None, ids=ids)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has a new batch, if only of another source."""
        self._is_idle = False

    def _waits(self, begins: Offsets, ends: Offsets) -> bool:
        """Whether so little is new that it is left to a later batch; the first one has what there is."""
        if self._options.min_records is None or self._target is not None or self._went_s is None:
            return False
        if (self._clock.monotonic() - self._went_s) * 1000 >= self._options.max_delay_ms:
            return False
        return sum(end - begins[place] for place, end in ends.items()) < self._options.min_records

    def _most(self, look: LogSnapshot, begins: Offsets, limit: ReadLimit) -> float | None:
        """How many offsets the next batch may take."""
        if isinstance(limit, ReadAllAvailable):
            return None
        by_bytes = self._options.max_bytes
        most = [self._options.max_records, by_bytes and by_bytes / bytes_per_offset(look.plan, begins)]
        return min((each for each in most if each is not None), default=None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else checkpoint(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        spans = spans_between(batch_start(start, end), read_checkpoint(end))
        if not spans:
            return []
        plan = self._driver.plan(spans)
        fails = self._options.fail_on_data_loss
        lost = recreated_topics(read_ids(end), ids_of(plan.partitions))
        for topic in lost:
            report_recreated_topic(topic, fails=fails)
        spans = [span for span in spans if span.place.topic not in lost]
        _check_data_loss(spans, plan, fails=fails)
        return [StreamhouseInputPartition(split) for split in make_splits(plan, spans, self._options, NO_FILTERS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, self._output, partition)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _targeted(begins: Offsets, ends: Offsets, target: Mapping[TopicPartition, int] | None) -> Offsets:
    """Ends that don't pass what there was when the query began; partitions that are new since then have none."""
    if target is None:
        return ends
    return {place: max(begins[place], min(end, target[place])) for place, end in ends.items() if place in target}


def bytes_per_offset(plan: ReadPlan, starts: Offsets) -> float:
    """What an offset weighs on the average of what the plan names."""
    pieces = [
        piece
        for each in plan.partitions
        for piece in segment_ranges(each, OffsetRange(each.place, starts.get(each.place, 0)))
    ]
    offsets = sum(piece.end - piece.start for piece in pieces)
    return max(1.0, sum(piece.weight for piece in pieces) / offsets) if offsets else 1.0


def _check_data_loss(spans: list[OffsetRange], plan: ReadPlan, *, fails: bool) -> None:
    """A batch that is read again, after a restart, may have expired since it was planned."""
    lose = data_loss_reporter(fails=fails, has_checkpoint=True)
    plans = {each.place: each for each in plan.partitions}
    for span in spans:
        if span.place not in plans:
            lose(f"a partition is gone; partition={span.place}", START_LATER)
        elif 0 < span.start < plans[span.place].log_start:
            first = plans[span.place].log_start
            told = f"partition={span.place} wanted={span.start} first={first}"
            lose(f"records expired before they were read; {told}", START_LATER)
        elif (span.end or 0) > plans[span.place].end:
            lose(f"the log ends before the batch; partition={span.place} end={plans[span.place].end}", START_LATER)
