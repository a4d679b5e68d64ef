"""An agent that went: its id leads clients that bind calls to it to a living agent, until it is in use again."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from streamhouse.clock import SystemClock
from streamhouse.config import ClusterSettings
from streamhouse.config.fields import Address
from streamhouse.wire.kafka.client_software import ClientSoftware
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from streamhouse.wire.kafka.server import OUTDATED_S
from tests.wire.kafka.cluster import SETTINGS, BrokerCluster, Member, a_cluster
from tests.wire.kafka.talk import Client, until

JAVA = ClientSoftware("apache-kafka-java", "4.3.1")
LIBRDKAFKA = ClientSoftware("librdkafka", "2.16.0")
PYTHON = ClientSoftware("confluent-kafka-python", "2.16.0-rdkafka-2.16.0")
OLD_LIBRDKAFKA = ClientSoftware("librdkafka", "2.9.0")
OLD_PYTHON = ClientSoftware("confluent-kafka-python", "2.9.0-rdkafka-2.9.0")
FRANZ = ClientSoftware("kgo", "v1.22.2")

REDIRECTED = (JAVA, LIBRDKAFKA, PYTHON)
OTHERS = (OLD_LIBRDKAFKA, OLD_PYTHON, FRANZ, None)
LISTED_S = 0.5
SHORT = structs.replace(SETTINGS, cluster=ClusterSettings(refresh_s=0.05, departed_listed_s=LISTED_S))


@pytest.fixture
async def cluster() -> AsyncIterator[BrokerCluster]:
    async with a_cluster(2, SHORT) as cluster:
        yield cluster


async def a_client(member: Member, software: ClientSoftware | None) -> Client:
    client = await Client.connect(*member.address)
    if software is not None:
        request = ApiVersionsRequest(client_software_name=software.name, client_software_version=software.version)
        await client.call(request, ApiVersionsResponse, 3)
    return client


async def listed(client: Client) -> dict[int, Address]:
    response = await client.call(MetadataRequest(topics=[]), MetadataResponse, 12)
    return {each.node_id: Address(each.host, each.port) for each in response.brokers}


async def test_the_id_of_a_dead_agent_leads_those_who_wait_for_it_to_a_living_one(cluster: BrokerCluster) -> None:
    living, dead = cluster.members
    one, two = living.broker.node_id, dead.broker.node_id
    clients = {software: await a_client(living, software) for software in (*REDIRECTED, *OTHERS)}
    for client in clients.values():
        assert await listed(client) == {one: living.address, two: dead.address}
    await dead.kill()
    await until(lambda: len(living.broker.agents()) == 1)
    for software in REDIRECTED:
        assert await listed(clients[software]) == {one: living.address, two: living.address}
    for other in OTHERS:
        assert await listed(clients[other]) == {one: living.address, two: dead.address}
    await until(lambda: not living.broker.departed())
    for software in REDIRECTED:
        assert await listed(clients[software]) == {one: living.address, two: living.address}
    for other in OTHERS:
        assert await listed(clients[other]) == {one: living.address}
    for client in clients.values():
        await client.close()


async def test_the_id_of_an_agent_that_left_in_order_does_too_and_others_hear_no_more_of_it(
    cluster: BrokerCluster,
) -> None:
    living, left = cluster.members
    one, two = living.broker.node_id, left.broker.node_id
    await left.stop()
    await until(lambda: len(living.broker.agents()) == 1)
    java, franz = await a_client(living, JAVA), await a_client(living, FRANZ)
    assert await listed(java) == {one: living.address, two: living.address}
    assert await listed(franz) == {one: living.address}
    await java.close()
    await franz.close()


async def test_when_the_agent_is_back_connections_that_were_made_elsewhere_for_it_are_closed(
    cluster: BrokerCluster,
) -> None:
    living, gone = cluster.members
    two = gone.broker.node_id
    early = await a_client(living, JAVA)
    await gone.stop()
    await until(lambda: len(living.broker.agents()) == 1)
    java, librdkafka = await a_client(living, JAVA), await a_client(living, LIBRDKAFKA)
    back = Member(SHORT, cluster.metadata, cluster.objects, at=str(gone.address))
    await back.start()
    assert back.broker.node_id == two
    await until(lambda: len(living.broker.agents()) == 2)
    for client in (early, java, librdkafka):
        assert (await listed(client))[two] == back.address
    assert living.broker.misdirected() == []  # another agent may not know yet, and send clients here
    await until(lambda: bool(living.broker.misdirected()))
    living.server.close_misdirected()
    assert await java.is_closed()
    await java.close()
    late = await a_client(living, JAVA)
    living.server.close_misdirected()
    for client in (early, librdkafka, late):
        assert (await listed(client))[two] == back.address
        await client.close()
    await back.stop()


async def test_librdkafkas_admin_which_asks_who_is_there_when_it_connects_has_to_connect_again(
    cluster: BrokerCluster,
) -> None:
    """It called every agent, and waits for one that is gone."""
    living, dead = cluster.members
    waits, java, old = [await a_client(living, each) for each in (PYTHON, JAVA, OLD_LIBRDKAFKA)]
    other = await a_client(living, LIBRDKAFKA)
    for client in (waits, java, old, other):
        await client.call(ListGroupsRequest(), ListGroupsResponse, 4)
    await listed(other)  # which isn't asked of every agent
    living.server.close_outdated()
    await dead.kill()
    await until(lambda: len(living.broker.agents()) == 1)
    living.server.close_outdated()
    await waits.call(ListGroupsRequest(), ListGroupsResponse, 4)  # not at once: other agents may not know yet
    new = await a_client(living, PYTHON)
    await new.call(ListGroupsRequest(), ListGroupsResponse, 4)
    clock = SystemClock()
    silent_since = clock.monotonic()
    await until(lambda: clock.monotonic() > silent_since + OUTDATED_S)
    await java.call(ListGroupsRequest(), ListGroupsResponse, 4)
    living.server.close_outdated()
    assert await waits.is_closed()
    for client in (java, old, other, new):
        assert living.broker.node_id in await listed(client)
        await client.close()
    await waits.close()


async def test_a_client_that_goes_on_to_call_is_not_cut_off(cluster: BrokerCluster) -> None:
    living, dead = cluster.members
    busy = await a_client(living, LIBRDKAFKA)
    await dead.kill()
    await until(lambda: len(living.broker.agents()) == 1)
    since = living.broker.departures()[0]
    clock = SystemClock()
    await until(lambda: clock.monotonic() > since + OUTDATED_S)
    await busy.call(ListGroupsRequest(), ListGroupsResponse, 4)
    living.server.close_outdated()
    await busy.call(ListGroupsRequest(), ListGroupsResponse, 4)
    await busy.close()
