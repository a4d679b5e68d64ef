"""Seats: where a partition is led, as far as this agent knows.

Data path   delivery, reading and offsets ask **seats** before each try
Owns        when leases are read again after somebody was sent to the wrong agent
Leaves      the knowledge itself to `cluster`, what is led here to `tenure`
"""

from typing import Final, NamedTuple

from streamhouse.broker.doors import Doors
from streamhouse.broker.records.here import Here
from streamhouse.errors import NotLeader, Unavailable, UnknownTopic
from streamhouse.model.lease import Address
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic

MAX_LOOKED: Final = 10_000


class Seat(NamedTuple):
    """`address` is None where this agent leads; `epoch` is -1 as long as nobody holds the lease."""

    partition: PartitionId
    address: Address | None
    epoch: int


class Seats:
    def __init__(self, doors: Doors, here: Here) -> None:
        self._doors = doors
        self._here = here
        self._looked_at: dict[TopicId, float] = {}

    async def find(self, name: TopicPartition) -> Seat:
        """Raises `UnknownTopic`, and `NotLeader` while nobody knows who leads."""
        topic = await self._here.catalogue.find(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
        return await self._seat(name, topic)

    async def _seat(self, name: TopicPartition, topic: Topic) -> Seat:
        partition = PartitionId(topic.topic_id, name.partition)
        tenure = self._here.tenure
        if tenure is None:
            raise Unavailable("the agent has no session yet")
        opened = tenure.find_open(name, topic)
        if self._doors.alone or (opened is not None and opened.closed is None):
            return Seat(partition, None, opened.epoch if opened is not None else -1)
        leader = await self._here.cluster.leader_of(partition)
        if leader.session is None:
            raise NotLeader(name, node_id=None, epoch=-1, address=None)
        is_here = leader.session.session_id == tenure.session.session_id
        return Seat(partition, None if is_here else leader.session.kafka, leader.epoch)

    async def look_again(self, name: TopicPartition) -> None:
        """Somebody was sent to the wrong agent: the topic's leases are read again, once for all who were."""
        topic_id, now = (await self._here.catalogue.find(name.topic)).topic_id, self._doors.clock.monotonic()
        if now - self._looked_at.get(topic_id, -1.0) >= self._doors.settings.peers.retry_s:
            if len(self._looked_at) >= MAX_LOOKED:
                self._looked_at.clear()
            self._looked_at[topic_id] = now
            self._here.cluster.forget_leases(topic_id)
