"""Support for tests of external commits: segments of an external writer, and agents that freeze partitions for each
other."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from streamhouse.broker.broker import Broker
from streamhouse.broker.external_commits.commit_request import ExternalCommitRequest, RunRequest, SegmentRequest
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config.fields import Address
from streamhouse.errors import Unavailable
from streamhouse.format.batch import assign_offset
from streamhouse.format.object_keys import external_segment_key
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.external_commit import FreezeRequest, FrozenPartition, Outcome, QueryId
from streamhouse.model.names import Epoch, PartitionId, TopicPartition
from streamhouse.model.segment import SegmentObject
from streamhouse.stores.objects.base import ObjectStore
from tests.broker.support import NOW_MS, World, batch

T = TypeVar("T")
QUERY = QueryId("01234567-89ab-cdef-0123-456789abcdef")


async def write_segment(
    broker: Broker,
    objects: ObjectStore,
    values: Mapping[TopicPartition, Sequence[bytes]],
    *,
    epoch: int = 1,
    query: QueryId = QUERY,
    unique: str | None = None,
    put: bool = True,
) -> SegmentRequest:
    """One object with a run for each partition, one batch for each value; offsets count from 0."""
    inputs: list[RunInput] = []
    for name, given in values.items():
        topic = await broker.topic(name.topic)
        batches = [batch(value, timestamp_ms=NOW_MS + number) for number, value in enumerate(given)]
        for number, each in enumerate(batches):
            assign_offset(each, base_offset=number, leader_epoch=0)
        inputs.append(
            RunInput(
                partition=PartitionId(topic.topic_id, name.partition),
                epoch=Epoch(0),
                base=0,
                end=len(given),
                batches=batches,
                producers=b"",
            )
        )
    encoded = encode_segment(inputs)
    key = external_segment_key(query, epoch, unique or uuid.uuid4().hex)
    if put:
        await objects.put_new(key, encoded.body)
    runs = [
        RunRequest(
            name=name,
            records=layout.entry.records,
            stored_base=layout.entry.base,
            stored_end=layout.entry.end,
            position=layout.entry.position,
            length=layout.entry.length,
            index_position=layout.entry.index_position,
            index_length=layout.entry.index_length,
            max_timestamp_ms=layout.entry.max_timestamp_ms,
        )
        for name, layout in zip(values, encoded.layouts, strict=True)
    ]
    segment = SegmentObject(key=key, size_bytes=encoded.size_bytes, created_at_ms=NOW_MS)
    return SegmentRequest(segment=segment, runs=tuple(runs))


def commit_of(
    *segments: SegmentRequest, epoch: int = 1, query: QueryId = QUERY, progress: str | None = None
) -> ExternalCommitRequest:
    return ExternalCommitRequest(query=query, epoch=epoch, progress=progress, segments=segments)


async def written(
    broker: Broker, objects: ObjectStore, values: Mapping[TopicPartition, Sequence[bytes]], **given: Any
) -> ExternalCommitRequest:
    """A commit of one segment that is in the store."""
    progress = given.pop("progress", None)
    segment = await write_segment(broker, objects, values, **given)
    return commit_of(segment, epoch=given.get("epoch", 1), query=given.get("query", QUERY), progress=progress)


class Links:
    """A `FreezeClient` between brokers of this process; agents may be down, and messages lost."""

    def __init__(self) -> None:
        self.brokers: dict[Address, Broker] = {}
        self.lose: set[str] = set()
        """Messages that are lost: "hold", "hold answer", "end"."""
        self.before_end: Callable[[], Awaitable[None]] | None = None

    async def hold(self, at: Address, requested: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        if "hold" in self.lose or at not in self.brokers:
            raise Unavailable("nobody answers")
        result = await self.brokers[at].freezes.hold(requested, timeout_s=timeout_s)
        if "hold answer" in self.lose:
            raise Unavailable("the answer was lost")
        return result

    async def end_hold(self, at: Address, hold_id: str, outcome: Outcome, *, timeout_s: float) -> None:
        if "end" in self.lose or at not in self.brokers:
            raise Unavailable("nobody answers")
        await self.brokers[at].freezes.end(hold_id, outcome)

    async def flush(self, at: Address, topic: str, *, timeout_s: float) -> None:
        if at not in self.brokers:
            raise Unavailable("nobody answers")
        await self.brokers[at].maintenance.flushing.flush(topic, everywhere=False)


class BrokerCluster:
    """Agents on the same stores that freeze partitions for each other."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.links = Links()
        self.agents: list[Broker] = []
        self.tasks: dict[Broker, asyncio.Task[None]] = {}

    async def join(self) -> Broker:
        number = len(self.agents) + 1
        world = self.world
        http = Address("127.0.0.1", 8000 + number)
        broker = Broker(
            world.dependencies(
                single_agent=False,
                wal_factory=ObjectWalFactory(world.objects, world.settings.wal, clock=world.clock, ids=world.ids),
                kafka=Address("127.0.0.1", 9000 + number),
                http=http,
                freezes=self.links,
            )
        )
        await broker.start()
        self.links.brokers[http] = broker
        self.agents.append(broker)
        self.tasks[broker] = world.run(broker)
        await self.pass_time(0.1)
        return broker

    async def leader(self, name: TopicPartition) -> Broker:
        alive = [each for each in self.agents if not self.tasks[each].done()]
        topic = await alive[0].topic(name.topic)
        node = (await alive[0].leaders([topic]))[PartitionId(topic.topic_id, name.partition)].node_id
        return next(each for each in alive if each.node_id == node)

    async def kill(self, broker: Broker) -> None:
        self.tasks[broker].cancel()
        await asyncio.gather(self.tasks[broker], return_exceptions=True)
        self.links.brokers = {at: each for at, each in self.links.brokers.items() if each is not broker}

    async def pass_time(self, seconds: float, *, step: float = 0.05) -> None:
        for _ in range(round(seconds / step)):
            await self.world.clock.advance(step)

    async def done(self, work: Awaitable[T], *, within_s: float = 60.0) -> T:
        """Let time pass until the work has ended."""
        return await until_done(self.world, work, within_s=within_s)


async def until_done(world: World, work: Awaitable[T], *, within_s: float = 60.0) -> T:
    task = asyncio.ensure_future(work)
    deadline = world.clock.monotonic() + within_s
    while not task.done():
        assert world.clock.monotonic() < deadline, f"not done after {within_s} s: {task!r}"
        await world.clock.advance(0.05)
    return task.result()
