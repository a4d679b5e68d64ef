"""DeleteRecords: a log begins later, durably."""

import asyncio

import pytest

from streamhouse.broker.admin.topic_admin import TopicAdmin
from streamhouse.errors import Unavailable
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.handlers import delete_records as handler
from streamhouse.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, fetch, fetch_request, produce

LATER = -1


async def delete(
    client: Client, topic: str, *parts: tuple[int, int], version: int = 2, timeout_ms: int = 10_000
) -> list[tuple[int, int, int]]:
    """Partition, low watermark and code of each."""
    requests = [DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in parts]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=requests)], timeout_ms=timeout_ms)
    response = await client.call(request, DeleteRecordsResponse, version)
    (result,) = response.topics
    assert result.name == topic
    return [(part.partition_index, part.low_watermark, part.error_code) for part in result.partitions]


async def stored_start(served: Served, name: TopicPartition) -> int:
    opened = await served.broker.open_log(name)
    states = await served.broker._dependencies.metadata.partitions([opened.partition.topic_id])
    return states[name.partition].log_start


@pytest.mark.parametrize("version", range(3))
async def test_every_version_moves_the_log_start_durably(client: Client, served: Served, version: int) -> None:
    await create_topic(client, "orders")
    for value in (b"a", b"b", b"c"):
        await produce(client, "orders", (0, a_batch(value)))
    assert await delete(client, "orders", (0, 2), version=version) == [(0, 2, ErrorCode.NONE)]
    assert await stored_start(served, TopicPartition("orders", 0)) == 2
    (below,) = await fetch(client, fetch_request("orders", (0, 1)))
    assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    (above,) = await fetch(client, fetch_request("orders", (0, 2)))
    assert (above.error_code, above.log_start_offset, above.high_watermark) == (ErrorCode.NONE, 2, 3)


async def test_minus_one_is_the_high_watermark_and_records_can_follow(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b")))
    assert await delete(client, "orders", (0, -1)) == [(0, 2, ErrorCode.NONE)]
    (pending,) = await produce(client, "orders", (0, a_batch(b"c")))
    assert pending.base_offset == 2
    (result,) = await fetch(client, fetch_request("orders", (0, 2)))
    assert (result.log_start_offset, result.high_watermark) == (2, 3)


async def test_an_offset_inside_a_batch_is_where_the_log_begins(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b", b"c", b"d")))
    assert await delete(client, "orders", (0, 3)) == [(0, 3, ErrorCode.NONE)]


async def test_a_log_start_never_goes_back(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b", b"c")))
    await delete(client, "orders", (0, 2))
    assert await delete(client, "orders", (0, 1)) == [(0, 2, ErrorCode.NONE)]
    assert await delete(client, "orders", (0, 0)) == [(0, 2, ErrorCode.NONE)]


async def test_an_empty_log_has_nothing_to_delete_and_that_is_no_error(client: Client) -> None:
    await create_topic(client, "orders")
    assert await delete(client, "orders", (0, -1)) == [(0, 0, ErrorCode.NONE)]


@pytest.mark.parametrize("offset", [3, 2**62, -2, -(2**63)])
async def test_an_offset_that_the_log_has_not_reached_is_out_of_range(client: Client, offset: int) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b")))
    assert await delete(client, "orders", (0, offset)) == [(0, LATER, ErrorCode.OFFSET_OUT_OF_RANGE)]


async def test_each_partition_stands_alone(client: Client) -> None:
    await create_topic(client, "orders", partitions=2)
    await produce(client, "orders", (0, a_batch(b"a")), (1, a_batch(b"b")))
    assert await delete(client, "orders", (0, 1), (7, 0), (-1, 0), (1, 5)) == [
        (0, 1, ErrorCode.NONE),
        (7, LATER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, LATER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, LATER, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    assert await delete(client, "missing", (0, 1)) == [(0, LATER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_a_partition_that_occurs_twice_is_moved_to_the_larger_offset(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b", b"c")))
    assert {low for _, low, _ in await delete(client, "orders", (0, 3), (0, 1))} == {3}


async def test_what_a_policy_keeps_is_not_deleted(client: Client, served: Served) -> None:
    await create_topic(client, "keyed", configs=[("cleanup.policy", "compact")])
    await produce(client, "keyed", (0, a_batch(b"a")))
    assert await delete(client, "keyed", (0, 1)) == [(0, LATER, ErrorCode.POLICY_VIOLATION)]
    await served.broker.catalog.create(OFFSETS_TOPIC)
    assert await delete(client, OFFSETS_TOPIC, (0, 0)) == [(0, LATER, ErrorCode.INVALID_TOPIC_EXCEPTION)]


async def test_a_request_behind_it_sees_the_new_log_start(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b")))
    part = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name="orders", partitions=[part])
    await client.send(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    await client.send(fetch_request("orders", (0, 1)), 12)
    await client.receive(DeleteRecordsResponse, 2)
    result = await client.receive(fetch_request("orders").response_class, 12)
    assert result.responses[0].partitions[0].log_start_offset == 1  # type: ignore[attr-defined]


async def test_a_store_that_is_away_is_a_retriable_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a")))

    async def away(self: object, starts: dict[PartitionId, int]) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(SqliteMetadataStore, "advance_log_start", away)
    assert await delete(client, "orders", (0, 1)) == [(0, LATER, ErrorCode.KAFKA_STORAGE_ERROR)]


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_client_that_does_not_want_to_wait_is_told_what_was_done(client: Client, timeout_ms: int) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b")))
    assert await delete(client, "orders", (0, 1), timeout_ms=timeout_ms) == [(0, 1, ErrorCode.NONE)]


async def test_what_takes_longer_than_the_client_waits_is_timed_out(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: object, name: TopicPartition, offset: int) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(TopicAdmin, "delete_records", never)
    monkeypatch.setattr(handler, "LEAST_TIMEOUT_S", 0.001)
    await create_topic(client, "orders")
    for timeout_ms in (1, 0, -5):
        done = await delete(client, "orders", (0, 1), timeout_ms=timeout_ms)
        assert done == [(0, LATER, ErrorCode.REQUEST_TIMED_OUT)]
