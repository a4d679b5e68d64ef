"""SessionManager: the current session and its successor. OpenPartitions: the open log or the leader of a partition.

Data path   broker, produce, fetch -> **session_manager** -> catalog (does it exist?), cluster (who leads?), session
            (its log)
Owns        the current session, opening the next one after recovery; how long a request waits for a lease
Leaves      leases and logs to `agent_session`; preferred leaders to `cluster`; reading WALs to `recovery`
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.cluster.cluster import Cluster, Leader
from streamhouse.broker.cluster.store_identity import StoreIdentity
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.partition.sequence_gaps import SequenceGapGuard
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.broker.session.open_batcher import MAX_TOGETHER
from streamhouse.broker.session.recovery import RecoveryStats, WalSessionRecovery
from streamhouse.clock import wait_first
from streamhouse.errors import LeaseHeld, StreamhouseError, Unavailable, UnknownTopic
from streamhouse.limits import iterate_fairly
from streamhouse.model.cluster import Session
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.topic import Topic
from streamhouse.retry import retry_start
from streamhouse.stores.objects.startup_check import probe_store

MAX_FIRST_REQUESTS: Final = 10_000

LEASE_POLL_S: Final = 0.1
"""Interval of polling for a lease that is being transferred, without notifications."""


class OpenPartitions:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        cluster: Cluster,
        current_session: Callable[[], AgentSession],
    ) -> None:
        self._dependencies = dependencies
        self._catalog = catalog
        self._cluster = cluster
        self._current_session = current_session
        self._impatient: dict[PartitionId, float] = {}
        """Partitions for whose lease a request has waited without success, and when."""

    def __repr__(self) -> str:
        return f"<OpenPartitions impatient={len(self._impatient)}>"

    async def open_log(self, name: TopicPartition) -> PartitionLog:
        """The log of a partition, opened under a lease if it isn't open yet."""
        topic = await self._catalog.find(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
        if (opened := self._current_session().logs.find_open(name, topic)) is not None:
            return opened
        return await self._open_ours(name, topic)

    async def _open_ours(self, name: TopicPartition, topic: Topic) -> PartitionLog:
        """Acquire the lease of a partition that this agent should lead; waits a little for one that is being
        transferred."""
        partition = PartitionId(topic.topic_id, name.partition)
        requested_at = self._dependencies.clock.monotonic()
        while True:
            await self._cluster.require_ours(name, partition)
            try:
                opened = await self._current_session().logs.open(topic, name.partition)
            except LeaseHeld:
                left = self._retry_after_s(partition, requested_at)
                if left <= 0:
                    self._cluster.invalidate_leases(topic.topic_id)
                    raise
                await self._cluster.wait_for_change(min(left, LEASE_POLL_S))
            else:
                self._impatient.pop(partition, None)
                self._cluster.on_lease_acquired(partition, opened.epoch)
                return opened

    def _retry_after_s(self, partition: PartitionId, requested_at: float) -> float:
        """How much longer a request waits for a lease. After one has waited without success, the next ones don't
        wait."""
        wait_s, now = self._dependencies.settings.cluster.handover_wait_s, self._dependencies.clock.monotonic()
        left = requested_at + wait_s - now
        if self._dependencies.single_agent or now - self._impatient.get(partition, -math.inf) < wait_s:
            return 0.0
        if left <= 0:
            if len(self._impatient) >= MAX_FIRST_REQUESTS:
                self._impatient.clear()
            self._impatient[partition] = now
        return left

    async def open_many(self, names: Sequence[TopicPartition]) -> None:
        """Open several partitions in one step before a request uses each of them; errors are raised at that use."""
        agent_session = self._current_session()
        missing = [name for name in names if agent_session.logs.find(name) is None]
        if len(missing) <= 1:
            return
        with suppress(StreamhouseError):  # first the topics, so that all leases are acquired together
            topic_names = dict.fromkeys(name.topic for name in missing)
            topics = {name: await self._catalog.find_if_any(name) async for name in iterate_fairly(topic_names)}
            await self.leaders([topic for topic in topics.values() if topic is not None])
            missing = [name for name in missing if _has(topics[name.topic], name.partition)]
        for start in range(0, len(missing), MAX_TOGETHER):
            some = missing[start : start + MAX_TOGETHER]
            await asyncio.gather(*(self.open_log(name) for name in some), return_exceptions=True)

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[PartitionId, Leader]:
        """The leaders of these topics' partitions, or the agents that will lead them. An agent whose heartbeat is late,
        or whose session is ending, doesn't name itself: another agent may lead by now."""
        own = self._current_session()
        known = {} if self._dependencies.single_agent else await self._cluster.leaders(topics)
        nobody = Leader(own.session if self._dependencies.single_agent else None, -1)
        if not (self._dependencies.single_agent or own.may_lead):
            return {at: nobody if _is_led_by(each, own.session) else each for at, each in known.items()}
        leaders_by_partition: dict[PartitionId, Leader] = {}
        for topic in topics:
            for number in range(topic.partitions):
                partition = PartitionId(topic.topic_id, number)
                opened = own.logs.find_open(TopicPartition(topic.name, number), topic)
                mine = opened is not None and opened.closed is None
                leader = known.get(partition, nobody)
                if opened is not None and mine:
                    leader = leader._replace(session=own.session, epoch=opened.epoch)
                leaders_by_partition[partition] = leader
        return leaders_by_partition


def _has(topic: Topic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.partitions


def _is_led_by(leader: Leader, session: Session) -> bool:
    return leader.session is not None and leader.session.session_id == session.session_id


log = logging.getLogger(__name__)


class SessionManager:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        cluster: Cluster,
        reader: SegmentReader,
        budget: MemoryBudget,
        gap_guard: SequenceGapGuard,
    ) -> None:
        self._dependencies = dependencies
        self._catalog = catalog
        self._cluster = cluster
        self._reader = reader
        self._budget = budget
        self._gap_guard = gap_guard
        self._agent_session: AgentSession | None = None
        self.identity = StoreIdentity(dependencies)
        self.recovered = RecoveryStats()

    def __repr__(self) -> str:
        return f"<SessionManager {self._agent_session!r} {self.recovered!r}>"

    # --- the current session

    def agent_session(self) -> AgentSession | None:
        return self._agent_session

    def current(self) -> AgentSession:
        """The current session; raises `Unavailable` if there is none."""
        if self._agent_session is None:
            raise Unavailable("the agent has no session yet")
        return self._agent_session

    def may_acknowledge(self, opened: PartitionLog) -> bool:
        return self.current().may_acknowledge(opened)

    def on_log_starts_changed(self, starts: Mapping[PartitionId, int]) -> None:
        """Pass new log starts to those logs that are open here."""
        for opened in self._agent_session.logs if self._agent_session is not None else ():
            if (offset := starts.get(opened.partition)) is not None:
                opened.advance_log_start(offset)

    # --- opening sessions

    def recovery(self, agent_session: AgentSession) -> WalSessionRecovery:
        return WalSessionRecovery(
            self._dependencies,
            by=agent_session.session.session_id,
            reader=self._reader,
            before_removal=self.identity.cover,
        )

    async def open_first(self) -> None:
        """Open the first session; raises if the stores are unavailable for too long."""
        limit_s = self._dependencies.settings.metadata.start_wait_s
        self._agent_session = await retry_start(
            self._begin, clock=self._dependencies.clock, ids=self._dependencies.ids, limit_s=limit_s
        )

    async def reopen(self, *, stopping: asyncio.Event) -> bool:
        """Retry until a session is open; False if a stop was requested before. A session that is being opened then has
        `agent.stop_timeout_s` to finish."""
        trying = asyncio.get_running_loop().create_task(self._try_to_begin(stopping), name="begin")
        limit = asyncio.get_running_loop().create_task(self._wait_limit(stopping), name="begin-limit")
        try:
            await asyncio.wait({trying, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not trying.done():
                log.warning("no session was opened before the stop")
            return trying.result() if trying.done() else False
        finally:
            for task in (trying, limit):
                task.cancel()
            await asyncio.gather(trying, limit, return_exceptions=True)

    async def _wait_limit(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        await self._dependencies.clock.sleep(self._dependencies.settings.agent.stop_timeout_s)

    async def _try_to_begin(self, stopping: asyncio.Event) -> bool:
        flush = self._dependencies.settings.flush
        backoff = self._dependencies.backoff(first_s=flush.retry_s, max_s=flush.retry_max_s)
        while not stopping.is_set():
            try:
                # Otherwise the next session would be isolated from its start.
                if self._dependencies.puts.failing_since is not None:
                    await probe_store(self._dependencies.objects, self._dependencies.ids)
                self._agent_session = await self._begin()
            except (StreamhouseError, OSError) as error:
                log.warning("no new session yet", extra={"why": str(error), "after_s": backoff.upcoming_s})
                await wait_first(stopping.wait(), backoff.wait())
            else:
                return True
        return False

    async def _begin(self) -> AgentSession:
        await self.identity.check()
        agent_session = await AgentSession.open_session(
            self._dependencies,
            reader=self._reader,
            budget=self._budget,
            gap_guard=self._gap_guard,
            config_of=self._catalog.config_of,
            before_removal=self.identity.cover,
        )
        try:
            async with agent_session.heartbeating():
                await self.identity.begin(agent_session.session.session_id)
                await self._catalog.dynamic.set_node(agent_session.session.node_id)
                self.recovered += await self.recovery(agent_session).recover_all()
            await self._join(agent_session)
        except BaseException:
            await agent_session.discard()
            raise
        return agent_session

    async def _join(self, agent_session: AgentSession) -> None:
        self._cluster.on_session_opened(agent_session.session)
        if not self._dependencies.single_agent:
            await self._cluster.join()
