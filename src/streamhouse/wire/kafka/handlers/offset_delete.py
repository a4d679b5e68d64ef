"""OffsetDelete, API key 47, versions 0-0: delete committed offsets of a group.

Behaviour   each partition on its own; one that members of the group read is GROUP_SUBSCRIBED_TO_TOPIC
            a group with members that are no consumers is NON_EMPTY_GROUP, because what they read is unknown
            an unknown group is GROUP_ID_NOT_FOUND, one that another agent coordinates NOT_COORDINATOR
Left out    nothing
Versions    v0 is the only one
"""

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(
    OffsetDeleteRequest,
    (0, 0),
    needs=all_of(need((Operation.DELETE, ResourceType.GROUP)), need((Operation.READ, ResourceType.TOPIC))),
)
async def handle(context: Context, request: OffsetDeleteRequest) -> HandlerResult:
    topics = {topic.name: [part.partition_index for part in topic.partitions] for topic in request.topics}
    allowed = {topic for topic in topics if context.allows_topic(Operation.READ, topic)}
    names = [TopicPartition(topic, partition) for topic in allowed for partition in topics[topic]]
    try:
        context.check_group(Operation.DELETE, request.group_id)
        outcomes = await context.broker.groups.delete_offsets(request.group_id, names)
    except StreamhouseError as error:
        return OffsetDeleteResponse(error_code=context.count_error(error))
    codes = {
        name: ErrorCode.NONE if outcome is None else context.count_error(outcome)
        async for name, outcome in iterate_fairly(outcomes.items())
    }
    denied = (
        ErrorCode.NONE if len(allowed) == len(topics) else context.count_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    )
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition, error_code=codes.get(TopicPartition(topic, partition), denied)
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in topics.items()
        ]
    )
