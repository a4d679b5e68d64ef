"""Compacted topics: a reader from the beginning sees each key's final value, whatever happens meanwhile."""

import asyncio
import random
from dataclasses import replace

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.maintenance.compaction import due_for_compaction
from streamhouse.config import CompactionSettings, FlushSettings, RetentionSettings
from streamhouse.errors import CorruptObject, SessionLost, Unavailable
from streamhouse.format.batch import iter_batches
from streamhouse.format.compression import Codec
from streamhouse.format.object_keys import REWRITTEN_SEQUENCES, parse_segment_key
from streamhouse.format.records import Record, build_batch
from streamhouse.model.cluster import SessionState
from streamhouse.model.names import PartitionId
from streamhouse.model.topic import parse_topic_config
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
    records_of,
    settle,
    values_of,
)
from tests.support.depth import scaled

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
RETENTION = RetentionSettings()
DAY_S = 86_400


async def put(broker: Broker, *pairs: tuple[bytes, bytes | None], timestamp_ms: int = NOW_MS, codec: int = 0) -> None:
    records = [Record(key=key, value=value, timestamp_ms=timestamp_ms) for key, value in pairs]
    await produce(broker, memoryview(build_batch(records, codec=codec)))


async def flush(broker: Broker) -> None:
    await current(broker).flusher.flush_all()


async def written(broker: Broker, *pairs: tuple[bytes, bytes | None], timestamp_ms: int = NOW_MS) -> None:
    """One run of its own."""
    await put(broker, *pairs, timestamp_ms=timestamp_ms)
    await flush(broker)


async def later(world: World, broker: Broker, seconds: float) -> None:
    await world.clock.advance(seconds)
    await current(broker).renew()


async def partition_of(broker: Broker) -> PartitionId:
    return PartitionId((await broker.topic("orders")).topic_id, 0)


async def cleaned_to(world: World, broker: Broker) -> int:
    partition = await partition_of(broker)
    return (await world.sqlite.cleaned([partition.topic_id])).get(partition, 0)


async def spans_of(world: World, broker: Broker) -> list[tuple[int, int]]:
    runs = await world.sqlite.runs(await partition_of(broker), from_offset=0, limit=1000)
    return [(run.base, run.end) for run in runs]


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with(**COMPACT)


# --- what stays


async def test_the_latest_value_of_each_key_stays_at_its_offset(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"b", b"2"))
    await written(broker, (b"a", b"3"), (b"c", b"4"))
    await written(broker, (b"c", b"5"))
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2", 2: b"3", 4: b"5"}
    assert await cleaned_to(world, broker) == 5
    assert (await broker.latest(ORDERS)).offset == 5
    assert (await broker.earliest(ORDERS)).offset == 0


async def test_the_unflushed_tail_is_left_alone_and_supersedes_nothing(broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    await put(broker, (b"a", b"3"), (b"a", b"4"))
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2", 2: b"3", 3: b"4"}


async def test_a_topic_that_is_not_compacted_keeps_everything(world: World) -> None:
    broker = await world.start_with()
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    await broker.compactor.run_once()
    assert await values_of(broker) == {0: b"1", 1: b"2"}


async def test_every_codec_is_kept(world: World, broker: Broker) -> None:
    for codec in Codec:
        await put(broker, (b"a", b"x" * 100), (b"b", b"y" * 100), (bytes([codec]), b"z"), codec=codec)
    await flush(broker)
    await broker.compactor.run_once()
    response = await fetch(broker, 0)
    codecs = [
        int.from_bytes(data[span.position + 21 : span.position + 23]) & 7
        for data in response.records
        for span in iter_batches(data)
    ]
    assert codecs == list(Codec)
    assert [record.key for record in records_of(response.records)] == [
        *map(bytes, [[0], [1], [2], [3]]),
        b"a",
        b"b",
        b"\4",
    ]


async def test_a_fetch_in_a_gap_gets_what_follows(broker: Broker) -> None:
    for n in range(5):
        await written(broker, (b"a", b"%d" % n), (b"k%d" % n, b""))
    await broker.compactor.run_once()
    for offset in range(9):
        response = await fetch(broker, offset)
        assert response.error is None
        results = [record.offset for record in records_of(response.records) if record.offset >= offset]
        assert results == [at for at in (1, 3, 5, 7, 8, 9) if at >= offset]


async def test_a_fetch_in_a_gap_up_to_the_flushed_end_gets_the_tail(world: World) -> None:
    broker = await world.start_with(**COMPACT, **{"delete.retention.ms": "0"})
    await written(broker, (b"a", b"1"), (b"b", None), (b"c", None))
    await broker.compactor.run_once()
    await written(broker, (b"a", b"2"), (b"c", None))
    await broker.compactor.run_once()
    await put(broker, (b"d", b"3"))
    assert await values_of(broker, offset=1) == {3: b"2", 4: None, 5: b"3"}


async def test_times_are_found_where_the_records_are(broker: Broker) -> None:
    for n, key in enumerate((b"a", b"b", b"a", b"b", b"c")):
        await written(broker, (key, b"v"), timestamp_ms=NOW_MS - 1000 * (10 - n))
    await written(broker, (b"d", b"late"), timestamp_ms=NOW_MS)
    await written(broker, (b"d", b"later but older"), timestamp_ms=NOW_MS - 1000)
    await broker.compactor.run_once()

    async def at(timestamp_ms: int) -> tuple[int, int] | None:
        result = await broker.at_time(ORDERS, timestamp_ms)
        return None if result is None else (result.offset, result.timestamp_ms - NOW_MS)

    assert await at(NOW_MS - 10_000) == (2, -8000)
    assert await at(NOW_MS - 7000) == (3, -7000)
    assert await at(NOW_MS - 5999) == (6, -1000)
    assert await at(NOW_MS) is None
    newest = await broker.at_max_timestamp(ORDERS)
    assert newest is not None
    assert newest.offset == 6


# --- tombstones


async def test_a_tombstone_stays_for_its_time_after_the_first_compaction_and_then_goes(world: World) -> None:
    broker = await world.start_with(**COMPACT, **{"delete.retention.ms": "100000"})
    await written(broker, (b"a", b"1"), (b"b", b"2"))
    await written(broker, (b"a", None))
    await later(world, broker, 500)
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2", 2: None}
    await later(world, broker, 99)
    await written(broker, (b"c", b"3"))
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2", 2: None, 3: b"3"}
    await later(world, broker, 1)
    await written(broker, (b"d", b"4"))
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2", 3: b"3", 4: b"4"}


async def test_the_last_offset_stays_within_reach_when_its_tombstone_is_gone(world: World) -> None:
    broker = await world.start_with(**COMPACT, **{"delete.retention.ms": "0"})
    await written(broker, (b"a", b"1"))
    await written(broker, (b"a", None))
    await broker.compactor.run_once()
    partition = await partition_of(broker)
    await world.sqlite._database.write(lambda tx: tx.change("UPDATE partitions SET cleaned_to = 0", {}))
    await broker.compactor.run_once()
    response = await fetch(broker, 0)
    assert records_of(response.records) == []
    [last] = iter_batches(response.records[0])
    assert last.end == response.high_watermark == 2
    assert partition == (await world.sqlite.partitions([partition.topic_id]))[0].partition
    await written(broker, (b"b", b"2"))
    await broker.compactor.run_once()
    [only] = iter_batches((await fetch(broker, 0)).records[0])
    assert (only.base, only.end) == (2, 3)


# --- when


async def test_a_restart_goes_on_where_the_last_pass_ended(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    await broker.compactor.run_once()
    world.kill()
    broker = await world.start()
    read = world.objects.count("get_range")
    await broker.compactor.run_once()
    assert world.objects.count("get_range") == read
    assert await cleaned_to(world, broker) == 2
    await written(broker, (b"a", b"3"))
    await broker.compactor.run_once()
    assert await values_of(broker) == {2: b"3"}


async def test_little_that_is_new_waits_until_it_is_enough(world: World) -> None:
    broker = await world.start_with(**{"cleanup.policy": "compact"})
    for key in (b"a", b"b", b"c", b"d"):
        await written(broker, (key, b"v" * 100))
    await broker.compactor.run_once()
    await written(broker, (b"a", b""))
    await broker.compactor.run_once()
    assert len(await values_of(broker)) == 5
    for _ in range(9):
        await written(broker, (b"a", b"v" * 100))
    await broker.compactor.run_once()
    assert len(await values_of(broker)) == 4


async def test_young_records_stay_as_they_are(world: World) -> None:
    broker = await world.start_with(**COMPACT, **{"min.compaction.lag.ms": "60000"})
    await written(broker, (b"a", b"1"), (b"a", b"2"), timestamp_ms=NOW_MS - 60_000)
    await written(broker, (b"a", b"3"), (b"a", b"4"), timestamp_ms=NOW_MS - 1000)
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2", 2: b"3", 3: b"4"}
    assert await cleaned_to(world, broker) == 2
    await later(world, broker, 60)
    await broker.compactor.run_once()
    assert await values_of(broker) == {3: b"4"}


async def test_records_that_waited_too_long_are_flushed_to_be_compacted(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(age_s=10_000), compaction=CompactionSettings(interval_s=10))
    broker = await world.start_with(**COMPACT, **{"max.compaction.lag.ms": "1000"})
    task = world.run(broker)
    await put(broker, (b"a", b"1"), (b"a", b"2"))
    await world.clock.advance(30)
    assert await values_of(broker) == {1: b"2"}
    await world.stop(broker, task)


async def test_a_partition_that_nobody_leads_is_compacted_too(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    world.kill()
    broker = await world.start()
    assert [each.holder for each in await world.sqlite.partitions([(await partition_of(broker)).topic_id])] == [None]
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2"}


async def test_each_partition_has_one_agent_that_looks_after_it(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"))
    me = current(broker).session
    other = replace(me, session_id=type(me.session_id)("s-" + "f" * 32), node_id=type(me.node_id)(99))
    [state] = await world.sqlite.partitions([(await partition_of(broker)).topic_id])
    configs = {state.partition.topic_id: parse_topic_config(COMPACT)}
    free = replace(state, holder=None)

    def mine(of: object, by: object, *sessions: object) -> bool:
        return bool(due_for_compaction([of], configs, by=by, sessions=sessions))  # type: ignore[list-item, arg-type]

    assert [mine(state, by, me, other) for by in (me, other)] == [True, False]
    assert [mine(free, by, me, other) for by in (me, other)] == [True, False]
    assert [mine(free, by, replace(me, state=SessionState.RECOVERING), other) for by in (me, other)] == [False, True]
    assert not mine(replace(state, log_start=state.flushed_end), me, me)


async def test_compact_and_delete_do_both(world: World) -> None:
    broker = await world.start_with(**COMPACT | {"cleanup.policy": "compact,delete", "retention.ms": str(1000 * DAY_S)})
    await written(broker, (b"a", b"1"), (b"b", b"2"), timestamp_ms=NOW_MS - 2000 * DAY_S)
    await written(broker, (b"a", b"3"), (b"c", b"4"))
    await written(broker, (b"c", b"5"))
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2", 2: b"3", 4: b"5"}
    await broker.retention.apply()
    start = (await broker.earliest(ORDERS)).offset
    assert await values_of(broker, offset=start) == {2: b"3", 4: b"5"}


# --- bounds


async def test_a_small_key_map_takes_several_passes(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(max_keys=2, merge_runs=0))
    broker = await world.start_with(**COMPACT)
    for n in range(3):
        for key in (b"a", b"b", b"c", b"d", b"e"):
            await put(broker, (key, b"%d" % n))
    await flush(broker)
    reached = [0]
    while reached[-1] < 15:
        await broker.compactor.run_once()
        reached.append(await cleaned_to(world, broker))
        assert {record.key: record.value for record in records_of((await fetch(broker, 0)).records)} == dict.fromkeys(
            (b"a", b"b", b"c", b"d", b"e"), b"2"
        )
    assert reached[1] == 2
    assert await values_of(broker) == dict.fromkeys(range(10, 15), b"2")


async def test_a_long_log_is_rewritten_in_several_objects(make_world: MakeWorld) -> None:
    world = await make_world(compaction=CompactionSettings(segment_bytes=1000, read_bytes=1))
    broker = await world.start_with(**COMPACT)
    for n in range(12):
        await written(broker, (b"a", b"x" * 150), (b"k%d" % n, b"y" * 150))
    await broker.compactor.run_once()
    assert await spans_of(world, broker) == [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20), (20, 22), (22, 24)]
    assert set(await values_of(broker)) == {*range(1, 24, 2), 22}


async def test_what_does_not_change_is_not_written_again(world: World, broker: Broker) -> None:
    for n in range(4):
        await written(broker, (b"k%d" % n, b"v"))
    written_objects = world.objects.count("put_new")
    await broker.compactor.run_once()
    assert world.objects.count("put_new") == written_objects
    assert await cleaned_to(world, broker) == 4


async def test_blocks_in_the_cache_are_left_alone(broker: Broker) -> None:
    for n in range(4):
        await written(broker, (b"a", b"%d" % n))
    before = (broker.reader.blocks.misses, broker.reader.indexes.misses)
    await broker.compactor.run_once()
    assert (broker.reader.blocks.misses, broker.reader.indexes.misses) == before


# --- in the middle of it


async def test_a_reader_in_the_middle_goes_on(world: World, broker: Broker) -> None:
    for n in range(6):
        await written(broker, (b"a", b"%d" % n), (b"k%d" % n, b"v"))
    seen = records_of((await fetch(broker, 0, max_bytes=1)).records)
    await broker.compactor.run_once()
    seen += records_of((await fetch(broker, seen[-1].offset + 1)).records)
    assert {record.key: record.value for record in seen}[b"a"] == b"5"
    assert [record.offset for record in seen] == sorted(record.offset for record in seen)


async def test_a_reader_with_a_stale_list_finds_what_stands_in_the_place_of_objects_that_are_gone(
    world: World, broker: Broker
) -> None:
    for n in range(4):
        await written(broker, (b"a", b"%d" % n), (b"k%d" % n, b"v"))
    stale = await broker.reader.runs.find(await partition_of(broker), 0)
    runs = broker.reader.runs
    forget, runs.forget = runs.forget, lambda partition: None  # type: ignore[method-assign]
    await broker.compactor.run_once()
    runs.forget = forget  # type: ignore[method-assign]
    assert await runs.find(await partition_of(broker), 0) == stale
    await world.clock.advance(RETENTION.grace_s)
    assert await broker.retention.delete_pending() == 3
    assert set(await values_of(broker)) == {1, 3, 5, 6, 7}


async def test_appends_and_flushes_go_on_meanwhile(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    resume = world.objects.hold("put_new")
    looking = asyncio.ensure_future(broker.compactor.run_once())
    await settle()
    await put(broker, (b"a", b"3"))
    resume.set()
    await looking
    await flush(broker)
    assert await values_of(broker) == {1: b"2", 2: b"3"}


async def test_retention_that_comes_between_makes_the_pass_begin_again(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"b", b"2"))
    await written(broker, (b"a", b"3"))
    resume = world.metadata.hold("replace_runs")
    looking = asyncio.ensure_future(broker.compactor.run_once())
    await settle()
    log = await broker.open_log(ORDERS)
    await world.sqlite.advance_log_start({log.partition: 2})
    log.advance_log_start(2)
    resume.set()
    await looking
    assert await cleaned_to(world, broker) == 0
    assert len(await world.object_keys()) == 2  # the one that nobody needs is gone
    await broker.compactor.run_once()
    assert await cleaned_to(world, broker) == 3
    assert await values_of(broker, offset=2) == {2: b"3"}


async def test_a_topic_that_is_deleted_meanwhile_is_no_error(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    resume = world.metadata.hold("replace_runs")
    looking = asyncio.ensure_future(broker.compactor.run_once())
    await settle()
    await broker.delete_topic(await broker.topic("orders"))
    resume.set()
    await looking
    await world.clock.advance(RETENTION.grace_s)
    await broker.retention.delete_pending()
    assert await world.object_keys() == []


# --- faults


async def test_a_lost_response_is_resolved_by_a_retry(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    world.metadata.lose_answer("replace_runs")
    looking = asyncio.ensure_future(broker.compactor.run_once())
    await world.clock.advance(10)
    await looking
    assert await values_of(broker) == {1: b"2"}
    assert await cleaned_to(world, broker) == 2


async def test_a_kill_between_put_and_registration_leaves_an_orphan_that_is_collected(
    world: World, broker: Broker
) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    world.metadata.hold("replace_runs")
    looking = asyncio.ensure_future(broker.compactor.run_once())
    await settle()
    looking.cancel()
    world.kill()
    world.metadata.heal()
    orphans = [key for key in await world.object_keys() if _sequence(key) >= REWRITTEN_SEQUENCES]
    assert len(orphans) == 1
    world.metadata._held.clear()
    broker = await world.start()
    assert await values_of(broker) == {0: b"1", 1: b"2"}
    await world.clock.advance(RETENTION.orphan_age_s + 1)
    assert await broker.retention.delete_orphans() == 1
    await broker.compactor.run_once()
    assert await values_of(broker) == {1: b"2"}
    assert not set(orphans) & set(await world.object_keys())


def _sequence(key: str) -> int:
    name = parse_segment_key(key)
    assert name is not None
    return name.sequence


@pytest.mark.parametrize("call", ["partitions", "membership", "cleaned"])
async def test_a_failing_metadata_store_changes_nothing(world: World, broker: Broker, call: str) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    world.metadata.refuse(call)
    with pytest.raises(Unavailable):
        await broker.compactor.run_once()
    assert await values_of(broker) == {0: b"1", 1: b"2"}


async def test_trouble_with_one_partition_is_not_the_next_ones(world: World, broker: Broker) -> None:
    await broker.create_topic("clicks", partitions=1, overrides=COMPACT)
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"1", b"2"), name)
        await flush(broker)
    world.objects.refuse("get_range")
    await broker.compactor.run_once()
    assert [len(await values_of(broker, name)) for name in (ORDERS, CLICKS)] in ([2, 1], [1, 2])
    await broker.compactor.run_once()
    assert [len(await values_of(broker, name)) for name in (ORDERS, CLICKS)] == [1, 1]


async def test_a_session_that_is_over_replaces_nothing(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    await world.sqlite.end_session(current(broker).session.session_id)
    [state] = await world.sqlite.partitions([(await partition_of(broker)).topic_id])
    with pytest.raises(SessionLost):
        await broker.compactor.cleaner.clean(state, parse_topic_config(COMPACT), cleaned_to=0)
    assert await spans_of(world, broker) == [(0, 2)]


async def test_damage_stops_the_pass_and_is_not_written_on(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    partition = await partition_of(broker)
    [run] = await world.sqlite.runs(partition, from_offset=0, limit=9)
    body = await world.bucket.get_range(run.object_key, 0, 1 << 20)
    await world.bucket.delete(run.object_key)
    flipped = bytes([body[run.position + 30] ^ 1])
    await world.bucket.put_new(run.object_key, [body[: run.position + 30], flipped, body[run.position + 31 :]])
    [state] = await world.sqlite.partitions([partition.topic_id])
    with pytest.raises(CorruptObject):
        await broker.compactor.cleaner.clean(state, parse_topic_config(COMPACT), cleaned_to=0)
    assert await world.object_keys() == [run.object_key]


# --- producers


async def test_what_is_known_of_producers_survives(world: World, broker: Broker) -> None:
    for sequence in range(3):
        await produce(broker, idempotent(b"v%d" % sequence, sequence=sequence))
        await flush(broker)
    await broker.compactor.run_once()
    world.kill()
    broker = await world.start()
    assert await values_of(broker) == {2: b"v2"}
    assert (await produce(broker, idempotent(b"v2", sequence=2))).base_offset == 2
    assert (await produce(broker, idempotent(b"v3", sequence=3))).base_offset == 3


async def test_where_epochs_end_stays_known(world: World, broker: Broker) -> None:
    epochs = []
    for n in range(3):
        await written(broker, (b"a", b"%d" % n), (b"b", b"%d" % n))
        epochs.append((await broker.open_log(ORDERS)).epoch)
        world.kill()
        broker = await world.start()
    ends = [await broker.epoch_end(ORDERS, epoch) for epoch in epochs]
    await broker.compactor.run_once()
    assert await values_of(broker) == {4: b"2", 5: b"2"}
    assert [await broker.epoch_end(ORDERS, epoch) for epoch in epochs] == ends


# --- against a model


@pytest.mark.parametrize("seed", range(scaled(quick=8, nightly=125)))
async def test_whatever_happens_a_reader_from_zero_sees_each_keys_final_value(make_world: MakeWorld, seed: int) -> None:
    """Random updates and tombstones, flushed, compacted, merged, expired, restarted at random moments."""
    chance = random.Random(seed)
    compaction = CompactionSettings(
        max_keys=chance.choice([2, 5, 1000]),
        segment_bytes=chance.choice([200, 1000, 100_000]),
        merge_runs=chance.choice([0, 2, 4]),
        read_bytes=chance.choice([1, 1000]),
    )
    world = await make_world(compaction=compaction)
    lag_ms = chance.choice([0, 5000])
    broker = await world.start_with(**COMPACT | {"delete.retention.ms": "20000", "min.compaction.lag.ms": str(lag_ms)})
    history: list[Record] = []
    for _ in range(120):
        action = chance.random()
        if action < 0.5:
            records = [
                Record(
                    offset=len(history) + n,
                    key=b"k%d" % chance.randrange(8),
                    value=None if chance.random() < 0.2 else b"v%d" % (len(history) + n),
                    timestamp_ms=world.clock.now_ms() - chance.randrange(1000),
                )
                for n in range(chance.randrange(1, 6))
            ]
            await produce(broker, memoryview(build_batch(records, codec=chance.choice(list(Codec)))))
            history += records
        elif action < 0.75:
            await flush(broker)
        elif action < 0.9:
            await broker.compactor.run_once()
        elif action < 0.95:
            await later(world, broker, chance.randrange(15))
        else:
            await flush(broker)
            world.kill()
            broker = await world.start()
        if chance.random() < 0.2:
            await check(world, broker, history)
    await flush(broker)
    await later(world, broker, 6)
    for _ in range(200):
        await broker.compactor.run_once()
    await check(world, broker, history)
    left = await read_all(broker)
    assert len({record.key for record in left}) == len(left)


async def read_all(broker: Broker) -> list[Record]:
    results: list[Record] = []
    offset = 0
    while offset < (await broker.latest(ORDERS)).offset:
        response = await fetch(broker, offset, max_bytes=300)
        assert response.error is None
        results += [record for record in records_of(response.records) if record.offset >= offset]
        ends = [span.end for data in response.records for span in iter_batches(data)]
        if not ends:
            break
        offset = ends[-1]
    return results


async def check(world: World, broker: Broker, history: list[Record]) -> None:
    result = await read_all(broker)
    assert (await broker.latest(ORDERS)).offset == len(history)
    assert [record.offset for record in result] == sorted({record.offset for record in result})
    for record in result:
        assert record == history[record.offset]
    clean = await cleaned_to(world, broker)
    assert [record.offset for record in result if record.offset >= clean] == list(range(clean, len(history)))
    final = {record.key: record.value for record in history}
    seen = {record.key: record.value for record in result}
    assert {key: value for key, value in seen.items() if value is not None} == {
        key: value for key, value in final.items() if value is not None
    }
    assert all(final[key] is None for key, value in seen.items() if value is None)
