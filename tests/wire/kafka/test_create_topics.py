"""CreateTopics: each topic on its own, checked as Kafka would."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from streamhouse.wire.kafka.schema import ZERO_UUID
from tests.wire.kafka.talk import Client, Served

VERSIONS = range(2, 8)


def topic(name: str = "orders", partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def create(client: Client, *topics: CreatableTopic, version: int = 7) -> list[CreatableTopicResult]:
    response = await client.call(CreateTopicsRequest(topics=list(topics)), CreateTopicsResponse, version)
    return response.topics


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_creates_a_topic(client: Client, served: Served, version: int) -> None:
    (made,) = await create(client, topic(partitions=4, retention_ms="5000"), version=version)
    assert (made.name, made.error_code, made.error_message) == ("orders", ErrorCode.NONE, None)
    result = await served.broker.topic("orders")
    assert (result.partitions, result.overrides) == (4, {"retention.ms": "5000"})
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (4, 1)
        configs = {config.name: (config.value, config.config_source) for config in made.configs or []}
        assert configs["retention.ms"] == ("5000", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
    assert made.topic_id == (result.topic_id if version >= 7 else ZERO_UUID)


async def test_partitions_and_factor_may_be_left_to_the_settings(client: Client, served: Served) -> None:
    (made,) = await create(client, topic(partitions=-1, factor=-1))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (ErrorCode.NONE, 1, 1)


@pytest.mark.parametrize("factor", [1, 3, 32])
async def test_any_sensible_replication_factor_is_accepted(client: Client, factor: int) -> None:
    (made,) = await create(client, topic(factor=factor))
    assert (made.error_code, made.replication_factor) == (ErrorCode.NONE, factor)


REFUSED = {
    "factor 0": (topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "factor -2": (topic(factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "factor 33": (topic(factor=33), ErrorCode.INVALID_REPLICATION_FACTOR),
    "no partitions": (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
    "negative partitions": (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
    "too many partitions": (topic(partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    "empty name": (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dots": (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "slash": (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "long name": (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "unknown setting": (topic(no_such="1"), ErrorCode.INVALID_CONFIG),
    "bad value": (topic(retention_ms="soon"), ErrorCode.INVALID_CONFIG),
    "no value": (topic(retention_ms=None), ErrorCode.INVALID_CONFIG),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_makes_no_sense_is_refused_with_a_reason_and_alone(
    client: Client, served: Served, what: str
) -> None:
    request, code = REFUSED[what]
    bad, good = await create(client, request, topic("good"))
    assert (bad.error_code, good.error_code) == (code, ErrorCode.NONE)
    assert bad.error_message
    assert [each.name for each in await served.broker.topics()] == ["good"]


async def test_a_topic_that_is_there_already_and_a_name_too_similar_are_refused(client: Client) -> None:
    await create(client, topic("my.orders"))
    same, colliding = await create(client, topic("my.orders"), topic("my_orders"))
    assert same.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert colliding.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_name_that_occurs_twice_is_refused_once(client: Client, served: Served) -> None:
    results = await create(client, topic("a"), topic("b"), topic("a"))
    assert [(made.name, made.error_code) for made in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert [each.name for each in await served.broker.topics()] == ["b"]


async def test_validating_creates_nothing(client: Client, served: Served) -> None:
    request = CreateTopicsRequest(topics=[topic("a"), topic("b", factor=0)], validate_only=True)
    response = await client.call(request, CreateTopicsResponse, 7)
    assert [made.error_code for made in response.topics] == [ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR]
    assert await served.broker.topics() == []


# --- assignments by hand --------------------------------------------------------------------------------------------


def assigned(*parts: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    request = topic(partitions=partitions, factor=factor)
    request.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in parts]
    return request


async def test_a_sensible_assignment_is_accepted(client: Client, served: Served) -> None:
    node = served.broker.node_id
    (made,) = await create(client, assigned((1, [node]), (0, [node])))
    assert (made.error_code, made.num_partitions) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([(0, [1]), (2, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (0, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1, 1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [99])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_an_assignment_that_makes_no_sense_is_refused(
    client: Client, parts: list[tuple[int, list[int]]], code: ErrorCode
) -> None:
    (made,) = await create(client, assigned(*parts))
    assert made.error_code == code


async def test_an_assignment_and_a_count_contradict_each_other(client: Client) -> None:
    (made,) = await create(client, assigned((0, [1]), partitions=1))
    assert made.error_code == ErrorCode.INVALID_REQUEST
