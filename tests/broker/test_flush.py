"""Durable batches become segments: nothing is let go before it is registered, and nothing is lost on the way."""

import asyncio

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.session.flush import KeyFilterBudget
from streamhouse.config import BufferSettings, FlushSettings
from streamhouse.errors import LeaseLost, SessionLost, Stopping
from streamhouse.format import key_filter
from streamhouse.format.compression import Codec
from streamhouse.format.object_keys import parse_segment_key, segment_key
from streamhouse.format.producer_snapshot import decode_producers
from streamhouse.format.records import encode_batch
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.model.segment import Run
from tests.broker.conftest import MakeWorld
from tests.broker.support import (
    CLICKS,
    ORDERS,
    WAL_ROOT,
    World,
    batch,
    current,
    idempotent,
    produce,
    settle,
    values_of,
)


async def runs_of(world: World, log: PartitionLog) -> list[Run]:
    return list(await world.sqlite.runs(log.partition, from_offset=0, limit=100))


def wal_files(world: World, broker: Broker) -> list[str]:
    return [name for name in world.files.list(WAL_ROOT / current(broker).session.session_id) if name.endswith(".wal")]


async def test_a_flush_moves_everything_durable_into_one_registered_segment(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a", b"b"), name)
    await current(broker).flusher.flush_all()
    assert len(await world.object_keys()) == 1
    for name in (ORDERS, CLICKS):
        log = await broker.open_log(name)
        (run,) = await runs_of(world, log)
        assert (run.base, run.end, run.epoch, run.records) == (0, 2, log.epoch, 2)
        assert (log.flushed_end, log.tail_bytes) == (2, 0)
    assert broker.budget.used_bytes == 0
    assert (current(broker).flusher.flushed_segments, current(broker).flusher.failures) == (1, 0)


@pytest.mark.skipif(not key_filter.IS_COMPILED, reason="built without a compiler")
@pytest.mark.parametrize(("per_s", "is_short", "expected"), [(64 << 20, False, 2), (0, False, 1), (64 << 20, True, 1)])
async def test_compressed_batches_get_key_filters_while_there_is_time_and_memory(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, per_s: int, is_short: bool, expected: int
) -> None:
    world = await make_world(flush=FlushSettings(key_filter_bytes_per_s=per_s))
    broker = await world.start_with(ORDERS, CLICKS)
    for name, codec in ((ORDERS, Codec.ZSTD), (CLICKS, Codec.NONE)):
        await produce(broker, memoryview(encode_batch([NewRecord(b"v", key=b"a")], codec=codec, now_ms=0)), name)
    monkeypatch.setattr(MemoryBudget, "is_short", property(lambda _: is_short))
    await current(broker).flusher.flush_all()
    runs = [run for name in (ORDERS, CLICKS) for run in await runs_of(world, await broker.open_log(name))]
    assert [await broker.reader.key_filters(run) is not None for run in runs].count(True) == expected


def test_key_filters_take_what_ten_seconds_allow_and_then_what_each_second_adds() -> None:
    budget = KeyFilterBudget(100, now=50.0)
    assert budget.available(50.0) == 1000
    budget.charge(1300)
    assert [budget.available(at) for at in (51.0, 53.0, 54.0, 100.0)] == [0, 0, 100, 1000]


async def test_a_failed_put_keeps_everything_and_is_tried_again_with_another_key(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    used = broker.budget.used_bytes
    world.objects.refuse("put_new", 2)
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    assert broker.budget.used_bytes == used > 0
    assert await values_of(broker) == {0: b"a"}
    await world.clock.advance(world.settings.flush.retry_max_s)
    await flushing
    keys = [key for key, _ in world.objects.arguments("put_new")]
    assert len(set(keys)) == len(keys) == 3
    assert await world.object_keys() == keys[-1:]
    assert current(broker).flusher.failures == 2
    assert await values_of(broker) == {0: b"a"}


async def test_a_put_whose_answer_was_lost_leaves_an_orphan_and_never_stands_in_for_the_next_try(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    world.objects.lose_answer("put_new")
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await world.clock.advance(world.settings.flush.retry_max_s)
    await flushing
    first, second = await world.object_keys()
    (run,) = await runs_of(world, await broker.open_log(ORDERS))
    assert run.object_key == second != first
    names = [parse_segment_key(key) for key in (first, second)]
    assert {name.session_id for name in names if name} == {current(broker).session.session_id}


async def test_an_object_that_is_there_under_our_name_is_never_registered_as_our_segment(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    foreign = segment_key(current(broker).session.session_id, 1)
    await world.objects.put_new(foreign, [b"somebody else's"])
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await world.clock.advance(world.settings.flush.retry_max_s)
    await flushing
    (run,) = await runs_of(world, await broker.open_log(ORDERS))
    assert run.object_key != foreign


@pytest.mark.parametrize("fault", ["refuse", "lose_answer"])
async def test_a_registration_without_a_response_is_repeated_with_the_same_key(world: World, fault: str) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    getattr(world.metadata, fault)("commit_segments", 2)
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await world.clock.advance(world.settings.flush.retry_max_s)
    await flushing
    offers = [commits for _, commits in world.metadata.arguments("commit_segments")]
    assert len(offers) == 3
    assert all(offer == offers[0] for offer in offers)
    assert world.objects.count("put_new") == 1
    (run,) = await runs_of(world, await broker.open_log(ORDERS))
    assert (run.base, run.end) == (0, 1)


async def test_budget_and_wal_are_released_only_after_the_registration(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(block_bytes=256))
    broker = await world.start_with()
    await produce(broker, batch(b"x" * 5_000_000, codec=0), await _large(broker))
    log = await broker.open_log(TopicPartition("large", 0))
    gates = [world.objects.hold("put_new"), world.metadata.hold("commit_segments")]
    response = world.metadata.hold_answer("commit_segments")
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    for resume in (*gates, response):
        await settle()
        assert broker.budget.used_bytes > 0
        assert (log.flushed_end, log.high_watermark) == (0, 1)
        assert len(wal_files(world, broker)) == 1
        resume.set()
    await flushing
    assert broker.budget.used_bytes == 0
    assert log.flushed_end == 1
    assert wal_files(world, broker) == []


async def _large(broker: Broker) -> TopicPartition:
    await broker.create_topic("large", partitions=1, overrides={"max.message.bytes": "10000000"})
    return TopicPartition("large", 0)


async def test_a_lost_lease_of_one_partition_does_not_keep_the_others_from_being_published(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a"), name)
    log, lost = await broker.open_log(ORDERS), await broker.open_log(CLICKS)
    await world.sqlite.delete_topic(lost.partition.topic_id)  # by another agent
    await current(broker).flusher.flush_all()
    (run,) = await runs_of(world, log)
    assert (run.base, run.end) == (0, 1)
    assert current(broker).logs.find(CLICKS) is None
    assert isinstance(lost.closed, LeaseLost)
    assert broker.budget.used_bytes == 0
    assert await values_of(broker) == {0: b"a"}


async def test_a_segment_of_which_nothing_could_be_published_does_not_count(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    log = await broker.open_log(ORDERS)
    await world.sqlite.delete_topic(log.partition.topic_id)
    await current(broker).flusher.flush_all()
    assert current(broker).flusher.flushed_segments == 0
    assert broker.budget.used_bytes == 0


async def test_when_all_leases_are_gone_with_the_session_nothing_is_dropped(world: World) -> None:
    """Others own it now, and read it in the WAL."""
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await _claim(world, broker)
    with pytest.raises(SessionLost):
        await current(broker).flusher.flush_all()
    assert current(broker).logs.find(ORDERS) is not None
    assert broker.budget.used_bytes > 0
    world.kill()
    assert await values_of(await world.start()) == {0: b"a"}


async def _claim(world: World, broker: Broker) -> None:
    """Another agent claims the broker's session for recovery."""
    rival = Broker(world.dependencies(single_agent=False))
    await rival.start()
    await world.sqlite.claim_recovery(
        current(broker).session.session_id, by=current(rival).session.session_id, proven_dead=True
    )


async def test_a_log_dropped_during_its_flush_does_not_take_its_successor_of_the_same_name_along(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"old"))
    resume = world.metadata.hold("commit_segments")
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    await broker.delete_topic(await broker.topic("orders"))
    await broker.create_topic("orders", partitions=1, overrides={})
    await produce(broker, batch(b"new"))
    resume.set()
    await flushing
    assert await values_of(broker) == {0: b"new"}
    await current(broker).flusher.flush_all()
    assert broker.budget.used_bytes == 0
    assert await values_of(broker) == {0: b"new"}


async def test_uploads_that_end_out_of_order_keep_the_order_of_each_partition(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(segment_bytes=1, check_s=0.25, parallel=4))
    broker = await world.start_with(ORDERS, CLICKS)
    task = world.run(broker)
    slow = world.objects.hold("put_new")
    for number in range(3):
        for name in (ORDERS, CLICKS):
            await produce(broker, batch(b"%d" % number), name)
    await world.clock.advance(1.0)
    assert world.objects.count("put_new") == 2  # one per partition, however much is due
    slow.set()
    await world.clock.advance(3.0)
    for name in (ORDERS, CLICKS):
        runs = await runs_of(world, await broker.open_log(name))
        assert [(run.base, run.end) for run in runs] == [(0, 1), (1, 2), (2, 3)]
        assert await values_of(broker, name) == {0: b"0", 1: b"1", 2: b"2"}
    await world.stop(broker, task)


async def test_flushes_under_way_are_limited(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(segment_bytes=1, parallel=2))
    names = [TopicPartition(f"t{number}", 0) for number in range(5)]
    broker = await world.start_with(*names)
    task = world.run(broker)
    resume = world.objects.hold("put_new")
    for name in names:
        await produce(broker, batch(b"a"), name)
    await world.clock.advance(2.0)
    assert world.objects.count("put_new") == 2
    resume.set()
    await world.stop(broker, task)
    assert len(await world.object_keys()) == 5


async def test_an_old_batch_is_flushed_by_its_age(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(age_s=5.0))
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    await world.clock.advance(4.5)
    assert await world.object_keys() == []
    await world.clock.advance(1.0)
    assert len(await world.object_keys()) == 1
    await world.stop(broker, task)


async def test_an_append_that_waits_for_memory_makes_the_rest_be_flushed(make_world: MakeWorld) -> None:
    world = await make_world(buffer=BufferSettings(memory_bytes=4000, throttle_at=0.9, max_throttle_s=60.0))
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    waiting = asyncio.ensure_future(produce(broker, batch(b"x" * 10_000)))
    await world.clock.advance(2.0)
    assert waiting.done()
    assert (await waiting).base_offset == 1
    await world.stop(broker, task)


async def test_the_snapshot_in_a_run_is_the_producers_state_at_its_end(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, idempotent(b"a", sequence=0))
    resume = world.objects.hold("put_new")
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    await produce(broker, idempotent(b"b", sequence=1))  # while the first is being uploaded
    resume.set()
    await flushing
    assert await sequences_in_runs(world, broker) == [[0], [0, 1]]


async def test_the_snapshot_of_a_run_with_a_part_of_the_tail_knows_nothing_behind_it(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(segment_bytes=1))
    broker = await world.start_with()
    for sequence in range(3):
        await produce(broker, idempotent(b"a", sequence=sequence))
    await current(broker).flusher.flush_all()
    assert await sequences_in_runs(world, broker) == [[0], [0, 1], [0, 1, 2]]


async def sequences_in_runs(world: World, broker: Broker) -> list[list[int]]:
    """Of each run's snapshot the last sequence numbers of its batches."""
    runs = await runs_of(world, await broker.open_log(ORDERS))
    snapshots = [decode_producers((await broker.reader.snapshots([run]))[run.partition]) for run in runs]
    return [[span.last_sequence for entry in entries for span in entry.batches] for entries in snapshots]


async def test_what_comes_in_during_a_flush_stays_in_the_tail_and_in_the_wal(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    resume = world.metadata.hold_answer("commit_segments")
    flushing = asyncio.ensure_future(current(broker).flusher._flush([await broker.open_log(ORDERS)]))
    await settle()
    await produce(broker, batch(b"b"))
    resume.set()
    await flushing
    log = await broker.open_log(ORDERS)
    assert (log.flushed_end, log.high_watermark) == (1, 2)
    world.kill()
    assert await values_of(await world.start()) == {0: b"a", 1: b"b"}


async def test_a_cancelled_flush_lets_the_partition_be_flushed_again(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    resume = world.objects.hold("put_new")
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    resume.set()
    await current(broker).flusher.flush_all()
    assert (await broker.open_log(ORDERS)).flushed_end == 1


async def test_a_caller_that_waits_for_a_flush_may_go_while_it_is_being_registered(world: World) -> None:
    """What is registered then has to be known: offered again it would be refused, and the log be taken for lost."""
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    resume = world.metadata.hold_answer("commit_segments")
    waiting = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await produce(broker, batch(b"b"))
    resume.set()
    await current(broker).flusher.flush_all()
    runs = await runs_of(world, await broker.open_log(ORDERS))
    assert [(run.base, run.end) for run in runs] == [(0, 1), (1, 2)]
    assert await values_of(broker) == {0: b"a", 1: b"b"}


async def test_a_caller_that_waits_for_a_flush_when_the_session_ends_gets_an_error_and_is_not_cancelled(
    world: World,
) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    world.objects.hold("put_new")
    waiting = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    await current(broker).flusher.aclose()
    with pytest.raises(Stopping, match="the session is over"):
        await waiting
