"""Here: what this room asks of the agent that it is in.

Owns        nothing; a narrow view of `Broker`, so that the room can be tested, and read, without all of it
Leaves      everything to `broker.broker`

Seats: where a partition is led, as far as this agent knows.

Data path   delivery, reading and offsets ask **seats** before each try
Owns        when leases are read again after somebody was sent to the wrong agent
Leaves      the knowledge itself to `cluster`, what is led here to `tenure`

Offsets: where a partition's log begins and ends, and what stands at a time, asked at any agent.

Data path   HTTP, gRPC -> **offsets** -> broker.offsets here, or the leader over Doors.peers
Owns        asking again while the leader is on the move
Leaves      the answers to `broker.reading.offsets`
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from streamhouse.broker.catalog.topic_catalog import Catalogue
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.dependencies import EARLIEST_TIME, LATEST_TIME, Doors
from streamhouse.broker.fetch.fetch import Fetched, Wanted
from streamhouse.broker.fetch.list_offsets import FoundOffset
from streamhouse.broker.groups import Groups
from streamhouse.broker.partition.log import Placed
from streamhouse.broker.session.agent_session import Tenure
from streamhouse.config.fields import Address
from streamhouse.errors import NotLeader, Retriable, Unavailable, UnknownTopic
from streamhouse.model.cluster import Session
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.model.topic import Topic


class Here(Protocol):
    """Every call answers for what this agent leads or coordinates, and raises where another one does."""

    catalogue: Catalogue
    cluster: Cluster
    groups: Groups

    @property
    def tenure(self) -> Tenure | None: ...

    def agents(self) -> Sequence[Session]: ...

    async def topic(self, name: str, *, create: bool = False) -> Topic: ...

    def append(self, name: TopicPartition, data: memoryview) -> Awaitable[Placed]: ...

    async def acknowledge(self, placed: Placed) -> None: ...

    async def allocate_producer_id(self) -> int: ...

    async def fetch(
        self, wanted: Sequence[Wanted], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[Fetched]: ...

    async def earliest(self, name: TopicPartition) -> FoundOffset: ...

    async def latest(self, name: TopicPartition, *, committed: bool = False) -> FoundOffset: ...

    async def at_time(
        self, name: TopicPartition, timestamp_ms: int, *, committed: bool = False
    ) -> FoundOffset | None: ...


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


class Offsets:
    def __init__(self, doors: Doors, here: Here, *, seats: Seats) -> None:
        self._doors = doors
        self._here = here
        self._seats = seats

    async def earliest(self, name: TopicPartition) -> FoundOffset:
        return _must(await self._find(name, self._here.earliest, EARLIEST_TIME), name)

    async def latest(self, name: TopicPartition) -> FoundOffset:
        return _must(await self._find(name, self._here.latest, LATEST_TIME), name)

    async def stable_end(self, name: TopicPartition) -> FoundOffset:
        here = partial(self._here.latest, committed=True)
        return _must(await self._find(name, here, LATEST_TIME, committed=True), name)

    async def at_time(self, name: TopicPartition, timestamp_ms: int) -> FoundOffset | None:
        timestamp_ms = max(timestamp_ms, 0)  # negative times have other meanings to Kafka, and no record has one
        here = partial(self._here.at_time, timestamp_ms=timestamp_ms, committed=True)
        return await self._find(name, here, timestamp_ms, committed=True)

    async def _find(
        self,
        name: TopicPartition,
        here: Callable[[TopicPartition], Awaitable[FoundOffset | None]],
        timestamp_ms: int,
        *,
        committed: bool = False,
    ) -> FoundOffset | None:
        patience = self._doors.patience(self._doors.settings.records.patience_s)
        while True:
            try:
                seat = await self._seats.find(name)
                if seat.address is None:
                    return await here(name)
                left_s = patience.left_s
                return await self._doors.peers.offset(
                    seat.address, name, timestamp_ms, committed=committed, timeout_s=left_s
                )
            except Retriable as error:
                await self._seats.look_again(name)
                await patience.pause(error)


def _must(found: FoundOffset | None, name: TopicPartition) -> FoundOffset:
    if found is None:
        raise Unavailable(f"another agent doesn't know the ends of a log; partition={name}")
    return found
