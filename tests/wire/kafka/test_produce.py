"""Produce: what is stored, what is refused and with which code, and what the connection survives."""

import struct
from typing import Any
from uuid import UUID

import pytest

from streamhouse import errors
from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.batch_decoder import StoredSize, Work
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.produce.append import Inspection, ProduceTransaction
from streamhouse.config import Settings
from streamhouse.format.batch import read_header, update_crc
from streamhouse.format.compression import Codec
from streamhouse.format.records import Record, build_batch, read_records
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from tests.wire.kafka.talk import (
    Client,
    Served,
    a_batch,
    a_server,
    batches_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    until,
)

VERSIONS = range(3, 14)


def with_field(offset: int, code: str, value: int, *, sealed: bool = True) -> bytearray:
    """A good batch in which one header field says something else."""
    batch = a_batch(b"a", b"b", b"c")
    struct.pack_into(">" + code, batch, offset, value)
    if sealed:
        update_crc(batch)
    return batch


# --- what is stored -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_count_up_in_every_version(client: Client, served: Served, version: int) -> None:
    await create_topic(client, "orders")
    topic = await served.broker.topic("orders")
    for expected in (0, 2, 4):
        request = produce_request(
            "orders", (0, a_batch(b"a", b"b")), topic_id=topic.topic_id if version >= 13 else None
        )
        response = await client.call(request, ProduceResponse, version)
        (part,) = response.responses[0].partition_responses
        assert (part.error_code, part.base_offset, part.log_append_time_ms) == (ErrorCode.NONE, expected, -1)
        assert part.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("acks", [1, -1])
async def test_acks_wait_until_the_batch_can_be_read(client: Client, acks: int) -> None:
    await create_topic(client, "orders")
    await client.call(produce_request("orders", (0, a_batch(b"x")), acks=acks), ProduceResponse, 9)
    (part,) = await fetch(client, fetch_request("orders", (0, 0)))
    assert len(batches_of(part)) == 1


async def test_several_partitions_of_a_request_each_get_their_own_answer(client: Client) -> None:
    await create_topic(client, "orders", partitions=3)
    await produce(client, "orders", (2, a_batch(b"before")))
    parts = await produce(client, "orders", (0, a_batch(b"a")), (1, a_batch(b"b", b"c")), (2, a_batch(b"d")))
    assert [(part.index, part.error_code, part.base_offset) for part in parts] == [(0, 0, 0), (1, 0, 0), (2, 0, 1)]


async def test_many_pipelined_requests_keep_their_order(client: Client) -> None:
    await create_topic(client, "orders")
    for n in range(200):
        await client.send(produce_request("orders", (0, a_batch(b"%d" % n))), 9)
    for n in range(200):
        response = await client.receive(ProduceResponse, 9)
        assert response.responses[0].partition_responses[0].base_offset == n
    (part,) = await fetch(client, fetch_request("orders", (0, 0)))
    values = [read_records(batch, limit_bytes=1 << 20)[0].value for batch in batches_of(part)]
    assert values == [b"%d" % n for n in range(200)]


async def test_requests_that_need_no_waiting_do_not_overtake_those_that_do(client: Client) -> None:
    await create_topic(client, "orders")
    for _ in range(20):
        await client.send(produce_request("orders", (0, a_batch(b"x"))), 9)
        await client.send(MetadataRequest(topics=[]), 9)
    for n in range(20):
        response = await client.receive(ProduceResponse, 9)
        assert response.responses[0].partition_responses[0].base_offset == n
        await client.receive(MetadataResponse, 9)


async def test_log_append_time_is_the_agents_and_is_answered(client: Client) -> None:
    await create_topic(client, "orders", configs=[("message.timestamp.type", "LogAppendTime")])
    (part,) = await produce(client, "orders", (0, a_batch(b"x", timestamp_ms=5)))
    assert part.log_append_time_ms > 1_600_000_000_000
    (fetched,) = await fetch(client, fetch_request("orders", (0, 0)))
    header = read_header(batches_of(fetched)[0])
    assert header.is_log_append_time
    assert header.max_timestamp_ms == part.log_append_time_ms


# --- acks=0 ---------------------------------------------------------------------------------------------------------


async def test_without_acks_there_is_no_response_and_the_batch_is_stored(client: Client) -> None:
    await create_topic(client, "orders")
    await client.send(produce_request("orders", (0, a_batch(b"x")), acks=0), 9)
    client.skip_answer()
    (part,) = await produce(client, "orders", (0, a_batch(b"y")))
    assert part.base_offset == 1


async def test_what_was_sent_without_acks_is_stored_though_the_client_hangs_up(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    hasty = await served.client()
    for n in range(150):
        await hasty.send(produce_request("orders", (0, a_batch(b"%d" % n)), acks=0), 9)
    await hasty.close()
    log = await served.broker.open_log(TopicPartition("orders", 0))
    await until(lambda: log.high_watermark == 150)


async def test_an_error_without_acks_closes_the_connection(client: Client) -> None:
    await client.send(produce_request("nowhere", (0, a_batch(b"x")), acks=0), 9)
    assert await client.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 7, -100])
async def test_acks_that_mean_nothing_are_refused(client: Client, acks: int) -> None:
    await create_topic(client, "orders")
    response = await client.call(produce_request("orders", (0, a_batch(b"x")), acks=acks), ProduceResponse, 9)
    (part,) = response.responses[0].partition_responses
    assert (part.error_code, part.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    (stored,) = await fetch(client, fetch_request("orders", (0, 0)))
    assert stored.high_watermark == 0


# --- bad batches ----------------------------------------------------------------------------------------------------

GOOD = bytes(a_batch(b"a", b"b", b"c"))

BAD = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "wrong checksum": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
    "truncated": (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
    "only a header": (GOOD[:61], ErrorCode.CORRUPT_MESSAGE),
    "half a header": (GOOD[:30], ErrorCode.CORRUPT_MESSAGE),
    "over-long": (GOOD + b"\0\0\0", ErrorCode.CORRUPT_MESSAGE),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "magic 0": (with_field(16, "b", 0), ErrorCode.INVALID_RECORD),
    "magic 1": (with_field(16, "b", 1), ErrorCode.INVALID_RECORD),
    "the id of an idempotency key": (with_field(43, "q", 2**62), ErrorCode.INVALID_RECORD),
    "magic 9": (with_field(16, "b", 9), ErrorCode.CORRUPT_MESSAGE),
    "length below nothing": (with_field(8, "i", -1), ErrorCode.CORRUPT_MESSAGE),
    "more records than there are": (with_field(57, "i", 4), ErrorCode.INVALID_RECORD),
    "fewer records than there are": (with_field(57, "i", 2), ErrorCode.INVALID_RECORD),
    "a base offset": (with_field(0, "q", 5), ErrorCode.INVALID_RECORD),
    "a control batch": (with_field(21, "h", 0x20), ErrorCode.INVALID_RECORD),
    "unknown codec": (with_field(21, "h", 6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "gzip that is none": (with_field(21, "h", 1), ErrorCode.CORRUPT_MESSAGE),
    "a transactional batch": (
        build_batch([Record(value=b"x")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_batch_is_refused_and_its_neighbours_are_stored(client: Client, what: str) -> None:
    data, code = BAD[what]
    await create_topic(client, "orders", partitions=3)
    first, bad, last = await produce(client, "orders", (0, a_batch(b"x")), (1, data), (2, a_batch(b"y")))
    assert (bad.error_code, bad.base_offset) == (code, -1)
    assert bad.error_message
    assert (first.error_code, last.error_code) == (0, 0)
    (after,) = await produce(client, "orders", (1, a_batch(b"z")))
    assert (after.error_code, after.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("partition", [3, -1, 2**31 - 1])
async def test_a_partition_that_is_not_there_is_unknown(client: Client, partition: int) -> None:
    await create_topic(client, "orders", partitions=3)
    (part,) = await produce(client, "orders", (partition, a_batch(b"x")))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_producing_creates_no_topic(client: Client, served: Served) -> None:
    (part,) = await produce(client, "nowhere", (0, a_batch(b"x")))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await served.broker.topics() == []


async def test_an_unknown_topic_id_is_refused(client: Client) -> None:
    request = produce_request("", (0, a_batch(b"x")), topic_id=UUID(int=9))
    response = await client.call(request, ProduceResponse, 13)
    (part,) = response.responses[0].partition_responses
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_batch_larger_than_the_topic_allows_is_refused(client: Client) -> None:
    await create_topic(client, "orders", configs=[("max.message.bytes", "200")])
    (small,) = await produce(client, "orders", (0, a_batch(b"x" * 50)))
    (large,) = await produce(client, "orders", (0, a_batch(b"x" * 500)))
    assert (small.error_code, large.error_code) == (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE)


async def test_timestamps_outside_of_what_the_topic_allows_are_refused(client: Client) -> None:
    limits = [("message.timestamp.before.max.ms", "1000"), ("message.timestamp.after.max.ms", "1000")]
    await create_topic(client, "orders", configs=limits)
    (old,) = await produce(client, "orders", (0, a_batch(b"x", timestamp_ms=1)))
    (new,) = await produce(client, "orders", (0, a_batch(b"x", timestamp_ms=2**62)))
    assert old.error_code == new.error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_records_that_break_a_rule_are_named_and_none_of_the_batch_is_stored(
    client: Client, version: int, codec: int
) -> None:
    await create_topic(client, "orders", configs=[("cleanup.policy", "compact")])
    records = [Record(key=None if n % 3 == 0 else b"k", value=b"%d" % n) for n in range(7)]
    (refused,) = await produce(client, "orders", (0, build_batch(records, codec=codec)), version=version)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [each.batch_index for each in refused.record_errors] == ([0, 3, 6] if version >= 8 else [])
    (stored,) = await produce(client, "orders", (0, a_batch(b"x")), version=version)
    assert (stored.error_code, stored.base_offset, stored.record_errors) == (ErrorCode.NONE, 0, [])


async def test_records_with_impossible_timestamps_are_named(client: Client) -> None:
    await create_topic(client, "orders", configs=[("message.timestamp.after.max.ms", "1000")])
    records = [Record(timestamp_ms=time, value=b"x") for time in (1, 2**62, 2, 2**62)]
    (refused,) = await produce(client, "orders", (0, build_batch(records)))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in refused.record_errors] == [1, 3]


async def test_a_rule_about_a_whole_batch_blames_no_single_record(client: Client) -> None:
    await create_topic(client, "orders")
    (refused,) = await produce(client, "orders", (0, None))
    assert (refused.error_code, refused.record_errors) == (ErrorCode.INVALID_RECORD, [])


async def test_zstd_is_for_those_who_know_it(client: Client) -> None:
    await create_topic(client, "orders")
    batch = a_batch(b"x" * 100, codec=Codec.ZSTD)
    (old,) = await produce(client, "orders", (0, batch), version=6)
    (new,) = await produce(client, "orders", (0, batch), version=7)
    assert (old.error_code, new.error_code) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.NONE)


# --- idempotence ----------------------------------------------------------------------------------------------------


async def test_a_repeated_batch_gets_the_offset_of_the_original(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"before")))
    batches = [a_batch(b"%d" % n, producer_id=7, producer_epoch=0, base_sequence=n) for n in range(3)]
    first = [(await produce(client, "orders", (0, bytes(batch))))[0] for batch in batches]
    again = [(await produce(client, "orders", (0, bytes(batch))))[0] for batch in batches]
    assert [part.base_offset for part in first] == [part.base_offset for part in again] == [1, 2, 3]
    assert {part.error_code for part in again} == {ErrorCode.NONE}


async def test_a_repetition_in_flight_gets_the_offset_of_the_original(client: Client) -> None:
    await create_topic(client, "orders")
    batch = bytes(a_batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0))
    for _ in range(10):
        await client.send(produce_request("orders", (0, batch)), 9)
    for _ in range(10):
        (part,) = (await client.receive(ProduceResponse, 9)).responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 0)


async def test_a_gap_in_the_sequence_and_an_old_epoch_are_refused(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"x", producer_id=7, producer_epoch=3, base_sequence=0)))
    (gap,) = await produce(client, "orders", (0, a_batch(b"x", producer_id=7, producer_epoch=3, base_sequence=5)))
    (old,) = await produce(client, "orders", (0, a_batch(b"x", producer_id=7, producer_epoch=2, base_sequence=1)))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# --- when the broker can't ------------------------------------------------------------------------------------------

FAILURES = {
    "bug": (RuntimeError("a bug"), ErrorCode.KAFKA_STORAGE_ERROR),
    "overloaded": (errors.Overloaded("buffer", limit_bytes=1, retry_after_s=1), ErrorCode.NOT_ENOUGH_REPLICAS),
    "away": (errors.Unavailable("metadata store is away"), ErrorCode.KAFKA_STORAGE_ERROR),
    "stopping": (errors.Stopping("agent stops"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "lease": (errors.LeaseLost(["orders-0"], why="test"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
}


class FailingBroker:
    """The real broker, but one partition's appends, or acknowledgements, fail."""

    def __init__(self, broker: Broker, failure: Exception, *, at: str) -> None:
        self._broker = broker
        self._failure = failure
        self._at = at

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)

    async def append(
        self,
        name: TopicPartition,
        data: memoryview,
        transaction: ProduceTransaction | None = None,
        inspection: Inspection | None = None,
    ) -> PendingAppend:
        if self._at == "append" and name.partition == 0:
            raise self._failure
        return await self._broker.append(name, data, transaction, inspection)

    async def acknowledge(self, pending: PendingAppend) -> None:
        if self._at == "acknowledge" and pending.log.name.partition == 0:
            raise self._failure
        await self._broker.acknowledge(pending)


@pytest.mark.parametrize("version", VERSIONS)
async def test_another_agent_leads_and_later_versions_hear_who_and_where(
    broker: Broker, settings: Settings, version: int
) -> None:
    elsewhere = errors.NotLeader("orders-0", node_id=7, epoch=5, address=("10.0.0.7", 9092))
    failing: Broker = FailingBroker(broker, elsewhere, at="append")  # type: ignore[assignment]
    async with a_server(failing, settings) as served:
        client = await served.client()
        await create_topic(client, "orders")
        request = produce_request("orders", (0, a_batch(b"x")))
        request.topic_data[0].topic_id = (await served.broker.topic("orders")).topic_id
        response = await client.call(request, ProduceResponse, version)
        (part,) = response.responses[0].partition_responses
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        named = [(part.current_leader.leader_id, part.current_leader.leader_epoch)] if part.current_leader else []
        assert named == ([(7, 5)] if version >= 10 else [])
        where = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
        assert where == ([(7, "10.0.0.7", 9092)] if version >= 10 else [])


@pytest.mark.parametrize("what", FAILURES)
async def test_a_failing_append_is_retriable_and_fails_alone(broker: Broker, settings: Settings, what: str) -> None:
    failure, code = FAILURES[what]
    failing: Broker = FailingBroker(broker, failure, at="append")  # type: ignore[assignment]
    async with a_server(failing, settings) as served:
        client = await served.client()
        await create_topic(client, "orders", partitions=2)
        bad, good = await produce(client, "orders", (0, a_batch(b"x")), (1, a_batch(b"y")))
        assert (bad.error_code, bad.base_offset) == (code, -1)
        assert (good.error_code, good.base_offset) == (ErrorCode.NONE, 0)
        assert served.counted("streamhouse_kafka_errors_total", api="Produce", error=code.name) == 1


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (errors.AppendFailed("disk is gone"), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (RuntimeError("a bug"), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (errors.LeaseLost(["orders-0"], why="test"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_a_failing_acknowledgement_is_retriable_and_fails_alone(
    broker: Broker, settings: Settings, failure: Exception, code: ErrorCode
) -> None:
    failing: Broker = FailingBroker(broker, failure, at="acknowledge")  # type: ignore[assignment]
    async with a_server(failing, settings) as served:
        client = await served.client()
        await create_topic(client, "orders", partitions=2)
        bad, good = await produce(client, "orders", (0, a_batch(b"x")), (1, a_batch(b"y")))
        assert (bad.error_code, bad.base_offset) == (code, -1)
        assert (good.error_code, good.base_offset) == (ErrorCode.NONE, 0)


async def test_small_compressed_batches_of_a_request_are_opened_in_one_trip(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_topic(client, "orders", partitions=8)
    await produce(client, "orders", *((number, a_batch(b"x")) for number in range(8)))
    trips = 0
    run = broker.decoder._try

    async def counted(stored: StoredSize, work: Work[Any], limit_bytes: int) -> Any:
        nonlocal trips
        trips += 1
        return await run(stored, work, limit_bytes)

    monkeypatch.setattr(broker.decoder, "_try", counted)
    responses = await produce(client, "orders", *((number, a_batch(b"x", codec=3)) for number in range(8)))
    assert [response.base_offset for response in responses] == [1] * 8
    assert trips == 1


async def test_a_partition_that_is_named_twice_has_each_of_its_batches_checked(client: Client) -> None:
    await create_topic(client, "orders", partitions=2)
    good, bad = a_batch(b"x", codec=4), a_batch(b"y", b"z", codec=4)
    struct.pack_into(">i", bad, 23, 2)  # last offset delta
    struct.pack_into(">i", bad, 57, 3)  # record count
    update_crc(bad)
    responses = await produce(client, "orders", (0, bad), (1, bytearray(good)), (0, good))
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE, ErrorCode.NONE]
