"""Clients: what every simulated client can do: connect, ask, send batches, fetch. Each act tells the history.

Owns        the requests, made of the broker's methods in the two stages in which the Kafka server calls them
Leaves      what to ask and when to `producers`, `consumers` and `churn`
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch import Fetched, Wanted
from streamhouse.format.records import Record, build_batch
from streamhouse.model.names import TopicPartition

from .history import Sent
from .network import Begin, Connection, Finish, Lost
from .world import World

T = TypeVar("T")

Ask: TypeAlias = Callable[[Broker], Coroutine[Any, Any, T]]

PATIENCE_S = 3.0


class Read(NamedTuple):
    """The answer to a fetch of one partition, with a copy of what it said when the broker let go of it."""

    got: Fetched
    end: int
    copy: tuple[bytes, ...]


class Client:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.loop = world.loop
        self.history = world.history
        self.name = name
        self.chance = random.Random(f"client-{world.options.seed}-{name}")
        self._connection: Connection | None = None
        self._made = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # --- asking

    async def connection(self) -> Connection:
        """The open connection, or a new one as soon as somebody listens."""
        while self._connection is None or self._connection.is_lost:
            agent = self.world.agent
            if agent is not None and agent.is_listening:
                self._connection = Connection(self.loop, agent, self.chance)
            else:
                await asyncio.sleep(self.chance.uniform(0.02, 0.1))
        return self._connection

    def hang_up(self, *, politely: bool) -> None:
        """Forget the connection; politely: so that the other end notices."""
        if politely and self._connection is not None:
            self._connection.close()
        self._connection = None

    async def call(self, begin: Begin[T], *, patience_s: float = PATIENCE_S) -> T:
        """Ask and wait; raises what the broker raises, or `Lost`."""
        connection = await self.connection()
        return await self.answer(connection, connection.send(begin), patience_s=patience_s)

    async def answer(self, connection: Connection, answer: "asyncio.Future[T]", *, patience_s: float = PATIENCE_S) -> T:
        try:
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            connection.close()
            raise Lost from None

    async def pause(self, mean_s: float) -> None:
        await asyncio.sleep(self.chance.expovariate(1 / mean_s))

    # --- batches

    def make(
        self, name: TopicPartition, *, producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1
    ) -> Sent:
        """A batch that nobody ever sent."""
        chance = self.chance
        self._made += 1
        label = f"{self.name}.{self._made}"
        now_ms = self.world.clock.now_ms() - chance.randrange(2000)
        times = [now_ms + chance.randrange(-50, 50) for _ in range(chance.choice((1, 1, 2, 5)))]
        filler = chance.randbytes(60) if chance.random() < 0.5 else b"x" * 120
        records = [
            Record(timestamp_ms=at, key=None, value=f"{label}.{number}:".encode() + filler[: chance.randrange(120)])
            for number, at in enumerate(times)
        ]
        data = build_batch(
            records,
            codec=chance.choice((0, 0, 0, 3)),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        sent = Sent(name=name, data=bytes(data), times_ms=tuple(times), label=label)
        self.history.send(sent)
        return sent

    def appending(self, sent: Sent) -> Begin[int]:
        """A produce request: placed in order, acknowledged when durable; the answer is its offset."""
        world, history = self.world, self.history

        async def begin(broker: Broker) -> Finish[int]:
            placed = await broker.append(sent.name, memoryview(bytearray(sent.data)))

            async def finish() -> int:
                await broker.acknowledge(placed)
                log = history.of(placed.log.partition, sent.name)
                epoch = placed.log.epoch if placed.commit is not None else None
                world.loop.note(f"ack {sent.name} {sent.label} at {placed.base_offset} epoch={epoch}")
                fact = history.acknowledged(log, sent, placed.base_offset, epoch=epoch)
                if fact is not None:
                    world.acknowledged(log, fact)
                return placed.base_offset

            return finish

        return begin

    # --- reading

    def fetching(
        self, wanted: Sequence[Wanted], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> Begin[list[Read]]:
        world, history = self.world, self.history

        async def ask(broker: Broker) -> list[Read]:
            known = [(item, partition) for item in wanted if (partition := world.partition(item.name)) is not None]
            logs = [history.of(partition, item.name) for item, partition in known]
            befores = [log.before() for log in logs]
            found = await broker.fetch(
                [item for item, _ in known], max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s
            )
            reads: list[Read] = []
            for (item, partition), log, before, got in zip(known, logs, befores, found, strict=True):
                end = item.offset
                if world.partition(item.name) == partition:
                    end = history.fetched(log, before, item.offset, got)
                world.loop.note(f"read {item.name} from {item.offset} to {end} {type(got.error).__name__}")
                reads.append(Read(got, end, tuple(bytes(buffer) for buffer in got.records)))
            return reads

        return simply(ask)

    async def fetch(self, wanted: Sequence[Wanted], *, max_bytes: int, min_bytes: int, max_wait_s: float) -> list[Read]:
        reads = await self.call(
            self.fetching(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s),
            patience_s=PATIENCE_S + max_wait_s,
        )
        for read in reads:
            if tuple(bytes(buffer) for buffer in read.got.records) != read.copy:
                self.history.violated(f"bytes changed after they were handed to a reader; {read.got.name}")
        return reads


def simply(ask: Ask[T]) -> Begin[T]:
    """A request that has nothing to do in order."""

    async def begin(broker: Broker) -> Finish[T]:
        async def finish() -> T:
            return await ask(broker)

        return finish

    return begin
