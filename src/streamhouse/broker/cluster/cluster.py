"""Cluster: the agents that are alive and the leader of each partition, as this agent knows them.

Owns        the membership list, the cache of leases, and waking those who wait for a change of either
Leaves      preferred leaders to `model.cluster`; acquiring and releasing leases to `session` and `failover`

This knowledge may be stale, and safety does not depend on it: the metadata store rejects a write by an agent that is
not the leader. While the store does not answer, the last known state stays in use.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from streamhouse.broker.cluster.departed_agents import DepartedAgents
from streamhouse.broker.dependencies import Dependencies
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
"""While no changes are pushed, because the listening connection is down."""

MAX_CHOICES: Final = 100_000


class Leader(NamedTuple):
    """Who leads a partition, or should: nobody holds it, and its first request will make this agent take it."""

    session: Session | None
    epoch: int

    @property
    def node_id(self) -> int:
        return self.session.node_id if self.session is not None else -1


class _Leases(NamedTuple):
    asked_at: float
    states: dict[PartitionId, PartitionState]


class Cluster:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.cluster
        self._own: Session | None = None
        self._roll = Membership(now_ms=0, sessions=())
        self._live: dict[SessionId, Session] = {}
        self._members: dict[NodeId, Session] = {}
        self._eligible: dict[NodeId, Session] = {}
        self._choices: dict[bytes, NodeId | None] = {}
        self._leases: dict[TopicId, _Leases] = {}
        self._loading = asyncio.Lock()
        self._news: asyncio.Future[None] | None = None
        self._asked = asyncio.Event()
        self._heard_of_leases = 0
        self._topics_changed: Callable[[], None] | None = None
        self.departed = DepartedAgents(self._settings, clock=dependencies.clock)
        self.lease_hits = 0
        self.lease_misses = 0

    def __repr__(self) -> str:
        nodes = ",".join(str(session.node_id) for session in self._live.values())
        return f"<Cluster live={nodes} members={len(self._members)} topics={len(self._leases)}>"

    # --- life

    async def run(self, *, topics_changed: Callable[[], None]) -> None:
        """Keep the roll and listen for changes, for ever."""
        self._topics_changed = topics_changed
        unsubscribe = self._dependencies.metadata.subscribe(self._heard)
        try:
            while True:
                with suppress(Unavailable):
                    await self.refresh()
                await self._rest()
        finally:
            unsubscribe()

    async def _rest(self) -> None:
        """Until something is heard, somebody's time is up, or a while has passed."""
        left_s = [(each.expires_at_ms - self._roll.now_ms) / 1000 for each in self.others()]
        due = min([self._settings.refresh_s, *(left + 0.01 for left in left_s if left > 0)])
        sleeping = asyncio.ensure_future(self._dependencies.clock.sleep(due))
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({sleeping, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            asked.cancel()
            await asyncio.gather(sleeping, asked, return_exceptions=True)
        self._asked.clear()

    def joined(self, session: Session) -> None:
        """A session of this agent began: it is alive, whatever the last roll said."""
        self._own = session
        self._called(self._roll)

    async def refresh(self) -> None:
        self._called(await self._dependencies.metadata.membership())

    def ask(self) -> None:
        """Have the roll read again soon."""
        self._asked.set()

    def _called(self, roll: Membership) -> None:
        before = self._members, self._eligible, set(self._live)
        self._roll = roll
        live = {
            each.session_id: each
            for each in roll.sessions
            if each.state is SessionState.LIVE and each.expires_at_ms > roll.now_ms
        }
        if self._own is not None:
            live.setdefault(self._own.session_id, self._own)
        self.departed.called(roll, before=self._live, live=live)
        self._live = live
        self._members = {each.node_id: each for each in live.values() if not each.draining}
        self._eligible = self._eligible_members(roll.now_ms)
        if before != (self._members, self._eligible, set(live)):
            if before[0].keys() != self._members.keys():
                log.info("members of the cluster", extra={"nodes": ",".join(map(str, sorted(self._members)))})
            self._choices.clear()
            self._announce()

    def _eligible_members(self, now_ms: int) -> dict[NodeId, Session]:
        """The members without those that clients may not have found again; all of them if nobody else is there."""
        found = {
            node: each
            for node, each in self._members.items()
            if self._is_own(each) or not self.departed.is_delayed(each, now_ms=now_ms)
        }
        return found or self._members

    def _heard(self, change: Change) -> None:
        kind = change.kind
        if kind in (ChangeKind.LEASES, ChangeKind.EVERYTHING):
            self.forget_leases(change.topic_id)
        if kind in (ChangeKind.SESSIONS, ChangeKind.EVERYTHING):
            self._asked.set()
        if kind in (ChangeKind.TOPICS, ChangeKind.SETTINGS, ChangeKind.EVERYTHING) and self._topics_changed:
            self._topics_changed()
        self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def news(self) -> "asyncio.Future[None]":
        """Done at the next change of anything here; shared, so it is waited for with a shield."""
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    async def wait_for_change(self, seconds: float) -> None:
        """Return at the next change, or after `seconds`."""
        await wait_either(self.news(), self._dependencies.clock.sleep(seconds))

    # --- who is there

    @property
    def roll(self) -> Membership:
        return self._roll

    def live(self) -> list[Session]:
        """Agents that may hold leases, by node id."""
        return sorted(self._live.values(), key=lambda each: each.node_id)

    def others(self) -> list[Session]:
        own = self._own.session_id if self._own is not None else None
        return [each for each in self._live.values() if each.session_id != own]

    def dead(self) -> list[Session]:
        """Sessions that have not ended and will not go on: their time is up, or somebody recovers them."""
        return [each for each in self._roll.sessions if each.session_id not in self._live]

    def find(self, session_id: SessionId | None) -> Session | None:
        return self._live.get(session_id) if session_id is not None else None

    @property
    def is_draining(self) -> bool:
        """Whether this agent was asked to give everything away."""
        return self._own is not None and self._own.node_id not in self._members

    @property
    def has_successors(self) -> bool:
        """Whether somebody else would take what this agent gives away."""
        own = self._own.node_id if self._own is not None else None
        return any(node != own for node in self._members)

    # --- who should lead

    def preferred_leader(self, partition: PartitionId, pinned_to: NodeId | None = None) -> Session | None:
        """The agent that should lead the partition; None when nobody may."""
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

    def does(self, chore: str) -> bool:
        """Whether a chore that one agent is enough for is this agent's."""
        return self._dependencies.single_agent or self._is_own(self._choice(chore.encode()))

    def _is_own(self, session: Session | None) -> bool:
        return session is not None and self._own is not None and session.session_id == self._own.session_id

    # --- who leads

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[PartitionId, Leader]:
        """Who leads the partitions of these topics, or should."""
        states = await self._states([topic.topic_id for topic in topics])
        wanted = (PartitionId(topic.topic_id, number) for topic in topics for number in range(topic.partitions))
        return {partition: self._leader(partition, states.get(partition)) for partition in wanted}

    async def leader_of(self, partition: PartitionId) -> Leader:
        states = await self._states([partition.topic_id])
        return self._leader(partition, states.get(partition))

    async def owners(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, Session | None]:
        """Who should lead these partitions, wherever their leases are."""
        states = await self._states(list(dict.fromkeys(partition.topic_id for partition in partitions)))
        pins = {partition: state.pinned_to for partition, state in states.items()}
        return {partition: self.preferred_leader(partition, pins.get(partition)) for partition in partitions}

    async def require_ours(self, name: TopicPartition, partition: PartitionId) -> None:
        """Raise `NotLeader`, which says who to ask, unless this agent should lead the partition."""
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
        """Whether this agent leads the partition, or will; chores of a partition are its leader's."""
        return self._dependencies.single_agent or self._is_own(self._leader(state.partition, state).session)

    def _leader(self, partition: PartitionId, state: PartitionState | None) -> Leader:
        if state is not None and (holder := self.find(state.holder)) is not None:
            return Leader(holder, state.epoch)
        return Leader(self.preferred_leader(partition, state.pinned_to if state is not None else None), -1)

    def took(self, partition: PartitionId, epoch: Epoch) -> None:
        """This agent leads the partition now."""
        known = self._leases.get(partition.topic_id)
        if known is not None and self._own is not None and (state := known.states.get(partition)) is not None:
            known.states[partition] = replace(state, holder=self._own.session_id, epoch=epoch)

    def forget_leases(self, topic_id: TopicId | None) -> None:
        """What is known of a topic's leases, or of all, is old."""
        self._heard_of_leases += 1
        if topic_id is None:
            self._leases.clear()
        else:
            self._leases.pop(topic_id, None)

    async def _states(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, PartitionState]:
        """All who want it wait for one reading. What is known goes on being told while the store is away."""
        if self._missing(topic_ids):
            async with self._loading:
                if missing := self._missing(topic_ids):
                    self.lease_misses += 1
                    await self._load(missing)
        else:
            self.lease_hits += 1
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
            if (known := self._leases.get(topic_id)) is None or now - known.asked_at >= fresh_s
        ]

    async def _load(self, topic_ids: Sequence[TopicId]) -> None:
        asked_at, heard = self._dependencies.clock.monotonic(), self._heard_of_leases
        try:
            states = await self._dependencies.metadata.partitions(topic_ids)
        except Unavailable:
            return
        # An answer that was overtaken by news is told to those who wait, and asked for again by the next.
        if heard != self._heard_of_leases:
            asked_at -= LEASES_FRESH_S
        for topic_id in topic_ids:
            mine = {state.partition: state for state in states if state.partition.topic_id == topic_id}
            self._leases[topic_id] = _Leases(asked_at, mine)


async def wait_either(news: "asyncio.Future[Any]", other: Awaitable[None]) -> None:
    """Return when one of them is done; the future is left alone."""
    waiting = asyncio.ensure_future(other)
    try:
        await asyncio.wait({news, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
