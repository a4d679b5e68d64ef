"""Producers: one that sends each batch once, and an idempotent one that retries until it knows.

Owns        sequences, windows of batches in flight, retries, duplicates that arrive late
Leaves      requests to `clients`, the verdict to `history`
"""

from collections.abc import Sequence

from streamhouse.errors import DuplicateSequence, OutOfOrderSequence, StreamhouseError
from streamhouse.model.names import TopicPartition

from .clients import Client, simply
from .history import Sent
from .network import Lost
from .world import World

WINDOW = 5


class PlainProducer(Client):
    speaks_kafka = True
    """Every try is a batch of its own, so that each is stored once at most."""

    def __init__(self, world: World, name: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(world, name)
        self._partitions = partitions

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(self.chance.choice((0.01, 0.2)))
            await self._send(self.chance.choice((1, 1, 3)))
        for _ in range(2):
            while not await self._send(1):
                await self.pause(0.1)

    async def _send(self, count: int) -> int:
        """Send batches without waiting between them; returns how many were acknowledged."""
        batches = [self.make(self.chance.choice(self._partitions)) for _ in range(count)]
        connections = [await self.leader(sent.name) for sent in batches]
        responses = [
            connection.send(self.appending(sent)) for connection, sent in zip(connections, batches, strict=True)
        ]
        acked = 0
        for connection, sent, response in zip(connections, batches, responses, strict=True):
            try:
                await self.answer(connection, response)
                acked += 1
            except (StreamhouseError, Lost) as error:
                self.failed(sent.name, error)
                if isinstance(error, StreamhouseError) and self.is_for_good(error):
                    self.history.violated(f"a good batch was refused for good; {sent.label} {error!r}")
        return acked


class Lane:
    """One idempotent producer's batches for one partition."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.next_sequence = 0
        self.unacked: list[Sent] = []
        self.acked: list[Sent] = []

    def start_anew(self) -> None:
        self.next_sequence = 0
        self.unacked.clear()
        self.acked.clear()


class IdempotentProducer(Client):
    speaks_kafka = True

    def __init__(self, world: World, name: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(world, name)
        self._lanes = [Lane(name) for name in partitions]
        self._producer_id = -1
        self._life = 0

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(self.chance.choice((0.01, 0.2)))
            if self._producer_id < 0:
                await self._begin()
            else:
                await self._act(self.chance.choice(self._lanes))
        await self._settle()

    async def _settle(self) -> None:
        """Faults are over: everything that was begun ends, and something new goes through."""
        while self._producer_id < 0:
            await self._begin()
            await self.pause(0.05)
        for lane in self._lanes:
            self._fill(lane, len(lane.unacked) + 1)
            while lane.unacked and self._producer_id >= 0:
                await self._round(lane)
                await self.pause(0.05)

    async def _begin(self) -> None:
        """A producer id, as a client gets one when it starts."""
        try:
            self._producer_id = await self.call(simply(lambda broker: broker.allocate_producer_id()))
        except (StreamhouseError, Lost):
            return
        for lane in self._lanes:
            lane.start_anew()
        self._life = self.world.power_cuts

    async def _act(self, lane: Lane) -> None:
        self._fill(lane, self.chance.choice((1, 2, WINDOW)))
        if self.chance.random() < 0.1 and lane.acked:
            await self._duplicate(self.chance.choice(lane.acked[-8:]))
        if self.chance.random() < 0.1:
            self._producer_id = -1  # the client restarts; what it had not heard of stays unknown
            return
        await self._round(lane)

    def _fill(self, lane: Lane, count: int) -> None:
        while len(lane.unacked) < count:
            sent = self.make(lane.name, producer_id=self._producer_id, producer_epoch=0, sequence=lane.next_sequence)
            lane.next_sequence += sent.count
            lane.unacked.append(sent)

    async def _duplicate(self, sent: Sent) -> None:
        """The network delivers a batch a second time, through a connection that nobody listens to."""
        agent = self.world.any_agent(self.chance)
        if agent is not None:
            self.dial(agent).send(self.appending(sent))

    async def _round(self, lane: Lane) -> None:
        """Send the first batches of the lane, as many as may be in flight; keep those that were not acknowledged."""
        connection = await self.leader(lane.name)
        batches = lane.unacked[:WINDOW]
        responses = [connection.send(self.appending(sent)) for sent in batches]
        patience_s = self.chance.choice((0.05, 1.0, 3.0))
        for sent, response in zip(batches, responses, strict=True):
            try:
                await self.answer(connection, response, patience_s=patience_s)
            except DuplicateSequence:
                self._stored_unseen(sent)
            except OutOfOrderSequence as error:
                if sent is lane.unacked[0]:
                    self._out_of_order(sent, error)
                    return
                continue
            except (StreamhouseError, Lost) as error:
                self.failed(lane.name, error)
                if isinstance(error, StreamhouseError) and self.is_for_good(error):
                    self.history.violated(f"a good batch was refused for good; {sent.label} {error!r}")
                continue
            if sent in lane.unacked:
                lane.unacked.remove(sent)
                lane.acked.append(sent)

    def _stored_unseen(self, sent: Sent) -> None:
        """The broker says that it has the batch and forgot where: then it must be somewhere."""
        self.world.must_be_stored.append((sent, self.world.power_cuts))

    def _out_of_order(self, sent: Sent, error: OutOfOrderSequence) -> None:
        """All before it were acknowledged: only records that the power took can be missing."""
        if self._life == self.world.power_cuts:
            self.history.violated(f"a batch in order was refused; {sent.label} {error}")
        self._producer_id = -1
