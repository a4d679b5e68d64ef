"""Leading: the logs of partitions that this agent leads, opened when they are first wanted, and who leads the others.

Data path   broker, appending, fetch -> **leading** -> catalogue (is it there?), cluster (is it ours?), tenure (its log)
Owns        which partitions are opened here, how long a request waits for a lease that is on its way
Leaves      leases and snapshots to `tenure`, who should lead and who does elsewhere to `cluster`
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.cluster.cluster import Cluster, Leader
from streamhouse.broker.doors import Doors
from streamhouse.broker.log import PartitionLog
from streamhouse.broker.opening import MAX_TOGETHER
from streamhouse.broker.tenure import Tenure
from streamhouse.broker.turns import in_turns
from streamhouse.errors import LeaseHeld, StreamhouseError, UnknownTopic
from streamhouse.model.lease import Session
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.topic import Topic

MAX_IMPATIENT: Final = 10_000

LEASE_LOOK_S: Final = 0.1
"""How often a lease that is on its way is asked for, where its coming isn't heard."""


class Leading:
    def __init__(self, doors: Doors, *, catalogue: Catalogue, cluster: Cluster, tenancy: Callable[[], Tenure]) -> None:
        self._doors = doors
        self._catalogue = catalogue
        self._cluster = cluster
        self._tenancy = tenancy
        self._impatient: dict[PartitionId, float] = {}
        """Partitions whose lease was waited for in vain, and when."""

    def __repr__(self) -> str:
        return f"<Leading impatient={len(self._impatient)}>"

    async def open_log(self, name: TopicPartition) -> PartitionLog:
        """The log of a partition that exists; opened under a lease when it isn't open yet."""
        topic = await self._catalogue.find(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
        if (found := self._tenancy().find_open(name, topic)) is not None:
            return found
        return await self._open_ours(name, topic)

    async def _open_ours(self, name: TopicPartition, topic: Topic) -> PartitionLog:
        """Take the lease of a partition that this agent should lead; waits a little for one that is on its way."""
        partition = PartitionId(topic.topic_id, name.partition)
        asked = self._doors.clock.monotonic()
        while True:
            await self._cluster.require_ours(name, partition)
            try:
                opened = await self._tenancy().open_log(topic, name.partition)
            except LeaseHeld:
                left = self._patience_s(partition, asked)
                if left <= 0:
                    self._cluster.forget_leases(topic.topic_id)
                    raise
                await self._cluster.wait_news(min(left, LEASE_LOOK_S))
            else:
                self._impatient.pop(partition, None)
                self._cluster.took(partition, opened.epoch)
                return opened

    def _patience_s(self, partition: PartitionId, asked: float) -> float:
        """How much longer a request waits for a lease. When one has waited in vain, those behind it don't."""
        wait_s, now = self._doors.settings.cluster.handover_wait_s, self._doors.clock.monotonic()
        left = asked + wait_s - now
        if self._doors.alone or now - self._impatient.get(partition, -math.inf) < wait_s:
            return 0.0
        if left <= 0:
            if len(self._impatient) >= MAX_IMPATIENT:
                self._impatient.clear()
            self._impatient[partition] = now
        return left

    async def open_ahead(self, names: Sequence[TopicPartition]) -> None:
        """Open together what a request is about to ask for one by one. What can't be opened says so when it is."""
        tenure = self._tenancy()
        missing = [name for name in names if tenure.find_log(name) is None]
        if len(missing) <= 1:
            return
        with suppress(StreamhouseError):  # first what all of them need, so that they come to their leases together
            asked = dict.fromkeys(name.topic for name in missing)
            found = {name: await self._catalogue.find_if_any(name) async for name in in_turns(asked)}
            await self.leaders([topic for topic in found.values() if topic is not None])
            missing = [name for name in missing if _has(found[name.topic], name.partition)]
        for start in range(0, len(missing), MAX_TOGETHER):
            some = missing[start : start + MAX_TOGETHER]
            await asyncio.gather(*(self.open_log(name) for name in some), return_exceptions=True)

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[PartitionId, Leader]:
        """Who leads the partitions of these topics, or will when the first request comes.

        An agent whose session is late for its heartbeat, or is ending, doesn't name itself: another one may lead by
        now, and clients that ask elsewhere find it.
        """
        own = self._tenancy()
        known = {} if self._doors.alone else await self._cluster.leaders(topics)
        nobody = Leader(own.session if self._doors.alone else None, -1)
        if not (self._doors.alone or own.may_lead):
            return {at: nobody if _is_led_by(each, own.session) else each for at, each in known.items()}
        found: dict[PartitionId, Leader] = {}
        for topic in topics:
            for number in range(topic.partitions):
                partition = PartitionId(topic.topic_id, number)
                opened = own.find_open(TopicPartition(topic.name, number), topic)
                mine = opened is not None and opened.closed is None
                found[partition] = (
                    Leader(own.session, opened.epoch) if opened is not None and mine else known.get(partition, nobody)
                )
        return found


def _has(topic: Topic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.partitions


def _is_led_by(leader: Leader, session: Session) -> bool:
    return leader.session is not None and leader.session.session_id == session.session_id
