"""ListConfigResources: what has settings."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.wire.kafka.talk import Client, Served, create_topic

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


async def listed(client: Client, *kinds: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = await client.call(request, ListConfigResourcesResponse, version)
    assert response.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


async def test_before_types_only_client_metrics_are_requested(client: Client) -> None:
    await create_topic(client, "orders")
    assert await listed(client, version=0) == []


async def test_topics_and_the_agent_have_settings(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    agent = (BROKER, str(served.broker.node_id))
    assert await listed(client) == [(TOPIC, "orders"), agent]
    assert await listed(client, TOPIC) == [(TOPIC, "orders")]
    assert await listed(client, BROKER, METRICS) == [agent]
    assert await listed(client, LOGGER, METRICS, GROUP) == []


@pytest.mark.parametrize("kind", [0, 1, 64, -1])
async def test_an_unknown_type_is_refused(client: Client, kind: int) -> None:
    request = ListConfigResourcesRequest(resource_types=[TOPIC, kind])
    response = await client.call(request, ListConfigResourcesResponse, 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
