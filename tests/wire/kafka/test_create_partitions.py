"""CreatePartitions: topics grow, and never shrink."""

import pytest

from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, fetch, fetch_request, produce


def requested(name: str, count: int, *brokers: list[int]) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers] if brokers else None
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


async def grow(
    client: Client, *topics: CreatePartitionsTopic, version: int = 3, dry_run: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=dry_run)
    return (await client.call(request, CreatePartitionsResponse, version)).results


@pytest.mark.parametrize("version", range(4))
async def test_every_version_grows_a_topic(client: Client, served: Served, version: int) -> None:
    await create_topic(client, "orders", partitions=2)
    (done,) = await grow(client, requested("orders", 5), version=version)
    assert (done.name, done.error_code, done.error_message) == ("orders", ErrorCode.NONE, None)
    assert (await served.broker.topic("orders")).partitions == 5


async def test_new_partitions_take_records_and_old_ones_keep_theirs(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"old")))
    await grow(client, requested("orders", 3))
    (pending,) = await produce(client, "orders", (2, a_batch(b"new")))
    assert (pending.error_code, pending.base_offset) == (ErrorCode.NONE, 0)
    old, new = await fetch(client, fetch_request("orders", (0, 0), (2, 0)))
    assert (old.high_watermark, new.high_watermark) == (1, 1)


@pytest.mark.parametrize("count", [-1, 0, 2, 3, 2**31 - 1])
async def test_a_number_that_is_no_growth_or_too_much_is_refused(client: Client, served: Served, count: int) -> None:
    await create_topic(client, "orders", partitions=3)
    (refused,) = await grow(client, requested("orders", count))
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert refused.error_message is not None
    assert "orders" in refused.error_message
    assert (await served.broker.topic("orders")).partitions == 3


async def test_each_topic_stands_alone(client: Client) -> None:
    await create_topic(client, "orders")
    missing, illegal, good = await grow(client, requested("missing", 2), requested("a/b", 2), requested("orders", 2))
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert good.error_code == ErrorCode.NONE


async def test_a_topic_that_occurs_twice_is_refused_once_and_stays(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    (refused,) = await grow(client, requested("orders", 2), requested("orders", 3))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert (await served.broker.topic("orders")).partitions == 1


async def test_validating_changes_nothing(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    fine, wrong = await grow(client, requested("orders", 2), requested("missing", 2), dry_run=True)
    assert (fine.error_code, wrong.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (await served.broker.topic("orders")).partitions == 1


async def test_an_assignment_by_hand_names_this_agent_for_each_new_partition(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    node = served.broker.node_id
    for brokers in ([[node]], [[node], []], [[node], [99]], [[node, node], [node]]):
        (refused,) = await grow(client, requested("orders", 3, *brokers))
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (done,) = await grow(client, requested("orders", 3, [node], [node]))
    assert done.error_code == ErrorCode.NONE


async def test_the_number_by_which_groups_find_their_coordinator_stays(client: Client, served: Served) -> None:
    await served.broker.catalog.create(OFFSETS_TOPIC, partitions=4)
    (refused,) = await grow(client, requested(OFFSETS_TOPIC, 8))
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
