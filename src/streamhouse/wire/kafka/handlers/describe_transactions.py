"""DescribeTransactions, API key 65, versions 0-0: the transactions of transactional ids.

Behaviour   state, timeout, producer id and epoch, and, of a transaction that is in progress or being ended, when it
began
            and its partitions; of others -1, and none
            each id on its own: an unknown one is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST
            any agent knows it, whichever was named as the coordinator
Left out    the groups whose offsets are a part of it; Kafka returns a partition of __consumer_offsets
Versions    v0 flexible
"""

from collections.abc import Iterable
from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.needs import all_of, need
from streamhouse.model.transaction import StoredTransaction
from streamhouse.model.transaction import TransactionState as State
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from streamhouse.wire.kafka.transaction_errors import NEVER, VersionedCodes

CODES: Final = VersionedCodes(fenced_since=NEVER, abortable_since=NEVER)
NOT_STARTED: Final = -1


@handles(
    DescribeTransactionsRequest,
    (0, 0),
    needs=all_of(
        need((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)), need((Operation.DESCRIBE, ResourceType.TOPIC))
    ),
)
async def handle(context: Context, request: DescribeTransactionsRequest) -> HandlerResult:
    named = dict.fromkeys(request.transactional_ids)
    allowed = [name for name in named if context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)]
    result = await context.broker.transactions.describe(allowed) if allowed else {}
    return DescribeTransactionsResponse(
        transaction_states=[
            await _description(context, name, result[name]) if name in result else _denied(context, name)
            async for name in iterate_fairly(named)
        ]
    )


def _denied(context: Context, name: str) -> TransactionState:
    code = context.count_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return TransactionState(transactional_id=name, error_code=code)


async def _description(context: Context, name: str, result: StoredTransaction | StreamhouseError) -> TransactionState:
    if isinstance(result, StreamhouseError):
        return TransactionState(
            transactional_id=name, error_code=context.count_error(CODES.code(context.version, result))
        )
    is_under_way = result.state is State.ONGOING or result.state.is_prepared
    return TransactionState(
        transactional_id=name,
        transaction_state=result.state,
        transaction_timeout_ms=result.timeout_ms,
        transaction_start_time_ms=result.started_at_ms if is_under_way else NOT_STARTED,
        producer_id=result.producer.producer_id,
        producer_epoch=result.producer.epoch,
        topics=await _topics(context, result.partitions) if is_under_way else [],
    )


async def _topics(context: Context, partitions: Iterable[PartitionId]) -> list[TopicData]:
    """Partitions by topic name; those that were deleted, or that the caller may not describe, are left out."""
    numbers: dict[TopicId, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    topics = []
    for topic_id, parts in numbers.items():
        try:
            name = (await context.topic_by_id(topic_id)).name
        except StreamhouseError:
            continue
        if context.allows_topic(Operation.DESCRIBE, name):
            topics.append(TopicData(topic=name, partitions=parts))
    return sorted(topics, key=lambda each: each.topic)
