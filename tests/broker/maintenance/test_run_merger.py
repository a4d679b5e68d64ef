"""Small runs become large ones; readers and writers are not affected."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.maintenance import run_merger as module
from streamhouse.config import CompactionSettings, RetentionSettings
from streamhouse.model.names import PartitionId
from streamhouse.model.segment import Run
from tests.broker.conftest import MakeWorld
from tests.broker.support import (
    CLICKS,
    NOW_MS,
    ORDERS,
    World,
    batch,
    current,
    fetch,
    idempotent,
    produce,
    settle,
    values_of,
)

FOREVER = {"retention.ms": "-1"}
FEW = CompactionSettings(merge_runs=4)


async def flushed(broker: Broker, count: int, **settings: Any) -> None:
    for n in range(count):
        await produce(broker, batch(b"v%d" % n, **settings))
        await current(broker).flusher.flush_all()


async def runs_of(world: World, broker: Broker) -> Sequence[Run]:
    topic = await broker.topic("orders")
    return await world.sqlite.runs(PartitionId(topic.topic_id, 0), from_offset=0, limit=1000)


async def spans_of(world: World, broker: Broker) -> list[tuple[int, int]]:
    return [(run.base, run.end) for run in await runs_of(world, broker)]


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(compaction=FEW)


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with(**FOREVER)


async def test_small_neighbours_become_one_run_of_the_same_bytes(world: World, broker: Broker) -> None:
    await flushed(broker, 5)
    before = b"".join((await fetch(broker, 0)).records)
    old = await runs_of(world, broker)
    await broker.compactor.run_once()
    [run] = await runs_of(world, broker)
    assert (run.base, run.end, run.records, run.epoch) == (0, 5, 5, old[0].epoch)
    assert run.max_timestamp_ms == NOW_MS
    assert b"".join((await fetch(broker, 0)).records) == before
    assert (broker.compactor.merger.merges, broker.compactor.merger.merged_runs) == (1, 5)


async def led_in_turn(world: World, broker: Broker, value: bytes, *, leaders: int) -> Broker:
    """A record of each of these leaders; the last one leads now."""
    for _ in range(leaders):
        await produce(broker, batch(value))
        await current(broker).flusher.flush_all()
        world.kill()
        broker = await world.start()
        await broker.open_log(ORDERS)
    return broker


async def test_runs_of_several_leaders_come_into_one_object_and_keep_their_epochs(world: World, broker: Broker) -> None:
    broker = await led_in_turn(world, broker, b"v", leaders=6)
    before = [(run.base, run.end, run.epoch) for run in await runs_of(world, broker)]
    assert len({epoch for *_, epoch in before}) == 6
    await broker.compactor.run_once()
    runs = await runs_of(world, broker)
    assert [(run.base, run.end, run.epoch) for run in runs] == before
    assert len({run.object_key for run in runs}) == 1
    assert len(await values_of(broker)) == 6


async def test_a_merge_that_is_cut_short_by_the_size_of_its_records_still_makes_objects_fewer(
    make_world: MakeWorld,
) -> None:
    world = await make_world(compaction=CompactionSettings(merge_runs=4, segment_bytes=1500))
    broker = await led_in_turn(world, await world.start_with(**FOREVER), b"x" * 1000, leaders=6)
    for _ in range(5):
        await broker.compactor.run_once()
    assert len({run.object_key for run in await runs_of(world, broker)}) == 3
    assert broker.compactor.merger.merges == 3, "as soon as there are too few objects, nothing is merged any more"


async def test_old_objects_go_after_their_grace_time(world: World, broker: Broker) -> None:
    await flushed(broker, 4)
    await broker.compactor.run_once()
    assert len(await world.object_keys()) == 5
    await world.clock.advance(RetentionSettings().grace_s)
    await broker.retention.delete_pending()
    assert len(await world.object_keys()) == 1
    assert len(await values_of(broker)) == 4


async def test_few_or_large_runs_stay(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(merge_runs=4, merge_below_bytes=50))
    broker = await world.start_with(**FOREVER)
    await flushed(broker, 8)
    await broker.compactor.run_once()
    assert len(await runs_of(world, broker)) == 8


async def test_without_merging_nothing_is_asked(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(merge_runs=0))
    broker = await world.start_with(**FOREVER)
    await flushed(broker, 20)
    calls_before = world.metadata.count("runs")
    await broker.compactor.run_once()
    assert world.metadata.count("runs") == calls_before


async def test_a_partition_is_looked_at_again_only_when_something_was_flushed(world: World, broker: Broker) -> None:
    await flushed(broker, 3)
    for _ in range(3):
        await broker.compactor.run_once()
    assert world.metadata.count("runs_of") == 1
    await flushed(broker, 1)
    await broker.compactor.run_once()
    assert await spans_of(world, broker) == [(0, 4)]


async def test_a_long_backlog_is_worked_off_piece_by_piece(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 8)
    await flushed(broker, 30)
    for _ in range(12):
        await broker.compactor.run_once()
    assert len(await runs_of(world, broker)) < 8
    assert list(await values_of(broker)) == list(range(30))


async def test_only_so_many_partitions_are_merged_in_one_look(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(merge_runs=4, merges_at_once=1))
    broker = await world.start_with(ORDERS, CLICKS, **FOREVER)
    for _ in range(4):
        for name in (ORDERS, CLICKS):
            await produce(broker, batch(b"v"), name)
        await current(broker).flusher.flush_all()
    for merges in (1, 2, 2):
        await broker.compactor.run_once()
        assert broker.compactor.merger.merges == merges
    assert [len(await values_of(broker, name)) for name in (ORDERS, CLICKS)] == [4, 4]


async def test_runs_that_retention_should_delete_apart_stay_apart(world: World) -> None:
    broker = await world.start_with(**{"retention.ms": "100000"})
    for age_s in (90, 60, 30, 0):
        await flushed(broker, 1, timestamp_ms=NOW_MS - 1000 * age_s)
    await broker.compactor.run_once()
    assert len(await runs_of(world, broker)) == 4
    await flushed(broker, 4, timestamp_ms=NOW_MS)
    await broker.compactor.run_once()
    assert await spans_of(world, broker) == [(0, 1), (1, 2), (2, 3), (3, 8)]


async def test_where_epochs_end_stays_known(world: World, broker: Broker) -> None:
    await flushed(broker, 4)
    first = (await broker.open_log(ORDERS)).epoch
    world.kill()
    broker = await world.start()
    await flushed(broker, 4)
    for _ in range(2):
        await broker.compactor.run_once()
    assert await spans_of(world, broker) == [(0, 4), (4, 8)]
    result = await broker.epoch_end(ORDERS, first)
    assert result is not None
    assert (result.offset, result.leader_epoch) == (4, first)


async def test_what_is_known_of_producers_survives(world: World, broker: Broker) -> None:
    for sequence in range(4):
        await produce(broker, idempotent(b"v", sequence=sequence))
        await current(broker).flusher.flush_all()
    await broker.compactor.run_once()
    world.kill()
    broker = await world.start()
    assert (await produce(broker, idempotent(b"v", sequence=3))).base_offset == 3
    assert (await produce(broker, idempotent(b"v", sequence=4))).base_offset == 4


async def test_times_are_found_in_merged_runs(world: World, broker: Broker) -> None:
    for n in (3, 1, 4, 2):
        await flushed(broker, 1, timestamp_ms=NOW_MS + 1000 * n)
    await broker.compactor.run_once()
    assert len(await runs_of(world, broker)) == 1
    results = [await broker.at_time(ORDERS, NOW_MS + 1000 * n) for n in range(1, 5)]
    assert [each.offset for each in results if each is not None] == [0, 0, 0, 2]
    assert await broker.at_time(ORDERS, NOW_MS + 4001) is None


async def test_a_flush_whose_answer_was_lost_finds_its_run_as_it_left_it(world: World, broker: Broker) -> None:
    await flushed(broker, 4)
    await produce(broker, batch(b"last"))
    world.metadata.lose_answer("commit_segments")
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    assert not flushing.done()
    await broker.compactor.run_once()
    assert await spans_of(world, broker) == [(0, 4), (4, 5)]
    await produce(broker, batch(b"tail"))
    await world.clock.advance(5)
    await flushing
    assert await values_of(broker) == {0: b"v0", 1: b"v1", 2: b"v2", 3: b"v3", 4: b"last", 5: b"tail"}


async def test_someone_who_was_quicker_is_no_error(world: World, broker: Broker) -> None:
    await flushed(broker, 4)
    resume = world.metadata.hold("replace_runs")
    first = asyncio.ensure_future(broker.compactor.run_once())
    second = asyncio.ensure_future(broker.compactor.run_once())
    await settle()
    resume.set()
    await asyncio.gather(first, second)
    assert await spans_of(world, broker) == [(0, 4)]
    assert broker.compactor.merger.merges == 1
    assert len(await world.object_keys()) == 5


async def test_it_happens_by_itself_and_survives_a_store_that_is_away(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(merge_runs=4, interval_s=10))
    broker = await world.start_with(**FOREVER)
    task = world.run(broker)
    await flushed(broker, 6)
    world.metadata.refuse("partitions")
    world.objects.refuse("get_range")
    await world.clock.advance(60)
    assert len(await runs_of(world, broker)) == 1
    await world.stop(broker, task)


async def test_however_often_a_partition_is_flushed_its_rows_and_objects_stay_few(world: World, broker: Broker) -> None:
    rows: list[int] = []
    for _ in range(100):
        await flushed(broker, 4)
        await broker.compactor.run_once()
        rows.append(len(await runs_of(world, broker)))
    assert max(rows) <= 30  # of 400 flushes
    assert sum(run.records for run in await runs_of(world, broker)) == 400
    await world.clock.advance(RetentionSettings().grace_s)
    await broker.retention.delete_pending()
    assert len(await world.sqlite.known_objects()) == rows[-1]
