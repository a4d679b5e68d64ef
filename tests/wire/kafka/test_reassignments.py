"""AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs, where there is one agent: partitions
stay where they are. Among several they move: `test_several_agents`."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from streamhouse.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from streamhouse.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.wire.kafka.talk import Client, Served, create_topic


async def reassign(
    client: Client, topic: str, *parts: tuple[int, list[int] | None], version: int = 1
) -> list[tuple[int, int]]:
    requests = [ReassignablePartition(partition_index=number, replicas=replicas) for number, replicas in parts]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=requests)])
    response = await client.call(request, AlterPartitionReassignmentsResponse, version)
    assert response.error_code == ErrorCode.NONE
    (result,) = response.responses
    assert all((part.error_message is None) == (part.error_code == 0) for part in result.partitions)
    return [(part.partition_index, part.error_code) for part in result.partitions]


@pytest.mark.parametrize("version", range(2))
async def test_a_partition_is_already_where_it_can_be_and_goes_nowhere_else(
    client: Client, served: Served, version: int
) -> None:
    await create_topic(client, "orders", partitions=2)
    node = served.broker.node_id
    requests: list[tuple[int, list[int] | None]] = [
        (0, [node]),
        (1, [99]),
        (1, []),
        (1, [node, 99]),
        (0, None),
        (7, [node]),
    ]
    assert await reassign(client, "orders", *requests, version=version) == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await reassign(client, "missing", (0, [node])) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_nothing_is_on_the_move(client: Client) -> None:
    await create_topic(client, "orders")
    some = [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0])]
    for topics in (None, some):
        request = ListPartitionReassignmentsRequest(topics=topics)
        response = await client.call(request, ListPartitionReassignmentsResponse, 0)
        assert (response.error_code, response.error_message, response.topics) == (ErrorCode.NONE, None, [])


@pytest.mark.parametrize("version", [1, 2])
async def test_there_is_one_directory_and_all_partitions_are_in_it(
    client: Client, served: Served, version: int
) -> None:
    await create_topic(client, "orders")
    store = served.broker.topic_admin.store
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=store, topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0, 1])]),
            AlterReplicaLogDir(path=store, topics=[AlterReplicaLogDirTopic(name="missing", partitions=[0])]),
            AlterReplicaLogDir(path="/etc", topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0])]),
        ]
    )
    response = await client.call(request, AlterReplicaLogDirsResponse, version)
    results = [(topic.topic_name, part.error_code) for topic in response.results for part in topic.partitions]
    assert results == [
        ("orders", ErrorCode.NONE),
        ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", ErrorCode.LOG_DIR_NOT_FOUND),
    ]
