"""The client of maintenance jobs: reads the runs of a topic, and has runs replaced by others.

Data path   a job on the driver -> **run_replacements** -> an agent's HTTP listener -> one metadata transaction
Owns        requests and responses of maintenance; their retry timeout
Leaves      the choice of an agent to `client.http`; what is worth rewriting to `merge_job` and `compaction_job`

A replacement is idempotent: it is sent until an agent responds, and a repeated one gets the response of the first.
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
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import AbortedRow, AgentClient, error_detail, unknown_topic

T = TypeVar("T")

RETRY_TIMEOUT_S: Final = 60.0
"""How long requests are retried: longer than for queries, because no user waits for a job's next row."""
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
    def aborted_transactions(self) -> AbortedTransactions:
        return AbortedTransactions(row.aborted for row in self.aborted)


class JobTime(msgspec.Struct, frozen=True):
    """`earlier_ms` decides what is old, from `later_ms` on new horizons are counted."""

    earlier_ms: int
    later_ms: int


class MaintenancePlan(msgspec.Struct, frozen=True):
    """`next` is the cursor of the next page. `now_ms` is the time of the agents' clocks; None from an old agent."""

    store: str
    grace_s: float
    topic: str
    topic_id: str
    effective_settings: dict[str, str]
    partitions: list[PartitionPlan]
    next: str | None = None
    now_ms: int | None = None

    def ages_at(self, own_ms: int) -> "JobTime":
        """Combine the job's clock with the agents', so that neither shortens a retention time."""
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
    """A run to be replaced, as the plan had it."""

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
    """Runs of a partition, and the segment that replaces them. Without a segment only `cleaned_to` is recorded, and the
    aborted transactions of which only their markers are left, at the offsets `spent`, are removed from the metadata."""

    topic: str
    topic_id: str
    partition: int
    expected: tuple[ExpectedRun, ...] = ()
    segment: ReplacingSegment | None = None
    cleaned_to: int | None = None
    spent: tuple[int, ...] = ()


class MaintenanceClient:
    """Use it in `async with`, on one event loop."""

    def __init__(
        self, address: AgentAddress, *, clock: Clock | None = None, retry_timeout_s: float = RETRY_TIMEOUT_S
    ) -> None:
        self.agents = AgentClient(address, clock=clock, retry_timeout_s=retry_timeout_s)

    def __repr__(self) -> str:
        return f"<MaintenanceClient {self.agents!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.agents.__aexit__(kind, error, trace)

    async def check_agent(self) -> None:
        """Check that an agent answers; raises `Unavailable` sooner than other requests."""
        await self.agents.check_agent()

    async def topics(self) -> list[str]:
        return sorted(await self.agents.topics())

    async def flush(self, topic: str) -> None:
        """Have all records flushed that were acknowledged before."""
        response = await self.agents.send("POST", f"/v1/topics/{topic}/flush")
        if response.status == NOT_FOUND:
            raise unknown_topic(response)
        if response.status >= 400:
            raise Rejected(error_detail(response))

    async def pages(self, topic: str) -> AsyncIterator[MaintenancePlan]:
        """A topic's runs, one page at a time; a partition may continue on the next page."""
        cursor: str | None = None
        while True:
            body = {"topic": topic, "cursor": cursor}
            page = _decode_response(await self.agents.send("POST", "/v1/maintenance/plan", body=body), MaintenancePlan)
            yield page
            cursor = page.next
            if cursor is None:
                return

    async def plan(self, topic: str) -> MaintenancePlan:
        """All runs of a topic, every partition once."""
        pages = [page async for page in self.pages(topic)]
        return msgspec.structs.replace(pages[-1], partitions=merge_pages(pages))

    async def replace(self, replacement: Replacement) -> bool:
        """Have runs replaced; False if the partition has other runs by now: plan again.

        Raises `CommitRefused` for a replacement that agents never accept, and `Unavailable` if no agent responds in
        time: it may or may not have happened, and both are safe.
        """
        response = await self.agents.send("POST", "/v1/replacements", body=replacement)
        if response.status in (NOT_FOUND, CONFLICT):  # the topic is gone, or its runs are others
            return False
        if response.status >= 400:
            raise CommitRefused(f"agents reject the rewritten runs; error={error_detail(response)}")
        return True


def merge_pages(pages: Sequence[MaintenancePlan]) -> list[PartitionPlan]:
    """Every partition once, with the runs of all pages; the bounds of a later page are newer."""
    merged: dict[int, PartitionPlan] = {}
    for plan in (plan for page in pages for plan in page.partitions):
        known = merged.get(plan.partition)
        if known is not None:
            runs, aborted = [*known.runs, *plan.runs], [*known.aborted, *plan.aborted]
            plan = msgspec.structs.replace(plan, runs=runs, aborted=aborted)
        merged[plan.partition] = plan
    return list(merged.values())


def _decode_response(response: HttpResponse, kind: type[T]) -> T:
    if response.status == NOT_FOUND:
        raise unknown_topic(response)
    if response.status >= 400:
        raise Rejected(error_detail(response))
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"unexpected response of an agent; error={error} do=use the agents' version here") from None
