"""TxnOffsetCommit, API key 28, versions 0-6: commit a group's offsets with a transaction.

Behaviour   durable when acknowledged, visible once the transaction is committed; dropped when it is aborted
            until then OffsetFetch with `require_stable` is UNSTABLE_OFFSET_COMMIT for these partitions
            from members of the generation (v3), or without a member, as from consumers without a group
            each partition on its own: an unknown one is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID,
            a text above `groups.offset_metadata_bytes` OFFSET_METADATA_TOO_LARGE
            from v5 on (transaction.version 2) it begins the transaction where AddOffsetsToTxn did before
            outside of a transaction TRANSACTION_ABORTABLE, before v4 INVALID_TXN_STATE
            a fenced producer is INVALID_PRODUCER_EPOCH in every version
Left out    nothing
Versions    v2 leader epoch · v3 member and generation, flexible · v4 TRANSACTION_ABORTABLE · v5 begins transactions
            v6 topics by id
"""

from collections.abc import Mapping
from typing import Final

from streamhouse.broker.groups import OffsetToCommit
from streamhouse.errors import GroupNotFound, InvalidTransactionState, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from streamhouse.wire.kafka.offset_commits import Codes, Named, code_of, member_of, name_topics, offsets_of
from streamhouse.wire.kafka.transaction_errors import NEVER, VersionedCodes, transaction_call

IDS_SINCE: Final = 6
BEGINS_SINCE: Final = 5
ABORTABLE_SINCE: Final = 4
LOADING_SINCE: Final = 2
"""Before this version, producers don't know COORDINATOR_LOAD_IN_PROGRESS."""

CODES: Final = VersionedCodes(fenced_since=NEVER, abortable_since=ABORTABLE_SINCE)


@handles(
    TxnOffsetCommitRequest,
    (0, 6),
    needs=all_of(
        need((Operation.WRITE, ResourceType.TRANSACTIONAL_ID)),
        need((Operation.READ, ResourceType.GROUP)),
        need((Operation.READ, ResourceType.TOPIC)),
    ),
)
async def handle(context: Context, request: TxnOffsetCommitRequest) -> HandlerResult:
    if (denied := _denied(context, request)) is not None:
        code = context.count_error(denied)
        return TxnOffsetCommitResponse(topics=[_topic(topic, code, {}) for topic in request.topics])
    named = await name_topics(context, request.topics, ids_since=IDS_SINCE)
    codes = await _commit(context, request, offsets_of(named))
    return TxnOffsetCommitResponse(topics=[_topic(topic, name, codes) async for topic, name in iterate_fairly(named)])


def _denied(context: Context, request: TxnOffsetCommitRequest) -> ErrorCode | None:
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


async def _commit(
    context: Context, request: TxnOffsetCommitRequest, offsets: Mapping[TopicPartition, OffsetToCommit]
) -> Codes:
    if not request.transactional_id:
        return dict.fromkeys(offsets, context.count_error(ErrorCode.INVALID_REQUEST))
    call = transaction_call(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        outcomes = await context.broker.groups.commit_in_transaction(
            request.group_id, member_of(request), call, offsets, begins=context.version >= BEGINS_SINCE
        )
    except StreamhouseError as error:
        return dict.fromkeys(offsets, context.count_error(_code(context.version, error)))
    return {
        name: ErrorCode.NONE if error is None else context.count_error(_code(context.version, error))
        async for name, error in iterate_fairly(outcomes.items())
    }


def _code(version: int, error: StreamhouseError) -> ErrorCode:
    if isinstance(error, GroupNotFound):
        return ErrorCode.ILLEGAL_GENERATION
    if isinstance(error, InvalidTransactionState) and version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    code = CODES.code(version, error)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _topic(topic: TxnOffsetCommitRequestTopic, name: Named, codes: Codes) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index,
                error_code=code_of(name, part, codes),
            )
            for part in topic.partitions
        ],
    )
