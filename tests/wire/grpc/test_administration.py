"""Administration over gRPC: what is changed there is changed for everybody."""

import grpc
import httpx
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from streamhouse import __version__
from streamhouse.agent import Agent
from streamhouse.model.quota import CONTROLLER_MUTATION_RATE, DEFAULT, QuotaEntity
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client, Refused

Position = pb.Position


async def test_topics_are_created_listed_described_altered_and_deleted(client: Client) -> None:
    made = await client.create("orders", 2, retention_ms="1000")
    assert (made.name, made.partitions, dict(made.config)) == ("orders", 2, {"retention.ms": "1000"})
    assert list((await client(pb.ListTopicsRequest(), pb.ListTopicsResponse)).topics) == [made]

    altered = await client(
        pb.AlterTopicRequest(
            name="orders", set_config={"max.message.bytes": "5000"}, unset_config=["retention.ms"], partitions=3
        ),
        pb.AlterTopicResponse,
    )
    assert (altered.topic.partitions, dict(altered.topic.config)) == (3, {"max.message.bytes": "5000"})
    described = await client(pb.DescribeTopicRequest(name="orders"), pb.DescribeTopicResponse)
    assert described.topic == altered.topic
    assert described.effective_config["max.message.bytes"] == "5000"
    assert described.effective_config["retention.ms"] == "604800000"
    assert [part.partition for part in described.partitions] == [0, 1, 2]

    await client(pb.DeleteTopicRequest(name="orders"), pb.DeleteTopicResponse)
    assert not (await client(pb.ListTopicsRequest(), pb.ListTopicsResponse)).topics


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    await client(pb.CreateTopicRequest(name="orders", dry_run=True), pb.CreateTopicResponse)
    assert not (await client(pb.ListTopicsRequest(), pb.ListTopicsResponse)).topics
    await client.create("orders")
    change = pb.AlterTopicRequest(name="orders", set_config={"retention.ms": "1"}, partitions=5, dry_run=True)
    await client(change, pb.AlterTopicResponse)
    (topic,) = (await client(pb.ListTopicsRequest(), pb.ListTopicsResponse)).topics
    assert (topic.partitions, dict(topic.config)) == (1, {})


@pytest.mark.parametrize(
    ("request_", "response", "code", "text"),
    [
        (pb.CreateTopicRequest(), pb.CreateTopicResponse, "INVALID_ARGUMENT", "field=name"),
        (pb.CreateTopicRequest(name="a b"), pb.CreateTopicResponse, "INVALID_ARGUMENT", "not allowed"),
        (pb.CreateTopicRequest(name="orders"), pb.CreateTopicResponse, "ALREADY_EXISTS", "name=orders"),
        (pb.CreateTopicRequest(name="b", partitions=0), pb.CreateTopicResponse, "INVALID_ARGUMENT", "partitions=0"),
        (pb.CreateTopicRequest(name="b", config={"x": "1"}), pb.CreateTopicResponse, "INVALID_ARGUMENT", "'x'"),
        (pb.DescribeTopicRequest(name="b"), pb.DescribeTopicResponse, "NOT_FOUND", "name=b"),
        (pb.DeleteTopicRequest(name="b"), pb.DeleteTopicResponse, "NOT_FOUND", "name=b"),
        (pb.AlterTopicRequest(name="orders", partitions=1), pb.AlterTopicResponse, "INVALID_ARGUMENT", "more"),
        (
            pb.AlterTopicRequest(name="orders", set_config={"retention.ms": "1"}, unset_config=["retention.ms"]),
            pb.AlterTopicResponse,
            "INVALID_ARGUMENT",
            "field=unset_config",
        ),
        (pb.DescribeGroupRequest(), pb.DescribeGroupResponse, "INVALID_ARGUMENT", "field=group_id"),
        (pb.DescribeGroupRequest(group_id="nobody"), pb.DescribeGroupResponse, "NOT_FOUND", "nobody"),
        (pb.DeleteGroupRequest(group_id="nobody"), pb.DeleteGroupResponse, "NOT_FOUND", "nobody"),
    ],
)
async def test_what_can_not_be_done_says_why(client: Client, request_, response, code, text) -> None:  # type: ignore[no-untyped-def]
    await client.create("orders")
    with pytest.raises(Refused) as refused:
        await client(request_, response)
    assert (refused.value.code.name, text in refused.value.text) == (code, True), refused.value


async def test_partitions_show_how_far_they_are(client: Client) -> None:
    await client.create("orders", 2)
    await client.produce("orders", b"a", b"b", partition=1)
    result = (await client(pb.ListPartitionsRequest(topic="orders"), pb.ListPartitionsResponse)).partitions
    assert [(part.partition, part.high_watermark) for part in result] == [(0, 0), (1, 2)]
    assert result[1].HasField("leader")
    assert result[1].size_bytes > 0
    everywhere = (await client(pb.ListPartitionsRequest(), pb.ListPartitionsResponse)).partitions
    assert [part.topic for part in everywhere] == ["orders", "orders"]


async def test_offsets_are_found_by_edge_and_by_time(client: Client) -> None:
    await client.create("orders")
    records = [pb.Record(value=b"x", timestamp_ms=n * 100) for n in range(1, 4)]
    await client(pb.ProduceRequest(topic="orders", records=records), pb.ProduceResponse)
    positions = [
        Position(topic="orders", partition=0, edge=pb.EDGE_EARLIEST),
        Position(topic="orders", edge=pb.EDGE_LATEST),
        Position(topic="orders", partition=0, timestamp_ms=150),
        Position(topic="orders", partition=0, timestamp_ms=999),
        Position(topic="orders", partition=4, edge=pb.EDGE_LATEST),
    ]
    result = (await client(pb.ListOffsetsRequest(positions=positions), pb.ListOffsetsResponse)).offsets
    assert [each.offset for each in result] == [0, 3, 1, -1, -1]
    assert result[2].timestamp_ms == 200
    assert [each.error.name for each in result] == ["", "", "", "", "UnknownTopic"]


async def test_groups_are_seen_measured_sent_back_and_forgotten(start_agent: StartAgent, connect: Connect) -> None:
    agent: Agent = await start_agent(groups__initial_rebalance_delay_s="0")
    client = await connect(agent)
    await client.create("orders")
    await client.produce("orders", *(b"%d" % n for n in range(10)))
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=str(agent.ready.kafka),
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        await consumer.getone()
        await consumer.commit({TopicPartition("orders", 0): 4})
        (group,) = (await client(pb.ListGroupsRequest(), pb.ListGroupsResponse)).groups
        assert (group.group_id, group.state, group.protocol_type) == ("readers", "Stable", "consumer")
        described = await client(pb.DescribeGroupRequest(group_id="readers"), pb.DescribeGroupResponse)
        assert [member.client_host != "" for member in described.members] == [True]
        reset = pb.ResetGroupRequest(group_id="readers", positions=[Position(topic="orders", edge=pb.EDGE_EARLIEST)])
        with pytest.raises(Refused) as refused:
            await client(reset, pb.ResetGroupResponse)
        assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION, refused.value
    finally:
        await consumer.stop()
    (part,) = (await client(pb.GetGroupLagRequest(group_id="readers"), pb.GetGroupLagResponse)).partitions
    assert (part.topic, part.committed_offset, part.end_offset, part.lag) == ("orders", 4, 10, 6)
    reset.dry_run = True
    assert [each.offset for each in (await client(reset, pb.ResetGroupResponse)).offsets] == [0]
    assert (await client(pb.GetGroupLagRequest(group_id="readers"), pb.GetGroupLagResponse)).total_lag == 6
    reset.dry_run = False
    await client(reset, pb.ResetGroupResponse)
    assert (await client(pb.GetGroupLagRequest(group_id="readers"), pb.GetGroupLagResponse)).total_lag == 10
    await client(pb.DeleteGroupRequest(group_id="readers"), pb.DeleteGroupResponse)
    assert not (await client(pb.ListGroupsRequest(), pb.ListGroupsResponse)).groups


async def test_the_cluster_says_who_is_in_it_and_where(agent: Agent, client: Client) -> None:
    response = await client(pb.GetClusterRequest(), pb.GetClusterResponse)
    assert response.version == __version__
    assert len(response.cluster_id) == 22
    assert response.bootstrap_servers == str(agent.ready.kafka)
    (member,) = response.agents
    assert (member.node_id, member.asked, member.state) == (agent.ready.node_id, True, "live")
    assert (member.kafka, member.http, member.grpc) == tuple(
        map(str, (agent.ready.kafka, agent.ready.http, agent.ready.grpc))
    )
    assert list((await client(pb.ListAgentsRequest(), pb.ListAgentsResponse)).agents) == [member]
    async with httpx.AsyncClient(trust_env=False) as http:
        over_http = (await http.get(f"http://{agent.ready.http}/v1/cluster")).json()
    assert over_http["agents"][0]["grpc"] == member.grpc


async def test_an_agent_that_listens_everywhere_shows_the_address_of_its_http_port(
    start_agent: StartAgent, connect: Connect
) -> None:
    agent = await start_agent(
        grpc__listen="0.0.0.0:0", http__advertise="127.0.0.1:80", security__allow_anonymous_network_access="true"
    )
    assert agent.ready.grpc is not None
    (member,) = (await (await connect(agent))(pb.ListAgentsRequest(), pb.ListAgentsResponse)).agents
    assert member.grpc == f"127.0.0.1:{agent.ready.grpc.port}"


async def test_every_producer_id_is_new(client: Client) -> None:
    responses = [await client(pb.AllocateProducerIdRequest(), pb.AllocateProducerIdResponse) for _ in range(3)]
    assert len({response.producer_id for response in responses}) == 3
    assert {response.producer_epoch for response in responses} == {0}


async def test_who_creates_too_many_partitions_is_told_to_wait(agent: Agent, client: Client) -> None:
    await agent.broker.security.quotas.alter(QuotaEntity(user=DEFAULT), {CONTROLLER_MUTATION_RATE: 0.01})
    await client.create("orders", 4)
    for request, response in (
        (pb.CreateTopicRequest(name="second"), pb.CreateTopicResponse),
        (pb.AlterTopicRequest(name="orders", partitions=5), pb.AlterTopicResponse),
        (pb.DeleteTopicRequest(name="orders"), pb.DeleteTopicResponse),
        (pb.ProduceRequest(topic="third", records=[pb.Record(value=b"x")]), pb.ProduceResponse),
    ):
        with pytest.raises(Refused) as refused:
            await client(request, response)
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await client(pb.CreateTopicRequest(name="second", dry_run=True), pb.CreateTopicResponse)).topic.name
