"""Transactions as administrators see them: what is under way, since when, where, and how to end what hangs."""

import asyncio

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from streamhouse.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from streamhouse.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from streamhouse.wire.kafka.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from streamhouse.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.wire.kafka.producing import Transactional
from tests.wire.kafka.talk import TIMEOUT_S, Client, Served, create_topic, fetch, fetch_request


@pytest.fixture
async def orders(client: Client) -> str:
    await create_topic(client, "orders", partitions=2)
    return "orders"


async def describe(client: Client, *names: str) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return (await client.call(request, DescribeTransactionsResponse, 0)).transaction_states


async def listed(client: Client, *, version: int = 2, **filters: object) -> ListTransactionsResponse:
    request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    return await client.call(request, ListTransactionsResponse, version)


async def producers(client: Client, topic: str) -> list[ProducerState]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    response = await client.call(request, DescribeProducersResponse, 0)
    return response.topics[0].partitions[0].active_producers


async def test_every_agent_says_who_coordinates_a_transactional_id(served: Served, client: Client) -> None:
    old = await client.call(FindCoordinatorRequest(key="payments", key_type=1), FindCoordinatorResponse, 2)
    assert (old.error_code, old.port) == (ErrorCode.NONE, served.port)
    many = FindCoordinatorRequest(key_type=1, coordinator_keys=["payments", "x" * 5000])
    result = (await client.call(many, FindCoordinatorResponse, 4)).coordinators
    assert [each.error_code for each in result] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


async def test_a_transaction_is_described_with_its_partitions_while_it_is_under_way(
    client: Client, orders: str
) -> None:
    producer = await Transactional.begin(client, timeout_ms=45_000)
    (empty,) = await describe(client, "payments")
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, [])
    await producer.add(orders, 1, 0)
    (ongoing,) = await describe(client, "payments")
    assert (ongoing.transaction_state, ongoing.transaction_timeout_ms) == ("Ongoing", 45_000)
    assert (ongoing.producer_id, ongoing.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(each.topic, each.partitions) for each in ongoing.topics] == [("orders", [0, 1])]
    assert ongoing.transaction_start_time_ms > 0
    await producer.end(commit=True)
    (ended,) = await describe(client, "payments")
    assert (ended.transaction_state, ended.transaction_start_time_ms, ended.topics) == ("CompleteCommit", -1, [])


async def test_ids_that_nobody_has_are_reported_one_by_one(client: Client) -> None:
    await Transactional.begin(client)
    response = await describe(client, "nobody", "payments", "")
    assert {each.transactional_id: each.error_code for each in response} == {
        "nobody": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        "payments": ErrorCode.NONE,
        "": ErrorCode.INVALID_REQUEST,
    }


async def test_lists_are_filtered_by_state_producer_duration_and_pattern(client: Client, orders: str) -> None:
    first, second = await Transactional.begin(client, "first"), await Transactional.begin(client, "second")
    await second.add(orders, 0)

    async def names(version: int = 2, **filters: object) -> list[str]:
        response = await listed(client, version=version, **filters)
        assert response.error_code == ErrorCode.NONE
        return [each.transactional_id for each in response.transaction_states]

    assert await names(version=0) == ["first", "second"]
    assert await names(state_filters=["Ongoing"]) == ["second"]
    assert await names(producer_id_filters=[first.producer_id]) == ["first"]
    assert await names(version=1, duration_filter=3_600_000) == []
    assert await names(transactional_id_pattern="f.*") == ["first"]
    assert await names(transactional_id_pattern="irst") == []
    assert await names(transactional_id_pattern="") == ["first", "second"]


async def test_states_that_there_are_not_are_reported_back(client: Client) -> None:
    await Transactional.begin(client)
    response = await listed(client, state_filters=["Sleepy"])
    assert (response.unknown_state_filters, response.transaction_states) == (["Sleepy"], [])
    response = await listed(client, state_filters=["Sleepy", "Empty"])
    assert (response.unknown_state_filters, len(response.transaction_states)) == (["Sleepy"], 1)


@pytest.mark.parametrize("pattern", ["(", "[a", "(?=a)a", "x" * 2000])
async def test_expressions_that_make_no_sense_or_could_keep_an_agent_busy_are_refused(
    client: Client, pattern: str
) -> None:
    response = await listed(client, transactional_id_pattern=pattern)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_hostile_expression_takes_no_longer_than_another(client: Client) -> None:
    await Transactional.begin(client, "a" * 200)
    async with asyncio.timeout(TIMEOUT_S):
        response = await listed(client, transactional_id_pattern="(a+)+b")
    assert (response.error_code, response.transaction_states) == (ErrorCode.NONE, [])


async def test_a_partition_shows_which_transactions_are_open_and_an_administrator_ends_one_that_hangs(
    client: Client, orders: str
) -> None:
    producer = await Transactional.begin(client)
    for _ in range(2):
        await producer.add(orders, 0)
        await producer.send(orders, 0, b"a")
        await producer.end(commit=True)
    await producer.add(orders, 0)
    await producer.send(orders, 0, b"hangs")
    (result,) = await producers(client, orders)
    assert (result.producer_id, result.current_txn_start_offset) == (producer.producer_id, 4)
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
                transaction_result=False,
                coordinator_epoch=result.coordinator_epoch,
                topics=[WritableTxnMarkerTopic(name=orders, partition_indexes=[0])],
            )
        ]
    )
    response = await client.call(request, WriteTxnMarkersResponse, 1)
    assert response.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    (after,) = await producers(client, orders)
    assert after.current_txn_start_offset == -1
    (part,) = await fetch(client, fetch_request(orders, (0, 0), isolation_level=1))
    assert (part.last_stable_offset, part.high_watermark) == (6, 6)
    assert [each.first_offset for each in part.aborted_transactions or ()] == [4]


async def test_markers_for_partitions_that_there_are_not_are_refused_one_by_one(client: Client, orders: str) -> None:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=5,
                producer_epoch=0,
                transaction_result=True,
                coordinator_epoch=1,
                topics=[
                    WritableTxnMarkerTopic(name=orders, partition_indexes=[0, 9]),
                    WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0]),
                ],
            )
        ]
    )
    response = await client.call(request, WriteTxnMarkersResponse, 2)
    codes = [part.error_code for topic in response.markers[0].topics for part in topic.partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
