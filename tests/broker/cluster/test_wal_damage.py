"""Damaged logs: what is intact is recovered at its own offsets, no offset is given twice, and nothing is deleted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.wal.disk_quarantine import quarantine_root
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config import WalSettings
from streamhouse.errors import SessionLost, Unavailable
from streamhouse.format.object_keys import parse_wal_key, wal_prefix
from streamhouse.format.wal_object import SEAL_BYTES
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.stores.metadata.engine import Transaction
from tests.broker.conftest import MakeWorld
from tests.broker.support import CLICKS, ORDERS, WAL_ROOT, World, batch, current, idempotent, produce, settle, values_of

OBJECTS = 8


class ObjectWorld(World):
    """An agent whose write-ahead log is in the object store: one object for each append."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(wal=WalSettings(kind="object", window_ms=0), **sections)

    def dependencies(self, **changes: Any) -> Dependencies:
        wals = ObjectWalFactory(super().dependencies().objects, self.settings.wal, clock=self.clock, ids=self.ids)
        return super().dependencies(**{"wal_factory": wals, **changes})

    async def wal_objects(self, session: SessionId) -> list[str]:
        results = [meta async for meta in self.bucket.list(wal_prefix(session))]
        return [meta.key for meta in results if meta.size_bytes != SEAL_BYTES]

    async def replace(self, key: str, data: bytes) -> None:
        await self.bucket.delete(key)
        await self.bucket.put_new(key, [data])


@pytest.fixture
async def world() -> AsyncIterator[ObjectWorld]:
    made = ObjectWorld()
    await made.sqlite.open()
    yield made
    await made.aclose()


@pytest.fixture
async def world_on_disk(make_world: MakeWorld) -> World:
    return await make_world()


async def delete(world: ObjectWorld, key: str) -> None:
    await world.bucket.delete(key)


async def truncate(world: ObjectWorld, key: str) -> None:
    """Nothing of the entry is left, but there is an object."""
    await world.replace(key, (await world.bucket.get_range(key, 0, 1 << 30))[:150])


async def empty(world: ObjectWorld, key: str) -> None:
    await world.replace(key, b"")


async def flip(world: ObjectWorld, key: str) -> None:
    data = bytearray(await world.bucket.get_range(key, 0, 1 << 30))
    data[len(data) // 2] ^= 1
    await world.replace(key, bytes(data))


Damage = Callable[[ObjectWorld, str], Awaitable[None]]
DAMAGES: list[Damage] = [delete, truncate, empty, flip]


async def crashed(world: ObjectWorld) -> tuple[SessionId, list[str]]:
    """Appends to two topics in turn, each in an object of its own, then a death."""
    broker = await world.start_with(ORDERS, CLICKS)
    for number in range(OBJECTS):
        pending = await produce(broker, batch(b"value %d" % number), (ORDERS, CLICKS)[number % 2])
        assert pending.base_offset == number // 2
    session = current(broker).session.session_id
    world.kill()
    return session, await world.wal_objects(session)


async def all_values(broker: Broker) -> list[bytes | None]:
    results = [*(await values_of(broker, ORDERS)).items(), *(await values_of(broker, CLICKS)).items()]
    for offset, value in results:
        assert value is not None
        assert int(value.split()[1]) // 2 == offset
    return [value for _, value in results]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", range(OBJECTS))
async def test_one_object_of_a_log_is_damaged_and_all_others_are_served_and_kept(
    world: ObjectWorld, number: int, damage: Damage
) -> None:
    session, keys = await crashed(world)
    assert len(keys) == OBJECTS
    await damage(world, keys[number])
    broker = await world.start()
    expected = {b"value %d" % each for each in range(OBJECTS)} - {b"value %d" % number}
    if damage is delete and number == OBJECTS - 1:  # nothing that is left tells that there was one
        assert set(await all_values(broker)) == expected
        return
    assert set(await all_values(broker)) == expected
    left = await world.wal_objects(session)
    assert [key for key in keys if key not in left] == ([keys[number]] if damage is delete else [])
    for name in (ORDERS, CLICKS):
        assert (await produce(broker, batch(b"later"), name)).base_offset >= OBJECTS // 2


@pytest.mark.parametrize("lost", [1, 3, OBJECTS])
async def test_the_last_objects_of_a_log_are_known_to_be_lost_if_a_heartbeat_said_that_they_were_there(
    world: ObjectWorld, lost: int
) -> None:
    broker = await world.start_with(ORDERS)
    for number in range(OBJECTS):
        await produce(broker, batch(b"value %d" % number))
    await current(broker).renew()
    session = current(broker).session.session_id
    world.kill()
    keys = await world.wal_objects(session)
    for key in keys[OBJECTS - lost :]:
        await delete(world, key)
    broker = await world.start()
    assert broker.recovered.losses == lost
    assert list((await values_of(broker)).values()) == [b"value %d" % each for each in range(OBJECTS - lost)]
    assert (await produce(broker, batch(b"later"))).base_offset >= OBJECTS
    assert await world.wal_objects(session) == keys[: OBJECTS - lost]


async def test_what_a_damaged_log_held_is_served_after_further_restarts_and_still_kept(world: ObjectWorld) -> None:
    session, keys = await crashed(world)
    await delete(world, keys[3])
    for _ in range(3):
        broker = await world.start()
        assert len(await all_values(broker)) == OBJECTS - 1
        world.kill()
    assert [key for key in keys if key not in await world.wal_objects(session)] == [keys[3]]


async def test_two_neighbouring_objects_and_a_later_one_are_lost(world: ObjectWorld) -> None:
    _, keys = await crashed(world)
    for number in (1, 2, 5):
        await delete(world, keys[number])
    broker = await world.start()
    assert set(await all_values(broker)) == {b"value %d" % each for each in (0, 3, 4, 6, 7)}
    assert parse_wal_key(keys[1]) is not None


# --- rows that are not what the session left there


async def move_flushed_end(world: World, offset: int) -> None:
    """The row changes without the agent: an older database, or an operator."""

    async def change(tx: Transaction) -> int:
        return await tx.change("UPDATE partitions SET flushed_end = :offset", {"offset": offset})

    assert await world.sqlite._engine.write(change) == 1


@pytest.mark.parametrize("flushed_end", [1, 2])
async def test_a_segment_that_is_refused_though_the_lease_is_ours_ends_the_session_and_leaves_the_log(
    make_world: MakeWorld, flushed_end: int
) -> None:
    world = await make_world()
    broker = await world.start_with()
    first = current(broker).session.session_id
    running = world.run(broker)
    for number in range(4):
        await produce(broker, batch(b"value %d" % number))
    await move_flushed_end(world, flushed_end)
    with pytest.raises(SessionLost, match="though the lease is ours"):
        await current(broker).flusher.flush_all()
    await world.clock.advance(60)  # a flush of its own finds the same, and another session begins
    assert current(broker).session.session_id != first
    assert broker.recovered.damaged_logs == 1
    assert await values_of(broker, offset=flushed_end) == {
        number: b"value %d" % number for number in range(flushed_end, 4)
    }
    # What no segment has is still in the log.
    kept = world.files.list(quarantine_root(WAL_ROOT) / first)
    (log,) = [name for name in kept if name.endswith(".wal")]
    data = world.files.read(quarantine_root(WAL_ROOT) / first / log)
    assert all(b"value %d" % number in data for number in range(4))
    await world.stop(broker, running)


async def test_a_stop_whose_segment_is_refused_though_the_lease_is_ours_leaves_the_log(make_world: MakeWorld) -> None:
    world = await make_world()
    broker = await world.start_with()
    session = current(broker).session.session_id
    running = world.run(broker)
    for number in range(2):
        await produce(broker, batch(b"value %d" % number))
    await move_flushed_end(world, 1)
    await world.stop(broker, running)
    assert session in world.wal_sessions()
    broker = await world.start()
    assert await values_of(broker, offset=1) == {1: b"value 1"}


async def test_a_recovery_whose_guard_fails_for_a_lease_that_is_still_held_leaves_the_log(world_on_disk: World) -> None:
    world = world_on_disk
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    session = current(broker).session.session_id
    world.kill()
    resume = world.metadata.hold("finish_recovery")
    starting = asyncio.ensure_future(world.start())
    await settle()
    await move_flushed_end(world, 1)
    resume.set()
    with pytest.raises(Unavailable, match="lease lost"):
        await starting
    assert session in world.wal_sessions()


# --- segments that are gone


async def flushed_and_more(world: World) -> dict[TopicPartition, str]:
    """Two topics, each with a segment of its own and a record that only the log has; returns the segments' keys."""
    broker = await world.start_with(ORDERS, CLICKS)
    keys: dict[TopicPartition, str] = {}
    for name in (ORDERS, CLICKS):
        await produce(broker, idempotent(b"a", sequence=0), name)
        await produce(broker, idempotent(b"b", sequence=1), name)
        before = set(await world.object_keys())
        await current(broker).flusher.flush_all()
        (keys[name],) = set(await world.object_keys()) - before
    for name in (ORDERS, CLICKS):
        await produce(broker, idempotent(b"c", sequence=2), name)
    world.kill()
    return keys


async def cut_in_half(world: World, key: str) -> None:
    data = await world.bucket.get_range(key, 0, 1 << 30)
    await world.bucket.delete(key)
    await world.bucket.put_new(key, [data[: len(data) // 2]])


async def lose(world: World, key: str) -> None:
    await world.bucket.delete(key)


@pytest.mark.parametrize("damage", [lose, cut_in_half])
async def test_a_damaged_segment_of_a_topic_keeps_no_other_from_being_recovered(
    world_on_disk: World, damage: Callable[[World, str], Awaitable[None]]
) -> None:
    world = world_on_disk
    keys = await flushed_and_more(world)
    await damage(world, keys[ORDERS])
    broker = await world.start()
    assert broker.recovered.records == 2
    assert await values_of(broker, CLICKS) == {0: b"a", 1: b"b", 2: b"c"}
    assert (await produce(broker, idempotent(b"c", sequence=2), CLICKS)).base_offset == 2
    # Of the damaged one the log's record is served, and its producer goes on, recognised.
    assert await values_of(broker, ORDERS, offset=2) == {2: b"c"}
    assert (await produce(broker, idempotent(b"c", sequence=2), ORDERS)).base_offset == 2
    assert (await produce(broker, idempotent(b"d", sequence=3), ORDERS)).base_offset == 3


async def delete_topic(world: World) -> None:
    (topic,) = [topic for topic in await world.sqlite.topics() if topic.name == ORDERS.topic]
    await world.sqlite.delete_topic(topic.topic_id)


async def delete_records(world: World) -> None:
    (topic,) = [topic for topic in await world.sqlite.topics() if topic.name == ORDERS.topic]
    await world.sqlite.advance_log_start({PartitionId(topic.topic_id, 0): 2})


@pytest.mark.parametrize("deletion", [delete_topic, delete_records])
async def test_what_is_deleted_while_its_log_is_recovered_is_not_taken_for_missing(
    world_on_disk: World, deletion: Callable[[World], Awaitable[None]]
) -> None:
    world = world_on_disk
    await flushed_and_more(world)
    resume = world.metadata.hold("last_runs")
    starting = asyncio.ensure_future(world.start())
    await settle()
    await deletion(world)
    resume.set()
    broker = await starting
    assert broker.recovered.damaged_logs == 0
    assert await values_of(broker, CLICKS) == {0: b"a", 1: b"b", 2: b"c"}


# --- logs on a disk


def wal_file(world: World, session: SessionId) -> Path:
    directory = WAL_ROOT / session
    (name,) = [name for name in world.files.list(directory) if name.endswith(".wal")]
    return directory / name


async def crashed_on_disk(world: World) -> tuple[SessionId, Path]:
    broker = await world.start_with(ORDERS, CLICKS)
    for number in range(OBJECTS):
        await produce(broker, batch(b"value %d " % number + bytes(5000)), (ORDERS, CLICKS)[number % 2])
    session = current(broker).session.session_id
    path = wal_file(world, session)
    world.kill()
    return session, path


async def numbers_of(broker: Broker) -> set[int]:
    results = [*(await values_of(broker, ORDERS)).values(), *(await values_of(broker, CLICKS)).values()]
    return {int(value.split()[1]) for value in results if value is not None}


@pytest.mark.parametrize("number", range(OBJECTS))
async def test_a_damaged_entry_on_a_disk_is_kept_beside_and_its_offset_is_not_given_again(
    world_on_disk: World, number: int
) -> None:
    world = world_on_disk
    session, path = await crashed_on_disk(world)
    damaged = world.files.read(path).replace(b"value %d " % number, b"value ? ")
    world.files.overwrite(path, damaged)
    broker = await world.start()
    assert await numbers_of(broker) == set(range(OBJECTS)) - {number}
    assert world.files.read(quarantine_root(WAL_ROOT) / session / path.name) == damaged
    assert session not in world.wal_sessions()
    if number < OBJECTS - 1:  # the end may have been torn by a loss of power, and was not acknowledged then
        assert broker.recovered.damaged_logs == 1
        for name in (ORDERS, CLICKS):
            assert (await produce(broker, batch(b"later"), name)).base_offset >= OBJECTS // 2


@pytest.mark.parametrize("number", range(OBJECTS))
async def test_a_bad_sector_costs_the_entry_in_it_and_no_other(world_on_disk: World, number: int) -> None:
    world = world_on_disk
    session, path = await crashed_on_disk(world)
    at = world.files.read(path).index(b"value %d " % number)
    world.files.spoil(path, at, at + 512)
    broker = await world.start()
    assert await numbers_of(broker) == set(range(OBJECTS)) - {number}
    assert broker.recovered.damaged_logs == 1
    assert world.files.list(quarantine_root(WAL_ROOT) / session)
    for name in (ORDERS, CLICKS):
        assert (await produce(broker, batch(b"later"), name)).base_offset >= OBJECTS // 2


async def test_whichever_agent_dies_between_publishing_and_setting_aside_leaves_the_damaged_log_kept(
    world_on_disk: World,
) -> None:
    world = world_on_disk
    session, path = await crashed_on_disk(world)
    world.files.overwrite(path, world.files.read(path).replace(b"value 3 ", b"value ? "))
    world.metadata.lose_answer("finish_recovery")
    with pytest.raises(Unavailable):
        await world.start()
    world.kill()
    broker = await world.start()
    assert await numbers_of(broker) == set(range(OBJECTS)) - {3}
    assert path.name in world.files.list(quarantine_root(WAL_ROOT) / session)
    assert session not in world.wal_sessions()
