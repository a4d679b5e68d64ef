"""Metadata: topics, partitions, and who leads them."""

import struct
from pathlib import Path
from uuid import UUID

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import KafkaSettings, Settings, TopicSettings
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.wire.kafka.operation_bits import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from tests.wire.kafka.talk import (
    Client,
    Served,
    a_batch,
    a_broker,
    a_server,
    create_topic,
    produce,
    quick_settings,
    request_bytes,
)

VERSIONS = range(14)


async def ask(client: Client, *names: str, version: int = 12, create: bool = True) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    request.allow_auto_topic_creation = create
    return await client.call(request, MetadataResponse, version)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_describes_a_topic(client: Client, served: Served, version: int) -> None:
    await create_topic(client, "orders", partitions=3)
    topic = await served.broker.topic("orders")
    response = await ask(client, "orders", version=version)
    (broker,) = response.brokers
    assert (broker.host, broker.port) == (served.host, served.port)
    if version >= 1:
        assert response.controller_id == broker.node_id
    if version >= 2:
        assert response.cluster_id
    (result,) = response.topics
    assert (result.error_code, result.name, result.is_internal) == (ErrorCode.NONE, "orders", False)
    assert result.topic_id == (topic.topic_id if version >= 10 else UUID(int=0))
    assert [part.partition_index for part in result.partitions] == [0, 1, 2]
    for part in result.partitions:
        assert part.error_code == ErrorCode.NONE
        assert part.leader_id == broker.node_id
        assert part.replica_nodes == part.isr_nodes == [broker.node_id]
        assert part.offline_replicas == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_requesting_all_lists_all_by_name(client: Client, version: int) -> None:
    for name in ("b", "a", "c"):
        await create_topic(client, name)
    request = MetadataRequest(topics=[] if version == 0 else None)
    response = await client.call(request, MetadataResponse, version)
    assert [topic.name for topic in response.topics] == ["a", "b", "c"]


async def test_requesting_none_gets_the_brokers_alone(client: Client) -> None:
    await create_topic(client, "orders")
    response = await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    assert (len(response.brokers), response.topics) == (1, [])


async def test_bytes_behind_the_request_are_not_looked_at(client: Client) -> None:
    """librdkafka asks for all topics with an array count of four bytes where one would do."""
    await create_topic(client, "orders")
    frame = request_bytes(MetadataRequest(topics=None, allow_auto_topic_creation=False), 13, 2) + b"\x01\x00\x00"
    await client.send_raw(struct.pack(">i", len(frame) - 4) + frame[4:])
    response = await client.receive(MetadataResponse, 13)
    assert [topic.name for topic in response.topics] == ["orders"]


async def test_the_leader_epoch_is_known_once_the_partition_is_open(client: Client) -> None:
    await create_topic(client, "orders", partitions=2)
    await produce(client, "orders", (0, a_batch(b"x")))
    response = await ask(client, "orders")
    epochs = [part.leader_epoch for part in response.topics[0].partitions]
    assert epochs[0] >= 0
    assert epochs[1] == -1


# --- creating by asking ---------------------------------------------------------------------------------------------


async def test_requesting_metadata_creates_a_topic(client: Client) -> None:
    response = await ask(client, "new")
    assert (response.topics[0].error_code, len(response.topics[0].partitions)) == (ErrorCode.NONE, 1)


async def test_requesting_metadata_does_not_create_when_the_client_does_not_want_it(
    client: Client, served: Served
) -> None:
    response = await ask(client, "new", create=False)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await served.broker.topics() == []


async def test_requesting_metadata_does_not_create_when_the_settings_forbid_it(
    tmp_path: Path, settings: Settings
) -> None:
    strict = Settings(wal=settings.wal, flush=settings.flush, topics=TopicSettings(auto_create=False))
    async with a_broker(tmp_path, strict) as broker, a_server(broker, strict) as served:
        response = await ask(await served.client(), "new")
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../etc", "x" * 250, "ü", "a\0b", "a b"])
async def test_a_name_that_cannot_be_a_topic_is_refused(client: Client, served: Served, name: str) -> None:
    response = await ask(client, name)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert response.topics[0].name == name
    assert await served.broker.topics() == []


async def test_a_topic_requested_twice_is_answered_once(client: Client) -> None:
    response = await ask(client, "orders", "orders")
    assert [topic.name for topic in response.topics] == ["orders"]


# --- by id ----------------------------------------------------------------------------------------------------------


async def test_a_topic_may_be_requested_by_id(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    topic = await served.broker.topic("orders")
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.topic_id, name=None)])
    response = await client.call(request, MetadataResponse, 12)
    assert (response.topics[0].error_code, response.topics[0].name) == (ErrorCode.NONE, "orders")


async def test_an_unknown_id_says_so_and_creates_nothing(client: Client, served: Served) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=5), name=None)])
    response = await client.call(request, MetadataResponse, 12)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, UUID(int=5))
    assert await served.broker.topics() == []


async def test_before_version_12_ids_are_no_way_to_ask(client: Client) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=5), name=None)])
    await client.send(request, 11)
    assert await client.is_closed()


# --- addresses ------------------------------------------------------------------------------------------------------


async def test_the_advertised_address_is_what_clients_get(broker: Broker) -> None:
    settings = quick_settings(KafkaSettings(advertise="kafka.example:1234"))
    async with a_server(broker, settings) as served:
        response = await ask(await served.client())
        assert (response.brokers[0].host, response.brokers[0].port) == ("kafka.example", 1234)


async def test_the_cluster_id_is_the_same_after_a_restart(broker: Broker, settings: Settings) -> None:
    ids = set()
    for _ in range(2):
        async with a_server(broker, settings) as served:
            ids.add((await ask(await served.client())).cluster_id)
    assert len(ids) == 1


async def test_a_listener_on_all_addresses_gives_clients_the_one_they_came_to(
    broker: Broker, settings: Settings
) -> None:
    async with a_server(broker, settings, listen="0.0.0.0:0") as served:
        client = await Client.connect("127.0.0.2", served.port)
        served.clients.append(client)
        response = await ask(client)
        assert (response.brokers[0].host, response.brokers[0].port) == ("127.0.0.2", served.port)


async def test_everybody_may_do_everything_and_is_told_when_asking(client: Client) -> None:
    await create_topic(client, "orders")
    names = [MetadataRequestTopic(name=name) for name in ("orders", "a/b")]
    for version in range(8, 14):
        request = MetadataRequest(topics=names, include_topic_authorized_operations=True)
        request.include_cluster_authorized_operations = version < 11
        response = await client.call(request, MetadataResponse, version)
        assert [topic.topic_authorized_operations for topic in response.topics] == [TOPIC_OPERATIONS, NOT_REQUESTED]
        assert response.cluster_authorized_operations == (CLUSTER_OPERATIONS if version < 11 else NOT_REQUESTED)
    (unasked,) = (await ask(client, "orders")).topics
    assert unasked.topic_authorized_operations == NOT_REQUESTED


async def test_the_topic_of_consumer_groups_is_internal(client: Client, served: Served) -> None:
    await served.broker.catalog.create(OFFSETS_TOPIC)
    await create_topic(client, "orders")
    response = await client.call(MetadataRequest(topics=None), MetadataResponse, 12)
    assert {topic.name: topic.is_internal for topic in response.topics} == {OFFSETS_TOPIC: True, "orders": False}
