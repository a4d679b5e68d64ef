"""AlterReplicaLogDirs, API key 34, versions 1-2: move partitions to another directory.

Behaviour   there is one directory, the store, where all partitions are already; any other one is LOG_DIR_NOT_FOUND
            unknown partitions are UNKNOWN_TOPIC_OR_PARTITION
Left out    nothing
Versions    v2 flexible
"""

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from streamhouse.wire.kafka.resources import find_topic


@handles(AlterReplicaLogDirsRequest, (1, 2), needs=needs(Operation.ALTER, ResourceType.CLUSTER))
async def handle(context: Context, request: AlterReplicaLogDirsRequest) -> HandlerResult:
    return AlterReplicaLogDirsResponse(
        results=[
            await _topic(context, requested.path, topic)
            async for requested in iterate_fairly(request.dirs)
            async for topic in iterate_fairly(requested.topics)
        ]
    )


async def _topic(context: Context, path: str, requested: AlterReplicaLogDirTopic) -> AlterReplicaLogDirTopicResult:
    return AlterReplicaLogDirTopicResult(
        topic_name=requested.name,
        partitions=[
            AlterReplicaLogDirPartitionResult(
                partition_index=number, error_code=await _move(context, path, requested.name, number)
            )
            async for number in iterate_fairly(requested.partitions)
        ],
    )


async def _move(context: Context, path: str, topic: str, number: int) -> ErrorCode:
    if not context.allows_cluster(Operation.ALTER):
        return context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if path != context.broker.topic_admin.store:
        return context.count_error(ErrorCode.LOG_DIR_NOT_FOUND)
    try:
        result = await find_topic(context, topic)
    except StreamhouseError as error:
        return context.count_error(error)
    if not 0 <= number < result.partitions:
        return context.count_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ErrorCode.NONE
