"""Routes: where a client of a team believes that partitions are led, and its connections to agents.

Owns        what Metadata and refusals said, as Kafka's clients remember it: never an older epoch than one known
Leaves      what is asked, and what an answer means, to `clients`

A client learns from anybody who listens. Where nobody leads, it asks again.
"""

import asyncio
import random
from typing import NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.broker.cluster import Leader
from streamhouse.errors import NotLeader, StreamhouseError
from streamhouse.model.names import PartitionId, TopicPartition

from .network import Begin, Connection, Finish, Lost
from .world import World

LOOKUP_S = 1.0


class Route(NamedTuple):
    port: int
    epoch: int


class Routes:
    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._known: dict[TopicPartition, Route] = {}
        self._newest: dict[TopicPartition, int] = {}
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
            if not await self._learn(name):
                await asyncio.sleep(self._chance.uniform(0.02, 0.2))

    def epoch(self, name: TopicPartition) -> int:
        """The newest epoch known of a partition, if it is that of the route; else -1."""
        route = self._known.get(name)
        return route.epoch if route is not None and route.epoch == self._newest.get(name, -1) else -1

    def connect(self, port: int) -> Connection | None:
        """The open connection to a port, or a new one if somebody listens there."""
        found = self._connections.get(port)
        if found is None or found.is_lost:
            agent = self._world.at(port)
            if agent is None:
                return None
            found = self._connections[port] = Connection(self._world.loop, agent, self._chance)
        return found

    def forget(self, name: TopicPartition) -> None:
        self._known.pop(name, None)

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

    async def _learn(self, name: TopicPartition) -> bool:
        """Ask somebody who leads."""
        agent = self._world.any_agent(self._chance)
        if agent is None or (connection := self.connect(agent.address.port)) is None:
            return False
        try:
            async with asyncio.timeout(LOOKUP_S):
                leader = await asyncio.shield(connection.send(_asking(name)))
        except TimeoutError:
            connection.close()
            return False
        except (StreamhouseError, Lost):
            return False
        return leader.session is not None and self._believe(name, leader.session.kafka.port, leader.epoch)


def _asking(name: TopicPartition) -> Begin[Leader]:
    async def ask(broker: Broker) -> Leader:
        topic = await broker.topic(name.topic)
        return (await broker.leaders([topic]))[PartitionId(topic.topic_id, name.partition)]

    async def begin(broker: Broker) -> Finish[Leader]:
        async def finish() -> Leader:
            return await ask(broker)

        return finish

    return begin
