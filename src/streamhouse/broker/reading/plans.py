"""Plans: where the records of many partitions stand, for readers that fetch segments from the object store themselves.

Data path   HTTP -> **plans** -> rows of the metadata store, ends of logs from their leaders -> reader -> object store
Owns        which runs overlap what is asked for, the limits of one answer, where the next one goes on
Leaves      ends of logs to `broker.records`, JSON to the wire, bytes to whoever reads

A plan holds for `grace_s`: objects that stop being named, because their runs were merged or expired, live so long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.doors import Doors
from streamhouse.errors import InvalidPartitions, UnknownTopic
from streamhouse.model.lease import PartitionState
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.base import MetadataStore

from .offsets import FoundOffset

NO_LIMIT: Final = 2**63 - 1


class Span(NamedTuple):
    """Offsets [start, end) of a partition; up to its end where `end` is None."""

    name: TopicPartition
    start: int = 0
    end: int | None = None


class Place(NamedTuple):
    """Where an answer stopped: the next one begins with this partition, at this offset."""

    name: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """`end` is the high watermark. Of spans that end at or below `flushed_end` no leader is asked: then it is that."""

    name: TopicPartition
    partition: PartitionId
    log_start: int
    end: int
    flushed_end: int
    runs: Sequence[Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    partitions: Sequence[PartitionPlan]
    next: Place | None


class ReadPlans:
    def __init__(
        self,
        doors: Doors,
        *,
        catalogue: Catalogue,
        latest: Callable[[TopicPartition], Awaitable[FoundOffset]],
    ) -> None:
        self._metadata = doors.metadata
        self._settings = doors.settings.plans
        self._catalogue = catalogue
        self._latest = latest
        self._questions = asyncio.Semaphore(self._settings.questions_at_once)
        self.store_url = doors.store_url
        self.grace_s = doors.settings.retention.grace_s

    def __repr__(self) -> str:
        return f"<ReadPlans store={self.store_url}>"

    async def plan(self, spans: Sequence[Span], *, begin: Place | None = None) -> ReadPlan:
        """Where these spans stand, each partition once; `begin` is where the answer before this one stopped.

        Raises `UnknownTopic`, and `InvalidPartitions` for a place or a partition that isn't among them.
        """
        rest = spans_from(spans, begin)
        page = rest[: self._settings.max_partitions]
        partitions = [await self._find(span.name) for span in page]
        states = await self._states(partitions)
        # In this order: a log's end can't be below what was flushed when it is asked for later.
        ends = await self._ends(page, [states[partition] for partition in partitions])
        wanted = {at: clipped(span, states[at]) for span, at in zip(page, partitions, strict=True)}
        runs = await first_runs(self._metadata, wanted, limit=self._settings.max_runs)
        plans = [
            PartitionPlan(
                name=span.name,
                partition=at,
                log_start=states[at].log_start,
                end=end,
                flushed_end=states[at].flushed_end,
                runs=runs[at],
            )
            for span, at, end in zip(page, partitions, ends, strict=True)
            if at in runs
        ]
        return ReadPlan(partitions=plans, next=_next_place(rest, plans, wanted))

    async def _find(self, name: TopicPartition) -> PartitionId:
        topic = await self._catalogue.find(name.topic)
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

    async def _ends(self, spans: Sequence[Span], states: Sequence[PartitionState]) -> list[int]:
        async def ask(span: Span, state: PartitionState) -> int:
            if span.end is not None and span.end <= state.flushed_end:
                return state.flushed_end
            async with self._questions:
                return max((await self._latest(span.name)).offset, state.flushed_end)

        try:
            async with asyncio.TaskGroup() as questions:
                asked = [questions.create_task(ask(*each)) for each in zip(spans, states, strict=True)]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [each.result() for each in asked]


async def first_runs(
    metadata: MetadataStore, wanted: Mapping[PartitionId, range], *, limit: int
) -> dict[PartitionId, list[Run]]:
    """The runs within these offsets, of as many partitions as the limit allows, the last of them perhaps in part."""
    left = limit
    some = {partition: asked.start for partition, asked in wanted.items() if asked}
    share = max(1, left // max(1, len(some)))
    first: dict[PartitionId, list[Run]] = {}
    for run in await metadata.runs_of(some, limit=share):
        first.setdefault(run.partition, []).append(run)
    found: dict[PartitionId, list[Run]] = {}
    for partition, asked in wanted.items():
        if left <= 0:
            break
        runs = first.get(partition, [])[:left]
        if len(runs) == share < left:  # there may be more
            runs += await metadata.runs(partition, from_offset=runs[-1].end, limit=left - share)
        found[partition] = [run for run in runs if run.base < asked.stop]
        left -= len(found[partition])
    return found


def spans_from(spans: Sequence[Span], begin: Place | None) -> Sequence[Span]:
    """What is left to plan; raise `InvalidPartitions` for a partition named twice, or a place that isn't among them."""
    numbers = {span.name: number for number, span in enumerate(spans)}
    if len(numbers) < len(spans):
        raise InvalidPartitions("a partition is asked for twice")
    if begin is None:
        return spans
    if begin.name not in numbers:
        raise InvalidPartitions(f"the cursor is of another question; partition={begin.name}")
    rest = spans[numbers[begin.name] :]
    return [rest[0]._replace(start=max(begin.offset, rest[0].start)), *rest[1:]]


def clipped(span: Span, state: PartitionState) -> range:
    """The offsets of the span that segments hold."""
    start = max(span.start, state.log_start)
    end = min(NO_LIMIT if span.end is None else span.end, state.flushed_end)
    return range(start, max(start, end))


def _next_place(
    rest: Sequence[Span], plans: Sequence[PartitionPlan], wanted: Mapping[PartitionId, range]
) -> Place | None:
    """Where the next answer begins: within the last partition, if its runs were cut off, or with the one after it."""
    if plans and plans[-1].runs:
        last = plans[-1]
        # Nothing is cut off where the runs reach the end; a gap before it costs one more answer without runs.
        if last.runs[-1].end < wanted[last.partition].stop:
            return Place(last.name, last.runs[-1].end)
    following = rest[len(plans) :]
    return Place(following[0].name, following[0].start) if following else None
