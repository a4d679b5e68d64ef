"""DescribeLogDirs, API key 35, versions 1-5: how large partitions are.

Behaviour   one directory, the store; a partition's size is what its segments hold for it plus what is still in memory
            only partitions that this agent leads are returned, so that tools that ask every broker can add up sizes
            null means all topics; unknown topics and partitions are left out
            errors of the metadata store are the directory's error
Left out    size and free space of the volume (v4): not known, -1
Versions    v2 flexible · v3 top-level error · v4 volume sizes · v5 cordoned directories
"""

from collections.abc import Sequence

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(DescribeLogDirsRequest, (1, 5), needs=needs(Operation.DESCRIBE, ResourceType.CLUSTER))
async def handle(context: Context, request: DescribeLogDirsRequest) -> HandlerResult:
    if not context.allows_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    result = DescribeLogDirsResult(log_dir=context.broker.topic_admin.store)
    try:
        result.topics = await _topics(context, request)
    except StreamhouseError as error:
        result.error_code = context.count_error(error)
    return DescribeLogDirsResponse(results=[result])


async def _topics(context: Context, request: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    topics: Sequence[Topic] = await context.broker.topics()
    requested: dict[str, set[int]] | None = None
    if request.topics is not None:
        requested = {}
        for each in request.topics:
            requested.setdefault(each.topic, set()).update(each.partitions)
        topics = [topic for topic in topics if topic.name in requested]
    led = await _led(context, topics)
    sizes = await context.broker.topic_admin.sizes(topics)
    return [
        DescribeLogDirsTopic(
            name=topic.name,
            partitions=[
                DescribeLogDirsPartition(
                    partition_index=number, partition_size=sizes[TopicPartition(topic.name, number)]
                )
                for number in led[topic.name]
                if requested is None or number in requested[topic.name]
            ],
        )
        for topic in topics
        if led[topic.name]
    ]


async def _led(context: Context, topics: Sequence[Topic]) -> dict[str, list[int]]:
    """The partitions that this agent leads, or will lead once they are opened: each belongs to one agent."""
    leaders = await context.broker.leaders(topics)
    own = context.broker.node_id
    return {
        topic.name: [
            number for number in range(topic.partitions) if leaders[PartitionId(topic.topic_id, number)].node_id == own
        ]
        for topic in topics
    }
