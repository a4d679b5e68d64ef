"""Agents, as maintenance jobs ask them: which runs a topic has, and that others take their place.

Data path   a job on the driver -> **agents** -> an agent's HTTP listener -> one metadata transaction
Owns        the shapes of these questions and answers; patience with agents that are away
Leaves      finding an agent that answers to `client.http`; what is worth rewriting to `merge_job` and `compaction_job`

A replacement is asked for until somebody answers: the same again is answered as the first time.
"""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import UUID

import msgspec

from streamhouse.client.http import HttpResponse
from streamhouse.clock import Clock
from streamhouse.errors import CommitRefused, Rejected
from streamhouse.format.transactions import AbortedTransactions
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig, parse_topic_config
from streamhouse.model.topic_settings import TOPIC_SETTINGS
from streamhouse.spark.agents.client import AbortedRow, AgentClient, error_detail, unknown_topic

T = TypeVar("T")

RETRY_TIMEOUT_S: Final = 60.0
"""How long agents that are away are waited for: a job has no user who waits for its next row."""
NOT_FOUND, CONFLICT = 404, 409


class RunRow(msgspec.Struct, frozen=True):
    """Offsets [base, end) of a partition under one epoch, in an object where they count from `stored_base`."""

    key: str
    base: int
    end: int
    epoch: int
    stored_base: int
    position: int
    length: int
    index_position: int
    index_length: int
    records: int
    max_timestamp_ms: int

    def run(self, partition: PartitionId) -> Run:
        return Run(
            partition=partition,
            base=self.base,
            end=self.end,
            stored_base=self.stored_base,
            epoch=Epoch(self.epoch),
            object_key=self.key,
            position=self.position,
            length=self.length,
            index_position=self.index_position,
            index_length=self.index_length,
            records=self.records,
            max_timestamp_ms=self.max_timestamp_ms,
        )


class PartitionPlan(msgspec.Struct, frozen=True):
    """A partition's runs, oldest first, up to `flushed_end`; below `cleaned_to` it was compacted. From `settled_end` on
    transactions may be open; of those that ended below, these were `aborted`."""

    partition: int
    log_start: int
    flushed_end: int
    cleaned_to: int
    runs: list[RunRow]
    settled_end: int | None = None
    aborted: list[AbortedRow] = []

    @property
    def stable_end(self) -> int:
        return self.flushed_end if self.settled_end is None else self.settled_end

    @property
    def void(self) -> AbortedTransactions:
        return AbortedTransactions(row.aborted for row in self.aborted)


class JobTime(msgspec.Struct, frozen=True):
    """`earlier_ms` decides what is old, from `later_ms` on new horizons are counted."""

    earlier_ms: int
    later_ms: int


class MaintenancePlan(msgspec.Struct, frozen=True):
    """`next`: the answer had no room for more. `now_ms`: the time by the agents' clocks; older agents don't tell."""

    store: str
    grace_s: float
    topic: str
    topic_id: str
    effective_settings: dict[str, str]
    partitions: list[PartitionPlan]
    next: str | None = None
    now_ms: int | None = None

    def ages_at(self, own_ms: int) -> "JobTime":
        """The job's clock beside the agents': neither shortens how long something stays."""
        agents_ms = own_ms if self.now_ms is None else self.now_ms
        return JobTime(min(own_ms, agents_ms), max(own_ms, agents_ms))

    @property
    def id(self) -> TopicId:
        return TopicId(UUID(self.topic_id))

    @property
    def config(self) -> TopicConfig:
        known = {name: text for name, text in self.effective_settings.items() if name in TOPIC_SETTINGS}
        return parse_topic_config(known)


class ExpectedRun(msgspec.Struct, frozen=True):
    """A run that goes, as the plan had it."""

    key: str
    base: int
    end: int
    epoch: int


class ReplacingRun(msgspec.Struct, frozen=True):
    base: int
    end: int
    epoch: int
    position: int
    length: int
    index_position: int
    index_length: int
    records: int
    max_timestamp_ms: int


class ReplacingSegment(msgspec.Struct, frozen=True):
    """An object that a task has stored, with one run for each epoch."""

    key: str
    size_bytes: int
    created_at_ms: int
    runs: tuple[ReplacingRun, ...]


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """What takes whose place. Without a segment only `cleaned_to` is noted, and that nobody is told any more of aborted
    transactions whose markers, at the offsets `spent`, are all that is left of them."""

    topic: str
    topic_id: str
    partition: int
    expected: tuple[ExpectedRun, ...] = ()
    segment: ReplacingSegment | None = None
    cleaned_to: int | None = None
    spent: tuple[int, ...] = ()


class MaintenanceClient:
    """Agents that plan and register for jobs. Use it in `async with`, on one event loop."""

    def __init__(self, address: str, *, clock: Clock | None = None, patience_s: float = RETRY_TIMEOUT_S) -> None:
        self.agents = AgentClient(address, clock=clock, patience_s=patience_s)

    def __repr__(self) -> str:
        return f"<Maintainers {self.agents!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.agents.__aexit__(kind, error, trace)

    async def meet(self) -> None:
        """See that somebody is there; raises `Unavailable` soon where not: later on there is patience."""
        await self.agents.meet()

    async def topics(self) -> list[str]:
        return sorted(await self.agents.topics())

    async def flush(self, topic: str) -> None:
        """Have all in segments that was acknowledged before."""
        answer = await self.agents.answer("POST", f"/v1/topics/{topic}/flush")
        if answer.status == NOT_FOUND:
            raise unknown_topic(answer)
        if answer.status >= 400:
            raise Rejected(error_detail(answer))

    async def pages(self, topic: str) -> AsyncIterator[MaintenancePlan]:
        """A topic's runs, as many at a time as agents tell at once; a partition may go on in the next page."""
        cursor: str | None = None
        while True:
            body = {"topic": topic, "cursor": cursor}
            page = _decode_response(
                await self.agents.answer("POST", "/v1/maintenance/plan", body=body), MaintenancePlan
            )
            yield page
            cursor = page.next
            if cursor is None:
                return

    async def plan(self, topic: str) -> MaintenancePlan:
        """All runs of a topic, every partition once."""
        pages = [page async for page in self.pages(topic)]
        return msgspec.structs.replace(pages[-1], partitions=merge_pages(pages))

    async def replace(self, replacement: Replacement) -> bool:
        """Have runs replaced; False where others stand there by now: plan again.

        Raises `CommitRefused` for what agents will never do, and `Unavailable` when nobody answers in time: then it may
        or may not have happened, and either is well.
        """
        answer = await self.agents.answer("POST", "/v1/replacements", body=replacement)
        if answer.status in (NOT_FOUND, CONFLICT):  # the topic is gone, or its runs are others
            return False
        if answer.status >= 400:
            raise CommitRefused(f"agents don't take what was rewritten; why={error_detail(answer)}")
        return True


def merge_pages(pages: Sequence[MaintenancePlan]) -> list[PartitionPlan]:
    """Every partition once, with the runs of all pages; what a later page says of it is newer."""
    found: dict[int, PartitionPlan] = {}
    for plan in (plan for page in pages for plan in page.partitions):
        known = found.get(plan.partition)
        if known is not None:
            runs, aborted = [*known.runs, *plan.runs], [*known.aborted, *plan.aborted]
            plan = msgspec.structs.replace(plan, runs=runs, aborted=aborted)
        found[plan.partition] = plan
    return list(found.values())


def _decode_response(answer: HttpResponse, kind: type[T]) -> T:
    if answer.status == NOT_FOUND:
        raise unknown_topic(answer)
    if answer.status >= 400:
        raise Rejected(error_detail(answer))
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"unexpected answer of an agent; why={error} do=use the agents' version here") from None
