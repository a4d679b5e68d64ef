"""ClusterAdmin: the state of a cluster for operators, and their commands.

Data path   none: wire -> **cluster_admin** -> metadata store, open partitions of this agent
Owns        the state of every agent and partition as the metadata store has it now; draining agents, moving partitions
Leaves      transferring partitions to `cluster_sync`, preferred leaders to `cluster`, health checks to `health_check`

These calls are rare, so nothing is cached: every result is read from the metadata store. High watermark and tail are
known only to the leader of a partition.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from streamhouse.broker.context import BrokerContext
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.errors import Rejected, SessionLost, UnknownAgent, UnknownTopic
from streamhouse.model.cluster import Membership, PartitionState, Session, SessionState
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import NodeId, PartitionId, SessionId, TopicPartition
from streamhouse.model.topic import Topic


class AgentState(StrEnum):
    LIVE = "live"
    DRAINING = "draining"
    EXPIRED = "expired"
    RECOVERING = "recovering"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """An agent by its session. `expires_in_ms` is negative once the session has expired."""

    session: Session
    condition: AgentState
    expires_in_ms: int
    partitions: int
    shards: int
    is_responder: bool  # the agent that returns this


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """A partition by its row, and by its log if it is open here. `leader` holds the lease, `owner` is the preferred
    leader: if they differ, the partition is moving. The high watermark is None for partitions of other agents, the last
    stable offset if the log isn't open here."""

    name: TopicPartition
    state: PartitionState
    leader: Session | None
    owner: Session | None
    expires_in_ms: int | None
    log_start: int
    flushed_end: int
    high_watermark: int | None
    last_stable: int | None
    size_bytes: int
    is_local: bool

    @property
    def is_moving(self) -> bool:
        return self.leader is not None and self.owner is not None and self.leader.session_id != self.owner.session_id


class ClusterAdmin:
    def __init__(self, context: BrokerContext) -> None:
        self._dependencies = context.dependencies
        self._catalog = context.catalog
        self._cluster = context.cluster
        self._agent_session = context.session_manager.agent_session

    def __repr__(self) -> str:
        return f"<ClusterAdmin {self._cluster!r}>"

    # --- agents

    async def agents(self) -> list[AgentStatus]:
        """All sessions that have not ended, by node id, with the number of their leases."""
        topics = await self._catalog.all()
        states = await self._dependencies.metadata.partitions([topic.topic_id for topic in topics])
        roll = await self._dependencies.metadata.membership()
        shards_of = {topic.topic_id for topic in topics if topic.name == OFFSETS_TOPIC}
        led = Counter(state.holder for state in states if state.partition.topic_id not in shards_of)
        shards = Counter(state.holder for state in states if state.partition.topic_id in shards_of)
        own = self._own_session()
        return [
            AgentStatus(
                session=session,
                condition=agent_state(session, now_ms=roll.now_ms),
                expires_in_ms=session.expires_at_ms - roll.now_ms,
                partitions=led[session.session_id],
                shards=shards[session.session_id],
                is_responder=session.session_id == own,
            )
            for session in roll.sessions
        ]

    async def drain(self, node_id: int, *, draining: bool) -> None:
        """Make an agent transfer all partitions and take no new ones, or make it take partitions again.

        Raise `UnknownAgent`, and `Rejected` when no other agent would be left to take its partitions.
        """
        roll = await self._dependencies.metadata.membership()
        session = _find_live(roll, node_id)
        if draining and not session.draining:
            _require_successors(roll, session)
        try:
            await self._dependencies.metadata.drain_session(session.session_id, draining=draining)
        except SessionLost:
            raise UnknownAgent(node_id) from None
        self._cluster.refresh_soon()

    # --- partitions

    async def partitions(self, topics: Sequence[Topic], *, local: bool = False) -> list[PartitionStatus]:
        """Partitions by topic and number; with `local` only those open at this agent."""
        if local:
            topics = [topic for topic in topics if self._opened(topic)]
        sizes = await self._dependencies.metadata.sizes([topic.topic_id for topic in topics])
        statuses = await self._statuses(topics, sizes)
        return [status for status in statuses if status.is_local] if local else statuses

    async def leadership(self, topics: Sequence[Topic]) -> dict[TopicPartition, PartitionStatus]:
        """Current and preferred leaders of these topics' partitions, without sizes."""
        return {status.name: status for status in await self._statuses(topics, {})} if topics else {}

    async def partition(self, name: TopicPartition) -> PartitionStatus:
        """One partition, without its size."""
        topic = await self._topic_of(name)
        return (await self.leadership([topic]))[name]

    async def move(self, name: TopicPartition, node_id: int | None) -> None:
        """Pin a partition to an agent, as long as that agent is alive; None removes the pin. The transfer starts at
        once. Raise `UnknownAgent`, and `Rejected` for one that drains.
        """
        topic = await self._topic_of(name)
        if node_id is not None:
            self.require_eligible([node_id], await self._dependencies.metadata.membership())
        await self.pin({PartitionId(topic.topic_id, name.partition): node_id})

    async def pin(
        self, pins: Mapping[PartitionId, int | None], replicas: Mapping[PartitionId, Sequence[int]] | None = None
    ) -> None:
        """Set preferred leaders, and the lists that they are the first of; the caller has checked the agents."""
        await self._dependencies.metadata.pin_partitions(
            {partition: None if node is None else NodeId(node) for partition, node in pins.items()}, replicas
        )
        for topic_id in {partition.topic_id for partition in pins}:
            self._cluster.invalidate_leases(topic_id)

    async def membership(self) -> Membership:
        return await self._dependencies.metadata.membership()

    @staticmethod
    def require_eligible(nodes: Sequence[int], roll: Membership) -> None:
        """Raise unless all of these agents are alive and not draining."""
        for node in nodes:
            if _find_live(roll, node).draining:
                raise Rejected(f"the agent drains and takes no partitions; node={node}")

    async def _topic_of(self, name: TopicPartition) -> Topic:
        topic = await self._catalog.find(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
        return topic

    async def _statuses(self, topics: Sequence[Topic], sizes: Mapping[PartitionId, int]) -> list[PartitionStatus]:
        states = await self._dependencies.metadata.partitions([topic.topic_id for topic in topics])
        roll = await self._dependencies.metadata.membership()
        sessions = {session.session_id: session for session in roll.sessions}
        by_id = {topic.topic_id: topic for topic in topics}
        return sorted(
            (
                self._status(
                    by_id[state.partition.topic_id], state, sessions, roll.now_ms, sizes.get(state.partition, 0)
                )
                for state in states
            ),
            key=lambda status: status.name,
        )

    def _status(
        self,
        topic: Topic,
        state: PartitionState,
        sessions: Mapping[SessionId, Session],
        now_ms: int,
        size_bytes: int,
    ) -> PartitionStatus:
        leader = sessions.get(state.holder) if state.holder is not None else None
        name = TopicPartition(topic.name, state.partition.partition)
        opened = self._opened_log(topic, name)
        # Without a leader everything is flushed; the shards of groups have no records.
        is_flushed = state.holder is None or topic.name == OFFSETS_TOPIC
        return PartitionStatus(
            name=name,
            state=state,
            leader=leader,
            owner=self._cluster.preferred_leader(state.partition, state.pinned_to),
            expires_in_ms=leader.expires_at_ms - now_ms if leader is not None else None,
            log_start=opened.log_start if opened is not None else state.log_start,
            flushed_end=opened.flushed_end if opened is not None else state.flushed_end,
            high_watermark=opened.high_watermark if opened is not None else state.flushed_end if is_flushed else None,
            last_stable=opened.last_stable_offset if opened is not None else None,
            size_bytes=size_bytes + (opened.tail_bytes if opened is not None else 0),
            is_local=opened is not None,
        )

    def _own_session(self) -> SessionId | None:
        agent_session = self._agent_session()
        return agent_session.session.session_id if agent_session is not None else None

    def _opened(self, topic: Topic) -> bool:
        agent_session = self._agent_session()
        return agent_session is not None and any(
            item.partition.topic_id == topic.topic_id for item in agent_session.logs
        )

    def _opened_log(self, topic: Topic, name: TopicPartition) -> PartitionLog | None:
        agent_session = self._agent_session()
        opened = agent_session.logs.find_open(name, topic) if agent_session is not None else None
        return opened if opened is not None and opened.closed is None else None


def agent_state(session: Session, *, now_ms: int) -> AgentState:
    if session.state is not SessionState.LIVE:
        return AgentState.RECOVERING
    if session.expires_at_ms <= now_ms:
        return AgentState.EXPIRED
    return AgentState.DRAINING if session.draining else AgentState.LIVE


def _find_live(roll: Membership, node_id: int) -> Session:
    for session in roll.sessions:
        alive = agent_state(session, now_ms=roll.now_ms) in (AgentState.LIVE, AgentState.DRAINING)
        if session.node_id == node_id and alive:
            return session
    raise UnknownAgent(node_id)


def _require_successors(roll: Membership, leaving: Session) -> None:
    for session in roll.sessions:
        live = agent_state(session, now_ms=roll.now_ms) is AgentState.LIVE
        if live and session.session_id != leaving.session_id:
            return
    raise Rejected(f"no other agent would take the partitions; node={leaving.node_id}")
