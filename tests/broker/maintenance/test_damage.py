"""Damage at rest is found by whoever reads it, is copied by nobody, and stays the trouble of its own partition."""

from collections.abc import Callable

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import CompactionSettings
from streamhouse.errors import CorruptObject
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.segment import Run
from tests.broker.conftest import MakeWorld
from tests.broker.support import CLICKS, ORDERS, World, batch, current, fetch, idempotent, produce, values_of

FLUSHES = 5
Damage = Callable[[bytes, Run], bytes]


def flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


DAMAGES: dict[str, Damage] = {
    "a bit of a block": lambda body, run: flipped(body, run.position + 70),
    "a bit of the index": lambda body, run: flipped(body, run.index_position + 30),
    "the end is missing": lambda body, run: body[: run.index_position + 8],
}


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(compaction=CompactionSettings(merge_runs=4))


async def flushed(broker: Broker, name: TopicPartition, value: bytes) -> None:
    await produce(broker, batch(value), name)
    await current(broker).flusher.flush_all()


async def runs_of(world: World, broker: Broker, name: TopicPartition) -> list[Run]:
    topic = await broker.topic(name.topic)
    return list(await world.sqlite.runs(PartitionId(topic.topic_id, name.partition), from_offset=0, limit=100))


async def rewrite(world: World, run: Run, damage: Damage) -> None:
    """Change an object behind everybody's back."""
    body = bytes(await world.bucket.get_range(run.object_key, 0, 1 << 20))
    await world.bucket.delete(run.object_key)
    await world.bucket.put_new(run.object_key, [damage(body, run)])


@pytest.mark.parametrize("how", DAMAGES)
async def test_damage_is_not_merged_into_a_run_that_looks_sound(world: World, how: str) -> None:
    broker = await world.start_with(ORDERS, CLICKS, **{"retention.ms": "-1"})
    for n in range(FLUSHES):
        await flushed(broker, ORDERS, b"o%d" % n)
        await flushed(broker, CLICKS, b"c%d" % n)
    before = await runs_of(world, broker, ORDERS)
    await rewrite(world, before[2], DAMAGES[how])
    await broker.compactor.look()
    assert await runs_of(world, broker, ORDERS) == before
    assert len(await runs_of(world, broker, CLICKS)) == 1
    assert await values_of(broker, CLICKS) == {n: b"c%d" % n for n in range(FLUSHES)}
    for offset in range(FLUSHES):
        found = await fetch(broker, offset)
        assert isinstance(found.error, CorruptObject) == (offset == 2)


async def test_a_log_whose_producers_can_not_be_read_is_not_opened_without_them(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    for name in (ORDERS, CLICKS):
        await produce(broker, idempotent(b"a", sequence=0), name)
    await current(broker).flusher.flush_all()
    [run] = await runs_of(world, broker, ORDERS)
    await rewrite(world, run, lambda body, run: flipped(body, run.index_position + run.index_length - 8))
    world.kill()
    broker = await world.start()
    with pytest.raises(CorruptObject):
        await produce(broker, idempotent(b"a", sequence=0))
    assert (await produce(broker, idempotent(b"a", sequence=0), CLICKS)).base_offset == 0
    assert (await produce(broker, idempotent(b"b", sequence=1), CLICKS)).base_offset == 1
