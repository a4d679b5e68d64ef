"""DescribeProducers: the idempotent producers that a partition remembers."""

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tests.wire.kafka.talk import Client, a_batch, create_topic, produce


async def describe(client: Client, topic: str, *numbers: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(numbers))])
    (result,) = (await client.call(request, DescribeProducersResponse, 0)).topics
    assert result.name == topic
    return result.partitions


async def test_producers_are_reported_with_what_they_sent_last(client: Client) -> None:
    await create_topic(client, "orders", partitions=2)
    first = a_batch(b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0)
    second = a_batch(b"c", timestamp_ms=5_000, producer_id=7, producer_epoch=1, base_sequence=2)
    for batch in (first, second, a_batch(b"d")):
        (pending,) = await produce(client, "orders", (0, batch))
        assert pending.error_code == ErrorCode.NONE
    some, none = await describe(client, "orders", 0, 1)
    (state,) = some.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 1, 2)
    assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (5_000, -1, -1)
    assert (none.error_code, none.error_message, none.active_producers) == (ErrorCode.NONE, None, [])


async def test_each_partition_stands_alone(client: Client) -> None:
    await create_topic(client, "orders")
    assert [part.error_code for part in await describe(client, "orders", 0, 1, -1)] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [part.error_code for part in await describe(client, "missing", 0)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (illegal,) = await describe(client, "a/b", 0)
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert illegal.error_message


async def test_a_partition_that_occurs_a_thousand_times_is_reported_once(client: Client) -> None:
    await create_topic(client, "orders")
    topics = [TopicRequest(name="orders", partition_indexes=[0] * 500)] * 2
    response = await client.call(DescribeProducersRequest(topics=topics), DescribeProducersResponse, 0)
    assert [[part.partition_index for part in topic.partitions] for topic in response.topics] == [[0]]
