"""Clients: what every simulated client can do: connect, ask, send batches, fetch. Each act tells the history.

Owns        the requests, made of the broker's methods in the two stages in which the Kafka server calls them
Leaves      what to ask and when to `producers`, `consumers` and `churn`
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, cast

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.log import PartitionLog, PendingAppend
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.errors import Rejected, StreamhouseError, UnknownTopic
from streamhouse.format.records import Record, build_batch
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import PartitionId, TopicPartition

from .history import Before, Sent
from .network import Begin, Connection, Finish, Lost
from .routes import Routes
from .wire_client import RemoteBroker, remote_of
from .world import Agent, World

T = TypeVar("T")

Ask: TypeAlias = Callable[[Broker], Coroutine[Any, Any, T]]

PATIENCE_S = 3.0


class Read(NamedTuple):
    """The answer to a fetch of one partition, with a copy of what it said when the broker let go of it."""

    got: FetchResult
    end: int
    copy: tuple[bytes, ...]


class Client:
    speaks_kafka: ClassVar[bool] = False
    """Whether all that it asks can be asked in Kafka's protocol."""

    def __init__(self, world: World, name: str, *, speaks_kafka: bool | None = None) -> None:
        self.world = world
        self.loop = world.loop
        self.history = world.history
        self.name = name
        self.chance = random.Random(f"client-{world.options.seed}-{name}")
        self._connection: Connection | None = None
        self._is_wired = self.speaks_kafka if speaks_kafka is None else speaks_kafka
        self.routes = Routes(world, self.chance, speaks_kafka=self._is_wired)
        self._seen: dict[TopicPartition, tuple[int, int]] = {}
        """Of each partition the newest epoch that an answer was asked for under, and the high watermark it told."""
        self._made = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # --- asking

    async def connection(self) -> Connection:
        """The open connection, or a new one as soon as somebody listens."""
        while self._connection is None or self._connection.is_lost:
            agent = self.world.any_agent(self.chance) if self.world.is_team else self.world.agent
            if agent is not None and agent.is_listening:
                self._connection = self.dial(agent)
            else:
                await asyncio.sleep(self.chance.uniform(0.02, 0.1))
        return self._connection

    def dial(self, agent: Agent) -> Connection:
        return self.world.dial(agent, self.chance, speaks_kafka=self._is_wired)

    def hang_up(self, *, politely: bool) -> None:
        """Forget the connection; politely: so that the other end notices."""
        if politely and self._connection is not None:
            self._connection.close()
        self._connection = None

    async def leader(self, name: TopicPartition) -> Connection:
        """A connection to the agent that leads the partition, as far as this client knows."""
        return await (self.routes.to(name) if self.world.is_team else self.connection())

    def failed(self, name: TopicPartition, error: Exception) -> None:
        """A request about a partition failed: another agent may lead it."""
        self.routes.told(name, error)

    def is_for_good(self, error: StreamhouseError) -> bool:
        """Whether a refusal can't be helped by trying again; topics are news to some agents of a team for a while."""
        return isinstance(error, Rejected) and not (self.world.is_team and isinstance(error, UnknownTopic))

    async def call(self, begin: Begin[T], *, at: TopicPartition | None = None, patience_s: float = PATIENCE_S) -> T:
        """Ask, at the leader of a partition if one is named, and wait; raises what the broker raises, or `Lost`."""
        connection = await (self.connection() if at is None else self.leader(at))
        try:
            return await self.answer(connection, connection.send(begin), patience_s=patience_s)
        except (StreamhouseError, Lost) as error:
            if at is not None:
                self.failed(at, error)
            elif self.world.is_team:
                self._connection = None  # somebody else may know better
            raise

    async def answer(
        self, connection: Connection, response: "asyncio.Future[T]", *, patience_s: float = PATIENCE_S
    ) -> T:
        try:
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(response)
        except TimeoutError:
            connection.close()
            raise Lost from None

    async def pause(self, mean_s: float) -> None:
        await asyncio.sleep(self.chance.expovariate(1 / mean_s))

    # --- batches

    def make(
        self,
        name: TopicPartition,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        sequence: int = -1,
        is_transactional: bool = False,
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
            is_transactional=is_transactional,
        )
        sent = Sent(name=name, data=bytes(data), times_ms=tuple(times), label=label)
        self.history.send(sent)
        return sent

    def appending(
        self,
        sent: Sent,
        transaction: ProduceTransaction | None = None,
        stored: Callable[[float], None] = lambda since: None,
    ) -> Begin[int]:
        """A produce request: placed in order, acknowledged when durable; the answer is its offset. `stored` is told of
        one that is new when it is acknowledged, and since when it was there."""
        world, history = self.world, self.history

        async def begin(broker: Broker) -> Finish[int]:
            if (remote := remote_of(broker)) is not None:
                return await self._appending_in_bytes(remote, sent, transaction, stored)
            since = world.loop.time()
            placed = await broker.append(sent.name, memoryview(bytearray(sent.latest)), transaction)
            if world.is_team and placed.commit is not None:
                world.loop.create_task(self._witness(placed, sent), name="witness")

            async def finish() -> int:
                await broker.acknowledge(placed)
                if placed.commit is not None:
                    stored(since)
                log = history.of(placed.log.partition, sent.name)
                epoch = placed.log.epoch if placed.commit is not None else None
                world.loop.note(f"ack {sent.name} {sent.label} at {placed.base_offset} epoch={epoch}")
                fact = history.acknowledged(log, sent, placed.base_offset, epoch=epoch)
                if fact is not None:
                    world.acknowledged(log, fact, broker, epoch)
                return placed.base_offset

            return finish

        return begin

    async def _appending_in_bytes(
        self,
        broker: RemoteBroker,
        sent: Sent,
        transaction: ProduceTransaction | None,
        stored: Callable[[float], None],
    ) -> Finish[int]:
        """The request is written; what its response says is a fact when it arrives, unless the power went meanwhile."""
        world, history, since, cuts = self.world, self.history, self.loop.time(), self.world.power_cuts
        is_first = sent.identity not in world.sent_in_bytes
        world.sent_in_bytes.add(sent.identity)
        placed = await broker.append(sent.name, memoryview(sent.latest), transaction)

        async def finish() -> int:
            base = await broker.appended(placed)
            world.loop.note(f"ack {sent.name} {sent.label} at {base} in bytes")
            if base < 0 or placed.partition is None:
                history.violated(f"a batch was acknowledged without an offset; {sent.label} {base}")
                return base
            if cuts == world.power_cuts:
                if is_first:
                    stored(since)
                log = history.of(placed.partition, sent.name)
                if (fact := history.acknowledged(log, sent, base, epoch=None)) is not None and not world.is_team:
                    assert world.agents
                    world.acknowledged(log, fact, world.agents[-1].broker, None)
            return base

        return finish

    async def _witness(self, placed: PendingAppend, sent: Sent) -> None:
        """Whatever a high watermark has passed, anybody may have read: there is always somebody who does. It counts
        whether or not its leader may still acknowledge it."""
        try:
            await placed.log.wait_high_watermark(placed.end)
        except StreamhouseError:
            return
        log = self.history.of(placed.log.partition, sent.name)
        self.history.shown(log, sent, placed.base_offset, epoch=placed.log.epoch)

    # --- reading

    def fetching(
        self, wanted: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> Begin[list[Read]]:
        world, history = self.world, self.history

        async def ask(broker: Broker) -> list[Read]:
            known = [(item, partition) for item in wanted if (partition := world.partition(item.name)) is not None]
            logs = [history.of(partition, item.name) for item, partition in known]
            befores = [log.before() for log in logs]
            open_partitions = [self.opened(broker, item.name) for item, _ in known]
            result = await broker.fetch(
                [item for item, _ in known], max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s
            )
            reads: list[Read] = []
            for (item, partition), log, before, led, got in zip(
                known, logs, befores, open_partitions, result, strict=True
            ):
                end = item.offset
                if world.partition(item.name) == partition and self.is_same(broker, item.name, partition):
                    if not self.speaks(broker, item.name, led):
                        before = self._at_least(item, before)
                    end = history.fetched(log, before, item.offset, got)
                    if got.error is None:
                        history.recorder.polled(
                            self.name, partition, item.offset, end, got, is_committed=item.committed
                        )
                    self._saw(item, got)
                    if item.committed and got.error is None:
                        world.transactions.read(item.name, got)
                world.loop.note(f"read {item.name} from {item.offset} to {end} {type(got.error).__name__}")
                reads.append(Read(got, end, tuple(bytes(buffer) for buffer in got.records)))
            return reads

        return simply(ask)

    def opened(self, broker: Broker, name: TopicPartition) -> PartitionLog | None:
        return broker.agent_session.logs.find(name) if broker.agent_session is not None else None

    def is_same(self, broker: Broker, name: TopicPartition, partition: PartitionId) -> bool:
        """Whether an agent means this partition by the name: of a topic that was created anew it may know the old."""
        opened = self.opened(broker, name)
        return opened is not None and opened.partition == partition if self.world.recreates(name) else True

    def speaks(self, broker: Broker, name: TopicPartition, led: PartitionLog | None) -> bool:
        """Whether an agent that led the partition with this log, or had none open, leads it now: then nobody else did
        meanwhile, and it knows as much as anybody. One whose time is over may answer with what it knew."""
        opened, agent_session = self.opened(broker, name), broker.agent_session
        if not self.world.is_team:
            return True
        if (
            agent_session is None
            or opened is None
            or opened.closed is not None
            or (led is not None and led is not opened)
        ):
            return False
        return agent_session.is_valid

    def _at_least(self, item: PartitionFetch, before: Before) -> Before:
        """What an old leader must know: no less than it told this client, which says which epoch it knows."""
        epoch, high_watermark = self._seen.get(item.name, (-1, 0))
        known = high_watermark if 0 <= epoch <= item.leader_epoch else 0
        return replace(before, high_watermark=known, log_start=0)

    def _saw(self, item: PartitionFetch, got: FetchResult) -> None:
        epoch, high_watermark = self._seen.get(item.name, (-1, 0))
        if got.error is None and item.leader_epoch >= max(epoch, 0):
            self._seen[item.name] = (item.leader_epoch, max(high_watermark, got.high_watermark))

    async def fetch(
        self, wanted: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[Read]:
        """From every leader what it leads; raises when nobody answers."""
        parts: dict[Connection, list[PartitionFetch]] = {}
        for item in wanted:
            connection = await self.leader(item.name)
            epoch = self.routes.epoch(item.name) if self.world.is_team else -1
            parts.setdefault(connection, []).append(item._replace(leader_epoch=epoch))
        reads: list[Read] = []
        responses = [
            self.answer(
                connection,
                connection.send(self.fetching(part, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)),
                patience_s=PATIENCE_S + max_wait_s,
            )
            for connection, part in parts.items()
        ]
        for part, got in zip(parts.values(), await asyncio.gather(*responses, return_exceptions=True), strict=True):
            if isinstance(got, list):
                reads += got
                continue
            for item in part:
                self.failed(item.name, cast(Exception, got))
            if len(parts) == 1 or not isinstance(got, (StreamhouseError, Lost)):
                raise got
        for read in reads:
            if read.got.error is not None:
                self.failed(read.got.name, read.got.error)
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
