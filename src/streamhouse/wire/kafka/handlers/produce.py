"""Produce, API key 0, versions 3-13: append record batches.

Behaviour   acks=1 and acks=all are answered when the write-ahead log holds the batch under its policy
            acks=0 gets no response; after an error the connection is closed, so that the client notices
            other acks are INVALID_REQUIRED_ACKS
            batches are appended in the order of their requests; waiting for durability doesn't delay later requests
            partitions fail independently
            a duplicate of an idempotent producer's batch gets the offset of the original
            records that violate a rule of their topic are listed (v8, KIP-467), so that the client can send the others
            again; none of their batch is stored
            a partition that another agent leads is NOT_LEADER_OR_FOLLOWER, with the leader's address (v10, KIP-951)
            server-side failures have codes that clients retry, never UNKNOWN_SERVER_ERROR
            agents that forward to each other may say acks=-100: as -1, and the batch is flushed soon
            producer ids from 2^62 on stand for idempotency keys: INVALID_RECORD, unless an agent forwards them
            the first batch of a transaction in a partition is appended if the partition is a part of it, which
            AddPartitionsToTxn made it, or from v12 on the request itself (transaction.version 2): otherwise
            TRANSACTION_ABORTABLE, before v11 INVALID_TXN_STATE
            a transactional batch in a request without a transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, one
            of a fenced producer INVALID_PRODUCER_EPOCH
            while the previous transaction is being completed CONCURRENT_TRANSACTIONS (v12), before NOT_ENOUGH_REPLICAS
            markers are written by agents only: INVALID_RECORD
Left out    timeout_ms: the response is sent when the log has decided
Versions    0-2 are advertised, because librdkafka takes their absence for a broker without compression, and closed
            v5 log start · v7 zstd · v8 error text, errors of records · v9 flexible · v11 TRANSACTION_ABORTABLE ·
            v12 begins transactions · v13 topics by id
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.partition.producer_state import FIRST_KEY_ID
from streamhouse.broker.produce.append import Inspection, ProduceTransaction
from streamhouse.errors import BadRecords, InvalidRecord, NotLeader, StreamhouseError, UnsupportedCompression
from streamhouse.limits import ELEMENTS_PER_SLICE, yield_to_loop
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import CloseConnection, Context, HandlerResult, PendingResponse
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from streamhouse.wire.kafka.schema import Buffer, Response
from streamhouse.wire.kafka.transaction_errors import PRODUCE_ADDS_PARTITIONS_SINCE, produce_code

log = logging.getLogger(__name__)

ACKS: Final = (-1, 0, 1)
REQUEST_FLUSH: Final = -100
ZSTD_SINCE: Final = 7
LEADERS_SINCE: Final = 10
IDS_SINCE: Final = 13

_ATTRIBUTES_AT: Final = 22
_CODEC: Final = 0x07
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10
_PRODUCER_AT: Final = 43
_KEYS: Final = range(FIRST_KEY_ID >> 56, 0x80)
"""First bytes of producer ids that represent idempotency keys."""


Inspected: TypeAlias = Mapping[int, Inspection]
"""Inspections of small batches that were made ahead, by `id` of their part of the request."""


class Outcome(NamedTuple):
    """The result for one partition's batch: appended, or rejected with a code."""

    partition: int
    pending_append: PendingAppend | None
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None
    rejected_records: Sequence[int] = ()
    leader: NotLeader | None = None


class TopicOutcome(NamedTuple):
    requested: TopicProduceData
    outcomes: Sequence[Outcome]


@handles(
    ProduceRequest,
    (3, 13),
    advertised=0,
    needs=all_of(
        need((Operation.WRITE, ResourceType.TOPIC)),
        need((Operation.WRITE, ResourceType.TRANSACTIONAL_ID), when="in a transaction"),
    ),
)
async def handle(context: Context, request: ProduceRequest) -> HandlerResult:
    acks = request.acks
    if acks not in ACKS and not (acks == REQUEST_FLUSH and context.is_agent):
        return _reject_all(context, request, ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1; acks={acks}")
    transaction = None
    if request.transactional_id is not None:
        if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _reject_all(context, request, code, "not authorised to write with this transactional id")
        transaction = ProduceTransaction(request.transactional_id, context.version >= PRODUCE_ADDS_PARTITIONS_SINCE)
    named = _named(context, request)
    inspected: Inspected = {}
    if len(named) > 1:
        await context.broker.open_many(list(named))
        inspected = await _inspect_ahead(context, named)
        if transaction is not None:
            batches = {name: part.records or b"" for name, part in named.items()}
            transaction = await context.broker.verify_ahead(transaction, batches)
    topics: list[TopicOutcome] = []
    for topic in request.topic_data:
        topics.append(await _append_topic(context, topic, transaction, inspected))
        if len(topics) % ELEMENTS_PER_SLICE == 0:
            await yield_to_loop()
    if acks == REQUEST_FLUSH:
        _request_flushes(topics)
    if acks != 0:
        return Acknowledgement(context, topics)
    refused = [outcome for topic in topics for outcome in topic.outcomes if outcome.code]
    if refused:
        raise CloseConnection(f"produce without acks failed; code={refused[0].code.name} why={refused[0].text}")
    return None


def _named(context: Context, request: ProduceRequest) -> Mapping[TopicPartition, PartitionProduceData]:
    """The partitions of the request whose topic names are in the cache."""
    named: dict[TopicPartition, PartitionProduceData] = {}
    for topic in request.topic_data:
        name: str | None = topic.name
        if context.version >= IDS_SINCE:
            result = context.broker.catalog.known(TopicId(topic.topic_id))
            name = None if result is None else result.name
        if name is not None and context.allows_topic(Operation.WRITE, name):
            named |= {TopicPartition(name, part.index): part for part in topic.partition_data}
    return named


async def _inspect_ahead(context: Context, named: Mapping[TopicPartition, PartitionProduceData]) -> Inspected:
    """Inspections by part of the request: a partition may occur twice."""
    batches = [(name, part.records or b"") for name, part in named.items()]
    result = await context.broker.inspect_ahead(batches)
    return {id(part): each for part, each in zip(named.values(), result, strict=True) if each is not None}


def _request_flushes(topics: Sequence[TopicOutcome]) -> None:
    for pending in (outcome.pending_append for topic in topics for outcome in topic.outcomes):
        if pending is not None:
            pending.log.request_flush(pending.end)


def _reject_all(context: Context, request: ProduceRequest, code: ErrorCode, text: str) -> HandlerResult:
    context.count_error(code)
    topics = [
        TopicOutcome(topic, [Outcome(part.index, None, code, text) for part in topic.partition_data])
        for topic in request.topic_data
    ]
    return _response(context, topics)


async def _append_topic(
    context: Context, topic: TopicProduceData, transaction: ProduceTransaction | None, inspected: Inspected
) -> TopicOutcome:
    try:
        name = topic.name if context.version < IDS_SINCE else await _name_of(context, topic)
        context.check_topic(Operation.WRITE, name)
    except StreamhouseError as error:
        code = context.count_error(error)
        return TopicOutcome(topic, [Outcome(part.index, None, code, str(error)) for part in topic.partition_data])
    outcomes: list[Outcome] = []
    for part in topic.partition_data:
        outcomes.append(await _append(context, name, part, transaction, inspected))
        if len(outcomes) % ELEMENTS_PER_SLICE == 0:
            await yield_to_loop()
    return TopicOutcome(topic, outcomes)


async def _name_of(context: Context, topic: TopicProduceData) -> str:
    return (await context.topic_by_id(topic.topic_id)).name


async def _append(
    context: Context,
    topic: str,
    part: PartitionProduceData,
    transaction: ProduceTransaction | None,
    inspected: Inspected,
) -> Outcome:
    try:
        records = memoryview(part.records or b"")
        if _check(context, records) and transaction is None:
            code = context.count_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return Outcome(part.index, None, code, "a transactional batch needs a transactional id")
        inspection = inspected.get(id(part))
        pending = await context.broker.append(TopicPartition(topic, part.index), records, transaction, inspection)
        if pending.commit is not None:
            context.retain(len(records))
        return Outcome(part.index, pending)
    except BadRecords as error:
        return Outcome(part.index, None, context.count_error(error), str(error), error.records)
    except NotLeader as error:
        leader = error if context.version >= LEADERS_SINCE else None
        return Outcome(part.index, None, context.count_error(error), str(error), leader=leader)
    except StreamhouseError as error:
        return Outcome(part.index, None, context.count_error(produce_code(context.version, error)), str(error))
    except Exception:
        log.exception("append failed", extra={"topic": topic, "partition": part.index, "client": context.client_id})
        return Outcome(
            part.index, None, context.count_error(ErrorCode.KAFKA_STORAGE_ERROR), "append failed unexpectedly"
        )
    finally:
        # The log owns the batch now; the decoded request must not keep the frame alive.
        part.records = None


def _check(context: Context, records: Buffer) -> bool:
    """Check a batch by its own attributes, not by the request's; returns whether it is transactional."""
    attributes = records[_ATTRIBUTES_AT] if len(records) > _ATTRIBUTES_AT else 0
    if len(records) > _PRODUCER_AT and records[_PRODUCER_AT] in _KEYS and not context.is_agent:
        raise InvalidRecord(f"producer id is reserved for idempotency keys; from={FIRST_KEY_ID}")
    if context.version < ZSTD_SINCE and attributes & _CODEC == _ZSTD:
        raise UnsupportedCompression(f"zstd needs Produce v{ZSTD_SINCE} or later; version={context.version}")
    return bool(attributes & _TRANSACTIONAL)


class Acknowledgement(PendingResponse):
    """Waits until the appended batches of a request are durable."""

    __slots__ = ("_context", "_topics")

    def __init__(self, context: Context, topics: Sequence[TopicOutcome]) -> None:
        self._context = context
        self._topics = topics

    def is_ready(self) -> bool:
        return all(
            outcome.pending_append is None
            or (outcome.pending_append.commit is not None and outcome.pending_append.commit.done())
            for topic in self._topics
            for outcome in topic.outcomes
        )

    async def respond(self) -> Response:
        topics = [
            TopicOutcome(
                topic.requested,
                # Of a group that was written as a whole, no outcome has to wait.
                [each if self._is_final(each) else await self._acknowledge(each) for each in topic.outcomes],
            )
            for topic in self._topics
        ]
        return _response(self._context, topics)

    def _is_final(self, outcome: Outcome) -> bool:
        pending = outcome.pending_append
        return pending is None or self._context.broker.acknowledge_now(pending)

    async def _acknowledge(self, outcome: Outcome) -> Outcome:
        assert outcome.pending_append is not None, "a rejected batch is not acknowledged"
        try:
            await self._context.broker.acknowledge(outcome.pending_append)
        except StreamhouseError as error:
            return Outcome(outcome.partition, None, self._context.count_error(error), str(error))
        except Exception:
            log.exception("acknowledgement failed", extra={"partition": str(outcome.pending_append.log.name)})
            code = self._context.count_error(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            return Outcome(outcome.partition, None, code, "append may have failed")
        return outcome


def _response(context: Context, topics: Sequence[TopicOutcome]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.requested.name,
                topic_id=topic.requested.topic_id,
                partition_responses=[_partition(outcome) for outcome in topic.outcomes],
            )
            for topic in topics
        ],
        node_endpoints=_endpoints(context, topics),
    )


def _endpoints(context: Context, topics: Sequence[TopicOutcome]) -> list[NodeEndpoint]:
    """Addresses of the leaders that the response names."""
    leaders = {
        outcome.leader.node_id: outcome.leader.address
        for topic in topics
        for outcome in topic.outcomes
        if outcome.leader is not None
    }
    return [
        NodeEndpoint(node_id=node, host=address.host, port=address.port) for node, address in context.addresses(leaders)
    ]


def _partition(outcome: Outcome) -> PartitionProduceResponse:
    pending = outcome.pending_append
    if pending is None:
        return PartitionProduceResponse(
            index=outcome.partition,
            error_code=outcome.code,
            base_offset=-1,
            record_errors=[BatchIndexAndErrorMessage(batch_index=each) for each in outcome.rejected_records],
            error_message=outcome.text,
            current_leader=_leader(outcome.leader),
        )
    return PartitionProduceResponse(
        index=outcome.partition,
        base_offset=pending.base_offset,
        log_append_time_ms=pending.append_time_ms,
        log_start_offset=pending.log.log_start,
    )


def _leader(known: NotLeader | None) -> LeaderIdAndEpoch | None:
    if known is None or known.node_id is None:
        return None
    return LeaderIdAndEpoch(leader_id=known.node_id, leader_epoch=known.epoch)
