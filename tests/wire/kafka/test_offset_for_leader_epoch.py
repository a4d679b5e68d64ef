"""OffsetForLeaderEpoch: where a leader's reign ended."""

import pytest

from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, produce


async def ask(client: Client, epoch: int, *, current: int = -1, partition: int = 0, version: int = 4) -> EpochEndOffset:
    part = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="orders", partitions=[part])]
    )
    response = await client.call(request, OffsetForLeaderEpochResponse, version)
    return response.topics[0].partitions[0]


@pytest.fixture
async def epoch(client: Client, served: Served) -> int:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"a", b"b", b"c")))
    return served.broker.leader_epoch(TopicPartition("orders", 0))


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_the_current_epoch_ends_at_the_end_of_the_log(client: Client, epoch: int, version: int) -> None:
    result = await ask(client, epoch, version=version)
    assert (result.error_code, result.leader_epoch, result.end_offset) == (ErrorCode.NONE, epoch, 3)


async def test_an_epoch_that_never_was_has_no_end(client: Client, epoch: int) -> None:
    for request in (epoch + 1, -1):
        result = await ask(client, request)
        assert (result.error_code, result.leader_epoch, result.end_offset) == (ErrorCode.NONE, -1, -1)


async def test_a_client_that_knows_another_leader_is_refused(client: Client, epoch: int) -> None:
    assert (await ask(client, epoch, current=epoch - 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await ask(client, epoch, current=epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await ask(client, epoch, current=epoch)).error_code == ErrorCode.NONE


async def test_a_partition_that_is_not_there_is_unknown(client: Client, epoch: int) -> None:
    assert (await ask(client, epoch, partition=4)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_replica_id_changes_nothing(client: Client, epoch: int) -> None:
    part = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=1, topics=[OffsetForLeaderTopic(topic="orders", partitions=[part])]
    )
    response = await client.call(request, OffsetForLeaderEpochResponse, 4)
    assert [each.end_offset for each in response.topics[0].partitions] == [3]
