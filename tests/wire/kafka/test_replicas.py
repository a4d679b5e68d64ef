"""Settings of replicas and tiers are accepted and returned unchanged, as tools expect."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from streamhouse.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from streamhouse.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from streamhouse.wire.kafka.resources import replicas_of
from tests.wire.kafka.talk import Client, Served, create_topic
from tests.wire.kafka.test_alter_configs import resource as replaced
from tests.wire.kafka.test_describe_configs import BROKER, DEFAULT, OWN, THIS, TOPIC, by_name, describe
from tests.wire.kafka.test_incremental_alter_configs import DELETE, SET, alter, resource

FACTOR = "streamhouse.replication.factor"
OF_TOPICS = {
    "leader.replication.throttled.replicas": "0:1,0:2",
    "follower.replication.throttled.replicas": "*",
    "remote.storage.enable": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "local.retention.ms": "1000",
    "local.retention.bytes": "-2",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "true",
}
OF_BROKERS = {
    "leader.replication.throttled.rate": "1000000",
    "follower.replication.throttled.rate": "1000000",
    "replica.alter.log.dirs.io.max.bytes.per.second": "1000000",
    "num.replica.fetchers": "4",
    "remote.log.manager.copy.max.bytes.per.second": "1000000",
}


@pytest.mark.parametrize(
    ("leader", "factor", "agents", "found"),
    [
        (2, 1, [1, 2, 3], [2]),
        (2, 2, [1, 2, 3], [2, 3]),
        (2, 3, [1, 2, 3], [2, 3, 1]),
        (3, 2, [1, 2, 3], [3, 1]),
        (7, 3, [7], [7, 1, 2]),
        (1, 4, [1, 3], [1, 3, 2, 4]),
        (4, 3, [1], [4, 1, 2]),
        (None, 3, [1], []),
    ],
)
def test_as_many_replicas_are_named_as_were_requested_and_none_twice(
    leader: int | None, factor: int, agents: list[int], found: list[int]
) -> None:
    assert replicas_of(leader, factor=factor, agents=agents) == found


@pytest.mark.parametrize(("leader", "found"), [(2, [2, 1, 3]), (3, [2, 1, 3]), (4, [4, 1, 2]), (None, [])])
def test_assigned_replicas_are_named_in_their_order_while_one_of_them_leads(
    leader: int | None, found: list[int]
) -> None:
    assert replicas_of(leader, assigned=(2, 1, 3), factor=1, agents=[1, 2, 3, 4]) == found


async def create(client: Client, factor: int) -> None:
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=factor)
    (made,) = (await client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)).topics
    assert (made.error_code, made.replication_factor) == (ErrorCode.NONE, max(factor, 1))
    (config,) = [each for each in made.configs or () if each.name == FACTOR]
    assert (config.value, config.read_only, config.config_source) == (str(max(factor, 1)), True, DEFAULT)


@pytest.mark.parametrize("factor", [-1, 1, 3])
async def test_the_replication_factor_that_was_requested_is_reported_wherever_tools_compare_it(
    client: Client, served: Served, factor: int
) -> None:
    await create(client, factor)
    count, own = max(factor, 1), served.broker.node_id
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    (topic,) = (await client.call(request, MetadataResponse, 12)).topics
    pages = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")], response_partition_limit=10)
    (page,) = (await client.call(pages, DescribeTopicPartitionsResponse, 0)).topics
    from_metadata = [(each.isr_nodes, each.replica_nodes, each.offline_replicas) for each in topic.partitions]
    from_page = [(each.isr_nodes, each.replica_nodes, each.offline_replicas) for each in page.partitions]
    assert from_metadata == from_page
    assert {each.error_code for each in topic.partitions} == {ErrorCode.NONE}
    for in_sync, nodes, offline in from_metadata:
        assert len(set(nodes)) == len(nodes) == count
        assert nodes[0] == own
        assert (in_sync, offline) == (nodes, [])  # nobody is alarmed: the store makes records durable
    result = by_name(await describe(client, TOPIC, "orders"))[FACTOR]
    assert (result.value, result.read_only, result.config_source) == (str(count), True, DEFAULT)


async def test_replacing_all_settings_of_a_topic_leaves_its_replication_factor(client: Client, served: Served) -> None:
    await create(client, 3)
    request = AlterConfigsRequest(resources=[replaced(TOPIC, "orders", ("retention.ms", "1000"))])
    (done,) = (await client.call(request, AlterConfigsResponse, 2)).responses
    assert done.error_code == ErrorCode.NONE
    topic = await served.broker.topic("orders")
    assert (topic.overrides, topic.replication_factor) == ({"retention.ms": "1000", FACTOR: "3"}, 3)


async def test_topics_take_and_show_settings_of_replicas_and_tiers(client: Client) -> None:
    await create_topic(client, "orders")
    (done,) = await alter(client, resource(TOPIC, "orders", *((SET, *each) for each in OF_TOPICS.items())))
    assert (done.error_code, done.error_message) == (ErrorCode.NONE, None)
    result = by_name(await describe(client, TOPIC, "orders"))
    assert {name: result[name].value for name in OF_TOPICS} == OF_TOPICS
    assert {result[name].config_source for name in OF_TOPICS} == {OWN}
    (gone,) = await alter(client, resource(TOPIC, "orders", *((DELETE, name, None) for name in OF_TOPICS)))
    assert gone.error_code == ErrorCode.NONE
    assert {each.config_source for each in by_name(await describe(client, TOPIC, "orders")).values()} == {DEFAULT}


async def test_brokers_take_and_show_settings_of_replicas_and_tiers(client: Client, served: Served) -> None:
    node = str(served.broker.node_id)
    (done,) = await alter(client, resource(BROKER, node, *((SET, *each) for each in OF_BROKERS.items())))
    assert (done.error_code, done.error_message) == (ErrorCode.NONE, None)
    result = by_name(await describe(client, BROKER, node))
    assert {name: result[name].value for name in OF_BROKERS} == OF_BROKERS
    assert {result[name].config_source for name in OF_BROKERS} == {THIS}
