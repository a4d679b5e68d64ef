"""LeaderLookup: where the leader of a partition is, as far as this agent knows; OffsetLookup: its offsets.

`LocalBroker` is the part of `Broker` that this package uses. `LeaderLookup` reads leases again after a request went
to the wrong agent. `OffsetLookup` answers at any agent, and retries while the leader changes.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.dependencies import EARLIEST_TIME, LATEST_TIME, Dependencies
from streamhouse.broker.groups import Groups
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.config.fields import Address
from streamhouse.errors import NotLeader, Retriable, Unavailable, UnknownTopic
from streamhouse.model.cluster import Session
from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic


class LocalBroker(Protocol):
    """Every call serves what this agent leads or coordinates, and raises if another agent does."""

    catalog: TopicCatalog
    cluster: Cluster
    groups: Groups

    @property
    def agent_session(self) -> AgentSession | None: ...

    def agents(self) -> Sequence[Session]: ...

    async def topic(self, name: str, *, create: bool = False) -> Topic: ...

    def append(self, name: TopicPartition, data: memoryview) -> Awaitable[PendingAppend]: ...

    async def acknowledge(self, pending: PendingAppend) -> None: ...

    async def allocate_producer_id(self) -> int: ...

    async def fetch(
        self, fetches: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]: ...

    async def earliest(self, name: TopicPartition) -> OffsetResult: ...

    async def latest(self, name: TopicPartition, *, committed: bool = False) -> OffsetResult: ...

    async def at_time(
        self, name: TopicPartition, timestamp_ms: int, *, committed: bool = False
    ) -> OffsetResult | None: ...


MAX_INVALIDATED: Final = 10_000


class LeaderLocation(NamedTuple):
    """`address` is None where this agent leads; `epoch` is -1 as long as the lease is free."""

    partition: PartitionId
    address: Address | None
    epoch: int


class LeaderLookup:
    def __init__(self, dependencies: Dependencies, here: LocalBroker) -> None:
        self._dependencies = dependencies
        self._here = here
        self._invalidated_at: dict[TopicId, float] = {}

    async def locate(self, name: TopicPartition) -> LeaderLocation:
        """Raises `UnknownTopic`, and `NotLeader` while the leader is unknown."""
        topic = await self._here.catalog.find(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
        return await self._locate(name, topic)

    async def _locate(self, name: TopicPartition, topic: Topic) -> LeaderLocation:
        partition = PartitionId(topic.topic_id, name.partition)
        agent_session = self._here.agent_session
        if agent_session is None:
            raise Unavailable("the agent has no session yet")
        opened = agent_session.logs.find_open(name, topic)
        if self._dependencies.single_agent or (opened is not None and opened.closed is None):
            return LeaderLocation(partition, None, opened.epoch if opened is not None else -1)
        leader = await self._here.cluster.leader_of(partition)
        if leader.session is None:
            raise NotLeader(name, node_id=None, epoch=-1, address=None)
        is_here = leader.session.session_id == agent_session.session.session_id
        return LeaderLocation(partition, None if is_here else leader.session.kafka, leader.epoch)

    async def invalidate(self, name: TopicPartition) -> None:
        """Read the topic's leases again, because a request went to the wrong agent; at most once per
        `peers.retry_s`."""
        topic_id, now = (await self._here.catalog.find(name.topic)).topic_id, self._dependencies.clock.monotonic()
        if now - self._invalidated_at.get(topic_id, -1.0) >= self._dependencies.settings.peers.retry_s:
            if len(self._invalidated_at) >= MAX_INVALIDATED:
                self._invalidated_at.clear()
            self._invalidated_at[topic_id] = now
            self._here.cluster.invalidate_leases(topic_id)


class OffsetLookup:
    def __init__(self, dependencies: Dependencies, here: LocalBroker, *, leader_lookup: LeaderLookup) -> None:
        self._dependencies = dependencies
        self._here = here
        self._leader_lookup = leader_lookup

    async def earliest(self, name: TopicPartition) -> OffsetResult:
        return _require_offset(await self._find(name, self._here.earliest, EARLIEST_TIME), name)

    async def latest(self, name: TopicPartition) -> OffsetResult:
        return _require_offset(await self._find(name, self._here.latest, LATEST_TIME), name)

    async def stable_end(self, name: TopicPartition) -> OffsetResult:
        here = partial(self._here.latest, committed=True)
        return _require_offset(await self._find(name, here, LATEST_TIME, committed=True), name)

    async def at_time(self, name: TopicPartition, timestamp_ms: int) -> OffsetResult | None:
        timestamp_ms = max(timestamp_ms, 0)  # Kafka gives negative times other meanings, and no record has one
        here = partial(self._here.at_time, timestamp_ms=timestamp_ms, committed=True)
        return await self._find(name, here, timestamp_ms, committed=True)

    async def _find(
        self,
        name: TopicPartition,
        here: Callable[[TopicPartition], Awaitable[OffsetResult | None]],
        timestamp_ms: int,
        *,
        committed: bool = False,
    ) -> OffsetResult | None:
        deadline = self._dependencies.deadline(self._dependencies.settings.records.patience_s)
        while True:
            try:
                location = await self._leader_lookup.locate(name)
                if location.address is None:
                    return await here(name)
                left_s = deadline.left_s
                return await self._dependencies.agents.offset(
                    location.address, name, timestamp_ms, committed=committed, timeout_s=left_s
                )
            except Retriable as error:
                await self._leader_lookup.invalidate(name)
                await deadline.wait_to_retry(error)


def _require_offset(result: OffsetResult | None, name: TopicPartition) -> OffsetResult:
    if result is None:
        raise Unavailable(f"another agent returned no offset; partition={name}")
    return result
