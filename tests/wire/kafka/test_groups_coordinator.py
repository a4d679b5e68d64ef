"""FindCoordinator, and the topic that exists for the groups' leases alone."""

import pytest

from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from streamhouse.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from streamhouse.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.wire.kafka.members import commit_request
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, produce

GROUP, SHARE = 0, 2


@pytest.mark.parametrize("version", range(4))
async def test_one_group_is_coordinated_here(client: Client, served: Served, version: int) -> None:
    response = await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, version)
    assert (response.error_code, response.node_id) == (0, served.broker.node_id)
    assert (response.host, response.port) == (served.host, served.port)


@pytest.mark.parametrize("version", [4, 5, 6])
async def test_many_groups_are_coordinated_here_each_named_once(client: Client, served: Served, version: int) -> None:
    request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["a", "b", "a", ""])
    response = await client.call(request, FindCoordinatorResponse, version)
    assert [(each.key, each.error_code, each.node_id) for each in response.coordinators] == [
        (key, 0, served.broker.node_id) for key in ("a", "b", "")
    ]


async def test_a_name_that_is_too_long_harms_no_other(client: Client) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["x" * 1001, "a"])
    response = await client.call(request, FindCoordinatorResponse, 6)
    assert [each.error_code for each in response.coordinators] == [ErrorCode.INVALID_GROUP_ID, 0]
    assert "too long" in (response.coordinators[0].error_message or "")


@pytest.mark.parametrize("key_type", [SHARE, 99])
async def test_share_groups_have_no_coordinator(client: Client, key_type: int) -> None:
    code = ErrorCode.INVALID_REQUEST
    many = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["t"])
    (result,) = (await client.call(many, FindCoordinatorResponse, 6)).coordinators
    assert (result.error_code, result.node_id, result.host) == (code, -1, "")
    one = await client.call(FindCoordinatorRequest(key="t", key_type=key_type), FindCoordinatorResponse, 2)
    assert (one.error_code, one.node_id) == (code, -1)


async def test_an_agent_that_stops_coordinates_nothing(client: Client, served: Served) -> None:
    served.broker.stop()
    response = await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- the internal topic


async def with_groups(client: Client) -> None:
    await create_topic(client, "orders")
    request = commit_request("orders", {0: 1})
    await client.call(request, request.response_class, 9)


async def test_the_topic_of_groups_is_marked_as_internal(client: Client) -> None:
    await with_groups(client)
    response = await client.call(MetadataRequest(topics=None), MetadataResponse, 12)
    assert {topic.name: topic.is_internal for topic in response.topics} == {"orders": False, OFFSETS_TOPIC: True}


async def test_clients_do_not_write_to_it(client: Client) -> None:
    await with_groups(client)
    (part,) = await produce(client, OFFSETS_TOPIC, (0, a_batch(b"x")))
    assert part.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_clients_do_not_delete_it(client: Client) -> None:
    await with_groups(client)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=OFFSETS_TOPIC)])
    (result,) = (await client.call(request, DeleteTopicsResponse, 6)).responses
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_clients_do_not_create_it(client: Client, served: Served) -> None:
    new = CreatableTopic(name=OFFSETS_TOPIC, num_partitions=1, replication_factor=1)
    (result,) = (await client.call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 7)).topics
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    request = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)], allow_auto_topic_creation=True)
    (topic,) = (await client.call(request, MetadataResponse, 12)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await served.broker.topics() == []
