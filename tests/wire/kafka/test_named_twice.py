"""A partition that a request names twice is served twice, in order, and nothing is mixed up or counted wrongly."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.offset_commit import OffsetCommitResponse
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from tests.wire.kafka.members import commit_request, committed
from tests.wire.kafka.talk import Client, a_batch, batches_of, create_topic, fetch_request, produce, produce_request


@pytest.fixture
async def orders(client: Client) -> Client:
    await create_topic(client, "orders")
    return client


@pytest.mark.parametrize("within_a_topic", [True, False])
async def test_batches_for_one_partition_get_offsets_in_their_order(orders: Client, within_a_topic: bool) -> None:
    parts = [(0, a_batch(b"a", b"b")), (0, a_batch(b"c"))]
    request = produce_request("orders", *parts) if within_a_topic else produce_request("orders", parts[0])
    if not within_a_topic:
        request.topic_data += produce_request("orders", parts[1]).topic_data
    response = await orders.call(request, ProduceResponse, 9)
    results = [part for topic in response.responses for part in topic.partition_responses]
    assert [(part.error_code, part.base_offset) for part in results] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 2)]


async def test_a_batch_that_comes_twice_in_one_request_is_stored_once(orders: Client) -> None:
    same = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    responses = await produce(orders, "orders", (0, a_batch(b"a", **same)), (0, a_batch(b"a", **same)))
    assert [(part.error_code, part.base_offset) for part in responses] == [(ErrorCode.NONE, 0)] * 2
    (after,) = await produce(orders, "orders", (0, a_batch(b"b")))
    assert after.base_offset == 1


async def test_a_partition_is_fetched_from_each_of_its_places(orders: Client) -> None:
    for value in (b"a", b"b", b"c"):
        await produce(orders, "orders", (0, a_batch(value)))
    request = fetch_request("orders", (0, 0), (0, 2), (0, 9))
    request.topics += fetch_request("orders", (0, 1)).topics
    response = await orders.call(request, FetchResponse, 12)
    parts = [part for topic in response.responses for part in topic.partitions]
    none, out = ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE
    assert [part.error_code for part in parts] == [none, none, out, none]
    assert [len(batches_of(part)) for part in parts if part.error_code == none] == [3, 1, 2]


async def test_of_offsets_for_one_partition_the_last_is_kept(orders: Client) -> None:
    request = commit_request("orders", {0: 5})
    request.topics += commit_request("orders", {0: 3}).topics
    request.topics[0].partitions += commit_request("orders", {0: 4}).topics[0].partitions
    response = await orders.call(request, OffsetCommitResponse, 9)
    assert [part.error_code for topic in response.topics for part in topic.partitions] == [ErrorCode.NONE] * 3
    assert await committed(orders, "orders", 0) == {0: 3}
