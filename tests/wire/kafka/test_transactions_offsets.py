"""Offsets in transactions: a group's place moves with the transaction, or not at all."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from streamhouse.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.wire.kafka.producing import NEW, Transactional
from tests.wire.kafka.talk import Client, Served, create_topic


@pytest.fixture
async def orders(client: Client) -> str:
    await create_topic(client, "orders", partitions=2)
    return "orders"


async def committed(client: Client, topic: str, *, stable: bool, version: int = 9) -> tuple[int, int]:
    """Offset and code of partition 0."""
    if version < 8:
        request = OffsetFetchRequest(
            group_id="readers",
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
            require_stable=stable,
        )
        old = (await client.call(request, OffsetFetchResponse, version)).topics[0].partitions[0]
        return old.committed_offset, old.error_code
    group = OffsetFetchRequestGroup(
        group_id="readers", topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    response = await client.call(
        OffsetFetchRequest(groups=[group], require_stable=stable), OffsetFetchResponse, version
    )
    part = response.groups[0].topics[0].partitions[0]
    return part.committed_offset, part.error_code


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize(("commit", "after"), [(True, (5, 0)), (False, (-1, 0))])
async def test_an_offset_counts_when_its_transaction_is_committed(
    client: Client, orders: str, version: int, commit: bool, after: tuple[int, int]
) -> None:
    producer = await Transactional.begin(client)
    assert await producer.add_offsets("readers") == ErrorCode.NONE
    assert await producer.commit_offsets("readers", {(orders, 0): 5}) == [ErrorCode.NONE]
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert await committed(client, orders, stable=True, version=version) == unstable
    assert await committed(client, orders, stable=False, version=version) == (-1, ErrorCode.NONE)
    assert (await producer.end(commit=commit)).error_code == ErrorCode.NONE
    assert await committed(client, orders, stable=True, version=version) == after


@pytest.mark.parametrize("version", range(6))
async def test_every_version_commits(client: Client, orders: str, version: int) -> None:
    producer = await Transactional.begin(client)
    await producer.add_offsets("readers")
    assert await producer.commit_offsets("readers", {(orders, 0): version}, version=version) == [ErrorCode.NONE]
    await producer.end(commit=True)
    assert await committed(client, orders, stable=True) == (version, ErrorCode.NONE)


async def test_topics_may_be_named_by_id(client: Client, served: Served, orders: str) -> None:
    producer = await Transactional.begin(client)
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    topic_id = (await served.broker.topic(orders)).topic_id
    request = TxnOffsetCommitRequest(
        transactional_id="payments",
        group_id="readers",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=[part])],
    )
    response = await client.call(request, TxnOffsetCommitResponse, 6)
    assert (response.topics[0].topic_id, response.topics[0].partitions[0].error_code) == (topic_id, ErrorCode.NONE)
    await producer.end(commit=True, version=NEW)
    assert await committed(client, orders, stable=True) == (7, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, ErrorCode.NONE)]
)
async def test_newer_clients_begin_a_transaction_with_it_older_ones_must_have_begun_it(
    client: Client, orders: str, version: int, code: ErrorCode
) -> None:
    producer = await Transactional.begin(client)
    assert await producer.commit_offsets("readers", {(orders, 0): 5}, version=version) == [code]


async def test_each_partition_is_answered_on_its_own(client: Client, orders: str) -> None:
    producer = await Transactional.begin(client)
    await producer.add_offsets("readers")
    assert await producer.commit_offsets("readers", {(orders, 0): 5, (orders, 9): 5}) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_a_generation_that_there_is_not_and_a_member_that_nobody_knows_are_refused(
    client: Client, orders: str
) -> None:
    producer = await Transactional.begin(client)
    await producer.add_offsets("readers")
    result = {(orders, 0): 5}
    assert await producer.commit_offsets("readers", result, generation_id_or_member_epoch=3, member_id="somebody") in (
        [ErrorCode.ILLEGAL_GENERATION],
        [ErrorCode.UNKNOWN_MEMBER_ID],
    )
    assert await producer.commit_offsets("", result) == [ErrorCode.INVALID_GROUP_ID]


async def test_a_replaced_producer_commits_nothing(client: Client, orders: str) -> None:
    first = await Transactional.begin(client)
    await first.add_offsets("readers")
    await first.commit_offsets("readers", {(orders, 0): 5})
    await Transactional.begin(client)
    for version in range(6):
        result = await first.commit_offsets("readers", {(orders, 0): 6}, version=version)
        assert result == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await committed(client, orders, stable=True) == (-1, ErrorCode.NONE)
