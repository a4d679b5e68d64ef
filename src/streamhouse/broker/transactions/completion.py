"""TransactionCompletion: writes the markers of a decided transaction to all its partitions, then closes its row.

Data path   coordinator, sweeper -> **completion** -> `markers` here, or Dependencies.agents -> logs; metadata store
Owns        the completions in flight on this agent, and retries until every marker is durable
Leaves      the decision to the metadata store, which has it before this starts; markers to `markers`

An agent may die at any step, and several may complete the same transaction: a partition appends each marker once, and
an agent closes the row only after all markers are durable.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.cluster.cluster import Cluster, Leader
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.transactions.markers import MarkerWriter
from streamhouse.config.fields import Address
from streamhouse.errors import MarkerFenced, StreamhouseError, UnknownTopicId
from streamhouse.model.cluster import Session
from streamhouse.model.names import PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic
from streamhouse.model.transaction import Marker, StoredTransaction

log = logging.getLogger(__name__)

LEAST_WAIT_S: Final = 1.0
"""Minimum timeout for other agents to write markers."""

SUSPEND_AFTER_S: Final = 10.0
"""After this a completion is suspended for as long, so that others proceed; the sweeper starts it again."""

REPORT_AFTER_S: Final = 5.0
"""Minimum time between two log lines about slow completions."""

MarkerResults = Mapping[PartitionId, StreamhouseError | None]


class TransactionKey(NamedTuple):
    transactional_id: str
    number: int


class MarkerTargets(NamedTuple):
    """Partitions by leader. A partition in neither field has no leader now."""

    here: Sequence[PartitionId]
    elsewhere: Mapping[Address, Sequence[PartitionId]]


def marker_targets(
    partitions: Iterable[PartitionId], leaders: Mapping[PartitionId, Leader], own: SessionId
) -> MarkerTargets:
    """Group partitions by their leaders; a pure function."""
    here: list[PartitionId] = []
    elsewhere: dict[Address, list[PartitionId]] = {}
    for partition in partitions:
        leader = leaders.get(partition)
        if leader is None or leader.session is None:
            continue
        if leader.session.session_id == own:
            here.append(partition)
        else:
            elsewhere.setdefault(leader.session.kafka, []).append(partition)
    return MarkerTargets(here, elsewhere)


def is_marked(outcome: StreamhouseError | None) -> bool:
    """Whether a partition needs no further marker: it has it, or one of a later transaction."""
    return outcome is None or isinstance(outcome, MarkerFenced)


class TransactionCompletion:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        cluster: Cluster,
        leaders: Callable[[Sequence[Topic]], Awaitable[Mapping[PartitionId, Leader]]],
        marker_writer: MarkerWriter,
        own: Callable[[], Session],
    ) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.transactions
        self._metadata = dependencies.metadata
        self._catalog = catalog
        self._cluster = cluster
        self._leaders = leaders
        self._marker_writer = marker_writer
        self._own = own
        self._tasks: asyncio.TaskGroup | None = None
        self._under_way: dict[TransactionKey, asyncio.Task[bool]] = {}
        self._suspended: dict[TransactionKey, float] = {}
        self.committed = 0
        self.aborted = 0
        self.retries = 0
        self._report_at = dependencies.clock.monotonic()

    def __repr__(self) -> str:
        return f"<TransactionCompletion under_way={len(self)} committed={self.committed} aborted={self.aborted}>"

    def __len__(self) -> int:
        return len(self._under_way)

    # --- life

    async def run(self, beside: Callable[[], Awaitable[None]]) -> None:
        """Run `beside`, and the completions that are started meanwhile; when cancelled, all of them end."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await beside()
            finally:
                self._tasks = None  # the group takes no more while it waits for those that it cancels

    def begin(self, decided: StoredTransaction) -> "asyncio.Task[bool] | None":
        """Start to complete a decided transaction, unless it is in flight; None if there are too many: the sweeper
        finds it later. The task returns whether the transaction is complete."""
        key = _key(decided)
        if (running := self._under_way.get(key)) is not None:
            return running
        if self._tasks is None or len(self._under_way) >= self._settings.max_waiting:
            return None
        task = self._tasks.create_task(self._end(decided), name=f"end-{decided.transactional_id[:100]}")
        self._under_way[key] = task
        task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return task

    # --- one transaction

    async def _end(self, decided: StoredTransaction) -> bool:
        left: Sequence[PartitionId] = decided.partitions
        peers = self._dependencies.settings.peers
        backoff = self._dependencies.backoff(first_s=peers.retry_s, max_s=peers.retry_max_s)
        until = self._dependencies.clock.monotonic() + SUSPEND_AFTER_S
        while True:
            try:
                left = await self._round(decided.marker, left)
                if not left:
                    await self._metadata.complete_transaction(decided.transactional_id, decided.number)
                    self._count(decided.marker)
                    return True
                why = f"{len(left)} partitions are not marked"
            except StreamhouseError as error:
                why = str(error)
            self._report(decided, why)
            self.retries += 1
            await backoff.wait()
            if not await self._is_pending(decided):
                return False
            if (now := self._dependencies.clock.monotonic()) >= until:
                self._suspend(decided, now=now)
                return False

    def _suspend(self, decided: StoredTransaction, *, now: float) -> None:
        self._suspended = {each: until for each, until in self._suspended.items() if until > now}
        if len(self._suspended) < self._settings.max_waiting:
            self._suspended[_key(decided)] = now + SUSPEND_AFTER_S

    def is_suspended(self, decided: StoredTransaction) -> bool:
        """Whether its completion was suspended a moment ago."""
        return self._suspended.get(_key(decided), -math.inf) > self._dependencies.clock.monotonic()

    def _report(self, decided: StoredTransaction, why: str) -> None:
        now = self._dependencies.clock.monotonic()
        if now >= self._report_at:
            self._report_at = now + REPORT_AFTER_S
            fields = {"id": decided.transactional_id, "why": why, "under_way": len(self), "retries": self.retries}
            log.warning("transaction not ended yet", extra=fields)

    def _count(self, marker: Marker) -> None:
        self.committed += marker.is_commit
        self.aborted += not marker.is_commit

    async def _is_pending(self, decided: StoredTransaction) -> bool:
        """Whether no other agent has completed it meanwhile."""
        try:
            row = await self._metadata.find_transaction(decided.transactional_id)
        except StreamhouseError:
            return True
        return row is not None and row.state.is_prepared and row.number == decided.number

    async def _round(self, marker: Marker, partitions: Sequence[PartitionId]) -> Sequence[PartitionId]:
        """Send markers to every leader once; returns the partitions that are not marked."""
        topics = await self._topics(partitions)
        there = [each for each in partitions if each.topic_id in topics]
        known = [topic for topic in topics.values() if topic is not None]
        divided = marker_targets(there, await self._leaders(known), self._own().session_id)
        results = await asyncio.gather(
            self._mark_here(marker, divided.here, topics),
            *(self._mark_elsewhere(marker, at, each) for at, each in divided.elsewhere.items()),
        )
        marked = {partition for outcomes in results for partition, error in outcomes.items() if is_marked(error)}
        left = [each for each in there if each not in marked]
        for topic_id in {each.topic_id for each in left}:
            self._cluster.invalidate_leases(topic_id)
        return left

    async def _topics(self, partitions: Sequence[PartitionId]) -> Mapping[TopicId, Topic | None]:
        """Topics by id; None for one that only the store knows yet. Topics that the store does not have are left
        out."""
        topics: dict[TopicId, Topic | None] = {}
        for topic_id in dict.fromkeys(each.topic_id for each in partitions):
            try:
                topics[topic_id] = await self._catalog.find_by_id(topic_id)
            except UnknownTopicId:
                if await self._metadata.partitions([topic_id]):
                    self._catalog.invalidate()
                    topics[topic_id] = None
        return topics

    async def _mark_here(
        self, marker: Marker, partitions: Sequence[PartitionId], topics: Mapping[TopicId, Topic | None]
    ) -> MarkerResults:
        names = {_name(each, topics): each for each in partitions}
        outcomes = await self._marker_writer.mark(marker, list(names), ids=names, only_due=True)
        return {names[name]: error for name, error in outcomes.items()}

    async def _mark_elsewhere(self, marker: Marker, at: Address, partitions: Sequence[PartitionId]) -> MarkerResults:
        try:
            return await self._dependencies.agents.mark(
                at, marker, partitions, timeout_s=max(self._settings.end_wait_s, LEAST_WAIT_S)
            )
        except StreamhouseError as error:
            return dict.fromkeys(partitions, error)


def _key(decided: StoredTransaction) -> TransactionKey:
    return TransactionKey(decided.transactional_id, decided.number)


def _name(partition: PartitionId, topics: Mapping[TopicId, Topic | None]) -> TopicPartition:
    topic = topics[partition.topic_id]
    assert topic is not None, f"a partition with a leader has an unknown topic; partition={partition}"
    return TopicPartition(topic.name, partition.partition)
