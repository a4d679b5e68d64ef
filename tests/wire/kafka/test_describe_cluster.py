"""DescribeCluster: the agents and the cluster's id."""

from pathlib import Path

import pytest
from msgspec import structs

from streamhouse.config import AgentSettings, Settings
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tests.wire.kafka.operation_bits import CLUSTER_OPERATIONS, NOT_REQUESTED
from tests.wire.kafka.talk import Client, Served, a_broker, a_server


@pytest.mark.parametrize("version", range(3))
async def test_every_version_shows_the_agent_as_metadata_does(client: Client, served: Served, version: int) -> None:
    response = await client.call(DescribeClusterRequest(), DescribeClusterResponse, version)
    metadata = await client.call(MetadataRequest(topics=[]), MetadataResponse, 12)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (served.broker.node_id, served.host, served.port)
    assert (response.error_code, response.controller_id) == (ErrorCode.NONE, metadata.controller_id)
    assert response.cluster_id == metadata.cluster_id
    assert response.cluster_authorized_operations == NOT_REQUESTED


async def test_the_rack_of_an_agent_is_its_zone(tmp_path: Path, settings: Settings) -> None:
    for zone, rack in (("eu-1b", "eu-1b"), ("", None)):
        zoned = structs.replace(settings, agent=AgentSettings(zone=zone))
        async with a_broker(tmp_path / zone, zoned) as broker, a_server(broker, zoned) as served:
            client = await served.client()
            cluster = await client.call(DescribeClusterRequest(), DescribeClusterResponse, 2)
            metadata = await client.call(MetadataRequest(topics=[]), MetadataResponse, 12)
            assert [each.rack for each in cluster.brokers] == [each.rack for each in metadata.brokers] == [rack]


async def test_everybody_may_do_everything(client: Client) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = await client.call(request, DescribeClusterResponse, 2)
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS == 0b1111110100000


@pytest.mark.parametrize(
    ("endpoint", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_there_are_only_brokers_to_ask_for(client: Client, endpoint: int, code: ErrorCode) -> None:
    response = await client.call(DescribeClusterRequest(endpoint_type=endpoint), DescribeClusterResponse, 1)
    assert (response.error_code, response.brokers) == (code, [])
    assert response.error_message
