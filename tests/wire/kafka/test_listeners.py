"""Several listeners of one agent: what their clients are told, and who is believed to be an agent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamhouse.clock import SystemClock
from streamhouse.config import KafkaSettings
from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import ListenerProtocol, ListenerSpec
from streamhouse.config.secrets import Secrets
from streamhouse.model.access import AGENT, Principal
from streamhouse.model.cluster_tokens import ClusterTokens
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from streamhouse.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from streamhouse.wire.listener import OpenListener, bind
from tests.wire.kafka.sasl.logins import authenticate, handshake
from tests.wire.kafka.talk import (
    Client,
    Served,
    a_batch,
    a_broker,
    a_server,
    produce_request,
    quick_settings,
    request_bytes,
)

SECRET = "a secret of this cluster"
FLUSH = -100
"""The acks with which agents forward."""


def listener(name: str, advertised: Address) -> OpenListener:
    listening = bind(Address("127.0.0.1", 0), flag="--kafka")
    bound = Address(*listening.getsockname()[:2])
    spec = ListenerSpec(name=name, bind=bound, advertised=advertised, protocol=ListenerProtocol.PLAINTEXT)
    return OpenListener(spec=spec, listening=listening, advertised=advertised)


async def test_clients_are_told_the_address_of_the_listener_that_they_came_through(tmp_path: Path) -> None:
    settings = quick_settings(KafkaSettings())
    addresses = [Address("inside.example", 9092), Address("outside.example", 9094)]
    listeners = [listener("INSIDE", addresses[0]), listener("OUTSIDE", addresses[1])]
    async with a_broker(tmp_path, settings) as broker, a_server(broker, settings, listeners=listeners):
        for opened, address in zip(listeners, addresses, strict=True):
            client = await Client.connect(*opened.bound)
            metadata = await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
            assert [(each.host, each.port) for each in metadata.brokers] == [address]
            cluster = await client.call(DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse, 1)
            assert [(each.host, each.port) for each in cluster.brokers] == [address]
            result = await client.call(
                FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), FindCoordinatorResponse, 4
            )
            assert [(each.host, each.port) for each in result.coordinators] == [address]
            await client.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Without access control and login, but with a cluster secret."""
    settings = quick_settings(KafkaSettings())
    async with a_broker(tmp_path, settings, secrets=Secrets(cluster_secret=SECRET)) as broker:
        await broker.create_topic("orders", partitions=1, overrides={})
        async with a_server(broker, settings) as served:
            yield served


async def produced_as_agent(client: Client, number: int) -> int:
    request = produce_request("orders", (0, a_batch(b"v")), acks=FLUSH)
    await client.send_raw(request_bytes(request, 9, number, client_id="streamhouse-agent"))
    client._sent = number
    client._received = number - 1
    response = await client.receive(ProduceResponse, 9)
    return response.responses[0].partition_responses[0].error_code


async def test_the_client_id_of_agents_is_not_believed_where_there_is_a_secret(served: Served) -> None:
    client = await served.client()
    assert await produced_as_agent(client, 1) == ErrorCode.INVALID_REQUIRED_ACKS


async def test_an_agent_proves_what_it_is_on_a_listener_without_logins(served: Served) -> None:
    client = await served.client()
    assert (await handshake(client, "OAUTHBEARER")).error_code == ErrorCode.NONE
    token = ClusterTokens(SECRET, clock=SystemClock()).make(Principal(AGENT, "1"))
    assert (await authenticate(client, f"n,,\x01auth=Bearer {token}\x01\x01".encode())).error_code == ErrorCode.NONE
    assert await produced_as_agent(client, 3) == ErrorCode.NONE


async def test_a_forged_token_ends_the_connection(served: Served) -> None:
    client = await served.client()
    await handshake(client, "OAUTHBEARER")
    token = ClusterTokens(SECRET + "!", clock=SystemClock()).make(Principal(AGENT, "1"))
    await authenticate(client, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    assert (await authenticate(client, b"\x01")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed()
