"""AlterPartitionReassignments, API key 45, versions 0-1: partitions move to other brokers.

Behaviour   the agent that is asked is the only replica of every partition: to have it so is done already, anything
            else is INVALID_REPLICA_ASSIGNMENT, because records are in the store and not with an agent
            to cancel (null) is NO_REASSIGNMENT_IN_PROGRESS
            partitions that aren't there are UNKNOWN_TOPIC_OR_PARTITION
Left out    timeout_ms: nothing takes time
Versions    v1 whether the replication factor may change
"""

from streamhouse.errors import InvalidAssignment, StreamhouseError, UnknownTopic
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.answer import Answer, Context
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from streamhouse.wire.kafka.resources import find_topic
from streamhouse.wire.kafka.support import serves


@serves(AlterPartitionReassignmentsRequest, (0, 1))
async def handle(context: Context, request: AlterPartitionReassignmentsRequest) -> Answer:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[await _partition(context, topic.name, part) for part in topic.partitions],
            )
            for topic in request.topics
        ],
    )


async def _partition(context: Context, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
    try:
        found = await find_topic(context, topic)
        if not 0 <= asked.partition_index < found.partitions:
            raise UnknownTopic(TopicPartition(topic, asked.partition_index))
        if asked.replicas is not None and asked.replicas != [context.broker.node_id]:
            raise InvalidAssignment(
                f"records are in the store, and this agent is their only replica; replicas={asked.replicas} "
                f"known={context.broker.node_id}"
            )
    except StreamhouseError as error:
        result.error_code, result.error_message = context.refused(error), str(error)
        return result
    if asked.replicas is None:
        result.error_code = context.refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        result.error_message = "the partition is not being moved"
    return result
