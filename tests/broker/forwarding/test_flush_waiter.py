"""Waiting for segments of other agents: one look for all, and no promise about records that a disk took along."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.forwarding.acks import FlushWaiter
from streamhouse.errors import AppendFailed, UnknownTopic
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import Epoch, PartitionId, TopicId, TopicPartition
from streamhouse.model.segment import Run
from tests.broker.support import ORDERS, World, batch, produce, settle

EPOCH = 7


class Elsewhere:
    """A metadata store that says what a test wants of a partition led by another agent."""

    def __init__(self, inner: Any, partition: PartitionId) -> None:
        self._inner = inner
        self.flushed_end = 0
        self.epoch = EPOCH
        self.bases: list[tuple[int, int]] = []
        self.is_gone = False
        self.looks = 0
        self._partition = partition

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def partitions(self, topic_ids: Sequence[TopicId]) -> list[PartitionState]:
        self.looks += 1
        state = PartitionState(
            partition=self._partition, epoch=Epoch(self.epoch), holder=None, log_start=0, flushed_end=self.flushed_end
        )
        return [] if self.is_gone else [state]

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> list[Run]:
        made = [cast(Run, _Run(base, end)) for base, end in self.bases if end > from_offset]
        return made[:limit]


class _Run:
    def __init__(self, base: int, end: int) -> None:
        self.base, self.end = base, end


class Scene:
    def __init__(self, world: World, broker: Broker, partition: PartitionId) -> None:
        self.world = world
        self.metadata = Elsewhere(world.sqlite, partition)
        self.stored = FlushWaiter(world.dependencies(metadata=self.metadata), broker)
        self.partition = partition

    def wait(self, end: int) -> "asyncio.Task[None]":
        name = TopicPartition("elsewhere", 0)
        return asyncio.ensure_future(self.stored.wait(name, self.partition, end, epoch=EPOCH))


@pytest.fixture
async def scene(world: World) -> Scene:
    broker = await world.start_with()
    topic = await broker.topic(ORDERS.topic)
    return Scene(world, broker, PartitionId(topic.topic_id, 5))


async def test_all_who_wait_share_a_look_and_nobody_looks_when_nobody_waits(scene: Scene) -> None:
    waiting = [scene.wait(end) for end in range(1, 101)]
    await settle()
    assert scene.metadata.looks == 1
    scene.metadata.flushed_end = 50
    await scene.world.clock.advance(0.25)
    assert [task.done() for task in waiting] == [True] * 50 + [False] * 50
    scene.metadata.flushed_end = 100
    await scene.world.clock.advance(0.25)
    assert all(task.done() for task in waiting)
    looks = scene.metadata.looks
    await scene.world.clock.advance(10)
    assert scene.metadata.looks == looks == 3


async def test_who_gives_up_is_not_waited_for(scene: Scene) -> None:
    waiting = scene.wait(1)
    await settle()
    waiting.cancel()
    await scene.world.clock.advance(10)
    assert scene.metadata.looks == 1


async def test_records_that_the_next_leader_recovered_are_stored_and_those_that_went_with_a_disk_are_not(
    scene: Scene,
) -> None:
    recovered, lost = scene.wait(10), scene.wait(20)
    scene.metadata.epoch, scene.metadata.flushed_end = EPOCH + 1, 1000
    scene.metadata.bases = [(0, 15), (1000, 1001)]
    await settle()
    assert recovered.done()
    recovered.result()
    with pytest.raises(AppendFailed, match="offset=19"):
        lost.result()


async def test_a_topic_that_goes_ends_the_wait(scene: Scene) -> None:
    waiting = scene.wait(1)
    scene.metadata.is_gone = True
    await settle()
    with pytest.raises(UnknownTopic):
        waiting.result()


async def test_a_store_that_is_away_is_tried_again(world: World) -> None:
    broker = await world.start_with()
    pending = await produce(broker, batch(b"a"))
    world.metadata.refuse("partitions", times=2)
    stored = FlushWaiter(world.dependencies(), broker)
    waiting = asyncio.ensure_future(stored.wait(ORDERS, pending.log.partition, 1, epoch=-1))
    await world.clock.advance(1.0)
    assert not waiting.done()
    world.run(broker)
    await settle()
    broker.stop()
    await world.clock.advance(5.0)
    assert waiting.done()
    waiting.result()


async def test_closing_wakes_those_who_wait(scene: Scene) -> None:
    waiting = scene.wait(1)
    await settle()
    await scene.stored.aclose()
    await settle()
    assert waiting.done()
    assert waiting.exception() is not None
