"""Churn: a topic that is created, used, deleted and created again under the same name.

Owns        that life, one step after the other
Leaves      requests to `clients`, the verdict to `history`
"""

import asyncio

from streamhouse.broker.broker import Broker
from streamhouse.errors import Rejected, StreamhouseError, TopicExists, UnknownTopic
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import TopicPartition

from .clients import PATIENCE_S, Client, simply
from .network import Connection, Lost
from .world import World

TOPIC = "fleeting"
CONFIG = {"message.timestamp.after.max.ms": str(10**12), "retention.ms": "-1"}


class Churner(Client):
    def __init__(self, world: World) -> None:
        super().__init__(world, "churner")
        self._partition = TopicPartition(TOPIC, 0)

    async def run(self) -> None:
        while not self.world.is_quiet:
            try:
                await self._live_once()
            except (StreamhouseError, Lost):
                await self.pause(0.1)

    async def _live_once(self) -> None:
        await self._create()
        for _ in range(self.chance.randrange(6)):
            await self._use()
            await self.pause(0.05)
        await self.call(simply(lambda broker: self._delete(broker)))
        self.loop.note("topic deleted")

    async def _create(self) -> None:
        try:
            await self.call(simply(lambda broker: broker.create_topic(TOPIC, partitions=2, overrides=CONFIG)))
        except TopicExists:
            return

    async def _use(self) -> None:
        """Some appends, of which nobody waits for the last, and a read."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                connection = await self.leader(self._partition)
        except TimeoutError:  # a deletion that nobody answered may have happened since the topic was there
            raise Lost from None
        responses = [connection.send(self.appending(self.make(self._partition))) for _ in range(3)]
        if (agent := self.world.any_agent(self.chance)) is not None:
            other = TopicPartition(TOPIC, 1)
            Connection(self.loop, agent, self.chance).send(self.appending(self.make(other)))
        for response in responses[: self.chance.randint(1, 3)]:
            try:
                await self.answer(connection, response)
            except UnknownTopic:
                self.routes.forget(self._partition)
                raise
            except Rejected as error:
                self.history.violated(f"a good batch was refused for good; {error!r}")
        await self.fetch([PartitionFetch(self._partition, 0, 10_000)], max_bytes=10_000, min_bytes=1, max_wait_s=0.1)

    @staticmethod
    async def _delete(broker: Broker) -> None:
        await broker.delete_topic(await broker.topic(TOPIC))
