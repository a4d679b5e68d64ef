"""Recovery: what a dead session had acknowledged is there again, once, at its offsets."""

import asyncio
import uuid
from pathlib import Path

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.wal.disk_files import session_dir
from streamhouse.config import FlushSettings
from streamhouse.errors import OutOfOrderSequence, Unavailable
from streamhouse.format.batch import assign_offset
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId, TopicPartition
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


def wal_path(world: World, broker: Broker) -> Path:
    directory = session_dir(WAL_ROOT, current(broker).session.session_id)
    (name,) = [name for name in world.files.list(directory) if name.endswith(".wal")]
    return directory / name


async def test_what_was_acknowledged_is_there_again_at_its_offsets(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    await produce(broker, batch(b"a", b"b"))
    await produce(broker, batch(b"c"), CLICKS)
    await produce(broker, batch(b"d"))
    world.kill()
    broker = await world.start()
    assert (broker.recovered.sessions, broker.recovered.records, broker.recovered.skipped_entries) == (1, 4, 0)
    assert await values_of(broker) == {0: b"a", 1: b"b", 2: b"d"}
    assert await values_of(broker, CLICKS) == {0: b"c"}
    assert (await produce(broker, batch(b"e"))).base_offset == 3
    assert world.wal_sessions() == [current(broker).session.session_id]


async def test_nothing_to_recover_is_nothing_recovered(world: World) -> None:
    await world.start_with()
    world.kill()
    broker = await world.start()
    assert broker.recovered.records == 0
    assert await world.object_keys() == []
    assert len((await world.sqlite.membership()).sessions) == 1


async def test_entries_below_the_flushed_end_are_not_published_again(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    await produce(broker, batch(b"b"))
    world.kill()
    broker = await world.start()
    assert broker.recovered.records == 1
    assert await values_of(broker) == {0: b"a", 1: b"b"}


async def test_entries_of_another_epoch_or_of_a_partition_not_held_are_ignored(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    await produce(broker, batch(b"a"))
    log = await broker.open_log(ORDERS)
    for partition, epoch in ((log.partition, log.epoch - 1), (log.partition, log.epoch + 1)):
        await current(broker).wal.append([WalEntry(partition, Epoch(epoch), 1, 2, _placed(b"stale", 1))])
    topic = await broker.topic("clicks")
    foreign = log.partition._replace(topic_id=topic.topic_id)
    await current(broker).wal.append([WalEntry(foreign, Epoch(log.epoch), 0, 1, _placed(b"foreign", 0))])
    world.kill()
    broker = await world.start()
    assert await values_of(broker) == {0: b"a"}
    assert await values_of(broker, CLICKS) == {}


def _placed(value: bytes, offset: int) -> memoryview:
    data = batch(value)
    assign_offset(data, base_offset=offset, leader_epoch=0)
    return data


async def test_a_torn_tail_is_cut_and_what_stands_before_it_is_kept(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await produce(broker, batch(b"b"))
    path = wal_path(world, broker)
    world.kill()
    world.files.overwrite(path, world.files.read(path)[:-5])
    broker = await world.start()
    assert await values_of(broker) == {0: b"a"}
    assert broker.recovered.skipped_entries == 0
    assert (await produce(broker, batch(b"c"))).base_offset == 1


async def test_a_damaged_entry_in_the_middle_leaves_a_gap_and_is_counted(world: World) -> None:
    broker = await world.start_with()
    for value in (b"first value", b"damaged value", b"third value"):
        await produce(broker, batch(value))
    path = wal_path(world, broker)
    world.kill()
    damaged = world.files.read(path).replace(b"damaged value", b"dam\0ged value")
    world.files.overwrite(path, damaged)
    broker = await world.start()
    assert broker.recovered.skipped_entries == 1
    assert await values_of(broker) == {0: b"first value", 2: b"third value"}
    assert await values_of(broker, offset=1) == {2: b"third value"}
    assert (await produce(broker, batch(b"d"))).base_offset == 3


async def test_a_recoverer_who_dies_half_way_leaves_it_to_the_next(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    world.kill()
    world.metadata.refuse("finish_recovery")
    with pytest.raises(Unavailable):
        await world.start()
    world.kill()
    broker = await world.start()
    assert broker.recovered.records == 1
    assert await values_of(broker) == {0: b"a"}
    assert len(await world.object_keys()) == 2  # one of them an orphan, under a name of its own


async def test_a_recovery_that_was_finished_without_a_response_is_not_done_twice(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    world.kill()
    world.metadata.lose_answer("finish_recovery")
    with pytest.raises(Unavailable):
        await world.start()
    world.kill()
    broker = await world.start()
    assert broker.recovered.records == 0
    assert await values_of(broker) == {0: b"a"}
    assert world.wal_sessions() == [current(broker).session.session_id]


async def test_the_log_of_an_ended_session_is_removed(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    await world.sqlite.end_session(current(broker).session.session_id)
    world.kill()
    broker = await world.start()
    assert world.wal_sessions() == [current(broker).session.session_id]
    assert await values_of(broker) == {0: b"a"}


async def test_the_log_of_a_session_that_the_store_never_heard_of_is_left_alone(world: World) -> None:
    """It belongs to other metadata, which may come back."""
    stranger = SessionId("s-" + "f" * 32)
    wal = await world.dependencies().wal_factory.open(stranger)
    await wal.append([WalEntry(_partition(), Epoch(1), 0, 1, _placed(b"theirs", 0))])
    world.kill()
    broker = await world.start_with()
    assert sorted(world.wal_sessions()) == sorted([stranger, current(broker).session.session_id])
    await produce(broker, batch(b"a"))
    world.kill()
    assert await values_of(await world.start()) == {0: b"a"}
    assert stranger in world.wal_sessions()


def _partition() -> PartitionId:
    return PartitionId(TopicId(uuid.UUID(int=9)), 0)


async def test_a_session_without_a_log_is_ended_and_its_leases_are_freed(world: World) -> None:
    broker = await world.start_with()
    await broker.open_log(ORDERS)
    directory = session_dir(WAL_ROOT, current(broker).session.session_id)
    world.kill()
    world.files.remove(directory, world.files.list(directory))
    world.files.remove_dir(directory)
    broker = await world.start()
    assert broker.recovered.sessions == 1
    assert (await produce(broker, batch(b"a"))).base_offset == 0


async def test_a_topic_deleted_before_the_recovery_does_not_hold_it_up(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a"), name)
    topic = await broker.topic("orders")
    world.kill()
    await world.sqlite.delete_topic(topic.topic_id)
    broker = await world.start()
    assert await values_of(broker, CLICKS) == {0: b"a"}


@pytest.mark.parametrize("deleted", [{"orders"}, {"clicks"}, {"orders", "clicks"}])
async def test_a_topic_deleted_during_the_recovery_is_left_out(world: World, deleted: set[str]) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a"), name)
    topics = [await broker.topic(name) for name in sorted(deleted)]
    world.kill()
    resume = world.metadata.hold("finish_recovery")
    starting = asyncio.ensure_future(world.start())
    await settle()
    for topic in topics:
        await world.sqlite.delete_topic(topic.topic_id)
    resume.set()
    broker = await starting
    for name in (ORDERS, CLICKS):
        if name.topic not in deleted:
            assert await values_of(broker, name) == {0: b"a"}
    assert len((await world.sqlite.membership()).sessions) == 1


async def test_producers_are_known_after_a_recovery_from_segment_and_log_together(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, idempotent(b"a", sequence=0))
    await produce(broker, idempotent(b"x", sequence=0, producer=8))
    await current(broker).flusher.flush_all()
    await produce(broker, idempotent(b"b", sequence=1))
    world.kill()
    broker = await world.start()
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"x", sequence=0, producer=8))).base_offset == 1
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 2
    with pytest.raises(OutOfOrderSequence):
        await broker.append(ORDERS, idempotent(b"d", sequence=3))
    assert (await produce(broker, idempotent(b"c", sequence=2))).base_offset == 3


async def test_several_sessions_that_died_one_after_the_other_are_all_recovered(world: World) -> None:
    first = await world.start_with()
    await produce(first, batch(b"a"))
    world.kill()
    world.objects.refuse("put_new")
    with pytest.raises(Unavailable):
        await world.start()  # dies before it has recovered anything
    world.kill()
    third = await world.start()
    await produce(third, batch(b"b"))
    world.kill()
    broker = await world.start()
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    assert len((await world.sqlite.membership()).sessions) == 1
    assert world.wal_sessions() == [current(broker).session.session_id]


async def test_more_than_a_segment_is_recovered_in_several_and_in_order(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(segment_bytes=300))
    broker = await world.start_with(ORDERS, CLICKS)
    for number in range(10):
        for name in (ORDERS, CLICKS):
            await produce(broker, batch(b"%d" % number), name)
    world.kill()
    broker = await world.start()
    assert len(await world.object_keys()) > 2
    for name in (ORDERS, CLICKS):
        assert await values_of(broker, name) == {number: b"%d" % number for number in range(10)}


async def test_a_recovery_longer_than_a_session_lives_leaves_a_tenure_that_is_valid(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    world.kill()
    resume = world.objects.hold("put_new")
    starting = asyncio.ensure_future(world.start())
    await world.clock.advance(3 * world.settings.lease.ttl_s)
    resume.set()
    broker = await starting
    assert broker.not_ready() is None
    assert (await produce(broker, batch(b"b"))).base_offset == 1


async def test_a_second_crash_right_after_a_recovery_changes_nothing(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, idempotent(b"a", sequence=0))
    for _ in range(3):
        world.kill()
        broker = await world.start()
        assert await values_of(broker) == {0: b"a"}
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0


async def test_partitions_of_the_same_topic_do_not_mix(world: World) -> None:
    broker = await world.start()
    await broker.create_topic("many", partitions=12, overrides={})
    for number in range(12):
        await produce(broker, batch(b"%d" % number), TopicPartition("many", number))
    world.kill()
    broker = await world.start()
    for number in range(12):
        assert await values_of(broker, TopicPartition("many", number)) == {0: b"%d" % number}
