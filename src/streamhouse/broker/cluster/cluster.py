"""Cluster: the agents that are alive and the leader of each partition, as this agent knows them.

Owns        the membership, the cache of leases, and waking waiters at a change of either
Leaves      preferred leaders to `model.cluster`; acquiring and releasing leases to `session` and `failover`

This knowledge may be stale, and safety does not depend on it: the metadata store rejects a write by an agent that is
not the leader. While the store does not answer, the last known state stays in use.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from streamhouse.broker.cluster.departed_agents import MAX_REMEMBERED, REMEMBERED_S, DepartedAgents
from streamhouse.broker.dependencies import Dependencies
from streamhouse.clock import wait_first
from streamhouse.errors import NotLeader, Unavailable
from streamhouse.model.cluster import (
    Change,
    ChangeKind,
    Membership,
    PartitionState,
    Session,
    SessionState,
    partition_key,
    preferred_node,
)
from streamhouse.model.names import Epoch, NodeId, PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic

log = logging.getLogger(__name__)

LEASES_FRESH_S: Final = 30.0
LEASES_FRESH_DEAF_S: Final = 1.0
"""Maximum age of the cache while the connection for notifications is down."""

MAX_CHOICES: Final = 100_000
DEPARTURES_MS: Final = round(REMEMBERED_S * 1000)


class Leader(NamedTuple):
    """The leader of a partition; without a lease (epoch -1), the agent that will take it with the first request.
    `replicas` are the agents that the partition was assigned to, as the request had them."""

    session: Session | None
    epoch: int
    replicas: tuple[NodeId, ...] = ()

    @property
    def node_id(self) -> int:
        return self.session.node_id if self.session is not None else -1


class _Leases(NamedTuple):
    requested_at: float
    states: dict[PartitionId, PartitionState]


class Cluster:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.cluster
        self._own: Session | None = None
        self._membership = Membership(now_ms=0, sessions=())
        self._live: dict[SessionId, Session] = {}
        self._members: dict[NodeId, Session] = {}
        self._eligible: dict[NodeId, Session] = {}
        self._choices: dict[bytes, NodeId | None] = {}
        self._leases: dict[TopicId, _Leases] = {}
        self._loading = asyncio.Lock()
        self._next_change: asyncio.Future[None] | None = None
        self._refresh_requested = asyncio.Event()
        self._lease_changes = 0
        self._topics_changed: Callable[[], None] | None = None
        life_s = dependencies.settings.lease.life_ms / 1000
        self.departed = DepartedAgents(self._settings, life_s=life_s, clock=dependencies.clock)

    def __repr__(self) -> str:
        nodes = ",".join(str(session.node_id) for session in self._live.values())
        return f"<Cluster live={nodes} members={len(self._members)} topics={len(self._leases)}>"

    # --- lifecycle

    async def run(self, *, topics_changed: Callable[[], None]) -> None:
        """Keep the membership current and listen for changes, until cancelled."""
        self._topics_changed = topics_changed
        unsubscribe = self._dependencies.metadata.subscribe(self._on_change)
        try:
            while True:
                with suppress(Unavailable):
                    await self.refresh()
                await self._wait_for_refresh()
        finally:
            unsubscribe()

    async def _wait_for_refresh(self) -> None:
        """Wait for a change, the expiry of a session, or the refresh interval."""
        left_s = [(each.expires_at_ms - self._membership.now_ms) / 1000 for each in self.others()]
        due = min([self._settings.refresh_s, *(left + 0.01 for left in left_s if left > 0)])
        await wait_first(self._dependencies.clock.sleep(due), self._refresh_requested.wait())
        self._refresh_requested.clear()

    def on_session_opened(self, session: Session) -> None:
        """A session of this agent was opened: it counts as alive even if the last membership lacks it."""
        self._own = session
        self._apply(self._membership)

    async def join(self) -> None:
        """Learn who is there, and who departed before this agent was there to notice."""
        await self.refresh()
        departures = await self._dependencies.metadata.departures(DEPARTURES_MS, MAX_REMEMBERED)
        self.departed.learn(departures, live=self._live.values())

    async def refresh(self) -> None:
        self._apply(await self._dependencies.metadata.membership())

    def refresh_soon(self) -> None:
        """Request an early refresh of the membership."""
        self._refresh_requested.set()

    def _apply(self, roll: Membership) -> None:
        before = self._members, self._eligible, set(self._live)
        self._membership = roll
        live = {
            each.session_id: each
            for each in roll.sessions
            if each.state is SessionState.LIVE and each.expires_at_ms > roll.now_ms
        }
        if self._own is not None:
            live.setdefault(self._own.session_id, self._own)
        self.departed.update(roll, before=self._live, live=live)
        self._live = live
        self._members = {each.node_id: each for each in live.values() if not each.draining}
        self._eligible = self._eligible_members(roll.now_ms)
        if before != (self._members, self._eligible, set(live)):
            if before[0].keys() != self._members.keys():
                log.info("members of the cluster", extra={"nodes": ",".join(map(str, sorted(self._members)))})
            self._choices.clear()
            self._notify()

    def _eligible_members(self, now_ms: int) -> dict[NodeId, Session]:
        """The members that may be preferred leaders: all but those that came back a moment ago; if none is left,
        all."""
        eligible = {
            node: each
            for node, each in self._members.items()
            if self._is_own(each) or not self.departed.is_delayed(each, now_ms=now_ms)
        }
        return eligible or self._members

    def _on_change(self, change: Change) -> None:
        kind = change.kind
        if kind in (ChangeKind.LEASES, ChangeKind.EVERYTHING):
            self.invalidate_leases(change.topic_id)
        if kind in (ChangeKind.SESSIONS, ChangeKind.EVERYTHING):
            self._refresh_requested.set()
        if kind in (ChangeKind.TOPICS, ChangeKind.SETTINGS, ChangeKind.EVERYTHING) and self._topics_changed:
            self._topics_changed()
        self._notify()

    def _notify(self) -> None:
        news, self._next_change = self._next_change, None
        if news is not None and not news.done():
            news.set_result(None)

    def next_change(self) -> "asyncio.Future[None]":
        """A future that is done at the next change; shared, so await it with a shield."""
        if self._next_change is None or self._next_change.done():
            self._next_change = asyncio.get_running_loop().create_future()
        return self._next_change

    async def wait_for_change(self, seconds: float) -> None:
        """Return at the next change, or after `seconds`."""
        await wait_first(self.next_change(), self._dependencies.clock.sleep(seconds))

    # --- membership

    @property
    def roll(self) -> Membership:
        return self._membership

    def live(self) -> list[Session]:
        """Live agents by node id."""
        return sorted(self._live.values(), key=lambda each: each.node_id)

    def others(self) -> list[Session]:
        own = self._own.session_id if self._own is not None else None
        return [each for each in self._live.values() if each.session_id != own]

    def dead(self) -> list[Session]:
        """Sessions that are expired or being recovered, and have not ended."""
        return [each for each in self._membership.sessions if each.session_id not in self._live]

    def find(self, session_id: SessionId | None) -> Session | None:
        return self._live.get(session_id) if session_id is not None else None

    @property
    def is_draining(self) -> bool:
        """Whether this agent is draining."""
        return self._own is not None and self._own.node_id not in self._members

    @property
    def has_successors(self) -> bool:
        """Whether another agent can take this agent's partitions."""
        own = self._own.node_id if self._own is not None else None
        return any(node != own for node in self._members)

    # --- preferred leaders

    def preferred_leader(self, partition: PartitionId, pinned_to: NodeId | None = None) -> Session | None:
        """The agent that should lead the partition; None if there is none."""
        if pinned_to is not None and (pinned := self._eligible.get(pinned_to)) is not None:
            return pinned
        return self._choice(partition_key(partition))

    def _choice(self, key: bytes) -> Session | None:
        if key not in self._choices:
            if len(self._choices) >= MAX_CHOICES:
                self._choices.clear()
            self._choices[key] = preferred_node(key, list(self._eligible))
        node = self._choices[key]
        return self._eligible[node] if node is not None else None

    def is_ours(self, partition: PartitionId, pinned_to: NodeId | None = None) -> bool:
        return self._is_own(self.preferred_leader(partition, pinned_to))

    def owns_task(self, chore: str) -> bool:
        """Whether this agent is the one that runs a task of the whole cluster."""
        return self._dependencies.single_agent or self._is_own(self._choice(chore.encode()))

    def _is_own(self, session: Session | None) -> bool:
        return session is not None and self._own is not None and session.session_id == self._own.session_id

    # --- leaders

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[PartitionId, Leader]:
        """The leaders of these topics' partitions, or else their preferred leaders."""
        states = await self._states([topic.topic_id for topic in topics])
        partitions = (PartitionId(topic.topic_id, number) for topic in topics for number in range(topic.partitions))
        return {partition: self._leader(partition, states.get(partition)) for partition in partitions}

    async def leader_of(self, partition: PartitionId) -> Leader:
        states = await self._states([partition.topic_id])
        return self._leader(partition, states.get(partition))

    async def owners(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, Session | None]:
        """The preferred leaders of these partitions, regardless of who holds their leases."""
        states = await self._states(list(dict.fromkeys(partition.topic_id for partition in partitions)))
        pins = {partition: state.pinned_to for partition, state in states.items()}
        return {partition: self.preferred_leader(partition, pins.get(partition)) for partition in partitions}

    async def require_ours(self, name: TopicPartition, partition: PartitionId) -> None:
        """Raise `NotLeader` with the leader's address unless this agent should lead the partition."""
        if self._dependencies.single_agent:
            return
        state = (await self._states([partition.topic_id])).get(partition)
        if not self.is_ours(partition, state.pinned_to if state is not None else None):
            raise self.not_leader(name, self._leader(partition, state))

    def not_leader(self, name: TopicPartition, leader: Leader) -> NotLeader:
        session = leader.session
        if session is None or self._is_own(session):
            return NotLeader(name, node_id=None, epoch=-1, address=None)
        return NotLeader(name, node_id=session.node_id, epoch=leader.epoch, address=session.kafka)

    def leads(self, state: PartitionState) -> bool:
        """Whether this agent leads the partition, or will lead it; the leader runs the partition's maintenance."""
        return self._dependencies.single_agent or self._is_own(self._leader(state.partition, state).session)

    def _leader(self, partition: PartitionId, state: PartitionState | None) -> Leader:
        if state is not None and (holder := self.find(state.holder)) is not None:
            return Leader(holder, state.epoch, state.replicas)
        if state is None:
            return Leader(self.preferred_leader(partition), -1)
        return Leader(self.preferred_leader(partition, state.pinned_to), -1, state.replicas)

    def on_lease_acquired(self, partition: PartitionId, epoch: Epoch) -> None:
        """This agent has acquired the partition's lease."""
        known = self._leases.get(partition.topic_id)
        if known is not None and self._own is not None and (state := known.states.get(partition)) is not None:
            known.states[partition] = replace(state, holder=self._own.session_id, epoch=epoch)

    def invalidate_leases(self, topic_id: TopicId | None) -> None:
        """Invalidate the cached leases of a topic, or of all topics."""
        self._lease_changes += 1
        if topic_id is None:
            self._leases.clear()
        else:
            self._leases.pop(topic_id, None)

    async def _states(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, PartitionState]:
        """Lease states of topics; concurrent callers share a read. While the store is unavailable, the cache is
        served."""
        if self._missing(topic_ids):
            async with self._loading:
                if missing := self._missing(topic_ids):
                    await self._load(missing)
        return {
            partition: state
            for topic_id in topic_ids
            if (known := self._leases.get(topic_id)) is not None
            for partition, state in known.states.items()
        }

    def _missing(self, topic_ids: Sequence[TopicId]) -> list[TopicId]:
        metadata, now = self._dependencies.metadata, self._dependencies.clock.monotonic()
        fresh_s = LEASES_FRESH_S if metadata.is_listening else LEASES_FRESH_DEAF_S
        return [
            topic_id
            for topic_id in topic_ids
            if (known := self._leases.get(topic_id)) is None or now - known.requested_at >= fresh_s
        ]

    async def _load(self, topic_ids: Sequence[TopicId]) -> None:
        requested_at, changes_before = self._dependencies.clock.monotonic(), self._lease_changes
        try:
            states = await self._dependencies.metadata.partitions(topic_ids)
        except Unavailable:
            return
        # After a change during the read, the result is returned to the waiters, but not cached.
        if changes_before != self._lease_changes:
            requested_at -= LEASES_FRESH_S
        for topic_id in topic_ids:
            mine = {state.partition: state for state in states if state.partition.topic_id == topic_id}
            self._leases[topic_id] = _Leases(requested_at, mine)
