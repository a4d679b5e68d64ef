"""A lost or older database doesn't cost records: what objects and logs hold is registered at its own offsets.

What must be there is what clients sent and got acknowledged, never what the product says.
"""

import asyncio
from pathlib import Path

import pytest

from streamhouse.broker.admin.orphan_adoption import AdoptionReport, recover_stores
from streamhouse.broker.broker import Broker
from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config import CompactionSettings
from streamhouse.errors import Misconfigured
from streamhouse.format.object_keys import CLUSTER_KEY, aside_key, segment_key
from streamhouse.model.names import SessionId, TopicPartition
from tests.broker.cluster.copies import Stores, contents, copied, make_all
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
    values_of,
)
from tests.broker.transactions.support import Producer, committed

NOBODY = SessionId("s-" + "0" * 32)


@pytest.fixture
async def stores(make_world: MakeWorld, tmp_path: Path) -> Stores:
    return Stores(await make_world(), tmp_path)


async def recover(
    world: World, *, apply: bool = True, take_over: str | None = None, disk: bool = True
) -> AdoptionReport:
    return await recover_stores(
        world.sqlite,
        world.bucket,
        disk=DiskWalRecovery(WAL_ROOT, world.files) if disk else None,
        settings=world.settings,
        clock=world.clock,
        ids=world.ids,
        apply=apply,
        is_alone=True,
        take_over=take_over,
        on_progress=lambda what, number: None,
    )


def actions(report: AdoptionReport) -> dict[str, int]:
    result: dict[str, int] = {}
    for each in report.findings:
        result[each.action] = result.get(each.action, 0) + 1
    return result


async def test_an_older_database_gets_back_what_was_written_since_at_the_same_offsets(stores: Stores) -> None:
    buckets = await make_all(stores)
    await stores.use("older", buckets["newer"])
    before = await contents(buckets["newer"])
    preview = await recover(stores.world, apply=False)
    assert (preview.pairing, preview.count("register")) == ("older database", 1)
    assert await contents(buckets["newer"]) == before
    with pytest.raises(Misconfigured, match="older"):
        await stores.world.start()
    await recover(stores.world)
    broker = await stores.world.start()
    assert await values_of(broker) == {0: b"a", 1: b"b", 2: b"c"}
    assert (await produce(broker, batch(b"d"))).base_offset == 3
    assert (await contents(buckets["newer"])).items() >= before.items()


async def test_an_empty_database_gets_topics_with_their_names_and_all_records(stores: Stores) -> None:
    buckets = await make_all(stores)
    await stores.use("empty", buckets["newer"])
    report = await recover(stores.world)
    assert report.new_topics == ["orders"]
    broker = await stores.world.start()
    assert broker.cluster_id == (await contents(buckets["newer"]))[CLUSTER_KEY].decode()
    assert await values_of(broker) == {0: b"a", 1: b"b", 2: b"c"}
    config = (await broker.catalog.configs())[(await broker.topic("orders")).topic_id]
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert (await produce(broker, batch(b"d"))).base_offset == 3


async def test_a_topic_whose_name_nobody_knows_is_made_under_its_id(stores: Stores) -> None:
    buckets = await make_all(stores)
    for key in [meta.key async for meta in buckets["newer"].list("topics/")]:
        await buckets["newer"].delete(key)
    await stores.use("empty", buckets["newer"])
    [name] = (await recover(stores.world)).new_topics
    assert name.startswith("recovered-")
    broker = await stores.world.start()
    assert await values_of(broker, TopicPartition(name, 0)) == {0: b"a", 1: b"b", 2: b"c"}


@pytest.mark.parametrize("database", ["older", "empty"])
async def test_what_only_a_log_on_disk_has_comes_back(stores: Stores, database: str) -> None:
    """Acknowledged, not flushed, and the agent was killed."""
    world = stores.world
    buckets = await make_all(stores)
    await stores.use("newer", buckets["newer"])
    broker = await world.start()
    task = world.run(broker)
    await produce(broker, batch(b"d", b"e"))
    world.kill()
    disk = world.files
    await stores.use(database, buckets["newer"])
    world.files = disk
    report = await recover(world)
    assert any(each.source.startswith("log of") for each in report.findings)
    broker = await world.start()
    assert await values_of(broker) == dict(enumerate([b"a", b"b", b"c", b"d", b"e"]))
    del task


@pytest.mark.parametrize("database", ["older", "empty"])
async def test_what_only_a_log_in_the_object_store_has_comes_back(stores: Stores, database: str) -> None:
    world = stores.world
    buckets = await make_all(stores)
    await stores.use("newer", buckets["newer"])
    wals = ObjectWalFactory(buckets["newer"], world.settings.wal, clock=world.clock, ids=world.ids)
    broker = Broker(world.dependencies(wal_factory=wals))
    await broker.start()
    task = world.run(broker)
    for value in (b"d", b"e"):
        pending = await broker.append(ORDERS, batch(value))
        acknowledging = asyncio.ensure_future(broker.acknowledge(pending))
        await world.clock.advance(1)
        await acknowledging
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await stores.use(database, buckets["newer"])
    await recover(world)
    broker = await world.start()
    assert await values_of(broker) == dict(enumerate([b"a", b"b", b"c", b"d", b"e"]))
    assert (await produce(broker, batch(b"f"))).base_offset == 5


@pytest.mark.parametrize("is_flushed", [True, False])
async def test_transactions_that_were_aborted_stay_so(stores: Stores, is_flushed: bool) -> None:
    world = stores.world
    await stores.use("newer", world.bucket)
    await stores.run_and_stop(b"before")
    broker = await world.start()
    task = world.run(broker)
    await world.clock.advance(0)
    producer = await Producer(broker).init()
    for value, commit in ((b"gone", False), (b"stays", True)):
        await producer.send(value)
        ending = asyncio.ensure_future(producer.end(commit=commit))
        await world.clock.advance(5)
        await ending
    if is_flushed:
        await world.stop(broker, task)
    else:
        world.kill()
    disk = world.files
    await stores.use("empty", world.bucket)
    world.files = disk
    await recover(world)
    broker = await world.start()
    assert await committed(broker) == [b"before", b"stays"]


async def test_recovering_twice_changes_nothing_more(stores: Stores) -> None:
    buckets = await make_all(stores)
    await stores.use("empty", buckets["newer"])
    await recover(stores.world)
    again = await recover(stores.world)
    assert again.count("register") == 0
    broker = await stores.world.start()
    assert await values_of(broker) == {0: b"a", 1: b"b", 2: b"c"}


@pytest.mark.parametrize("is_shared", [False, True])
async def test_merged_objects_come_back_though_what_they_were_merged_from_is_gone(
    make_world: MakeWorld, tmp_path: Path, is_shared: bool
) -> None:
    """Where another topic needs the older objects they are still there, and the older database names them."""
    world = await make_world(compaction=CompactionSettings(merge_runs=4))
    stores = Stores(world, tmp_path)
    await stores.use("newer", world.bucket)
    broker = await world.start_with(ORDERS, CLICKS)
    task = world.run(broker)
    sent = {number: b"v%d" % number for number in range(6)}
    for number, value in sent.items():
        await produce(broker, batch(value))
        if is_shared and number < 3:
            await produce(broker, batch(b"click"), CLICKS)
        await current(broker).flusher.flush_all()
        if number == 2:
            stores.back_up("newer", "older")
    await broker.compactor.run_once()
    await world.clock.advance(world.settings.retention.grace_s + world.settings.retention.check_s + 10)
    await world.stop(broker, task)
    assert len(await world.object_keys()) == (4 if is_shared else 1)
    await stores.run_and_stop()
    merged = world.bucket
    for database in ("older", "empty"):
        await stores.use(database, await copied(merged, world))
        await recover(world)
        broker = await world.start()
        assert await values_of(broker) == sent
        if is_shared:
            assert await values_of(broker, CLICKS) == dict.fromkeys(range(3), b"click")


async def test_what_can_not_be_read_is_set_aside_and_everything_else_comes_back(stores: Stores) -> None:
    buckets = await make_all(stores)
    bucket = buckets["newer"]
    await bucket.put_new(segment_key(NOBODY, 1), [b"no segment"])
    await stores.use("empty", bucket)
    report = await recover(stores.world)
    [aside] = [each for each in report.findings if each.action == "set aside"]
    assert aside.source == segment_key(NOBODY, 1)
    assert await bucket.get_range(aside_key(segment_key(NOBODY, 1)), 0, 100) == b"no segment"
    assert await values_of(await stores.world.start()) == {0: b"a", 1: b"b", 2: b"c"}


async def test_an_object_store_that_was_emptied_is_started_on_with_what_is_missing_named(stores: Stores) -> None:
    buckets = await make_all(stores)
    await stores.use("newer", buckets["empty"])
    report = await recover(stores.world)
    assert actions(report) == {"missing": 2}
    assert report.count("missing") == 3
    broker = await stores.world.start()
    assert (await produce(broker, batch(b"d"))).base_offset == 3


async def test_records_of_another_cluster_are_registered_only_where_its_id_is_given(stores: Stores) -> None:
    buckets = await make_all(stores)
    await stores.use("foreign", buckets["newer"])
    with pytest.raises(Misconfigured, match="--take-over"):
        await recover(stores.world)
    cluster_id = (await contents(buckets["newer"]))[CLUSTER_KEY].decode()
    report = await recover(stores.world, take_over=cluster_id)
    [name] = report.new_topics  # the database has a topic of its own that is called orders
    broker = await stores.world.start()
    assert await values_of(broker, TopicPartition(name, 0)) == {0: b"a", 1: b"b", 2: b"c"}


async def test_a_database_that_was_taken_from_its_store_is_older_from_then_on(stores: Stores) -> None:
    """Two databases never go on with one object store."""
    buckets = await make_all(stores)
    await stores.use("empty", buckets["newer"])
    await recover(stores.world)
    await stores.use("newer", buckets["newer"])
    with pytest.raises(Misconfigured, match="older than the object store"):
        await stores.world.start()


async def test_producers_go_on_after_it_without_duplicates_and_with_ids_of_their_own(stores: Stores) -> None:
    world = stores.world
    await stores.use("newer", world.bucket)
    broker = await world.start_with(ORDERS)
    producer = await broker.allocate_producer_id()
    epoch = (await produce(broker, idempotent(b"a", sequence=0, producer=producer))).log.epoch
    await world.stop(broker, world.run(broker))
    await stores.run_and_stop()
    await stores.use("empty", world.bucket)
    await recover(world)
    broker = await world.start()
    pending = await produce(broker, idempotent(b"a", sequence=0, producer=producer))
    assert (pending.base_offset, await values_of(broker)) == (0, {0: b"a"})
    assert (await produce(broker, idempotent(b"b", sequence=1, producer=producer))).base_offset == 1
    assert await broker.allocate_producer_id() > producer
    assert broker.leader_epoch(ORDERS) > epoch


async def test_agents_that_live_are_not_recovered_below(world: World) -> None:
    await world.start_with(ORDERS)
    with pytest.raises(Misconfigured, match="an agent uses these stores"):
        await recover_stores(
            world.sqlite,
            world.bucket,
            disk=None,
            settings=world.settings,
            clock=world.clock,
            ids=world.ids,
            apply=True,
            is_alone=False,
            take_over=None,
            on_progress=lambda what, number: None,
        )
