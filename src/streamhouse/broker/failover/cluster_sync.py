"""Cluster synchronisation: follows changes by other agents, transfers leadership, recovers dead sessions.

`MetadataChangeListener` reads topics and schemas again when other agents changed them, and closes the logs of deleted
topics. `LeadershipBalancer` transfers partitions and group shards to their preferred leaders. No data moves: the log
is flushed, its lease is released, and the next leader reads what is in the store. `DeadSessionRecovery` decides when
this agent recovers the WAL of a dead session, and how long it waits for a disk that no agent can read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from itertools import islice

from streamhouse.broker.cluster.cluster import Cluster, Leader
from streamhouse.broker.context import BrokerContext
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.groups import Groups
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.broker.session.recovery import RecoveryStats, WalSessionRecovery
from streamhouse.clock import Clock, limited
from streamhouse.errors import SessionLost, Stopping, StreamhouseError, Unavailable
from streamhouse.model.cluster import Session
from streamhouse.model.names import SessionId

log = logging.getLogger(__name__)


class MetadataChangeListener:
    def __init__(self, context: BrokerContext, *, schemas: SchemaRegistry) -> None:
        self._dependencies = context.dependencies
        self._catalog = context.catalog
        self._cluster = context.cluster
        self._current_session = context.session_manager.current
        self._schemas = schemas
        self._topics_changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<MetadataChangeListener topics_changed={self._topics_changed.is_set()}>"

    async def run(self) -> None:
        """Run until cancelled; returns at once for a single agent."""
        if not self._dependencies.single_agent:
            unsubscribe = self._dependencies.metadata.subscribe(self._schemas.on_change)
            try:
                async with asyncio.TaskGroup() as loops:
                    loops.create_task(self._cluster.run(topics_changed=self._topics_changed.set), name="roll")
                    loops.create_task(self._follow_topics(), name="topics")
            finally:
                unsubscribe()

    async def _follow_topics(self) -> None:
        while True:
            await self._topics_changed.wait()
            self._topics_changed.clear()
            try:
                await self._catalog.reload()
            except Unavailable as error:
                log.warning("topics not read again yet", extra={"why": str(error)})
                self._topics_changed.set()
                await self._dependencies.clock.sleep(
                    self._dependencies.ids.jitter(self._dependencies.settings.cluster.refresh_s)
                )
            else:
                await self._current_session().logs.drop_unknown(self._catalog.known)


class LeadershipBalancer:
    def __init__(self, dependencies: Dependencies, *, cluster: Cluster, groups: Groups) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.cluster
        self._cluster = cluster
        self._groups = groups
        self._moving = asyncio.Lock()
        self.handed_over = 0

    def __repr__(self) -> str:
        return f"<LeadershipBalancer handed_over={self.handed_over} {'moving' if self._moving.locked() else 'at rest'}>"

    async def run(self, agent_session: AgentSession) -> None:
        """Transfer partitions to their preferred leaders, until cancelled."""
        if self._dependencies.single_agent:
            return
        while True:
            try:
                await self.balance(agent_session)
            except (Unavailable, SessionLost, Stopping) as error:
                if agent_session.end_reason is not None:  # the end of the session releases all partitions
                    return
                if agent_session.is_valid:  # else other agents may take over, and the late heartbeat is logged
                    log.warning("partitions stay where they are for now", extra={"why": str(error)})
            await self._cluster.wait_for_change(self._settings.refresh_s)

    async def leave(self, agent_session: AgentSession) -> None:
        """Transfer all partitions before the session ends, so that clients find the next leaders while this agent still
        responds. Returns when none is left; raises if the stores are unavailable. The caller limits its time by
        cancelling it."""
        await self._dependencies.metadata.drain_session(agent_session.session.session_id)
        await self._cluster.refresh()
        while agent_session.end_reason is None and self._cluster.has_successors:
            await self.balance(agent_session)
            if not any(True for _ in agent_session.logs):
                return
            await self._cluster.wait_for_change(self._settings.refresh_s)

    async def balance(self, agent_session: AgentSession) -> None:
        """Transfer partitions that others should lead, and acquire the group shards that this agent should
        coordinate."""
        async with self._moving:
            await self._groups.balance()
            await self._release_unopened(agent_session)
            leaving = await self._leaving(agent_session)
            for some in _chunks(leaving, self._settings.moves_at_once):
                await self._transfer(agent_session, some)

    async def _release_unopened(self, agent_session: AgentSession) -> None:
        unopened = agent_session.logs.unopened()
        owners = await self._cluster.owners(list(unopened))
        for partition, name in unopened.items():
            owner = owners[partition]
            if owner is not None and owner.session_id != agent_session.session.session_id:
                await agent_session.logs.release_unopened(partition, name)

    async def _leaving(self, agent_session: AgentSession) -> list[tuple[PartitionLog, Session]]:
        logs = list(agent_session.logs)
        owners = await self._cluster.owners([item.partition for item in logs])
        return [
            (item, owner)
            for item in logs
            if (owner := owners[item.partition]) is not None and owner.session_id != agent_session.session.session_id
        ]

    async def _transfer(self, agent_session: AgentSession, leaving: Sequence[tuple[PartitionLog, Session]]) -> None:
        new_leaders = {item.name: self._cluster.not_leader(item.name, Leader(owner, -1)) for item, owner in leaving}
        logs = [item for item, _ in leaving]
        try:
            transferred = await agent_session.transfer(logs, new_leaders)
        finally:
            for topic_id in {item.partition.topic_id for item in logs}:
                self._cluster.invalidate_leases(topic_id)
        if transferred:
            self.handed_over += transferred
            log.info("partitions transferred", extra={"partitions": transferred})


def _chunks(
    items: Sequence[tuple[PartitionLog, Session]], size: int
) -> Iterator[Sequence[tuple[PartitionLog, Session]]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


async def within(seconds: float, work: Awaitable[None], *, clock: Clock, what: str) -> None:
    """Run best-effort work of the shutdown for at most `seconds`; errors are logged."""
    try:
        await limited(work, seconds=seconds, clock=clock)
    except TimeoutError:
        log.warning("not finished in time", extra={"what": what, "seconds": seconds})
    except StreamhouseError as error:
        log.warning("not finished", extra={"what": what, "why": str(error)})


class DeadSessionRecovery:
    def __init__(self, dependencies: Dependencies, *, cluster: Cluster) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.cluster
        self._cluster = cluster
        self._seen: dict[SessionId, float] = {}
        self.recovered = RecoveryStats()

    def __repr__(self) -> str:
        return f"<DeadSessionRecovery waiting={len(self._seen)} recovered={self.recovered.sessions}>"

    async def run(self, recovery: WalSessionRecovery) -> None:
        """Recover dead sessions, one after the other, until cancelled."""
        if self._dependencies.single_agent:
            return
        while True:
            for dead in self._due():
                await self._recover(recovery, dead)
            await self._cluster.wait_for_change(self._settings.refresh_s)

    @property
    def _retry_after_s(self) -> float:
        """How long the designated agent has priority: a part of the time reserved for taking over."""
        return min(self._settings.rescue_delay_s, self._dependencies.settings.lease.takeover_s / 4)

    def _due(self) -> list[Session]:
        """Dead sessions that this agent is designated for, and those that another agent should have recovered by
        now."""
        now = self._dependencies.clock.monotonic()
        dead = self._cluster.dead()
        self._seen = {each.session_id: self._seen.get(each.session_id, now) for each in dead}
        return [
            each
            for each in dead
            if self._cluster.owns_task(each.session_id) or now - self._seen[each.session_id] >= self._retry_after_s
        ]

    def _disk_wait_over(self, dead: Session) -> bool:
        """Whether the time has passed in which the agent could have come back with its disk, by the store's clock."""
        return self._cluster.roll.now_ms - dead.expires_at_ms >= self._settings.disk_wait_s * 1000

    async def _recover(self, recovery: WalSessionRecovery, dead: Session) -> None:
        try:
            self.recovered += await recovery.recover(dead, may_abandon=self._disk_wait_over(dead))
        except (StreamhouseError, OSError) as error:
            log.warning("session not recovered yet", extra={"session": dead.session_id, "why": str(error)})
        self._cluster.refresh_soon()
