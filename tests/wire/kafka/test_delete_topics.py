"""DeleteTopics: by name and by id, and nothing of the old topic in a new one."""

from uuid import UUID

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, fetch, fetch_request, produce


def by_name(*names: str, version: int) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=1000)


@pytest.mark.parametrize("version", range(1, 7))
async def test_every_version_deletes_by_name(client: Client, served: Served, version: int) -> None:
    await create_topic(client, "orders")
    await create_topic(client, "kept")
    response = await client.call(by_name("orders", "nowhere", version=version), DeleteTopicsResponse, version)
    assert [(gone.name, gone.error_code) for gone in response.responses] == [
        ("orders", ErrorCode.NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [topic.name for topic in await served.broker.topics()] == ["kept"]


async def test_a_topic_may_be_deleted_by_id(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    topic = await served.broker.topic("orders")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=topic.topic_id), DeleteTopicState(topic_id=UUID(int=3))], timeout_ms=1000
    )
    gone, unknown = (await client.call(request, DeleteTopicsResponse, 6)).responses
    assert (gone.error_code, gone.name, gone.topic_id) == (ErrorCode.NONE, "orders", topic.topic_id)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


async def test_a_topic_needs_a_name_or_an_id_and_only_once(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    both = DeleteTopicState(name="orders", topic_id=UUID(int=3))
    twice = DeleteTopicState(name="orders")
    request = DeleteTopicsRequest(topics=[both, DeleteTopicState(), twice, twice], timeout_ms=1000)
    response = await client.call(request, DeleteTopicsResponse, 6)
    assert [refused.error_code for refused in response.responses] == [ErrorCode.INVALID_REQUEST] * 3
    assert len(await served.broker.topics()) == 1


async def test_a_topic_created_again_is_empty(client: Client) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"old")))
    await client.call(by_name("orders", version=5), DeleteTopicsResponse, 5)
    (gone,) = await fetch(client, fetch_request("orders", (0, 0)))
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await create_topic(client, "orders")
    (part,) = await produce(client, "orders", (0, a_batch(b"new")))
    assert part.base_offset == 0
