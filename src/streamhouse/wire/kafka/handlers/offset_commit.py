"""OffsetCommit, API key 8, versions 2-10: commit a group's offsets.

Behaviour   answered when the offsets are durable in the metadata store
            from members of the generation, also during a rebalance; from any client without a
            generation as long as the group has no members
            each partition on its own: an unknown one is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID,
            a text above `groups.offset_metadata_bytes` OFFSET_METADATA_TOO_LARGE
            errors of the whole group are repeated for every partition; for a generation of an unknown group,
            GROUP_ID_NOT_FOUND (v9), before it ILLEGAL_GENERATION
            a retention time (before v5) is kept with the offset; later the agent's `groups.offsets_retention_s` holds
            applied even if the client closes its connection without waiting for the response
Left out    nothing; offsets in transactions come by TxnOffsetCommit
Versions    v5 no retention time · v6 leader epoch · v7 static members · v8 flexible · v10 topics by id
"""

from collections.abc import Mapping
from typing import Final

from streamhouse.broker.groups import OffsetToCommit
from streamhouse.errors import GroupNotFound, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from streamhouse.wire.kafka.offset_commits import Codes, Named, code_of, member_of, name_topics, offsets_of

IDS_SINCE: Final = 10
NOT_FOUND_SINCE: Final = 9
NO_RETENTION: Final = -1


@handles(
    OffsetCommitRequest,
    (2, 10),
    needs=all_of(need((Operation.READ, ResourceType.GROUP)), need((Operation.READ, ResourceType.TOPIC))),
)
async def handle(context: Context, request: OffsetCommitRequest) -> HandlerResult:
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _group_denied(context, request)
    named = await name_topics(context, request.topics, ids_since=IDS_SINCE)
    codes = await _commit(context, request, offsets_of(named))
    return OffsetCommitResponse(topics=[_topic(topic, name, codes) async for topic, name in iterate_fairly(named)])


def _group_denied(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    code = context.count_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return OffsetCommitResponse(topics=[_topic(topic, code, {}) for topic in request.topics])


async def _commit(
    context: Context, request: OffsetCommitRequest, offsets: Mapping[TopicPartition, OffsetToCommit]
) -> Codes:
    retention_ms = None if request.retention_time_ms == NO_RETENTION else request.retention_time_ms
    try:
        outcomes = await context.broker.groups.commit(
            request.group_id, member_of(request), offsets, retention_ms=retention_ms
        )
    except StreamhouseError as error:
        old = isinstance(error, GroupNotFound) and context.version < NOT_FOUND_SINCE
        return dict.fromkeys(offsets, context.count_error(ErrorCode.ILLEGAL_GENERATION if old else error))
    return {
        name: ErrorCode.NONE if outcome is None else context.count_error(outcome)
        async for name, outcome in iterate_fairly(outcomes.items())
    }


def _topic(topic: OffsetCommitRequestTopic, name: Named, codes: Codes) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=part.partition_index,
                error_code=code_of(name, part, codes),
            )
            for part in topic.partitions
        ],
    )
