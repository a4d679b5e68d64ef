"""A copy of the database from a moment before a kill is refused, or lacks nothing: its age does not matter.

What the copy doesn't know of is in segments that no row of it names. Either the log still has it as well, and recovery
puts it back at its offsets, or a generation was begun before the log let go of it, and the copy is refused.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config import ClusterSettings, WalSettings
from streamhouse.errors import Misconfigured
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore
from tests.broker.cluster.copies import Stores
from tests.broker.conftest import MakeWorld
from tests.broker.support import Faulty, World, batch, current, produce, values_of
from tests.support.depth import scaled

WALS = {
    "object": WalSettings(kind="object", window_ms=1),
    "disk": WalSettings(kind="disk", fsync="always", file_bytes=1024),
}
LONG_S = 150.0
A, B = b"a" * 2000, b"b" * 2000
"""Larger than a file of a log on a disk."""


@pytest.fixture(params=WALS)
async def stores(request: pytest.FixtureRequest, make_world: MakeWorld, tmp_path: Path) -> Stores:
    world = await make_world(wal=WALS[request.param], cluster=ClusterSettings(generation_s=60.0))
    stores = Stores(world, tmp_path)
    await stores.use("newer", world.bucket)
    return stores


async def start(world: World) -> Broker:
    changes = {}
    if world.settings.wal.kind == "object":
        settings = world.settings.wal
        changes["wal_factory"] = ObjectWalFactory(world.objects, settings, clock=world.clock, ids=world.ids)
    broker = Broker(world.dependencies(**changes))
    await broker.start()
    return broker


async def restore(stores: Stores, name: str) -> None:
    """The database alone; the object store, or the disk, is as it is."""
    world = stores.world
    await world.sqlite.aclose()
    world.sqlite = SqliteMetadataStore(str(stores.folder / f"{name}.db"), clock=world.clock)
    await world.sqlite.open()
    world.metadata = Faulty(world.sqlite)


async def assert_refused_or_complete(stores: Stores, *values: bytes) -> None:
    await restore(stores, "older")
    try:
        broker = await start(stores.world)
    except Misconfigured as error:
        refusal = str(error)
    else:
        refusal = ""
        assert await values_of(broker) == dict(enumerate(values))
    assert not refusal or "older than the object store" in refusal


async def running(world: World) -> "tuple[Broker, asyncio.Task[None]]":
    """With one record that every copy has."""
    broker = await start(world)
    await broker.create_topic("orders", partitions=1, overrides={})
    task = world.run(broker)
    await produce(broker, batch(A))
    await current(broker).flusher.flush_all()
    await world.clock.advance(LONG_S)
    return broker, task


@pytest.mark.parametrize("killed_after_s", scaled(quick=[59, 61], nightly=[0, 1, 12, 25, 45, 59, 61, 80, 150]))
async def test_a_copy_from_before_a_kill(stores: Stores, killed_after_s: int) -> None:
    world = stores.world
    broker, _ = await running(world)
    stores.back_up("newer", "older")
    await produce(broker, batch(B))
    await current(broker).flusher.flush_all()
    await world.clock.advance(killed_after_s)
    world.kill()
    await assert_refused_or_complete(stores, A, B)


@pytest.mark.parametrize("killed_after_s", scaled(quick=[12], nightly=[1.5, 12, 45, 70]))
@pytest.mark.parametrize("has_topic", [True, False])
async def test_a_copy_from_before_the_partition_was_led(stores: Stores, has_topic: bool, killed_after_s: float) -> None:
    """With it no agent would look for the partition in the log of the agent that was killed."""
    world = stores.world
    broker = await start(world)
    world.run(broker)
    if has_topic:
        await broker.create_topic("orders", partitions=1, overrides={})
    await world.clock.advance(LONG_S)
    stores.back_up("newer", "older")
    if not has_topic:
        await broker.create_topic("orders", partitions=1, overrides={})
    await produce(broker, batch(A))
    await world.clock.advance(killed_after_s)
    world.kill()
    await restore(stores, "older")
    with pytest.raises(Misconfigured, match="older than the object store"):
        await start(world)


async def test_a_copy_from_the_moment_of_a_recovery(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the agent that was killed is removed after it."""
    world = stores.world
    broker, _ = await running(world)
    await produce(broker, batch(B))
    world.kill()
    finish = world.sqlite.finish_recovery

    async def finish_recovery(*args: Any, **named: Any) -> None:
        stores.back_up("newer", "older")
        await finish(*args, **named)

    monkeypatch.setattr(world.sqlite, "finish_recovery", finish_recovery)
    await start(world)
    world.kill()
    await assert_refused_or_complete(stores, A, B)


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_copy_from_before_a_stop(stores: Stores, is_away: bool) -> None:
    """Also if the object store does not take the generation that the end of a session begins: then the log stays."""
    world = stores.world
    broker, task = await running(world)
    stores.back_up("newer", "older")
    await produce(broker, batch(B))
    await current(broker).flusher.flush_all()
    if is_away:
        world.objects.refuse("put_new", 1000)
    await world.stop(broker, task)
    world.objects = Faulty(world.bucket)
    await assert_refused_or_complete(stores, A, B)


@pytest.mark.parametrize("flushed_after_s", scaled(quick=[59], nightly=[1, 55, 59]))
async def test_what_an_idle_agent_has_flushed_leaves_its_log_in_the_end(stores: Stores, flushed_after_s: int) -> None:
    """Also when the last generation began before the database knew that the log is not needed any more."""
    world = stores.world
    broker, _ = await running(world)
    generation_s = world.settings.cluster.generation_s
    await world.clock.advance(generation_s - LONG_S % generation_s + flushed_after_s)
    await produce(broker, batch(B))
    await current(broker).flusher.flush_all()
    await world.clock.advance(generation_s * 4)
    assert [meta.key async for meta in world.bucket.list("wal/")] == []
    assert current(broker).wal.size_bytes == 0
