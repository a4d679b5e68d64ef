"""Publishing where this agent leads: who goes where, what is refused alone, what a publisher waits for."""

import asyncio
from collections.abc import Sequence

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.forwarding.acks import BufferedAcks
from streamhouse.broker.forwarding.forwarding_producer import BATCHES_PER_TURN
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.partition.producer_state import FIRST_KEY_ID
from streamhouse.config import RecordSettings, TopicSettings
from streamhouse.errors import (
    AppendFailed,
    CorruptBatch,
    IdempotencyKeyReused,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    StreamhouseError,
    UnknownTopic,
)
from streamhouse.format.batch import iter_batches, read_header
from streamhouse.format.compression import Codec
from streamhouse.format.partitioner import partition_for
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord, Receipt
from tests.broker.conftest import MakeWorld
from tests.broker.support import NOW_MS, ORDERS, World, batch, fetch, idempotent, settle, values_of

PARTITIONS = 6


@pytest.fixture
async def broker(world: World) -> Broker:
    broker = await world.start()
    await broker.create_topic("orders", partitions=PARTITIONS, overrides={})
    return broker


async def publish(
    broker: Broker, *records: NewRecord, acks: Acks = Acks.WAL, key: str | None = None, topic: str = "orders"
) -> list[Receipt | StreamhouseError]:
    return await broker.records.publish(topic, records, acks=acks, idempotency_key=key, timeout_s=10)


def receipts(responses: Sequence[Receipt | StreamhouseError]) -> list[Receipt]:
    for response in responses:
        assert isinstance(response, Receipt), response
    return [response for response in responses if isinstance(response, Receipt)]


def values(count: int, **fields: bytes) -> list[NewRecord]:
    return [NewRecord(b"%d" % number, **fields) for number in range(count)]  # type: ignore[arg-type]


async def everything(broker: Broker, topic: str = "orders", partitions: int = PARTITIONS) -> list[bytes | None]:
    results: list[bytes | None] = []
    for number in range(partitions):
        results += (await values_of(broker, TopicPartition(topic, number))).values()
    return results


# --- where records go


async def test_a_key_goes_where_kafka_clients_send_it_and_each_record_is_at_its_receipt(broker: Broker) -> None:
    records = [NewRecord(b"v%d" % number, key=b"k%d" % (number % 9)) for number in range(50)]
    for record, receipt in zip(records, receipts(await publish(broker, *records)), strict=True):
        assert record.key is not None
        assert receipt.partition == partition_for(record.key, PARTITIONS)
        assert receipt.offset is not None
        result = await values_of(broker, TopicPartition("orders", receipt.partition))
        assert result[receipt.offset] == record.value


async def test_records_of_one_call_keep_their_order_in_a_partition(broker: Broker) -> None:
    await publish(broker, *values(100, key=b"same"))
    result = await values_of(broker, TopicPartition("orders", partition_for(b"same", PARTITIONS)))
    assert list(result.values()) == [b"%d" % number for number in range(100)]


async def test_records_without_a_key_stay_together_in_a_call_and_calls_take_turns(broker: Broker) -> None:
    chosen: list[int] = []
    for _ in range(PARTITIONS):
        partitions = {receipt.partition for receipt in receipts(await publish(broker, *values(5)))}
        assert len(partitions) == 1
        chosen += partitions
    assert sorted(chosen) == list(range(PARTITIONS))


async def test_a_partition_that_is_named_is_obeyed_and_one_that_is_not_there_fails_alone(broker: Broker) -> None:
    responses = await publish(broker, NewRecord(b"a", partition=4), NewRecord(b"b", partition=PARTITIONS))
    assert isinstance(responses[0], Receipt)
    assert responses[0].partition == 4
    assert isinstance(responses[1], UnknownTopic)
    assert await everything(broker) == [b"a"]


async def test_nothing_at_all_is_no_error(broker: Broker) -> None:
    assert await publish(broker) == []


async def test_a_topic_that_is_not_there_is_made_where_settings_allow_it(broker: Broker, make_world: MakeWorld) -> None:
    assert receipts(await publish(broker, NewRecord(b"a"), topic="new"))[0].offset == 0
    strict = await (await make_world(topics=TopicSettings(auto_create=False))).start()
    with pytest.raises(UnknownTopic):
        await publish(strict, NewRecord(b"a"), topic="new")


async def test_times_headers_and_nulls_arrive_as_they_were_given(broker: Broker) -> None:
    given = NewRecord(None, headers=(("trace", b"\x00\xff"), ("empty", None)), timestamp_ms=NOW_MS - 5, partition=0)
    first, second = receipts(await publish(broker, given, NewRecord(b"", partition=0)))
    assert (first.timestamp_ms, second.timestamp_ms) == (NOW_MS - 5, NOW_MS)
    response = await fetch(broker, 0, TopicPartition("orders", 0))
    header = read_header(response.records[0])
    assert (header.record_count, header.max_timestamp_ms) == (2, NOW_MS)


async def test_a_topic_with_append_time_shows_it(world: World) -> None:
    broker = await world.start_with(**{"message.timestamp.type": "LogAppendTime"})
    (receipt,) = receipts(await publish(broker, NewRecord(b"a", timestamp_ms=5)))
    assert receipt.timestamp_ms == NOW_MS


# --- what is refused


async def test_a_batch_that_would_be_too_large_is_split_and_a_record_that_is_fails_alone(world: World) -> None:
    broker = await world.start_with(**{"max.message.bytes": "1000"})
    records = values(300)
    records.insert(150, NewRecord(bytes(range(256)) * 8))
    responses = await publish(broker, *records)
    assert isinstance(responses.pop(150), RecordTooLarge)
    assert [receipt.offset for receipt in receipts(responses)] == list(range(300))
    assert list((await values_of(broker)).values()) == [b"%d" % number for number in range(300)]


async def test_a_record_that_breaks_a_rule_of_the_topic_fails_alone(world: World) -> None:
    broker = await world.start_with(**{"cleanup.policy": "compact"})
    responses = await publish(broker, NewRecord(b"a", key=b"k"), NewRecord(b"b"), NewRecord(b"c", key=b"l"))
    assert isinstance(responses[1], InvalidRecord)
    assert [response.offset for response in responses if isinstance(response, Receipt)] == [0, 1]
    assert list((await values_of(broker)).values()) == [b"a", b"c"]


async def test_when_all_records_break_a_rule_nothing_is_stored(world: World) -> None:
    broker = await world.start_with(**{"cleanup.policy": "compact"})
    responses = await publish(broker, *values(3))
    assert all(isinstance(response, InvalidRecord) for response in responses)
    assert await values_of(broker) == {}


@pytest.mark.parametrize("timestamp_ms", [-2, 2**63, NOW_MS + 10**12])
async def test_a_time_that_no_record_may_have_fails_alone(broker: Broker, timestamp_ms: int) -> None:
    responses = await publish(broker, NewRecord(b"a"), NewRecord(b"b", timestamp_ms=timestamp_ms), NewRecord(b"c"))
    assert isinstance(responses[1], InvalidTimestamp)
    assert await everything(broker) == [b"a", b"c"]


async def test_a_header_that_is_no_text_fails_alone(broker: Broker) -> None:
    responses = await publish(broker, NewRecord(b"a"), NewRecord(b"b", headers=(("\ud800", b"x"),)), NewRecord(b"c"))
    assert isinstance(responses[1], InvalidRecord)
    assert await everything(broker) == [b"a", b"c"]


# --- how it is stored


async def test_large_calls_are_compressed_and_small_ones_are_not(make_world: MakeWorld) -> None:
    world = await make_world(records=RecordSettings(compress_at_bytes=1000))
    broker = await world.start_with()
    await publish(broker, NewRecord(b"x" * 999))
    await publish(broker, NewRecord(b"x" * 1000))
    records = b"".join(map(bytes, (await fetch(broker, 0)).records))
    small, large = (records[each.position :] for each in iter_batches(records))
    assert (read_header(small).codec, read_header(large).codec) == (Codec.NONE, Codec.LZ4)


# --- what a publisher waits for


async def test_buffered_is_answered_before_it_is_durable_and_a_failure_after_that_is_counted(world: World) -> None:
    broker = await world.start_with()
    (receipt,) = receipts(await publish(broker, NewRecord(b"a"), acks=Acks.BUFFERED))
    log = await broker.open_log(ORDERS)
    assert (receipt.offset, log.high_watermark) == (0, 0)
    await settle()
    assert log.high_watermark == 1
    assert broker.records.buffered_acks.lost_records == 0


async def test_stored_is_answered_when_a_segment_holds_it(world: World) -> None:
    broker = await world.start_with()
    world.run(broker)
    await settle()
    waiting = asyncio.ensure_future(publish(broker, NewRecord(b"a"), acks=Acks.STORED))
    await settle()
    assert not waiting.done()
    await world.clock.advance(1.0)
    assert [receipt.offset for receipt in receipts(await waiting)] == [0]
    assert (await broker.open_log(ORDERS)).flushed_end == 1


# --- whole batches


async def test_whole_batches_get_the_offset_of_their_first_record_and_a_damaged_one_fails_alone(world: World) -> None:
    broker = await world.start_with()
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    given = [batch(b"a", b"b").toreadonly(), memoryview(damaged), memoryview(b"short"), batch(b"c")]
    before = [bytes(each) for each in given]
    responses = await broker.records.publish_batches(ORDERS, given, acks=Acks.WAL, timeout_s=10)
    assert [type(response) for response in responses] == [Receipt, CorruptBatch, CorruptBatch, Receipt]
    assert [response.offset for response in responses if isinstance(response, Receipt)] == [0, 2]
    assert list((await values_of(broker)).values()) == [b"a", b"b", b"c"]
    assert [bytes(each) for each in given] == before


async def test_others_have_their_turn_while_a_call_has_very_many_batches(world: World) -> None:
    broker = await world.start_with()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    given = [memoryview(batch(b"%d" % number)) for number in range(2000)]
    running = asyncio.ensure_future(others())
    responses = await broker.records.publish_batches(ORDERS, given, acks=Acks.WAL, timeout_s=60)
    running.cancel()
    assert [response.offset for response in responses if isinstance(response, Receipt)] == list(range(2000))
    assert turns > 2000 / BATCHES_PER_TURN


async def test_a_batch_of_an_idempotent_producer_that_comes_again_is_stored_once(world: World) -> None:
    broker = await world.start_with()
    for _ in range(2):
        given = [idempotent(b"a", sequence=0), idempotent(b"b", sequence=1)]
        responses = await broker.records.publish_batches(ORDERS, given, acks=Acks.WAL, timeout_s=10)
        assert [receipt.offset for receipt in receipts(responses)] == [0, 1]
    assert list((await values_of(broker)).values()) == [b"a", b"b"]


# --- idempotency keys


async def test_a_key_that_comes_again_gets_the_same_receipts_and_stores_nothing(broker: Broker, world: World) -> None:
    records = [*values(20), *(NewRecord(b"k", key=b"%d" % number) for number in range(20))]
    first = receipts(await publish(broker, *records, key="order-1"))
    await world.clock.advance(1.0)
    again = receipts(await publish(broker, *records, key="order-1"))
    assert [receipt[:2] for receipt in again] == [receipt[:2] for receipt in first]
    assert len(await everything(broker)) == 40
    await publish(broker, *records, key="order-2")
    assert len(await everything(broker)) == 80


async def test_a_key_with_other_records_is_refused(world: World) -> None:
    broker = await world.start_with()
    await publish(broker, NewRecord(b"a"), NewRecord(b"b"), key="order-1")
    for other in ([NewRecord(b"a")], [NewRecord(b"a"), NewRecord(b"c")], values(3)):
        responses = await publish(broker, *other, key="order-1")
        assert all(isinstance(response, IdempotencyKeyReused) for response in responses), responses
    assert list((await values_of(broker)).values()) == [b"a", b"b"]


async def test_a_key_is_known_for_as_many_batches_as_its_records_needed(world: World) -> None:
    broker = await world.start_with(**{"max.message.bytes": "200"})
    first = receipts(await publish(broker, *values(200), key="many"))
    assert receipts(await publish(broker, *values(200), key="many")) == first
    assert len(await values_of(broker)) == 200


async def test_keys_are_known_to_the_next_life_of_the_agent_from_its_log_and_from_segments(world: World) -> None:
    for end in ("kill", "stop"):
        broker = await world.start() if end == "stop" else await world.start_with()
        task = world.run(broker)
        first = receipts(await publish(broker, NewRecord(b"a"), key="order-1"))
        assert [receipt.offset for receipt in first] == [0]
        if end == "kill":
            world.kill()
        else:
            await world.stop(broker, task)
    broker = await world.start()
    assert [receipt.offset for receipt in receipts(await publish(broker, NewRecord(b"a"), key="order-1"))] == [0]
    assert len(await values_of(broker)) == 1


async def test_keys_are_no_producers_to_administrators_and_no_producer_gets_such_an_id(broker: Broker) -> None:
    (receipt,) = receipts(await publish(broker, NewRecord(b"a"), key="order-1"))
    name = TopicPartition("orders", receipt.partition)
    assert (await broker.open_log(name)).producers(now_ms=NOW_MS) == []
    assert read_header((await fetch(broker, 0, name)).records[0]).producer_id >= FIRST_KEY_ID
    assert await broker.allocate_producer_id() < FIRST_KEY_ID


async def test_what_fails_after_it_was_buffered_is_counted(world: World) -> None:
    buffered_acks = BufferedAcks(world.dependencies())
    log = await (await world.start_with()).open_log(ORDERS)
    commits: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
    for number, commit in enumerate(commits):
        buffered_acks.watch(PendingAppend(log, 0, 10, -1, commit), 10 + number)
    commits[0].set_result(None)
    commits[1].set_exception(AppendFailed("the disk is full"))
    commits[2].cancel()
    await settle()
    assert buffered_acks.lost_records == 11 + 12


async def test_a_batch_under_the_id_of_a_key_is_refused(world: World) -> None:
    broker = await world.start_with()
    given = [idempotent(b"a", sequence=0, producer=FIRST_KEY_ID)]
    (response,) = await broker.records.publish_batches(ORDERS, given, acks=Acks.WAL, timeout_s=10)
    assert isinstance(response, InvalidRecord)
