"""DeleteTopics, API key 20, versions 1-6: delete topics with all their records.

Behaviour   each topic on its own, by name, or by id from v6 on; an unknown one is UNKNOWN_TOPIC_OR_PARTITION or
            UNKNOWN_TOPIC_ID
            both name and id, neither of them, or a topic that occurs twice: INVALID_REQUEST
            a topic created later under the same name shares nothing with the deleted one
Left out    timeout_ms: the topic is deleted when the response is sent; its objects are collected later
Versions    v4 flexible · v5 error text · v6 topics by id
"""

from collections import Counter
from typing import Final

from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from streamhouse.wire.kafka.schema import ZERO_UUID

IDS_SINCE: Final = 6


@handles(DeleteTopicsRequest, (1, 6), needs=needs(Operation.DELETE, ResourceType.TOPIC))
async def handle(context: Context, request: DeleteTopicsRequest) -> HandlerResult:
    requested = (
        request.topics
        if context.version >= IDS_SINCE
        else [DeleteTopicState(name=name) for name in request.topic_names]
    )
    counts = Counter((state.name, state.topic_id) for state in requested)
    unique = {(state.name, state.topic_id): state for state in requested}
    return DeleteTopicsResponse(
        responses=[
            await _delete(context, state, twice=counts[key] > 1) async for key, state in iterate_fairly(unique.items())
        ]
    )


async def _delete(context: Context, requested: DeleteTopicState, *, twice: bool) -> DeletableTopicResult:
    try:
        if twice:
            raise Rejected(f"topic occurs twice in the request; name={requested.name} id={requested.topic_id}")
        topic = await _find(context, requested)
        context.check_topic(Operation.DELETE, topic.name)
        context.charge_mutations(topic.partitions)
        await context.broker.delete_topic(topic)
    except StreamhouseError as error:
        return DeletableTopicResult(
            name=requested.name,
            topic_id=requested.topic_id,
            error_code=context.count_error(error),
            error_message=str(error),
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


async def _find(context: Context, requested: DeleteTopicState) -> Topic:
    if (requested.name is None) == (requested.topic_id == ZERO_UUID):
        raise Rejected("a topic is named by its name or by its id, one of them")
    if requested.name is None:
        return await context.topic_by_id(requested.topic_id)
    context.check_topic(Operation.DELETE, requested.name)
    return await context.broker.topic(requested.name)
