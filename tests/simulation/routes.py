"""Routes: where a client of a team believes that partitions are led, and its connections to agents.

Owns        what Metadata and gap_guard said, as Kafka's clients remember it: never an older epoch than one known
Leaves      what is asked, and what an answer means, to `clients`

A client learns from anybody who listens. Where nobody leads, it asks again.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from streamhouse.broker.broker import Broker
from streamhouse.broker.cluster.cluster import Leader
from streamhouse.errors import NotLeader, StreamhouseError
from streamhouse.model.names import PartitionId, TopicPartition

from .network import Connection, Finish, Lost
from .world import World

T = TypeVar("T")

LOOKUP_S = 1.0
BACKOFF_S = (0.02, 0.3)


class Route(NamedTuple):
    port: int
    epoch: int


class Routes:
    def __init__(self, world: World, chance: random.Random, *, speaks_kafka: bool = False) -> None:
        self._speaks_kafka = speaks_kafka
        self._world = world
        self._chance = chance
        self._known: dict[TopicPartition, Route] = {}
        self._newest: dict[TopicPartition, int] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._connections: dict[int, Connection] = {}

    async def to(self, name: TopicPartition) -> Connection:
        """A connection to whoever is believed to lead the partition."""
        while True:
            route = self._known.get(name)
            if route is not None:
                connection = self.connect(route.port)
                if connection is not None:
                    return connection
                self.forget(name)
            if (left_s := self._not_before.get(name, 0.0) - self._world.loop.time()) > 0:
                await asyncio.sleep(left_s)
            if not await self._learn(name):
                self.forget(name)

    def epoch(self, name: TopicPartition) -> int:
        """The newest epoch known of a partition, if it is that of the route; else -1."""
        route = self._known.get(name)
        return route.epoch if route is not None and route.epoch == self._newest.get(name, -1) else -1

    def connect(self, port: int) -> Connection | None:
        """The open connection to a port, or a new one if somebody listens there."""
        result = self._connections.get(port)
        if result is None or result.is_lost:
            agent = self._world.at(port)
            if agent is None:
                return None
            result = self._connections[port] = self._world.dial(agent, self._chance, speaks_kafka=self._speaks_kafka)
        return result

    def forget(self, name: TopicPartition) -> None:
        """Ask again, after a moment, as clients do."""
        self._known.pop(name, None)
        self._not_before[name] = self._world.loop.time() + self._chance.uniform(*BACKOFF_S)

    def told(self, name: TopicPartition, error: Exception) -> None:
        """A request about the partition failed: a refusal may say who leads; else it is looked up again."""
        if isinstance(error, NotLeader) and error.address is not None:
            self._believe(name, error.address[1], error.epoch)
        else:
            self.forget(name)

    def _believe(self, name: TopicPartition, port: int, epoch: int) -> bool:
        if 0 <= epoch < self._newest.get(name, -1):
            self.forget(name)
            return False
        self._known[name] = Route(port, epoch)
        self._newest[name] = max(epoch, self._newest.get(name, -1))
        return True

    async def coordinator(self, group_id: str) -> Connection:
        """A connection to whoever is said to coordinate a group."""
        while True:
            session = await self._ask(lambda broker: broker.groups.coordinator_of(group_id))
            connection = self.connect(session.kafka.port) if session is not None else None
            if connection is not None:
                return connection
            await asyncio.sleep(self._chance.uniform(*BACKOFF_S))

    async def _learn(self, name: TopicPartition) -> bool:
        """Ask somebody who leads."""
        leader = await self._ask(lambda broker: _leader(broker, name))
        if leader is None or leader.session is None:
            return False
        return self._believe(name, leader.session.kafka.port, leader.epoch)

    async def _ask(self, ask: Callable[[Broker], Coroutine[Any, Any, T]]) -> T | None:
        """Somebody's answer, if there is one soon."""
        agent = self._world.any_agent(self._chance)
        if agent is None or (connection := self.connect(agent.address.port)) is None:
            return None

        async def begin(broker: Broker) -> Finish[T]:
            return lambda: ask(broker)

        try:
            async with asyncio.timeout(LOOKUP_S):
                return await asyncio.shield(connection.send(begin))
        except TimeoutError:
            connection.close()
        except (StreamhouseError, Lost):
            pass
        return None


async def _leader(broker: Broker, name: TopicPartition) -> Leader:
    topic = await broker.topic(name.topic)
    return (await broker.leaders([topic]))[PartitionId(topic.topic_id, name.partition)]
