"""DescribeClientQuotas and AlterClientQuotas, and clients that are above their quotas."""

import asyncio

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from streamhouse.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from streamhouse.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from streamhouse.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.wire.kafka.talk import Client, request_bytes

EXACT, DEFAULT, ANY = range(3)
Found = dict[tuple[tuple[str, str | None], ...], dict[str, float]]


async def describe(
    client: Client, *components: ComponentData, strict: bool = False, version: int = 1
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    return await client.call(request, DescribeClientQuotasResponse, version)


async def found(client: Client, *components: ComponentData, strict: bool = False, version: int = 1) -> Found:
    response = await describe(client, *components, strict=strict, version=version)
    assert response.error_code == ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in response.entries or []
    }


async def alter(
    client: Client, *entity: tuple[str, str | None], version: int = 1, dry_run: bool = False, **limits: float | None
) -> int:
    entry = RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=dry_run)
    [response] = (await client.call(request, AlterClientQuotasResponse, version)).entries
    assert response.entity == entry.entity
    assert bool(response.error_message) == bool(response.error_code)
    return response.error_code


def component(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


@pytest.mark.parametrize("version", range(2))
async def test_quotas_are_set_described_and_removed(client: Client, version: int) -> None:
    assert await alter(client, ("user", "ann"), version=version, producer_byte_rate=1024.0) == ErrorCode.NONE
    assert await alter(client, ("user", "ann"), version=version, consumer_byte_rate=2048.5) == ErrorCode.NONE
    assert await alter(client, ("user", None), ("client-id", "app"), version=version, request_percentage=50.0) == 0
    assert await alter(client, ("ip", "10.0.0.1"), version=version, connection_creation_rate=5.0) == 0
    assert await alter(client, ("user", "bob"), version=version, dry_run=True, producer_byte_rate=1.0) == 0
    ann: Found = {(("user", "ann"),): {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.5}}
    both: Found = {(("user", None), ("client-id", "app")): {"request_percentage": 50.0}}
    address: Found = {(("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0}}
    assert await found(client, version=version) == ann | both | address
    assert await found(client, component("user", EXACT, "ann"), version=version) == ann
    assert await found(client, component("user", DEFAULT), version=version) == both
    assert await found(client, component("user", ANY), version=version) == ann | both
    assert await found(client, component("user", ANY), strict=True, version=version) == ann
    assert await found(client, component("client-id", EXACT, "other"), version=version) == {}
    assert await alter(client, ("user", "ann"), producer_byte_rate=None, consumer_byte_rate=None) == 0
    assert await found(client) == both | address


@pytest.mark.parametrize(("entity", "match"), [("planet", EXACT), ("user", 3), ("x" * 10_000, EXACT)])
async def test_what_kafka_does_not_know_is_refused(client: Client, entity: str, match: int) -> None:
    response = await describe(client, ComponentData(entity_type=entity, match_type=match, match=None))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert 0 < len(response.error_message or "") < 300


async def test_entities_and_limits_that_there_are_not_are_refused(client: Client) -> None:
    assert await alter(client, ("planet", "mars"), producer_byte_rate=1.0) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("user", "a"), ("user", "b"), producer_byte_rate=1.0) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("user", "a"), ("ip", "10.0.0.1"), producer_byte_rate=1.0) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("user", "a"), records_per_day=1.0) == ErrorCode.INVALID_REQUEST
    assert await alter(client, ("user", "a"), producer_byte_rate=-1.0) == ErrorCode.INVALID_REQUEST
    assert await alter(client, producer_byte_rate=1.0) == ErrorCode.INVALID_REQUEST
    assert await found(client) == {}


async def test_who_creates_too_many_partitions_is_told_to_wait(client: Client) -> None:
    assert await alter(client, ("user", None), controller_mutation_rate=2.0) == ErrorCode.NONE

    async def create(name: str) -> int:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=4, replication_factor=1)])
        return (await client.call(request, CreateTopicsResponse, 7)).topics[0].error_code

    assert await create("first") == ErrorCode.NONE
    assert await create("second") == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    requested = MetadataRequest(topics=[MetadataRequestTopic(name="second")], allow_auto_topic_creation=True)
    (topic,) = (await client.call(requested, MetadataResponse, 12)).topics
    assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_client_above_its_quota_is_not_read_for_a_while_and_told_so(client: Client) -> None:
    assert await alter(client, ("client-id", None), producer_byte_rate=10_000.0) == ErrorCode.NONE
    part = PartitionProduceData(index=0, records=b"x" * 13_000)
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="!", partition_data=[part])])
    loop = asyncio.get_running_loop()
    began = loop.time()
    throttle_s = (await client.call(request, ProduceResponse, 9)).throttle_time_ms / 1000
    assert 0.25 < throttle_s <= 0.32  # 13 kB and a header, where 10 kB a second are allowed
    await found(client)
    assert loop.time() - began >= throttle_s - 0.01


async def test_requests_that_are_sent_ahead_are_not_read_above_the_quota(client: Client) -> None:
    assert await alter(client, ("client-id", None), producer_byte_rate=10_000.0) == ErrorCode.NONE
    part = PartitionProduceData(index=0, records=b"x" * 13_000)
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="!", partition_data=[part])])
    await client.send_raw(b"".join(request_bytes(request, 9, number) for number in (2, 3)))
    loop = asyncio.get_running_loop()
    began = loop.time()
    responses = [await client.receive_raw() for _ in range(2)]
    assert [int.from_bytes(each[:4], "big") for each in responses] == [2, 3]
    assert loop.time() - began >= 0.29  # 13 kB, where 10 kB a second are allowed


async def test_a_client_within_its_quota_does_not_wait(client: Client) -> None:
    assert await alter(client, ("client-id", None), producer_byte_rate=1e9, consumer_byte_rate=1e9) == ErrorCode.NONE
    part = PartitionProduceData(index=0, records=b"x" * 13_000)
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="!", partition_data=[part])])
    assert (await client.call(request, ProduceResponse, 9)).throttle_time_ms == 0
