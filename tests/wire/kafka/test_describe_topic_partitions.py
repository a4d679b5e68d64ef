"""DescribeTopicPartitions: topics and leaders, a page at a time."""

import pytest

from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.wire.kafka.operation_bits import TOPIC_OPERATIONS
from tests.wire.kafka.talk import Client, Served, create_topic


async def page(
    client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )
    return await client.call(request, DescribeTopicPartitionsResponse, 0)


def partitions(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics]


def following(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return (cursor.topic_name, cursor.partition_index) if cursor else None


async def test_a_topic_is_reported_with_its_leader(client: Client, served: Served) -> None:
    await create_topic(client, "orders", partitions=2)
    (topic,) = (await page(client, "orders")).topics
    node = served.broker.node_id
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, "orders", False)
    assert topic.topic_id == (await served.broker.topic("orders")).topic_id
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS == 0b110111111000
    assert [(part.leader_id, part.replica_nodes, part.isr_nodes) for part in topic.partitions] == [
        (node, [node], [node])
    ] * 2


async def test_without_names_all_topics_are_reported_in_order(client: Client, served: Served) -> None:
    for name in ("b", "a", "c"):
        await create_topic(client, name)
    await served.broker.catalog.create(OFFSETS_TOPIC)
    response = await page(client)
    assert partitions(response) == [(name, [0]) for name in sorted((OFFSETS_TOPIC, "a", "b", "c"))]
    assert [topic.name for topic in response.topics if topic.is_internal] == [OFFSETS_TOPIC]
    assert following(response) is None


async def test_a_topic_that_is_not_there_is_reported_and_not_created(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    response = await page(client, "orders", "missing", "a/b", "orders")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", ErrorCode.NONE),
    ]
    assert [topic.name for topic in await served.broker.topics()] == ["orders"]


async def test_pages_follow_each_other_without_gap_or_repetition(client: Client) -> None:
    for name, count in (("a", 3), ("b", 2), ("c", 1), ("d", 4)):
        await create_topic(client, name, partitions=count)
    for limit in (1, 2, 3, 4, 100):
        for names in ((), ("a", "b", "c", "d")):
            results: list[tuple[str | None, int]] = []
            cursor = None
            while True:
                response = await page(client, *names, limit=limit, cursor=cursor)
                matches = [(name, number) for name, numbers in partitions(response) for number in numbers]
                assert 0 < len(matches) <= limit
                results += matches
                if (cursor := following(response)) is None:
                    break
            assert results == [
                (name, n) for name, count in zip("abcd", (3, 2, 1, 4), strict=True) for n in range(count)
            ]


async def test_a_page_is_never_empty_nor_endless_whatever_is_requested(client: Client) -> None:
    await create_topic(client, "orders", partitions=2500)
    for limit, expected in ((0, 1), (-5, 1), (2**31 - 1, 2000)):
        response = await page(client, "orders", limit=limit)
        assert following(response) == ("orders", expected)


async def test_a_cursor_may_name_what_is_gone(client: Client) -> None:
    await create_topic(client, "c", partitions=2)
    assert partitions(await page(client, cursor=("b", 7))) == [("c", [0, 1])]
    beyond = await page(client, cursor=("c", 9))
    assert (partitions(beyond), following(beyond)) == ([("c", [])], None)
    assert partitions(await page(client, cursor=("d", 0))) == []


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
async def test_a_cursor_that_makes_no_sense_is_refused(client: Client, cursor: tuple[str, int]) -> None:
    await create_topic(client, "a")
    response = await page(client, "a", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", ErrorCode.INVALID_REQUEST)]
