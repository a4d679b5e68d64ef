"""Fetch: what comes out is what went in, within the limits that were asked for."""

import asyncio
import os
from collections.abc import Sequence
from uuid import UUID

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import Settings
from streamhouse.errors import AppendFailed, NotLeader
from streamhouse.format.compression import Codec
from streamhouse.format.records import Record, build_batch, read_records
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from tests.wire.kafka.talk import (
    Client,
    Served,
    a_batch,
    a_server,
    as_sent,
    batches_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    until,
)

VERSIONS = range(4, 19)
UNKNOWN_ID = UUID(int=7)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_batch_comes_back_byte_for_byte(client: Client, served: Served, version: int) -> None:
    await create_topic(client, "orders")
    topic = await served.broker.topic("orders")
    sent = a_batch(b"one", b"two")
    await produce(client, "orders", (0, sent))
    by_id = topic.topic_id if version >= 13 else None
    (part,) = await fetch(client, fetch_request("orders", (0, 0), topic_id=by_id), version)
    assert part.error_code == ErrorCode.NONE
    assert part.high_watermark == part.last_stable_offset == 2
    assert part.log_start_offset == (0 if version >= 5 else -1)
    (batch,) = batches_of(part)
    assert as_sent(batch, sent) == sent


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec_keys_headers_and_nulls_survive(client: Client, codec: Codec) -> None:
    await create_topic(client, "orders")
    records = [
        Record(timestamp_ms=5, key=None, value=None),
        Record(timestamp_ms=3, key=b"", value=b"", headers=(("h", b"1"), ("h", None), ("ü", b""))),
        Record(timestamp_ms=9, key=b"key" * 50, value=b"value" * 500),
    ]
    sent = build_batch(records, codec=codec)
    await produce(client, "orders", (0, sent))
    (part,) = await fetch(client, fetch_request("orders", (0, 0)))
    (batch,) = batches_of(part)
    assert as_sent(batch, sent) == sent
    read = read_records(batch, limit_bytes=1 << 20)
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in read] == [
        (r.timestamp_ms, r.key, r.value, r.headers) for r in records
    ]


async def test_a_reader_whose_leader_can_not_write_any_more_looks_for_another_one(
    client: Client, served: Served
) -> None:
    """A full disk is no reason for a consumer to get an error of Produce, which Java's takes for a broken broker."""
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a")))
    log = await served.broker.open_log(TopicPartition("orders", 0))
    log.close(AppendFailed("write-ahead log failed; why=no space left on device"))
    (part,) = await fetch(client, fetch_request("orders", (0, 1)))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (part,) = await fetch(client, fetch_request("orders", (0, 0)))
    assert part.error_code == ErrorCode.NONE


async def test_an_offset_in_the_middle_of_a_batch_brings_the_whole_batch(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b")))
    await produce(client, "orders", (0, a_batch(b"c", b"d", b"e")))
    (part,) = await fetch(client, fetch_request("orders", (0, 3)))
    (batch,) = batches_of(part)
    assert [record.offset for record in read_records(batch, limit_bytes=1 << 20)] == [2, 3, 4]


async def test_the_first_batch_is_whole_however_small_the_limits(client: Client) -> None:
    await create_topic(client, "orders", partitions=2)
    for partition in (0, 1):
        await produce(client, "orders", (partition, a_batch(b"x" * 1000)))
        await produce(client, "orders", (partition, a_batch(b"y" * 1000)))
    first, second = await fetch(
        client, fetch_request("orders", (0, 0), (1, 0), max_bytes=1, partition_max_bytes=1, min_bytes=0)
    )
    assert len(batches_of(first)) == 1
    assert batches_of(second) == []
    assert second.high_watermark == 2


async def test_limits_below_nothing_still_bring_the_first_batch(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"x")))
    (part,) = await fetch(client, fetch_request("orders", (0, 0), max_bytes=-1, partition_max_bytes=-5, min_bytes=-1))
    assert len(batches_of(part)) == 1


async def test_a_partition_limit_holds_from_the_second_batch_on(client: Client) -> None:
    await create_topic(client, "orders")
    for value in (b"a", b"b", b"c"):
        await produce(client, "orders", (0, a_batch(value * 1000)))
    (part,) = await fetch(client, fetch_request("orders", (0, 0), partition_max_bytes=2500))
    assert len(batches_of(part)) == 2


async def test_read_committed_sees_the_same_and_has_no_aborted_transactions(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"x")))
    (committed,) = await fetch(client, fetch_request("orders", (0, 0), isolation_level=1))
    (uncommitted,) = await fetch(client, fetch_request("orders", (0, 0), isolation_level=0))
    assert len(batches_of(committed)) == len(batches_of(uncommitted)) == 1
    assert committed.aborted_transactions == []
    assert uncommitted.aborted_transactions is None
    assert committed.last_stable_offset == 1


async def test_a_long_poll_wakes_when_records_come(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    other = await served.client()
    await client.send(fetch_request("orders", (0, 0), max_wait_ms=60_000), 12)
    await produce(other, "orders", (0, a_batch(b"news")))
    response = await client.receive(FetchResponse, 12)
    assert len(batches_of(response.responses[0].partitions[0])) == 1


async def test_a_long_poll_without_news_ends_in_time_with_nothing(client: Client) -> None:
    await create_topic(client, "orders")
    (part,) = await fetch(client, fetch_request("orders", (0, 0), max_wait_ms=20))
    assert (part.error_code, batches_of(part), part.high_watermark) == (ErrorCode.NONE, [], 0)


async def test_an_error_in_one_partition_ends_the_wait_and_leaves_the_others_alone(client: Client) -> None:
    await create_topic(client, "orders", partitions=2)
    await produce(client, "orders", (1, a_batch(b"x")))
    request = fetch_request("orders", (0, 99), (1, 0), (5, 0), max_wait_ms=60_000, min_bytes=1 << 20)
    wrong, right, absent = await fetch(client, request)
    assert wrong.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (wrong.high_watermark, batches_of(wrong)) == (-1, [])
    assert len(batches_of(right)) == 1
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_corrupt_block_is_a_corrupt_message_for_its_own_range_only(broker: Broker, client: Client) -> None:
    await create_topic(client, "orders", partitions=2)
    size = broker._settings.flush.block_bytes - 200  # so that each batch has a block of its own
    for partition in (0, 1):
        for _ in range(3):
            await produce(client, "orders", (partition, a_batch(os.urandom(size))))
    assert broker.agent_session is not None
    await broker.agent_session.flusher.flush_all()
    _, run = (await broker.run_listing.page([await broker.topic("orders")], limit=10)).runs[0]
    await _flip_a_bit(broker, run.object_key, (await broker.reader.index(run)).blocks[1].position + 1000)
    for offset, expected in ((0, ErrorCode.NONE), (1, ErrorCode.CORRUPT_MESSAGE), (2, ErrorCode.NONE)):
        damaged, whole = await fetch(client, fetch_request("orders", (0, offset), (1, offset)))
        assert damaged.error_code == expected
        assert bool(batches_of(damaged)) == (expected == ErrorCode.NONE)
        assert (whole.error_code, bool(batches_of(whole))) == (ErrorCode.NONE, True)


async def _flip_a_bit(broker: Broker, key: str, position: int) -> None:
    """Behind everybody's back, and before anything of it was cached."""
    objects = broker._dependencies.objects
    body = bytearray(await objects.get_range(key, 0, 1 << 30))
    body[position] ^= 1
    await objects.delete(key)
    await objects.put_new(key, [bytes(body)])


async def test_a_negative_offset_is_out_of_range(client: Client) -> None:
    await create_topic(client, "orders")
    (part,) = await fetch(client, fetch_request("orders", (0, -1)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_unknown_topic_id_is_answered_at_once(client: Client) -> None:
    request = fetch_request("", (0, 0), max_wait_ms=60_000, topic_id=UNKNOWN_ID)
    (part,) = await fetch(client, request, 13)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_request_for_nothing_is_answered_at_once(client: Client) -> None:
    response = await client.call(FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1), FetchResponse, 12)
    assert response.responses == []


async def test_a_stale_or_unknown_leader_epoch_is_refused(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"x")))
    (epoch,) = {log.epoch for log in served.broker.agent_session.logs} if served.broker.agent_session else {0}
    for call, code in (
        (epoch, ErrorCode.NONE),
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        request = fetch_request("orders", (0, 0))
        request.topics[0].partitions[0].current_leader_epoch = call
        (part,) = await fetch(client, request)
        assert part.error_code == code


# --- sessions and replicas ------------------------------------------------------------------------------------------


async def test_opening_a_session_is_answered_with_the_id_that_means_none(client: Client) -> None:
    await create_topic(client, "orders")
    request = fetch_request("orders", (0, 0))
    request.session_epoch = 0
    response = await client.call(request, FetchResponse, 12)
    assert (response.error_code, response.session_id) == (ErrorCode.NONE, 0)
    assert len(response.responses) == 1


@pytest.mark.parametrize("session_id", [0, 17])
async def test_continuing_an_unknown_session_says_so(client: Client, session_id: int) -> None:
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, session_id=session_id, session_epoch=3)
    response = await client.call(request, FetchResponse, 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert response.responses == []


async def test_closing_an_unknown_session_is_a_whole_request(client: Client) -> None:
    await create_topic(client, "orders")
    request = fetch_request("orders", (0, 0))
    request.session_id, request.session_epoch = 17, -1
    response = await client.call(request, FetchResponse, 12)
    assert (response.error_code, len(response.responses)) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("version", [14, 15])
async def test_nobody_fetches_as_a_replica(client: Client, version: int) -> None:
    request = fetch_request("", (0, 0), topic_id=UNKNOWN_ID)
    if version < 15:
        request.replica_id = 0
    else:
        request.replica_state = ReplicaState(replica_id=0, replica_epoch=1)
    await client.send(request, version)
    assert await client.is_closed()


async def test_many_pipelined_fetches_are_answered_in_order(client: Client) -> None:
    await create_topic(client, "orders")
    for n in range(10):
        await produce(client, "orders", (0, a_batch(b"%d" % n)))
    for n in range(10):
        await client.send(fetch_request("orders", (0, n), partition_max_bytes=1), 12)
    for n in range(10):
        response = await client.receive(FetchResponse, 12)
        (batch,) = batches_of(response.responses[0].partitions[0])
        assert read_records(batch, limit_bytes=1 << 20)[0].value == b"%d" % n


async def test_a_long_poll_ends_with_its_connection(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    gone = await served.client()
    await gone.send(fetch_request("orders", (0, 0), max_wait_ms=60_000), 12)
    await until(_polls)
    await gone.close()
    await until(lambda: not _polls())


def _polls() -> list[object]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("kafka-answers")]


class LedElsewhere:
    """The real broker, but another agent leads whatever is fetched."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)

    async def fetch(self, wanted: Sequence[PartitionFetch], **_: object) -> list[FetchResult]:
        elsewhere = NotLeader("orders-0", node_id=7, epoch=5, address=("10.0.0.7", 9092))
        return [FetchResult(name=each.name, error=elsewhere) for each in wanted]


@pytest.mark.parametrize("version", VERSIONS)
async def test_another_agent_leads_and_later_versions_hear_who_and_where(
    broker: Broker, settings: Settings, version: int
) -> None:
    async with a_server(LedElsewhere(broker), settings) as served:  # type: ignore[arg-type]
        client = await served.client()
        await create_topic(client, "orders")
        topic = await broker.topic("orders")
        request = fetch_request("orders", (0, 0), topic_id=topic.topic_id if version >= 13 else None)
        response = await client.call(request, FetchResponse, version)
        (part,) = response.responses[0].partitions
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        named = [(part.current_leader.leader_id, part.current_leader.leader_epoch)] if part.current_leader else []
        assert named == ([(7, 5)] if version >= 12 else [])
        where = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
        assert where == ([(7, "10.0.0.7", 9092)] if version >= 16 else [])
