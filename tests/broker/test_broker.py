"""Broker: checks before an append, backpressure, and deleted topics."""

import asyncio
import random

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from streamhouse.broker.broker import Broker
from streamhouse.broker.forwarding.producer_ids import PRODUCER_ID_BLOCK
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.broker.produce.append import AHEAD_BATCHES, AHEAD_BYTES, INSPECTED_RECORDS, AheadJob, trips
from streamhouse.config import BufferSettings, MetadataSettings, ProducerSettings, TopicSettings, WalSettings
from streamhouse.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    Overloaded,
    RecordTooLarge,
    Rejected,
    Retriable,
    Unavailable,
    UnknownTopic,
)
from streamhouse.format.batch import read_header, update_crc
from streamhouse.format.records import Record, build_batch
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import TopicPartition
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


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with()


async def refused(broker: Broker, data: memoryview, error: type[Exception], match: str | None = None) -> None:
    """The batch is refused and leaves nothing behind."""
    before = (await broker.open_log(ORDERS)).next_offset, broker.budget.used_bytes, broker.traffic.appended_batches
    with pytest.raises(error, match=match):
        await broker.append(ORDERS, data)
    log = await broker.open_log(ORDERS)
    assert (log.next_offset, broker.budget.used_bytes, broker.traffic.appended_batches) == before


# --- checks


async def test_a_good_batch_is_placed_counted_and_readable_once_it_is_durable(broker: Broker) -> None:
    data = batch(b"a", b"b")
    pending = await produce(broker, data)
    assert (pending.base_offset, pending.end) == (0, 2)
    assert broker.budget.used_bytes == len(data)
    assert (broker.traffic.appended_batches, broker.traffic.appended_records) == (1, 2)
    assert await values_of(broker) == {0: b"a", 1: b"b"}


async def test_a_batch_larger_than_the_topic_allows_is_refused_before_it_is_looked_into(world: World) -> None:
    broker = await world.start_with(**{"max.message.bytes": "200"})
    await produce(broker, batch(b"x" * 50))
    await refused(broker, batch(b"x" * 300), RecordTooLarge)
    broken = batch(b"x" * 300)
    broken[-1] ^= 1
    await refused(broker, broken, RecordTooLarge)


async def test_a_wrong_checksum_is_refused(broker: Broker) -> None:
    data = batch(b"abc")
    data[-2] ^= 1
    await refused(broker, data, CorruptBatch, "checksum")


async def test_nothing_half_a_batch_and_two_batches_are_refused(broker: Broker) -> None:
    await refused(broker, memoryview(bytearray()), InvalidRecord)
    await refused(broker, batch(b"abc")[:-3], CorruptBatch)
    await refused(broker, memoryview(bytearray(batch(b"a")) + bytearray(batch(b"b"))), InvalidRecord, "more than one")


def lying(data: memoryview, *, count: int, last_delta: int) -> memoryview:
    data[23:27] = last_delta.to_bytes(4)
    data[57:61] = count.to_bytes(4)
    update_crc(data)
    return data


@pytest.mark.parametrize(("count", "last_delta"), [(2, 0), (1, 1), (2, 1), (0, 0), (1000, 999)])
async def test_lying_counts_are_refused(broker: Broker, count: int, last_delta: int) -> None:
    await refused(broker, lying(batch(b"a"), count=count, last_delta=last_delta), Rejected)


@pytest.mark.parametrize("codec", [1, 3, 4])
async def test_lying_counts_inside_compression_are_refused(broker: Broker, codec: int) -> None:
    await refused(broker, lying(batch(b"a", codec=codec), count=2, last_delta=1), InvalidRecord)


async def test_a_batch_that_grows_too_large_when_decompressed_is_refused(make_world: MakeWorld) -> None:
    world = await make_world(producers=ProducerSettings(max_decompressed_bytes=1000))
    broker = await world.start_with()
    await produce(broker, batch(b"x" * 500, codec=4))
    await refused(broker, batch(b"x" * 2000, codec=4), InvalidRecord, "decompressed")


async def test_a_batch_of_too_many_records_or_headers_is_refused(make_world: MakeWorld) -> None:
    world = await make_world(producers=ProducerSettings(max_batch_records=3, max_record_headers=2))
    broker = await world.start_with()
    await produce(broker, batch(b"a", b"b", b"c", codec=4))
    await refused(
        broker, batch(b"a", b"b", b"c", b"d", codec=4), InvalidRecord, "too many records in a batch; records=4"
    )
    for codec in (0, 1, 2, 3, 4):
        two, three = (with_headers(count, codec=codec) for count in (2, 3))
        await produce(broker, two)
        await refused(broker, three, InvalidRecord, "more headers than a record may have limit=2")


async def test_what_is_inspected_ahead_is_what_append_would_find(make_world: MakeWorld) -> None:
    world = await make_world(producers=ProducerSettings(max_record_headers=2))
    broker = await world.start_with()
    await broker.open_log(ORDERS)
    small, large = (batch(b"a", b"b", codec=4), batch(b"d", codec=3)), batch(b"x" * 500_000, codec=4)
    others = (batch(b"c"), with_headers(3, codec=4), memoryview(b""), large)
    first, second, *unknown = await broker.inspect_ahead([(ORDERS, each) for each in small + others])
    assert unknown == [None] * len(others)
    assert first is not None
    assert second is not None
    assert first.summary.max_timestamp_ms == NOW_MS
    pending = [await broker.append(ORDERS, data, None, each) for data, each in zip(small, (first, second), strict=True)]
    assert [each.base_offset for each in pending] == [0, 2]
    damaged = batch(b"e", codec=4)
    damaged[20] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        await broker.append(ORDERS, damaged, None, first)


async def test_batches_as_large_as_clients_make_for_sixteen_partitions_are_inspected_ahead(world: World) -> None:
    broker = await world.start_with()
    await broker.open_log(ORDERS)
    data = [batch(random.Random(number).randbytes(40_000), codec=3) for number in range(16)]
    assert all(await broker.inspect_ahead([(ORDERS, each) for each in data]))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([AHEAD_BYTES // 16] * 16, [16]),
        ([AHEAD_BYTES, 1, 1], [1, 2]),
        ([1] * (AHEAD_BATCHES + 1), [AHEAD_BATCHES, 1]),
        ([AHEAD_BYTES // 2, AHEAD_BYTES // 2 + 1], [1, 1]),
    ],
)
def test_a_trip_to_a_thread_has_so_many_bytes_and_batches(sizes: list[int], expected: list[int]) -> None:
    jobs = [AheadJob(number, size, lambda _: pytest.fail("not run")) for number, size in enumerate(sizes)]
    divided = list(trips(jobs))
    assert [len(trip) for trip in divided] == expected
    assert [job for trip in divided for job in trip] == jobs


def with_headers(count: int, *, codec: int) -> memoryview:
    record = Record(timestamp_ms=NOW_MS, key=b"k", value=b"v", headers=(("", None),) * count)
    return memoryview(build_batch([record], codec=codec))


async def test_a_large_compressed_batch_is_checked_like_a_small_one(world: World) -> None:
    broker = await world.start_with()
    noise = bytes(number * number % 251 for number in range(400_000))
    await produce(broker, batch(noise[:300_000], noise, codec=3))
    assert [len(value or b"") for value in (await values_of(broker)).values()] == [300_000, 400_000]


async def test_timestamps_too_far_ahead_or_behind_are_refused(world: World) -> None:
    limits = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "2000"}
    broker = await world.start_with(**limits)
    for ok in (NOW_MS - 1000, NOW_MS, NOW_MS + 2000, -1):
        await produce(broker, batch(b"a", timestamp_ms=ok))
    await refused(broker, batch(b"a", b"b", timestamps_ms=[NOW_MS, NOW_MS - 1001]), InvalidTimestamp, "behind")
    await refused(broker, batch(b"a", b"b", timestamps_ms=[NOW_MS + 2001, NOW_MS]), InvalidTimestamp, "ahead")


async def test_where_the_agent_stamps_the_producers_times_do_not_matter(world: World) -> None:
    limits = {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1000"}
    broker = await world.start_with(**limits)
    pending = await produce(broker, batch(b"a", timestamp_ms=5))
    assert pending.append_time_ms == NOW_MS
    (record,) = records_of((await fetch(broker, 0)).records)
    assert record.timestamp_ms == NOW_MS


@pytest.mark.parametrize("policy", ["compact", "delete,compact"])
async def test_a_compacted_topic_needs_keys(world: World, policy: str) -> None:
    broker = await world.start_with(**{"cleanup.policy": policy})
    await produce(broker, batch(b"a", key=b""))
    await refused(broker, batch(b"a", key=None), InvalidRecord, "key")


async def test_of_a_very_long_batch_only_the_beginning_is_searched_for_those_to_blame(world: World) -> None:
    broker = await world.start_with(**{"cleanup.policy": "compact"})
    long = batch(*[b""] * (INSPECTED_RECORDS + 1), key=None)
    with pytest.raises(InvalidRecord) as refusal:
        await produce(broker, long)
    assert refusal.value.records == list(range(INSPECTED_RECORDS))


async def test_a_topic_that_is_not_compacted_takes_records_without_keys(broker: Broker) -> None:
    await produce(broker, batch(b"a", key=None))


async def test_a_false_largest_timestamp_is_corrected_and_the_checksum_with_it(broker: Broker) -> None:
    data = batch(b"a", b"b", timestamps_ms=[NOW_MS - 5, NOW_MS - 9])
    data[35:43] = (NOW_MS + 10**12).to_bytes(8)
    update_crc(data)
    await produce(broker, data)
    (stored,) = (await fetch(broker, 0)).records
    assert read_header(stored).max_timestamp_ms == NOW_MS - 5
    again = bytearray(stored)
    update_crc(again)
    assert again == stored
    assert await broker.at_time(ORDERS, NOW_MS) is None


async def test_unknown_topics_and_partitions_are_unknown_to_every_call(broker: Broker) -> None:
    for name in (TopicPartition("nobody", 0), TopicPartition("orders", 1), TopicPartition("orders", -1)):
        with pytest.raises(UnknownTopic):
            await broker.append(name, batch(b"a"))
        for call in (broker.earliest, broker.latest, broker.at_max_timestamp):
            with pytest.raises(UnknownTopic):
                await call(name)


async def test_a_duplicate_is_acknowledged_with_its_offset_and_takes_no_memory(broker: Broker) -> None:
    await produce(broker, idempotent(b"a", b"b", sequence=0))
    used = broker.budget.used_bytes
    again = await produce(broker, idempotent(b"a", b"b", sequence=0))
    assert (again.base_offset, again.end) == (0, 2)
    assert (broker.budget.used_bytes, broker.traffic.appended_batches) == (used, 1)


async def test_a_full_budget_refuses_with_an_error_that_clients_retry(make_world: MakeWorld) -> None:
    world = await make_world(buffer=BufferSettings(memory_bytes=300, max_throttle_s=0.0))
    broker = await world.start_with()
    await produce(broker, batch(b"x" * 250))
    assert broker.not_ready() == "memory budget exhausted"
    await refused(broker, batch(b"y"), Overloaded)
    assert broker.budget.refused == 1
    await current(broker).flusher.flush_all()
    assert broker.not_ready() is None
    await produce(broker, batch(b"y"))


async def test_a_full_wal_queue_refuses_and_leaves_nothing_behind(make_world: MakeWorld) -> None:
    world = await make_world(wal=WalSettings(fsync="always", max_pending_bytes=100))
    broker = await world.start_with()
    waiting = await broker.append(ORDERS, batch(b"x" * 200))
    await refused(broker, batch(b"y"), Overloaded)
    await broker.acknowledge(waiting)
    assert (await produce(broker, batch(b"y"))).base_offset == 1


async def test_a_stop_with_a_full_wal_queue_waits_for_it(make_world: MakeWorld) -> None:
    world = await make_world(wal=WalSettings(fsync="always", max_pending_bytes=100))
    broker = await world.start_with()
    task = world.run(broker)
    await settle()
    pending = await broker.append(ORDERS, batch(b"x" * 200))
    broker.stop()
    await broker.acknowledge(pending)
    await world.until_done(task)
    assert await values_of(await world.start()) == {0: b"x" * 200}


# --- readiness


async def test_a_broker_without_a_session_is_not_ready_and_says_so(world: World) -> None:
    broker = Broker(world.dependencies())
    assert broker.not_ready() == "no session"
    assert broker.leader_epoch(ORDERS) == -1
    await broker.create_topic("orders", partitions=1, overrides={})
    with pytest.raises(Unavailable, match="no session yet"):
        await broker.append(ORDERS, batch(b"a"))


async def test_readiness_names_what_is_missing(broker: Broker, world: World) -> None:
    assert broker.not_ready() is None
    world.clock.skip(world.settings.lease.ttl_s)
    assert broker.not_ready() == "the session's heartbeat is late"
    broker.stop()
    assert broker.not_ready() == "stopping"


async def test_failed_metadata_calls_in_a_row_make_an_agent_not_ready(
    broker: Broker, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(world.sqlite), "failures_in_a_row", 2)
    assert broker.not_ready() is None
    monkeypatch.setattr(type(world.sqlite), "failures_in_a_row", 3)
    assert broker.not_ready() == "metadata store failed 3 times in a row"


# --- topics


async def test_a_topic_is_created_on_demand_where_that_is_allowed(make_world: MakeWorld) -> None:
    broker = await (await make_world()).start()
    with pytest.raises(UnknownTopic):
        await broker.topic("orders")
    assert (await broker.topic("orders", create=True)).name == "orders"
    strict = await (await make_world(topics=TopicSettings(auto_create=False))).start()
    with pytest.raises(UnknownTopic):
        await strict.topic("orders", create=True)


async def test_a_deleted_topic_gives_back_its_memory_and_its_wal(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a"), name)
    await broker.delete_topic(await broker.topic("orders"))
    assert broker.budget.used_bytes == len(batch(b"a"))
    with pytest.raises(UnknownTopic):
        await broker.append(ORDERS, batch(b"b"))
    assert isinstance((await fetch(broker, 0)).error, UnknownTopic)
    assert await values_of(broker, CLICKS) == {0: b"a"}


async def test_a_topic_deleted_while_an_append_is_on_its_way_refuses_it_and_keeps_no_memory(broker: Broker) -> None:
    pending = await broker.append(ORDERS, batch(b"a"))
    waiting = asyncio.ensure_future(broker.acknowledge(pending))
    await broker.delete_topic(await broker.topic("orders"))
    with pytest.raises(Retriable):
        await waiting
    assert broker.budget.used_bytes == 0


async def test_a_topic_deleted_while_a_fetch_waits_ends_it(broker: Broker) -> None:
    request = PartitionFetch(ORDERS, 0, MANY_BYTES)
    waiting = asyncio.ensure_future(broker.fetch([request], max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=60))
    await settle()
    await broker.delete_topic(await broker.topic("orders"))
    (result,) = await waiting
    assert isinstance(result.error, UnknownTopic)


async def test_a_topic_created_again_begins_anew_and_remembers_no_producer(broker: Broker) -> None:
    await produce(broker, idempotent(b"old", sequence=0))
    await current(broker).flusher.flush_all()
    epoch = broker.leader_epoch(ORDERS)
    await broker.delete_topic(await broker.topic("orders"))
    await broker.create_topic("orders", partitions=1, overrides={})
    assert (await produce(broker, idempotent(b"new", sequence=0))).base_offset == 0
    assert await values_of(broker) == {0: b"new"}
    assert broker.leader_epoch(ORDERS) > epoch


async def test_a_topic_created_again_while_the_old_one_is_being_dropped_is_left_alone(world: World) -> None:
    broker = await world.start()
    old = await broker.create_topic("orders", partitions=3, overrides={})
    names = [TopicPartition("orders", number) for number in range(3)]
    for name in names:
        await produce(broker, batch(b"old"), name)
    resume = world.metadata.hold_answer("delete_topic")
    deleting = asyncio.ensure_future(broker.delete_topic(old))
    await settle()
    creating = asyncio.ensure_future(broker.create_topic("orders", partitions=3, overrides={}))
    await settle()
    resume.set()
    await asyncio.gather(deleting, creating)
    for name in names:
        await produce(broker, batch(b"new"), name)
        assert await values_of(broker, name) == {0: b"new"}


# --- producer ids


async def test_producer_ids_are_never_given_twice_and_come_in_blocks(world: World) -> None:
    broker = await world.start()
    first = await asyncio.gather(*(broker.allocate_producer_id() for _ in range(PRODUCER_ID_BLOCK + 1)))
    assert world.metadata.count("allocate_producer_ids") == 2
    world.kill()
    broker = await world.start()
    assert await broker.allocate_producer_id() not in first
    assert len(set(first)) == len(first)


async def test_an_allocation_that_failed_is_tried_again_by_the_next(world: World) -> None:
    broker = await world.start()
    world.metadata.refuse("allocate_producer_ids")
    with pytest.raises(Unavailable):
        await broker.allocate_producer_id()
    assert await broker.allocate_producer_id() >= 0


# --- metrics


async def test_metrics_are_read_from_a_broker_in_any_state(world: World) -> None:
    broker = Broker(world.dependencies())
    registry = CollectorRegistry()
    registry.register(BrokerMetrics(broker))
    assert b"streamhouse_ready 0.0" in generate_latest(registry)
    await broker.start()
    await broker.create_topic("orders", partitions=1, overrides={})
    await produce(broker, batch(b"a", b"b"))
    await fetch(broker, 0)
    await current(broker).flusher.flush_all()
    page = generate_latest(registry).decode()
    for line in (
        "streamhouse_ready 1.0",
        "streamhouse_appended_batches_total 1.0",
        "streamhouse_appended_records_total 2.0",
        "streamhouse_flushed_segments_total 1.0",
        "streamhouse_buffer_bytes 0.0",
        "streamhouse_open_partitions 1.0",
    ):
        assert line in page.splitlines()


async def test_a_broker_that_starts_waits_for_a_store_that_does_not_answer_just_then(make_world: MakeWorld) -> None:
    world = await make_world(metadata=MetadataSettings(start_wait_s=30))
    world.metadata.refuse("open_session")
    starting = asyncio.create_task(world.start())
    for _ in range(5):
        await world.clock.advance(1)
    assert (await starting).not_ready() is None
