"""ReadPlans: which segments hold the records of many partitions, for readers that read the object store themselves.

Data path   HTTP -> **read_plans** -> metadata store, and leaders for the ends of logs -> reader -> object store
Owns        which runs overlap a requested range, the limits of one response, where the next one continues
Leaves      the ends of logs to `forwarding`; the outcomes of transactions to `segments.transaction_isolation`

A plan ends at the last stable offset and names the transactions that were aborted below `settled_end`. A reader that
leaves those and markers out has committed records only. Records above it are read from the leader, which does the
same. A plan is valid for `grace_s`: objects whose runs were merged or expired are deleted no earlier.

`RunListing` lists the runs of topics in pages, ordered by topic, partition and offset.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.segments.transaction_isolation import StableFlushedOffset, aborted_within
from streamhouse.errors import CannotSign, InvalidPartitions, RunsChanged, StreamhouseError, UnknownTopic
from streamhouse.format.block import LZ4
from streamhouse.format.transactions import AbortedTransactions
from streamhouse.model.cluster import PartitionState
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.segment import Run
from streamhouse.model.topic import Topic
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.signed_reads import SignedRead

NO_LIMIT: Final = 2**63 - 1


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition; up to its end where `end` is None."""

    name: TopicPartition
    start: int = 0
    end: int | None = None


class RunCursor(NamedTuple):
    """Where a response stopped: the next one starts with this partition, at this offset."""

    name: TopicPartition
    offset: int


class ObjectRange(NamedTuple):
    """Bytes [start, end) of an object, with records or the index of the run that has `offset`."""

    key: str
    offset: int
    start: int
    end: int

    def is_within(self, run: Run) -> bool:
        parts = ((run.position, run.length), (run.index_position, run.index_length))
        return (
            run.object_key == self.key
            and run.base <= self.offset < run.end
            and any(position <= self.start < self.end <= position + length for position, length in parts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """`end` is the last stable offset. For spans that end at or below `settled_end` no
    leader is queried, and `end` is `settled_end`.

    Below `settled_end`, which is never above `flushed_end`, runs are all that is needed, with the `aborted` that reach
    into them.
    """

    name: TopicPartition
    partition: PartitionId
    log_start: int
    end: int
    flushed_end: int
    settled_end: int
    runs: Sequence[Run]
    aborted: Sequence[AbortedTransaction] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    partitions: Sequence[PartitionPlan]
    next: RunCursor | None


class ReadPlans:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        stable_flushed: StableFlushedOffset,
        stable_end: Callable[[TopicPartition], Awaitable[OffsetResult]],
    ) -> None:
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.plans
        self._catalog = catalog
        self._stable_flushed = stable_flushed
        self._stable_end = stable_end
        self._queries = asyncio.Semaphore(self._settings.questions_at_once)
        self.store_url = dependencies.store_url
        self.grace_s = dependencies.settings.retention.grace_s
        self.max_commit_runs = dependencies.settings.placing.max_runs
        # Ciphertext takes the key that all topics of an object share, and ranges of its own.
        self._signer = dependencies.signer if dependencies.data_keys is None else None

    def __repr__(self) -> str:
        return f"<ReadPlans store={self.store_url}>"

    @property
    def can_sign(self) -> bool:
        """Whether `sign` gives URLs to readers without credentials."""
        return self._signer is not None

    async def sign(self, name: TopicPartition, span: ObjectRange) -> SignedRead:
        """A URL for a range of an object, if it is within the run of this partition that has the offset.

        Raises `RunsChanged` if that run is another one, `CannotSign`, and `UnknownTopic`.
        """
        if self._signer is None:
            raise CannotSign
        runs = await self._metadata.runs(await self._find(name), from_offset=span.offset, limit=1)
        if not any(span.is_within(run) for run in runs):
            raise RunsChanged(name, base=span.offset, end=span.offset + 1)
        return await self._signer.sign(span.key, span.start, span.end)

    async def plan(self, spans: Sequence[OffsetRange], *, begin: RunCursor | None = None) -> ReadPlan:
        """Plan reads of these spans, each partition once; `begin` is where the previous response stopped.

        Raises `UnknownTopic`, and `InvalidPartitions` for a repeated partition or a cursor outside of the spans.
        """
        rest = spans_from(spans, begin)
        requests = await self._plan_requests(rest[: self._settings.max_partitions])
        # In this order: a log's end that is read later can't be below what was flushed before.
        ends = await self._ends(requests)
        ranges = {each.partition: clipped(each.span, each.state, each.settled_end) for each in requests}
        return await self._plan(rest, requests, ends, ranges)

    async def plan_flushed(self, names: Sequence[TopicPartition], *, begin: RunCursor | None = None) -> ReadPlan:
        """All runs of these partitions, for rewriting them; no leader is queried."""
        rest = spans_from([OffsetRange(name) for name in names], begin)
        requests = await self._plan_requests(rest[: self._settings.max_partitions])
        ends = [each.state.flushed_end for each in requests]
        ranges = {each.partition: clipped(each.span, each.state, each.state.flushed_end) for each in requests}
        return await self._plan(rest, requests, ends, ranges)

    async def _plan_requests(self, spans: Sequence[OffsetRange]) -> list["_PlanRequest"]:
        partitions = [await self._find(span.name) for span in spans]
        states = await self._states(partitions)
        stable_flushed = await self._stable_flushed.ends(states[at] for at in partitions)
        return [
            _PlanRequest(span, at, states[at], stable_flushed[at]) for span, at in zip(spans, partitions, strict=True)
        ]

    async def _plan(
        self,
        rest: Sequence[OffsetRange],
        requests: Sequence["_PlanRequest"],
        ends: Sequence[int],
        ranges: Mapping[PartitionId, range],
    ) -> ReadPlan:
        # In this order: rows of aborted transactions are deleted only after their records.
        aborted = await aborted_within(self._metadata, ranges)
        runs = await first_runs(self._metadata, ranges, limit=self._settings.max_runs)
        plans = [
            PartitionPlan(
                name=each.span.name,
                partition=each.partition,
                log_start=each.state.log_start,
                end=end,
                flushed_end=each.state.flushed_end,
                settled_end=each.settled_end,
                runs=runs[each.partition],
                aborted=within(runs[each.partition], aborted.get(each.partition, ())),
            )
            for each, end in zip(requests, ends, strict=True)
            if each.partition in runs
        ]
        return ReadPlan(partitions=plans, next=_next_cursor(rest, plans, ranges))

    async def _find(self, name: TopicPartition) -> PartitionId:
        topic = await self._catalog.find(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
        return PartitionId(topic.topic_id, name.partition)

    async def _states(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, PartitionState]:
        topic_ids = list(dict.fromkeys(partition.topic_id for partition in partitions))
        states = {state.partition: state for state in await self._metadata.partitions(topic_ids)}
        for partition in partitions:
            if partition not in states:
                raise UnknownTopic(partition)  # deleted a moment ago
        return states

    async def _ends(self, requests: Sequence["_PlanRequest"]) -> list[int]:
        async def end_of(each: _PlanRequest) -> int:
            if each.span.end is not None and each.span.end <= each.settled_end:
                return each.settled_end
            async with self._queries:
                return max((await self._stable_end(each.span.name)).offset, each.settled_end)

        try:
            async with asyncio.TaskGroup() as queries:
                tasks = [queries.create_task(end_of(each)) for each in requests]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [each.result() for each in tasks]


class _PlanRequest(NamedTuple):
    """A span, and the state of its partition by rows and snapshots."""

    span: OffsetRange
    partition: PartitionId
    state: PartitionState
    settled_end: int


async def first_runs(
    metadata: MetadataStore, ranges: Mapping[PartitionId, range], *, limit: int
) -> dict[PartitionId, list[Run]]:
    """The runs within these offsets, of as many partitions as the limit allows, the last of them perhaps in part."""
    left = limit
    some = {partition: offsets.start for partition, offsets in ranges.items() if offsets}
    share = max(1, left // max(1, len(some)))
    first: dict[PartitionId, list[Run]] = {}
    for run in await metadata.runs_of(some, limit=share):
        first.setdefault(run.partition, []).append(run)
    listed: dict[PartitionId, list[Run]] = {}
    for partition, offsets in ranges.items():
        if left <= 0:
            break
        runs = first.get(partition, [])[:left]
        if len(runs) == share < left:  # there may be more
            runs += await metadata.runs(partition, from_offset=runs[-1].end, limit=left - share)
        listed[partition] = [run for run in runs if run.base < offsets.stop]
        left -= len(listed[partition])
    return listed


def spans_from(spans: Sequence[OffsetRange], begin: RunCursor | None) -> Sequence[OffsetRange]:
    """The spans left to plan; raises `InvalidPartitions` for a repeated partition, or a cursor outside of the spans."""
    numbers = {span.name: number for number, span in enumerate(spans)}
    if len(numbers) < len(spans):
        raise InvalidPartitions("a partition is requested twice")
    if begin is None:
        return spans
    if begin.name not in numbers:
        raise InvalidPartitions(f"the cursor belongs to another request; partition={begin.name}")
    rest = spans[numbers[begin.name] :]
    return [rest[0]._replace(start=max(begin.offset, rest[0].start)), *rest[1:]]


def clipped(span: OffsetRange, state: PartitionState, settled_end: int) -> range:
    """The offsets of the span that are read from segments."""
    start = max(span.start, state.log_start)
    end = min(NO_LIMIT if span.end is None else span.end, state.flushed_end, settled_end)
    return range(start, max(start, end))


def within(runs: Sequence[Run], aborted: Sequence[AbortedTransaction]) -> Sequence[AbortedTransaction]:
    """The aborted transactions that overlap the runs."""
    return AbortedTransactions(aborted).within(runs[0].base, runs[-1].end) if runs else ()


def _next_cursor(
    rest: Sequence[OffsetRange], plans: Sequence[PartitionPlan], ranges: Mapping[PartitionId, range]
) -> RunCursor | None:
    """Where the next response starts: in the last partition, if its runs were cut off, or with the one after it."""
    if plans and plans[-1].runs:
        last = plans[-1]
        # Nothing is cut off if the runs reach the end; a gap before it costs one more response without runs.
        if last.runs[-1].end < ranges[last.partition].stop:
            return RunCursor(last.name, last.runs[-1].end)
    following = rest[len(plans) :]
    return RunCursor(following[0].name, following[0].start) if following else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Runs with the names of their partitions; `next` is None when nothing is left."""

    runs: Sequence[tuple[TopicPartition, Run]]
    next: RunCursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBlocks:
    """A run's blocks: how many, how many of them agents compressed, and their bytes as batches."""

    blocks: int
    lz4_blocks: int
    raw_bytes: int


class RunListing:
    def __init__(self, dependencies: Dependencies, *, reader: SegmentReader) -> None:
        self._metadata = dependencies.metadata
        self._reader = reader
        self._settings = dependencies.settings.plans

    def __repr__(self) -> str:
        return f"<RunListing max_runs={self._settings.max_runs}>"

    async def page(self, topics: Sequence[Topic], *, limit: int, begin: RunCursor | None = None) -> RunPage:
        """Up to `limit` runs by topic, partition and offset; `begin` is where the previous page stopped.

        A page may have fewer, or none, and still a next one: the number of partitions per page is limited.
        """
        cursors = _cursors(sorted(topics, key=lambda topic: topic.name), begin)
        of_page = dict(islice(cursors, self._settings.max_partitions))
        ranges = {partition: range(cursor.offset, NO_LIMIT) for partition, cursor in of_page.items()}
        limit = min(limit, self._settings.max_runs)
        by_partition = await first_runs(self._metadata, ranges, limit=limit)
        runs = [(of_page[partition].name, run) for partition, each in by_partition.items() for run in each]
        if len(runs) < limit:
            return RunPage(runs=runs, next=next((cursor for _, cursor in cursors), None))
        last, run = runs[-1]
        return RunPage(runs=runs, next=RunCursor(last, run.end))

    async def blocks(self, runs: Sequence[Run]) -> Sequence[RunBlocks | None]:
        """By each run's block index: one ranged GET, unless it is cached. None for those that can't be read."""
        async with asyncio.TaskGroup() as reads:
            tasks = [reads.create_task(self._blocks(run)) for run in runs]
        return [task.result() for task in tasks]

    async def _blocks(self, run: Run) -> RunBlocks | None:
        try:
            blocks = (await self._reader.index(run)).blocks
        except StreamhouseError:
            return None
        return RunBlocks(
            blocks=len(blocks),
            lz4_blocks=sum(block.codec == LZ4 for block in blocks),
            raw_bytes=sum(block.raw_bytes for block in blocks),
        )


def _cursors(topics: Sequence[Topic], begin: RunCursor | None) -> Iterator[tuple[PartitionId, RunCursor]]:
    """The start of each partition, in order; the one that `begin` names may be deleted by now."""
    start = RunCursor(TopicPartition("", 0), 0) if begin is None else begin
    for topic in topics:
        if topic.name < start.name.topic:
            continue
        first = start.name.partition if topic.name == start.name.topic else 0
        for number in range(first, topic.partitions):
            name = TopicPartition(topic.name, number)
            yield PartitionId(topic.topic_id, number), start if name == start.name else RunCursor(name, 0)
