"""Two agents on the same stores, each behind a socket: what admin tools are told, and what they can do."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import ClusterSettings, FlushSettings, GroupSettings, Settings, WalSettings
from streamhouse.config.fields import Address
from streamhouse.errors import Unavailable
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from streamhouse.wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from streamhouse.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from streamhouse.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from streamhouse.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from streamhouse.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from streamhouse.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from streamhouse.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from streamhouse.wire.kafka.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from streamhouse.wire.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from streamhouse.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from streamhouse.wire.kafka.messages.offset_commit import OffsetCommitResponse
from streamhouse.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.wire.kafka.members import commit_request
from tests.wire.kafka.talk import TIMEOUT_S, Client, a_batch, a_server, create_topic, produce, until

PARTITIONS = 32
"""So many that each agent leads some of them: ids are chance, and so is who leads what."""
BROKER = 4


class Member(NamedTuple):
    broker: Broker
    client: Client

    @property
    def node(self) -> int:
        return self.broker.node_id


class Pair(NamedTuple):
    first: Member
    second: Member
    metadata: MetadataStore

    def other(self, node: int) -> int:
        return self.second.node if node == self.first.node else self.first.node

    def of(self, node: int) -> Member:
        return self.first if node == self.first.node else self.second


@pytest.fixture
def settings() -> Settings:
    return Settings(
        cluster=ClusterSettings(refresh_s=0.05),
        flush=FlushSettings(check_s=0.01, age_s=600.0),
        wal=WalSettings(kind="object", window_ms=1),
        groups=GroupSettings(shards=8, initial_rebalance_delay_s=0.0),
    )


@pytest.fixture
async def pair(settings: Settings) -> AsyncIterator[Pair]:
    clock, ids = SystemClock(), Ids()
    objects = MemoryObjectStore(clock)
    async with AsyncExitStack() as stack:
        metadata = await open_metadata_store("sqlite::memory:", clock=clock)
        stack.push_async_callback(metadata.aclose)
        members = []
        for number in (1, 2):
            dependencies = Dependencies(
                settings=settings,
                objects=objects,
                metadata=metadata,
                wal_factory=ObjectWalFactory(objects, settings.wal, clock=clock, ids=ids),
                clock=clock,
                ids=ids,
                kafka=Address("127.0.0.1", number),
                http=Address("127.0.0.1", 100 + number),
                single_agent=False,
            )
            broker = await stack.enter_async_context(running(Broker(dependencies)))
            served = await stack.enter_async_context(a_server(broker, settings))
            members.append(Member(broker, await served.client()))
        await until(lambda: all(len(each.broker.agents()) == 2 for each in members))
        yield Pair(members[0], members[1], metadata)


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Broker]:
    await broker.start()
    task = asyncio.create_task(broker.run())
    try:
        yield broker
    finally:
        broker.stop()
        await task


async def leaders(client: Client, topic: str = "orders") -> dict[int, int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    (result,) = (await client.call(request, MetadataResponse, 9)).topics
    return {part.partition_index: part.leader_id for part in result.partitions}


async def until_led(pair: Pair, number: int, node: int) -> None:
    """Until both agents name this leader."""
    for _ in range(int(TIMEOUT_S / 0.005)):
        if {(await leaders(each.client))[number] for each in (pair.first, pair.second)} == {node}:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("waited in vain")


async def led_and_written(pair: Pair, topic: str = "orders") -> dict[int, int]:
    """A topic with a record in each partition; who leads each of them."""
    await create_topic(pair.first.client, topic, partitions=PARTITIONS)
    await pair.second.broker.catalog.reload()
    result = await leaders(pair.first.client, topic)
    for number, node in result.items():
        (response,) = await produce(pair.of(node).client, topic, (number, a_batch(b"a")))
        assert response.error_code == ErrorCode.NONE
    assert set(result.values()) == {pair.first.node, pair.second.node}
    return result


async def replicas(client: Client) -> list[list[int]]:
    """The replicas of each partition, which are all in sync."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    (result,) = (await client.call(request, MetadataResponse, 9)).topics
    assert [part.isr_nodes for part in result.partitions] == [part.replica_nodes for part in result.partitions]
    return [part.replica_nodes for part in result.partitions]


async def reassign(client: Client, *parts: tuple[int, list[int] | None], may_change_factor: bool = True) -> list[int]:
    requests = [ReassignablePartition(partition_index=number, replicas=replicas) for number, replicas in parts]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="orders", partitions=requests)],
        allow_replication_factor_change=may_change_factor,
    )
    response = await client.call(request, AlterPartitionReassignmentsResponse, 1)
    assert response.error_code == ErrorCode.NONE
    return [part.error_code for part in response.responses[0].partitions]


async def on_the_move(client: Client, *numbers: int) -> list[tuple[int, list[int], list[int]]]:
    requests = [ListPartitionReassignmentsTopics(name="orders", partition_indexes=list(numbers))] if numbers else None
    response = await client.call(
        ListPartitionReassignmentsRequest(topics=requests), ListPartitionReassignmentsResponse, 0
    )
    assert response.error_code == ErrorCode.NONE
    return [
        (part.partition_index, part.adding_replicas, part.removing_replicas)
        for topic in response.topics
        for part in topic.partitions
    ]


class Held:
    """The hand-over can't release leases until it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, metadata: MetadataStore) -> None:
        self.resume = asyncio.Event()
        release = metadata.release

        async def held(*args: Any, **kwargs: Any) -> None:
            await self.resume.wait()
            await release(*args, **kwargs)

        monkeypatch.setattr(metadata, "release", held)


# --- where partitions are -------------------------------------------------------------------------------------------


async def test_a_partition_moves_to_the_agent_it_is_given_to_and_stays_there(pair: Pair) -> None:
    result = await led_and_written(pair)
    number, node = next(iter(result.items()))
    target = pair.other(node)
    assert await reassign(pair.first.client, (number, [target])) == [ErrorCode.NONE]
    await until_led(pair, number, target)
    (response,) = await produce(pair.of(target).client, "orders", (number, a_batch(b"b")))
    assert (response.error_code, response.base_offset) == (ErrorCode.NONE, 1)
    assert await on_the_move(pair.second.client) == []


async def test_a_partition_goes_to_living_agents_and_nowhere_else(pair: Pair) -> None:
    await led_and_written(pair)
    one = [pair.first.node]
    assert await reassign(pair.first.client, (0, one * 2), (1, [*one, 99]), (2, []), (3, None), (PARTITIONS, one)) == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_the_first_of_several_agents_leads_and_their_number_is_the_replication_factor(pair: Pair) -> None:
    result = await led_and_written(pair)
    both = [pair.second.node, pair.first.node]
    fixed = await reassign(pair.first.client, (0, both), may_change_factor=False)
    assert fixed == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert set(await reassign(pair.first.client, *((number, both) for number in result))) == {ErrorCode.NONE}
    for number in result:
        await until_led(pair, number, pair.second.node)
    for member in (pair.first, pair.second):
        await member.broker.catalog.reload()
        assert await replicas(member.client) == [both] * PARTITIONS
    assert await reassign(pair.first.client, (0, both), may_change_factor=False) == [ErrorCode.NONE]
    assert set(await reassign(pair.first.client, *((number, both[:1]) for number in result))) == {ErrorCode.NONE}
    assert await replicas(pair.first.client) == [both[:1]] * PARTITIONS


async def test_agents_are_shown_in_the_order_they_were_given_in_whichever_agent_leads(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await led_and_written(pair)
    number, node = next(iter(result.items()))
    held = Held(monkeypatch, pair.metadata)
    requests = [pair.other(node), node]
    assert await reassign(pair.first.client, (number, requests)) == [ErrorCode.NONE]
    assert await on_the_move(pair.first.client) == [(number, requests[:1], [])]
    for member in (pair.first, pair.second):
        assert (await replicas(member.client))[number] == requests
        assert (await described_replicas(member.client))[number] == requests
    held.resume.set()
    await until_led(pair, number, requests[0])
    assert (await replicas(pair.first.client))[number] == requests


async def described_replicas(client: Client) -> list[list[int]]:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")], response_partition_limit=100)
    (result,) = (await client.call(request, DescribeTopicPartitionsResponse, 0)).topics
    return [part.replica_nodes for part in result.partitions]


async def test_an_agent_that_drains_is_given_nothing(pair: Pair) -> None:
    await led_and_written(pair)
    await pair.first.broker.cluster_admin.drain(pair.second.node, draining=True)
    await until(lambda: pair.second.broker.cluster.is_draining and not pair.first.broker.cluster.has_successors)
    request = (0, [pair.second.node])
    assert await reassign(pair.first.client, request) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


async def test_a_move_is_reported_while_it_lasts_and_can_be_cancelled(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await led_and_written(pair)
    number, node = next(iter(result.items()))
    target = pair.other(node)
    held = Held(monkeypatch, pair.metadata)
    await reassign(pair.first.client, (number, [target]))
    assert await on_the_move(pair.first.client) == [(number, [target], [node])]
    assert await on_the_move(pair.second.client, number, 99) == [(number, [target], [node])]
    assert await on_the_move(pair.second.client, (number + 1) % PARTITIONS) == []
    assert await elect(pair.first.client, number) == [ErrorCode.NONE]
    assert await elect(pair.first.client) == [ErrorCode.NONE]
    assert await elect(pair.first.client, number, kind=1) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert await reassign(pair.second.client, (number, None)) == [ErrorCode.NONE]
    assert await on_the_move(pair.first.client) == []
    held.resume.set()
    await until_led(pair, number, node)
    assert await elect(pair.first.client, number) == [ErrorCode.ELECTION_NOT_NEEDED]


async def elect(client: Client, *numbers: int, kind: int = 0) -> list[int]:
    requests = [TopicPartitions(topic="orders", partitions=list(numbers))] if numbers else None
    request = ElectLeadersRequest(election_type=kind, topic_partitions=requests, timeout_ms=1000)
    response = await client.call(request, ElectLeadersResponse, 2)
    return [part.error_code for topic in response.replica_election_results for part in topic.partition_result]


async def test_trouble_of_the_metadata_store_is_reported_and_nothing_moves(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await led_and_written(pair)

    async def fail(*_: object) -> None:
        raise Unavailable("the store is away")

    monkeypatch.setattr(pair.metadata, "pin_partitions", fail)
    requests = [ReassignableTopic(name="orders", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
    request = AlterPartitionReassignmentsRequest(topics=requests)
    response = await pair.first.client.call(request, AlterPartitionReassignmentsResponse, 1)
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.setattr(pair.metadata, "membership", fail)
    listed = await pair.first.client.call(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, 0)
    assert listed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    elected = await pair.first.client.call(
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="orders", partitions=[0])]), ElectLeadersResponse, 2
    )
    assert elected.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# --- assigned by hand -------------------------------------------------------------------------------------------------


async def assign(client: Client, brokers: Sequence[list[int]], *, dry_run: bool = False) -> tuple[int, int]:
    """The code and the replication factor of creating a topic like this."""
    call = CreatableTopic(name="orders", num_partitions=-1, replication_factor=-1)
    call.assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=ids) for number, ids in enumerate(brokers)
    ]
    request = CreateTopicsRequest(topics=[call], timeout_ms=1000, validate_only=dry_run)
    (made,) = (await client.call(request, CreateTopicsResponse, 7)).topics
    return made.error_code, made.replication_factor


async def test_the_first_broker_of_an_assignment_leads_the_partition(pair: Pair) -> None:
    first, second = pair.first.node, pair.second.node
    requests = [[second, first], [first, second], [second, first]]
    assert await assign(pair.first.client, requests, dry_run=True) == (ErrorCode.NONE, 2)
    assert await assign(pair.first.client, requests) == (ErrorCode.NONE, 2)
    assert await leaders(pair.first.client) == {0: second, 1: first, 2: second}
    more = CreatePartitionsTopic(
        name="orders", count=5, assignments=[CreatePartitionsAssignment(broker_ids=[first]) for _ in range(2)]
    )
    request = CreatePartitionsRequest(topics=[more], timeout_ms=1000)
    (grown,) = (await pair.first.client.call(request, CreatePartitionsResponse, 3)).results
    assert grown.error_code == ErrorCode.NONE
    assert await leaders(pair.first.client) == {0: second, 1: first, 2: second, 3: first, 4: first}
    assert await replicas(pair.first.client) == [*requests, [first], [first]]


@pytest.mark.parametrize("wrong", [[], [1, 1], [99], [1, 99], [1]])
async def test_an_assignment_that_makes_no_sense_creates_nothing(pair: Pair, wrong: list[int]) -> None:
    code, _ = await assign(pair.first.client, [[1, 2], wrong])
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await pair.first.broker.topics() == []


# --- what each agent tells ------------------------------------------------------------------------------------------


async def sizes(client: Client) -> dict[int, int]:
    (directory,) = (await client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)).results
    return {part.partition_index: part.partition_size for topic in directory.topics for part in topic.partitions}


async def test_sizes_of_all_agents_add_up(pair: Pair) -> None:
    actual = await led_and_written(pair)
    result = {member.node: await sizes(member.client) for member in (pair.first, pair.second)}
    for node, parts in result.items():
        assert set(parts) == {number for number, leader in actual.items() if leader == node}
        assert all(size == len(a_batch(b"a")) for size in parts.values())
    await create_topic(pair.first.client, "clicks", partitions=2)
    request = DescribeLogDirsRequest(topics=None)
    responses = [await each.client.call(request, DescribeLogDirsResponse, 4) for each in (pair.first, pair.second)]
    clicks = [
        part.partition_index
        for response in responses
        for topic in response.results[0].topics
        if topic.name == "clicks"
        for part in topic.partitions
    ]
    assert sorted(clicks) == [0, 1]


async def test_all_agents_have_settings_and_each_shows_its_own(pair: Pair) -> None:
    request = ListConfigResourcesRequest(resource_types=[BROKER])
    response = await pair.first.client.call(request, ListConfigResourcesResponse, 1)
    assert [each.resource_name for each in response.config_resources] == ["1", "2"]
    both = [DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=None) for name in "12"]
    result = await pair.second.client.call(DescribeConfigsRequest(resources=both), DescribeConfigsResponse, 4)
    assert [each.error_code for each in result.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


async def test_groups_are_reported_by_their_coordinators_alone(pair: Pair) -> None:
    await create_topic(pair.first.client, "orders")
    of: dict[int, str] = {}
    for number in range(100):
        session = await pair.first.broker.groups.coordinator_of(f"g{number}")
        of.setdefault(session.node_id, f"g{number}")
    assert set(of) == {pair.first.node, pair.second.node}
    for node, group in of.items():
        right, wrong = pair.of(node).client, pair.of(pair.other(node)).client
        await pair.of(node).broker.catalog.reload()
        committed = await right.call(commit_request("orders", {0: 1}, group_id=group), OffsetCommitResponse, 9)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await described(right, group) == ErrorCode.NONE
        assert await described(wrong, group) == ErrorCode.NOT_COORDINATOR
        assert await deleted(wrong, group) == ErrorCode.NOT_COORDINATOR
        assert await offset_deleted(wrong, group) == ErrorCode.NOT_COORDINATOR
    for node, group in of.items():
        listed = await pair.of(node).client.call(ListGroupsRequest(), ListGroupsResponse, 4)
        assert [each.group_id for each in listed.groups] == [group]
        assert await deleted(pair.of(node).client, group) == ErrorCode.NONE


async def described(client: Client, group: str) -> int:
    response = await client.call(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, 5)
    return response.groups[0].error_code


async def deleted(client: Client, group: str) -> int:
    response = await client.call(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse, 2)
    return response.results[0].error_code


async def offset_deleted(client: Client, group: str) -> int:
    parts = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name="orders", partitions=parts)])
    return (await client.call(request, OffsetDeleteResponse, 0)).error_code
