"""Damage at rest is found by readers, is never copied, and affects only its own partition."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.broker.segments.producer_snapshots import rebuild
from streamhouse.config import CompactionSettings
from streamhouse.errors import CorruptObject, OutOfOrderSequence, StreamhouseError
from streamhouse.format.producer_snapshot import decode_producers
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.segment import Run
from streamhouse.model.transaction import Marker
from tests.broker.conftest import MakeWorld
from tests.broker.support import CLICKS, ORDERS, World, batch, current, fetch, idempotent, produce, values_of

FLUSHES = 5
Damage = Callable[[bytes, Run], bytes]


def flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


DAMAGES: dict[str, Damage] = {
    "a bit of a block": lambda body, run: flipped(body, run.position + 30),
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
    await broker.compactor.run_once()
    assert await runs_of(world, broker, ORDERS) == before
    assert len(await runs_of(world, broker, CLICKS)) == 1
    assert await values_of(broker, CLICKS) == {n: b"c%d" % n for n in range(FLUSHES)}
    for offset in range(FLUSHES):
        result = await fetch(broker, offset)
        assert isinstance(result.error, CorruptObject) == (offset == 2)


SNAPSHOT = -8
"""From the end of an index: a byte of the producers' snapshot in it."""


async def two_runs(world: World) -> tuple[Broker, list[Run]]:
    """A partition of two runs: producer 7 wrote to both, producer 8 to the first alone, producer 9 to the second."""
    broker = await world.start_with(ORDERS, **{"retention.ms": "-1"})
    for first, other in ((0, 8), (1, 9)):
        await produce(broker, idempotent(b"a%d" % first, sequence=first))
        await produce(broker, idempotent(b"b%d" % other, sequence=0, producer=other))
        await current(broker).flusher.flush_all()
    return broker, await runs_of(world, broker, ORDERS)


DAMAGED = CorruptObject("an object", why="it is damaged")


async def rebuilt(broker: Broker, run: Run) -> ProducerTable | StreamhouseError:
    def table(snapshot: bytes) -> ProducerTable:
        return ProducerTable(decode_producers(snapshot), limit=10, expire_ms=10)

    return await rebuild(run, DAMAGED, table, reader=broker.reader, now_ms=1)


async def restarted(world: World) -> Broker:
    world.kill()
    return await world.start()


@pytest.mark.parametrize("newest", [0, 1])
async def test_whichever_bit_of_an_index_is_flipped_the_partition_opens_and_its_producers_are_known(
    make_world: MakeWorld, newest: int
) -> None:
    """Where the newest run is the first one there ever was, too."""
    world = await make_world()
    broker = await world.start_with(ORDERS, **{"retention.ms": "-1"})
    for number in range(newest + 1):
        await produce(broker, idempotent(b"a", sequence=number))
        await produce(broker, idempotent(b"b", sequence=0, producer=10 + number))
        await current(broker).flusher.flush_all()
    run = (await runs_of(world, broker, ORDERS))[-1]
    body = bytes(await world.bucket.get_range(run.object_key, 0, 1 << 20))
    for at in range(run.index_position, run.index_position + run.index_length, 3):
        await rewrite(world, run, lambda _, __, at=at: flipped(body, at))  # type: ignore[misc]
        broker = await restarted(world)
        for number in range(newest + 1):
            assert (
                await produce(broker, idempotent(b"b", sequence=0, producer=10 + number))
            ).base_offset == number * 2 + 1
        assert (await produce(broker, idempotent(b"a", sequence=newest))).base_offset == newest * 2
        with pytest.raises(OutOfOrderSequence):
            await produce(broker, idempotent(b"a", sequence=newest + 2))


@pytest.mark.parametrize("at", [30, SNAPSHOT])
async def test_a_damaged_index_is_refused_to_readers_of_its_range_alone_and_appends_go_on(
    world: World, at: int
) -> None:
    _, runs = await two_runs(world)
    place = runs[1].index_position + at + (runs[1].index_length if at < 0 else 0)
    await rewrite(world, runs[1], lambda body, _: flipped(body, place))
    broker = await restarted(world)
    assert (await produce(broker, idempotent(b"a2", sequence=2))).base_offset == 4
    await current(broker).flusher.flush_all()
    for offset in range(5):
        result = await fetch(broker, offset)
        assert isinstance(result.error, CorruptObject) == (offset in (2, 3))
    broker = await restarted(world)  # now from the snapshot of the next run
    assert (await produce(broker, idempotent(b"b9", sequence=0, producer=9))).base_offset == 3
    assert (await produce(broker, idempotent(b"a3", sequence=3))).base_offset == 5


async def test_transactions_are_rebuilt_with_their_producers_and_aborts_are_not_told_twice(world: World) -> None:
    broker = await world.start_with(ORDERS)
    producer = await broker.transactions.init_producer("alice", 10_000, None)
    whose = {"producer": producer.producer_id, "epoch": producer.epoch, "is_transactional": True}
    enlisting = ProduceTransaction("alice", enlists=True)
    await broker.acknowledge(await broker.append(ORDERS, idempotent(b"x", sequence=0, **whose), enlisting))
    await broker.transactions.mark(Marker(producer=producer, number=1, is_commit=False), [ORDERS])
    await broker.acknowledge(await broker.append(ORDERS, idempotent(b"y", sequence=1, **whose), enlisting))
    await current(broker).flusher.flush_all()
    [run] = await runs_of(world, broker, ORDERS)
    table = await rebuilt(broker, run)
    assert isinstance(table, ProducerTable)
    assert table.marker_number(producer.producer_id) == 1
    assert table.open_transactions() == {producer.producer_id: 2}
    assert table.aborted == []  # the row was written with the run


BEYOND_REPAIR: dict[str, tuple[int, Damage]] = {
    "a block as well": (1, lambda body, run: flipped(body, run.position + 30)),
    "an entry as well": (1, lambda body, run: flipped(body, run.index_position + 64 + 31)),
    "the snapshot before as well": (
        0,
        lambda body, run: flipped(body, run.index_position + run.index_length + SNAPSHOT),
    ),
    "the end of the object": (1, lambda body, run: body[: run.index_position + 8]),
}


@pytest.mark.parametrize("how", BEYOND_REPAIR)
async def test_a_log_whose_producers_can_not_be_known_is_not_opened_without_them(world: World, how: str) -> None:
    broker, runs = await two_runs(world)
    await broker.create_topic(CLICKS.topic, partitions=1, overrides={})
    await produce(broker, idempotent(b"a", sequence=0), CLICKS)
    await current(broker).flusher.flush_all()
    await rewrite(world, runs[1], lambda body, run: flipped(body, run.index_position + run.index_length + SNAPSHOT))
    number, damage = BEYOND_REPAIR[how]
    await rewrite(world, runs[number], damage)
    broker = await restarted(world)
    with pytest.raises(CorruptObject):
        await produce(broker, idempotent(b"a1", sequence=1))
    assert (await produce(broker, idempotent(b"a", sequence=0), CLICKS)).base_offset == 0


async def test_producers_are_not_rebuilt_from_a_run_of_which_something_is_missing(world: World) -> None:
    broker, runs = await two_runs(world)
    whole = await rebuilt(broker, runs[1])
    assert isinstance(whole, ProducerTable)
    assert len(whole) == 3
    assert await rebuilt(broker, replace(runs[1], end=runs[1].end + 1)) is DAMAGED
    assert await rebuilt(broker, replace(runs[1], base=runs[1].base - 1, stored_base=runs[1].base - 1)) is DAMAGED
    assert await rebuilt(broker, replace(runs[1], stored_base=0)) is DAMAGED
