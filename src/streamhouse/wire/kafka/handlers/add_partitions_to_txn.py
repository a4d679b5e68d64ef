"""AddPartitionsToTxn, API key 24, versions 0-5: add partitions to a producer's transaction.

Behaviour   begins a transaction, or extends the one under way; answered when that is durable
            all partitions or none: if one doesn't exist (UNKNOWN_TOPIC_OR_PARTITION), the others are
            OPERATION_NOT_ATTEMPTED; errors of the transaction are repeated for every partition
            while the previous transaction is being completed, CONCURRENT_TRANSACTIONS
            a fenced producer is PRODUCER_FENCED (before v2 INVALID_PRODUCER_EPOCH), one that isn't the
            transactional id's INVALID_PRODUCER_ID_MAPPING
            several transactions in one request (v4), each on its own; `verify_only` changes nothing, and reports
            partitions that are not in the transaction as TRANSACTION_ABORTABLE
            served by any agent, not only the coordinator
Left out    nothing; clients with transaction.version 2 leave it to Produce and don't send it
Versions    v2 PRODUCER_FENCED · v3 flexible · v4 many transactions, verify_only, TRANSACTION_ABORTABLE
"""

from collections.abc import Mapping, Sequence
from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import AGENT, Operation, ResourceType
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.model.transaction import TransactionCall
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from streamhouse.wire.kafka.transaction_errors import VersionedCodes, transaction_call

MANY_SINCE: Final = 4
CODES: Final = VersionedCodes(fenced_since=2, abortable_since=MANY_SINCE)

Codes = Mapping[TopicPartition, ErrorCode]


@handles(
    AddPartitionsToTxnRequest,
    (0, 5),
    needs=all_of(
        need((Operation.WRITE, ResourceType.TRANSACTIONAL_ID), when="before v4"),
        need((Operation.WRITE, ResourceType.TOPIC), when="before v4"),
        need((Operation.CLUSTER_ACTION, ResourceType.CLUSTER), processes=(AGENT,), when="from v4 on"),
    ),
)
async def handle(context: Context, request: AddPartitionsToTxnRequest) -> HandlerResult:
    if context.version >= MANY_SINCE:  # Kafka's clients don't go beyond v3; brokers ask for others
        if not context.allows_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                await _transaction(context, each) async for each in iterate_fairly(request.transactions)
            ]
        )
    call = transaction_call(
        request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    codes = await _add_permitted(context, call, _names(request.v3_and_below_topics))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request.v3_and_below_topics, codes))


async def _transaction(context: Context, requested: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    call = transaction_call(requested.transactional_id, requested.producer_id, requested.producer_epoch)
    names = _names(requested.topics)
    codes = await (_verify(context, call, names) if requested.verify_only else _add(context, call, names))
    return AddPartitionsToTxnResult(
        transactional_id=requested.transactional_id, topic_results=_results(requested.topics, codes)
    )


def _names(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions))


async def _add_permitted(context: Context, call: TransactionCall, names: Sequence[TopicPartition]) -> Codes:
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, call.transactional_id):
        return dict.fromkeys(names, context.count_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if all(context.allows_topic(Operation.WRITE, name.topic) for name in names):
        return await _add(context, call, names)
    context.count_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return {
        name: ErrorCode.OPERATION_NOT_ATTEMPTED
        if context.allows_topic(Operation.WRITE, name.topic)
        else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for name in names
    }


async def _add(context: Context, call: TransactionCall, names: Sequence[TopicPartition]) -> Codes:
    if not call.transactional_id:
        return dict.fromkeys(names, context.count_error(ErrorCode.INVALID_REQUEST))
    try:
        outcomes = await context.broker.transactions.add_partitions(call, names)
    except StreamhouseError as error:
        return dict.fromkeys(names, context.count_error(CODES.code(context.version, error)))
    done = ErrorCode.NONE if all(each is None for each in outcomes.values()) else ErrorCode.OPERATION_NOT_ATTEMPTED
    return {
        name: done if error is None else context.count_error(CODES.code(context.version, error))
        async for name, error in iterate_fairly(outcomes.items())
    }


async def _verify(context: Context, call: TransactionCall, names: Sequence[TopicPartition]) -> Codes:
    return {name: await _verified_code(context, call, name) async for name in iterate_fairly(names)}


async def _verified_code(context: Context, call: TransactionCall, name: TopicPartition) -> ErrorCode:
    try:
        topic = await context.broker.catalog.find(name.topic)
        partition = PartitionId(topic.topic_id, name.partition)
        await context.broker.transactions.verify([partition], call.transactional_id, call.producer, enlists=False)
    except StreamhouseError as error:
        return context.count_error(CODES.code(context.version, error))
    return ErrorCode.NONE


def _results(topics: Sequence[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]
