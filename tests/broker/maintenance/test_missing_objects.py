"""An object that is gone from the store: its offsets are refused by name, everything around them goes on."""

import asyncio
import logging

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.config import CompactionSettings, FetchSettings, ProducerSettings
from streamhouse.errors import CorruptObject, MissingRecords, OutOfOrderSequence, Unavailable
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.segment import Run
from tests.broker.conftest import MakeWorld
from tests.broker.support import (
    CLICKS,
    MANY_BYTES,
    NOW_MS,
    ORDERS,
    World,
    batch,
    current,
    fetch,
    idempotent,
    produce,
    records_of,
    settle,
    values_of,
)


async def flushed(broker: Broker, *data: memoryview, name: TopicPartition = ORDERS) -> None:
    for each in data:
        await produce(broker, each, name)
    await current(broker).flusher.flush_all()


async def runs_of(world: World, broker: Broker, name: TopicPartition = ORDERS) -> list[Run]:
    topic = await broker.topic(name.topic)
    return list(await world.sqlite.runs(PartitionId(topic.topic_id, name.partition), from_offset=0, limit=100))


async def restarted(world: World) -> Broker:
    world.kill()
    return await world.start()


async def lose(world: World, *runs: Run) -> None:
    """The store loses objects silently."""
    for run in runs:
        await world.bucket.delete(run.object_key)


async def lost_in_the_middle(world: World) -> tuple[Broker, list[Run]]:
    """Five runs of one record each; the third is lost before anybody has read it."""
    broker = await world.start_with(ORDERS, CLICKS, **{"retention.ms": "-1"})
    for n in range(5):
        await flushed(broker, batch(b"o%d" % n, timestamp_ms=NOW_MS + n))
        await flushed(broker, batch(b"c%d" % n), name=CLICKS)
    runs = await runs_of(world, broker)
    await lose(world, runs[2])
    return await restarted(world), runs


async def test_readers_of_a_lost_range_get_an_error_that_names_it_and_all_others_are_served(world: World) -> None:
    broker, runs = await lost_in_the_middle(world)
    for offset in range(5):
        found = await fetch(broker, offset)
        if offset != 2:
            assert found.error is None
            assert records_of(found.records)[0].value == b"o%d" % offset
            continue
        assert isinstance(found.error, MissingRecords)
        for part in ("partition=orders-0", "offsets=[2,3)", runs[2].object_key):
            assert part in str(found.error)
    assert await values_of(broker, CLICKS) == {n: b"c%d" % n for n in range(5)}
    assert await values_of(broker, offset=3) == {3: b"o3", 4: b"o4"}


async def test_a_fetch_that_begins_before_a_lost_range_brings_what_lies_before_it(world: World) -> None:
    broker, _ = await lost_in_the_middle(world)
    found = await fetch(broker, 0)
    assert found.error is None
    assert [record.value for record in records_of(found.records)] == [b"o0", b"o1"]


async def test_a_reader_that_waits_for_more_learns_soon_that_its_range_is_lost(world: World) -> None:
    """A long poll must not sit out its time, as if the log ended there; nor may a client ask without a pause."""
    broker, _ = await lost_in_the_middle(world)
    wanted = [PartitionFetch(ORDERS, 2, MANY_BYTES), PartitionFetch(CLICKS, 5, MANY_BYTES)]
    requested = asyncio.ensure_future(broker.fetch(wanted, max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=60))
    await settle()
    assert not requested.done()
    async with asyncio.timeout(10):
        found = await requested
    assert isinstance(found[0].error, MissingRecords)
    assert found[1].error is None


async def test_records_of_other_partitions_end_the_pause_after_a_lost_range(make_world: MakeWorld) -> None:
    world = await make_world(fetch=FetchSettings(damage_pause_s=1000.0))
    broker, _ = await lost_in_the_middle(world)
    wanted = [PartitionFetch(ORDERS, 2, MANY_BYTES), PartitionFetch(CLICKS, 5, MANY_BYTES)]
    requested = asyncio.ensure_future(broker.fetch(wanted, max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=60))
    await settle()
    await produce(broker, batch(b"c5"), CLICKS)
    async with asyncio.timeout(10):
        found = await requested
    assert isinstance(found[0].error, MissingRecords)
    assert records_of(found[1].records)[0].value == b"c5"


async def test_a_store_that_does_not_answer_is_another_matter(world: World) -> None:
    broker, _ = await lost_in_the_middle(world)
    world.objects.refuse("get_range", 100)
    found = await fetch(broker, 3)
    assert isinstance(found.error, Unavailable)
    world.objects.heal()
    assert (await fetch(broker, 3)).error is None


async def test_whether_rows_still_name_a_lost_object_is_asked_before_it_is_called_lost(world: World) -> None:
    broker, _ = await lost_in_the_middle(world)
    world.metadata.refuse("runs", 100)
    found = await fetch(broker, 2)
    assert isinstance(found.error, Unavailable)
    world.metadata.heal()
    assert isinstance((await fetch(broker, 2)).error, MissingRecords)


async def test_an_offset_by_time_in_a_lost_range_is_refused_and_others_are_found(world: World) -> None:
    broker, _ = await lost_in_the_middle(world)
    log = await broker.open_log(ORDERS)
    for n in (0, 1, 3, 4):
        found = await broker.offsets.at_time(log, NOW_MS + n)
        assert found is not None
        assert found.offset == n
    with pytest.raises(MissingRecords, match=r"offsets=\[2,3\)"):
        await broker.offsets.at_time(log, NOW_MS + 2)


async def test_an_object_that_is_put_back_is_served_again(world: World) -> None:
    broker = await world.start_with(ORDERS)
    await flushed(broker, batch(b"a"))
    [run] = await runs_of(world, broker)
    body = await world.bucket.get_range(run.object_key, 0, 1 << 20)
    await lose(world, run)
    assert isinstance((await fetch(broker, 0)).error, MissingRecords)
    assert len(broker.reader.damage) == 1
    await world.bucket.put_new(run.object_key, [body])
    await world.clock.advance(world.settings.fetch.missing_recheck_s)
    assert await values_of(broker) == {0: b"a"}
    assert len(broker.reader.damage) == 0


async def test_who_asks_without_end_for_what_is_lost_costs_few_requests_and_few_lines(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = await lost_in_the_middle(world)
    caplog.set_level(logging.ERROR)
    before = world.objects.count("get_range")
    for _ in range(100):
        assert isinstance((await fetch(broker, 2)).error, MissingRecords)
    assert world.objects.count("get_range") - before <= 2
    lines = [line for line in caplog.records if "missing" in line.message]
    assert [(line.partition, line.offsets) for line in lines] == [("orders-0", "[2,3)")]  # type: ignore[attr-defined]
    assert broker.reader.damage.refused_missing == 100
    for _ in range(20):
        await world.clock.advance(world.settings.fetch.missing_recheck_s)
        await fetch(broker, 2)
    assert sum("missing" in line.message for line in caplog.records) == 2  # a minute later once more


async def test_damaged_blocks_are_named_by_their_offsets_too(world: World) -> None:
    broker = await world.start_with(ORDERS)
    await flushed(broker, *(batch(b"x" * 300, timestamp_ms=NOW_MS + n) for n in range(3)))
    [run] = await runs_of(world, broker)
    body = bytearray(await world.bucket.get_range(run.object_key, 0, 1 << 20))
    entry = (await broker.reader.index(run)).blocks[1]
    body[entry.position + 20] ^= 1
    await world.bucket.delete(run.object_key)
    await world.bucket.put_new(run.object_key, [bytes(body)])
    found = await fetch(broker, 1)
    assert isinstance(found.error, CorruptObject)
    assert not isinstance(found.error, MissingRecords)
    assert "partition=orders-0 offsets=[1,2)" in str(found.error)
    assert broker.reader.damage.refused_damaged == 1


async def test_an_object_that_the_disk_can_not_read_is_damage_of_its_range(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await world.start_with(ORDERS)
    await flushed(broker, batch(b"first"))
    await flushed(broker, batch(b"second"))
    first, _ = await runs_of(world, broker)
    whole = world.bucket.get_range

    async def unreadable(key: str, start: int, end: int) -> bytes:
        if key == first.object_key:
            raise CorruptObject(key, why="the disk can't read it: EIO")
        return await whole(key, start, end)

    monkeypatch.setattr(world.bucket, "get_range", unreadable)
    found = await fetch(broker, 0)
    assert isinstance(found.error, CorruptObject)
    assert "partition=orders-0 offsets=[0,1)" in str(found.error)
    assert [each.location.key for each in broker.reader.damage.findings()] == [first.object_key]
    assert (await fetch(broker, 1)).error is None


# --- opening


async def two_runs(world: World) -> list[Run]:
    """Producer 7 wrote to both runs, producer 8 to the first alone, producer 9 to the second."""
    broker = await world.start_with(ORDERS, CLICKS, **{"retention.ms": "-1"})
    for first, other in ((0, 8), (1, 9)):
        await flushed(
            broker,
            idempotent(b"a%d" % first, sequence=first),
            idempotent(b"b%d" % other, sequence=0, producer=other),
        )
    await flushed(broker, idempotent(b"c", sequence=0), name=CLICKS)
    return await runs_of(world, broker)


async def test_a_partition_whose_newest_object_is_lost_opens_and_goes_on_behind_it(world: World) -> None:
    runs = await two_runs(world)
    await lose(world, runs[1])
    broker = await restarted(world)
    # What is left still tells duplicates; where a producer is further, it is believed once.
    assert (await produce(broker, idempotent(b"b8", sequence=0, producer=8))).base_offset == 1
    assert (await produce(broker, idempotent(b"a0", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"a2", sequence=2))).base_offset == 4
    assert (await produce(broker, idempotent(b"b9", sequence=1, producer=9))).base_offset == 5
    with pytest.raises(OutOfOrderSequence):
        await produce(broker, idempotent(b"a9", sequence=9))
    assert (await produce(broker, idempotent(b"c", sequence=0), CLICKS)).base_offset == 0
    await current(broker).flusher.flush_all()
    for offset in range(6):
        assert isinstance((await fetch(broker, offset)).error, MissingRecords) == (offset in (2, 3))
    broker = await restarted(world)  # now from the snapshot of the run behind
    assert (await produce(broker, idempotent(b"a2", sequence=2))).base_offset == 4


async def test_a_partition_of_which_nothing_is_left_opens_and_goes_on_at_its_end(world: World) -> None:
    runs = await two_runs(world)
    await lose(world, *runs)
    broker = await restarted(world)
    assert (await produce(broker, idempotent(b"a2", sequence=2))).base_offset == 4
    assert await values_of(broker, offset=4) == {4: b"a2"}
    assert isinstance((await fetch(broker, 0)).error, MissingRecords)


async def test_what_a_dead_session_left_is_recovered_behind_a_lost_object(world: World) -> None:
    runs = await two_runs(world)
    broker = await restarted(world)
    await produce(broker, idempotent(b"a2", sequence=2))
    await lose(world, runs[1])
    broker = await restarted(world)
    assert broker.recovered.records == 1
    assert await values_of(broker, offset=4) == {4: b"a2"}
    assert (await produce(broker, idempotent(b"a2", sequence=2))).base_offset == 4
    assert (await produce(broker, idempotent(b"c", sequence=0), CLICKS)).base_offset == 0


async def test_a_partition_is_not_opened_while_nobody_says_whether_its_newest_object_is_there(world: World) -> None:
    await two_runs(world)
    broker = await restarted(world)
    world.objects.refuse("get_range", 1000)
    with pytest.raises(Unavailable):
        await produce(broker, idempotent(b"a2", sequence=2))
    world.objects.heal()
    assert (await produce(broker, idempotent(b"a1", sequence=1))).base_offset == 2


async def test_a_transaction_that_was_open_before_a_lost_object_stays_open(world: World) -> None:
    """Readers of committed records must not get more records because a marker, or the next batch, is lost."""
    broker = await world.start_with(ORDERS)
    producer = await broker.transactions.init_producer("alice", 10_000, None)
    whose = {"producer": producer.producer_id, "epoch": producer.epoch, "is_transactional": True}
    enlisting = ProduceTransaction("alice", enlists=True)
    await broker.acknowledge(await broker.append(ORDERS, idempotent(b"x", sequence=0, **whose), enlisting))
    await current(broker).flusher.flush_all()
    await flushed(broker, batch(b"y"))
    await lose(world, (await runs_of(world, broker))[1])
    broker = await restarted(world)
    log = await broker.open_log(ORDERS)
    assert log.last_stable_offset == 0


async def test_nothing_of_a_lost_object_counts_as_settled_until_it_is_back(world: World) -> None:
    """It may have the beginning of an open transaction, whose records must not be read as committed."""
    broker = await world.start_with(ORDERS)
    await flushed(broker, batch(b"x"))
    producer = await broker.transactions.init_producer("alice", 10_000, None)
    whose = {"producer": producer.producer_id, "epoch": producer.epoch, "is_transactional": True}
    pending = await broker.append(
        ORDERS, idempotent(b"y", sequence=0, **whose), ProduceTransaction("alice", enlists=True)
    )
    await broker.acknowledge(pending)
    await current(broker).flusher.flush_all()
    run = (await runs_of(world, broker))[1]
    body = await world.bucket.get_range(run.object_key, 0, 1 << 20)
    await lose(world, run)
    broker = await restarted(world)
    [state] = await world.sqlite.partitions([run.partition.topic_id])
    assert await broker.stable_flushed.ends([state]) == {run.partition: 1}
    first = (await runs_of(world, broker))[0]
    kept = await world.bucket.get_range(first.object_key, 0, 1 << 20)
    await lose(world, first)
    assert await broker.stable_flushed.ends([state]) == {run.partition: 0}
    await world.bucket.put_new(first.object_key, [kept])
    await world.bucket.put_new(run.object_key, [body])
    assert await broker.stable_flushed.ends([state]) == {run.partition: 1}


async def test_a_partition_with_too_many_lost_objects_stays_closed_and_says_which(make_world: MakeWorld) -> None:
    """Further back there may be the beginning of an open transaction that readers could see."""
    world = await make_world(producers=ProducerSettings(max_snapshots_tried=2))
    broker = await world.start_with(ORDERS, CLICKS, **{"retention.ms": "-1"})
    for n in range(4):
        await flushed(broker, idempotent(b"a", sequence=n))
    await lose(world, *(await runs_of(world, broker))[1:])
    broker = await restarted(world)
    with pytest.raises(MissingRecords, match=r"offsets=\[3,4\)"):
        await produce(broker, idempotent(b"a", sequence=4))
    assert (await produce(broker, idempotent(b"c", sequence=0), CLICKS)).base_offset == 0


# --- compaction and merging


async def test_what_stands_around_a_lost_run_is_merged_and_other_partitions_are(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(merge_runs=4))
    broker = await world.start_with(ORDERS, CLICKS, **{"retention.ms": "-1"})
    for n in range(9):
        await flushed(broker, batch(b"o%d" % n))
        await flushed(broker, batch(b"c%d" % n), name=CLICKS)
    runs = await runs_of(world, broker)
    await lose(world, runs[2])
    for _ in range(3):
        await broker.compactor.run_once()
    left = await runs_of(world, broker)
    assert runs[2] in left  # the row stays: it says what is missing
    assert len(left) < len(runs)
    assert len(await runs_of(world, broker, CLICKS)) == 1
    for offset in range(9):
        assert isinstance((await fetch(broker, offset)).error, MissingRecords) == (offset == 2)


async def test_compaction_of_a_partition_with_a_lost_run_is_not_tried_at_every_look(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(merge_runs=0))
    overrides = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    broker = await world.start_with(ORDERS, CLICKS, **overrides)
    for n in range(4):
        await flushed(broker, batch(b"o%d" % n))
        await flushed(broker, batch(b"c%d" % n), name=CLICKS)
    runs = await runs_of(world, broker)
    await lose(world, runs[2])
    await broker.compactor.run_once()
    assert await runs_of(world, broker) == runs
    assert len(await runs_of(world, broker, CLICKS)) < 4 or broker.compactor.cleaner.dropped_records > 0
    read = world.objects.count("get_range")
    for _ in range(10):
        await broker.compactor.run_once()
    assert world.objects.count("get_range") == read
    await world.clock.advance(world.settings.compaction.damage_retry_s)
    await broker.compactor.run_once()
    assert world.objects.count("get_range") > read
