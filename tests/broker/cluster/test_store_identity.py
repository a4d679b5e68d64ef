"""Database and object store know each other: every pair that doesn't belong together is refused, and keeps its data."""

import asyncio
import itertools
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.cluster.store_identity import KEPT, StoreIdentity
from streamhouse.errors import Misconfigured, Unavailable
from streamhouse.format.object_keys import CLUSTER_KEY, GENERATIONS_PREFIX, generation_key, segment_key, wal_key
from streamhouse.model.cluster_identity import DatabaseIdentity
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore
from tests.broker.cluster.copies import Stores, contents, make_all
from tests.broker.conftest import MakeWorld
from tests.broker.support import World, batch, current, produce, settle, values_of

NOBODY = SessionId("s-" + "0" * 32)
NAMES = ("older", "newer", "empty", "foreign")


@pytest.fixture
async def stores(make_world: MakeWorld, tmp_path: Path) -> Stores:
    return Stores(await make_world(), tmp_path)


def expected(database: str, bucket: str) -> str | None:
    """The words of the refusal; None where agents start."""
    if database == bucket:
        return None
    if bucket == "empty":
        return "it was emptied, or is another one"
    if database == "empty":
        return "the metadata database is empty"
    if "foreign" in (database, bucket):
        return "belong to different clusters"
    return "database is older than the object store" if database == "older" else "object store is older than"


@pytest.mark.parametrize(("database", "bucket"), list(itertools.product(NAMES, NAMES)))
async def test_only_stores_that_belong_together_are_started_on_and_nothing_is_lost(
    stores: Stores, database: str, bucket: str
) -> None:
    chosen = (await make_all(stores))[bucket]
    await stores.use(database, chosen)
    before = await contents(chosen)
    words = expected(database, bucket)
    if words is None:
        broker = await stores.world.start()
        assert all(body == before[key] for key, body in (await contents(chosen)).items() if key in before)
        if database != "empty":
            records = {"older": [b"a", b"b"], "newer": [b"a", b"b", b"c"], "foreign": [b"x"]}[database]
            assert await values_of(broker) == dict(enumerate(records))
        return
    with pytest.raises(Misconfigured, match=words) as refused:
        await stores.world.start()
    assert " do=" in str(refused.value)
    assert await contents(chosen) == before
    assert (await stores.world.sqlite.membership()).sessions == []


async def test_an_older_database_below_a_running_agent_ends_its_session_and_is_refused(stores: Stores) -> None:
    """As when PostgreSQL is restored from a dump while agents run."""
    world = stores.world
    buckets = await make_all(stores)
    await stores.use("newer", buckets["newer"])
    broker = await world.start()
    task = world.run(broker)
    await produce(broker, batch(b"d"))
    older = SqliteMetadataStore(str(stores.folder / "older.db"), clock=world.clock)
    await older.open()
    world.metadata._inner = older
    before = await contents(world.bucket)
    await world.clock.advance(2 * world.settings.lease.renew_s)
    assert current(broker).end_reason is not None
    assert broker.not_ready() is not None
    with pytest.raises(Misconfigured, match="older than the object store"):
        await broker.retention.delete_orphans()
    assert (await contents(world.bucket)).items() >= before.items()
    world.metadata._inner = world.sqlite  # the newer one is back
    await world.clock.advance(60)
    assert broker.not_ready() is None
    assert (await values_of(broker))[3] == b"d"
    await world.stop(broker, task)
    await older.aclose()


async def test_another_clusters_database_below_a_running_agent_ends_its_session_whatever_its_generation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    foreign = DatabaseIdentity(cluster_id="another", begun=1000, stored=1000)
    monkeypatch.setattr(world.metadata, "identity", AsyncMock(return_value=foreign), raising=False)
    await world.clock.advance(2 * world.settings.lease.renew_s)
    assert "belong to different clusters" in str(current(broker).end_reason)
    with pytest.raises(Misconfigured, match="belong to different clusters"):
        await broker.retention.sweep_logs()
    monkeypatch.undo()
    await world.clock.advance(60)
    await world.stop(broker, task)


async def test_both_stores_restored_from_one_backup_below_a_running_agent_are_refused(world: World) -> None:
    """They belong together, and lack what this agent has acknowledged since."""
    identity = StoreIdentity(world.dependencies())
    await identity.check()
    await identity.begin(NOBODY)
    identity.known += 1
    with pytest.raises(Misconfigured, match="older than the object store"):
        await identity.check()


async def test_a_database_that_does_not_answer_for_a_moment_is_not_another_one(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    world.metadata.refuse("identity", 2)
    await world.clock.advance(5 * world.settings.lease.renew_s)
    assert broker.not_ready() is None
    await world.stop(broker, task)


async def test_a_copy_of_the_database_that_has_the_session_is_noticed_before_anything_is_written_to_it(
    stores: Stores,
) -> None:
    """Its heartbeats would be answered: the session was there when the copy was made."""
    world = stores.world
    await stores.use("newer", world.bucket)
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    stores.back_up("newer", "older")
    await produce(broker, batch(b"b"))
    await world.clock.advance(2 * world.settings.cluster.generation_s)
    older = SqliteMetadataStore(str(stores.folder / "older.db"), clock=world.clock)
    await older.open()
    world.metadata._inner = older
    await world.clock.advance(1.5 * world.settings.lease.renew_s)
    assert "older than the object store" in str(current(broker).end_reason)
    assert (await older.identity()).begun == 1
    world.metadata._inner = world.sqlite
    await world.clock.advance(60)
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    await world.stop(broker, task)
    await older.aclose()


async def test_a_generation_begins_when_objects_were_registered_and_not_in_an_idle_cluster(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    await world.clock.advance(3 * world.settings.cluster.generation_s)
    busy = (await world.sqlite.identity()).stored
    assert busy > 1
    await world.clock.advance(10 * world.settings.cluster.generation_s)
    assert (await world.sqlite.identity()).stored == busy
    await world.stop(broker, task)


async def test_a_copy_from_a_moment_before_a_clean_stop_is_refused(stores: Stores) -> None:
    """The stop removes the log, so the copy would lack what was flushed after it, and give its offsets again."""
    world = stores.world
    await stores.use("newer", world.bucket)
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    stores.back_up("newer", "older")
    await produce(broker, batch(b"b"))
    await world.stop(broker, world.run(broker))
    await stores.use("older", world.bucket)
    with pytest.raises(Misconfigured, match="older than the object store"):
        await world.start()
    await stores.use("newer", world.bucket)
    assert await values_of(await world.start()) == {0: b"a", 1: b"b"}


async def test_a_stop_ends_without_its_last_generation_when_the_object_store_does_not_answer(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await current(broker).flusher.flush_all()
    world.objects.refuse("put_new", 1000)
    await world.stop(broker, world.run(broker))
    assert broker.left_behind is None
    assert (await world.sqlite.identity()).stored == 1


async def test_old_generations_go_and_the_newest_is_always_there(world: World) -> None:
    for _ in range(KEPT + 4):
        broker = await world.start()
        await world.stop(broker, world.run(broker))
        newest = (await world.sqlite.identity()).begun
        keys = [meta.key async for meta in world.bucket.list(GENERATIONS_PREFIX)]
        assert keys[-1] == generation_key(newest)
        assert len(keys) <= KEPT


@pytest.mark.parametrize("call", ["put_new", "list"])
async def test_a_start_that_fails_half_way_is_not_taken_for_an_older_store(world: World, call: str) -> None:
    """The database is always raised first."""
    for _ in range(2):  # while they meet, and later
        for fail in (world.objects.refuse, world.objects.lose_answer):
            fail(call)
            with pytest.raises(Unavailable):
                await world.start()
        world.metadata.refuse("store_generation")
        with pytest.raises(Unavailable):
            await world.start()
        broker = await world.start()
        assert broker.cluster_id
        await world.stop(broker, world.run(broker))


async def test_agents_that_start_at_once_on_new_stores_agree_on_the_cluster_id(world: World) -> None:
    brokers = [Broker(world.dependencies(single_agent=False)) for _ in range(4)]
    await asyncio.gather(*(each.start() for each in brokers))
    assert len({each.cluster_id for each in brokers}) == 1
    assert (await contents(world.bucket))[CLUSTER_KEY].decode() == brokers[0].cluster_id
    assert (await world.sqlite.identity()).begun == 4
    for each in brokers:
        await each.reader.aclose()


async def test_of_two_databases_that_begin_the_same_generation_the_second_is_refused(stores: Stores) -> None:
    """Both are as new as the object store when they look."""
    world = stores.world
    await stores.use("first", world.bucket)
    await stores.run_and_stop(b"a")
    await world.sqlite.aclose()
    stores.copy_database("first", "second")
    await stores.use("second", world.bucket)
    asking = world.metadata.hold("begin_generation")
    starting = asyncio.ensure_future(world.start())
    await settle()
    other = SqliteMetadataStore(str(stores.folder / "first.db"), clock=world.clock)
    await other.open()
    begun = await other.begin_generation()
    await world.bucket.put_new(generation_key(begun), [b"of the first database"])
    asking.set()
    with pytest.raises(Misconfigured, match="another database has begun this generation"):
        await starting
    assert (await world.sqlite.membership()).sessions == []
    await other.aclose()


# --- stores of a release that knew no identity


async def forget_identity(world: World) -> None:
    """As the stores were before there was any."""
    await world.bucket.delete(CLUSTER_KEY)
    for key in [meta.key async for meta in world.bucket.list(GENERATIONS_PREFIX)]:
        await world.bucket.delete(key)
    await world.sqlite._engine.write(_reset)


async def _reset(tx: Transaction) -> None:
    await tx.change("UPDATE counters SET value = 0 WHERE name LIKE 'generation%'", {})


async def test_stores_without_identity_whose_rows_and_objects_fit_are_adopted(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await world.stop(broker, world.run(broker))
    named = broker.cluster_id
    await forget_identity(world)
    broker = await world.start()
    assert broker.cluster_id == named
    assert await values_of(broker) == {0: b"a"}


async def test_a_database_whose_objects_are_not_there_is_not_adopted(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    await world.stop(broker, world.run(broker))
    await forget_identity(world)
    for key in await world.object_keys():
        await world.bucket.delete(key)
    with pytest.raises(Misconfigured, match="it was emptied, or is another one"):
        await world.start()
    assert CLUSTER_KEY not in await contents(world.bucket)


@pytest.mark.parametrize("key", [segment_key(NOBODY, 1), wal_key(NOBODY, 1)])
async def test_objects_that_an_empty_database_does_not_know_are_not_adopted(world: World, key: str) -> None:
    await world.bucket.put_new(key, [b"somebody's"])
    with pytest.raises(Misconfigured, match="the metadata database is empty"):
        await world.start()
    assert await contents(world.bucket) == {key: b"somebody's"}
    assert (await world.sqlite.identity()).cluster_id is None
