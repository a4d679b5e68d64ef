"""DescribeTopicPartitions, API key 75, versions 0-0: topics and their leaders, a page at a time.

Behaviour   topics by name, or all of them when none is named, in the order of their names
            a page has at most the requested number of partitions, and at most 2,000; the cursor is the start of the
            next one
            an unknown topic is UNKNOWN_TOPIC_OR_PARTITION; nothing is created
            an invalid cursor is INVALID_REQUEST for each of the topics
            leaders and replicas as in Metadata
Left out    eligible leader replicas: there are none to choose from
Versions    v0 flexible
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.broker.cluster.cluster import Leader
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, Resource, ResourceType
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import PartitionId
from streamhouse.model.needs import needs
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.access import authorized_operations
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from streamhouse.wire.kafka.resources import MAX_NAMED, find_topic, replicas_of

MAX_PARTITIONS: Final = 2000


@handles(DescribeTopicPartitionsRequest, (0, 0), needs=needs(Operation.DESCRIBE, ResourceType.TOPIC))
async def handle(context: Context, request: DescribeTopicPartitionsRequest) -> HandlerResult:
    try:
        names = await _names(context, request)
    except StreamhouseError as error:
        code = context.count_error(error)
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=each.name) for each in request.topics]
        )
    return await _page(context, request, names)


async def _names(context: Context, request: DescribeTopicPartitionsRequest) -> list[str]:
    """The topics from the cursor on."""
    cursor = request.cursor
    names = {each.name for each in request.topics} or {
        topic.name for topic in await context.broker.topics() if context.allows_topic(Operation.DESCRIBE, topic.name)
    }
    if cursor is None:
        return sorted(names)
    if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
        raise Rejected(f"invalid cursor; topic={cursor.topic_name[:MAX_NAMED]} partition={cursor.partition_index}")
    return sorted(name for name in names if name >= cursor.topic_name)


async def _page(
    context: Context, request: DescribeTopicPartitionsRequest, names: list[str]
) -> DescribeTopicPartitionsResponse:
    page = DescribeTopicPartitionsResponse()
    left = min(max(request.response_partition_limit, 1), MAX_PARTITIONS)
    async for name in iterate_fairly(names):
        at_cursor = request.cursor is not None and request.cursor.topic_name == name
        first = request.cursor.partition_index if request.cursor is not None and at_cursor else 0
        if not left:
            page.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        try:
            context.check_topic(Operation.DESCRIBE, name)
            topic = await find_topic(context, name)
        except StreamhouseError as error:
            if request.topics:  # a request for all topics skips those deleted meanwhile
                code = context.count_error(error)
                page.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
            continue
        end = min(topic.partitions, first + left)
        page.topics.append(await _describe(context, topic, range(first, end)))
        left -= max(end - first, 0)
        if end < topic.partitions:
            page.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return page


async def _describe(context: Context, topic: Topic, partitions: range) -> DescribeTopicPartitionsResponseTopic:
    leaders = await context.broker.leaders([topic])
    agents = [node for node, _ in context.agents()]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name == OFFSETS_TOPIC,
        partitions=[
            _partition(number, leader, _replicas(topic, leader, agents))
            for number in partitions
            for leader in [leaders[PartitionId(topic.topic_id, number)]]
        ],
        topic_authorized_operations=authorized_operations(context, Resource(ResourceType.TOPIC, topic.name)),
    )


def _replicas(topic: Topic, leader: Leader, agents: Sequence[int]) -> list[int]:
    node = leader.node_id if leader.session is not None else None
    return replicas_of(node, assigned=leader.replicas, factor=topic.replication_factor, agents=agents)


def _partition(number: int, leader: Leader, replicas: Sequence[int]) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=leader.node_id,
        leader_epoch=leader.epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(replicas),
        offline_replicas=[],
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
