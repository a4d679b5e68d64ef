"""OffsetForLeaderEpoch, API key 23, versions 2-4: the end offset of a leader epoch.

Behaviour   the largest epoch of the log that is at most the requested one, and its end offset; consumers
            compare it with their position to detect truncated records
            an epoch that the log never had, or that is in the future: epoch -1, offset -1, no error
            a current leader epoch that isn't the agent's is FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH
            a replica id changes nothing: the log has one end
Left out    nothing
Versions    v3 replica id · v4 flexible
"""

from streamhouse.broker.fetch.fetch import check_leader_epoch
from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import read_error_code
from streamhouse.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(
    OffsetForLeaderEpochRequest,
    (2, 4),
    needs=all_of(need((Operation.DESCRIBE, ResourceType.TOPIC), (Operation.CLUSTER_ACTION, ResourceType.CLUSTER))),
)
async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> HandlerResult:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    await _partition(context, topic.topic, part) async for part in iterate_fairly(topic.partitions)
                ],
            )
            async for topic in iterate_fairly(request.topics)
        ]
    )


async def _partition(context: Context, topic: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
    name = TopicPartition(topic, part.partition)
    try:
        if not context.allows_topic(Operation.DESCRIBE, topic):
            context.check_cluster(Operation.CLUSTER_ACTION)
        check_leader_epoch(await context.broker.open_log(name), part.current_leader_epoch)
        result = await context.broker.epoch_end(name, part.leader_epoch)
    except StreamhouseError as error:
        return EpochEndOffset(partition=part.partition, error_code=context.count_error(read_error_code(error)))
    if result is None:
        return EpochEndOffset(partition=part.partition)
    return EpochEndOffset(partition=part.partition, leader_epoch=result.leader_epoch, end_offset=result.offset)
