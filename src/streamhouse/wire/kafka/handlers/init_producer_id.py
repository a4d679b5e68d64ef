"""InitProducerId, API key 22, versions 0-5: an identity for an idempotent or transactional producer.

Behaviour   without a transactional id: a new producer id with epoch 0; a producer that sends
            its id and epoch (KIP-360) gets a new id too, as in Kafka, and restarts its sequences
            with one: its producer id, with the next epoch. The previous producer is fenced, and its open transaction is
            aborted first; if that takes longer than `transactions.end_wait_s`, CONCURRENT_TRANSACTIONS, which
            clients retry
            a transactional producer that sends an outdated id and epoch is PRODUCER_FENCED (before v4
            INVALID_PRODUCER_EPOCH)
            a timeout above `transactions.max_timeout_s` is INVALID_TRANSACTION_TIMEOUT, an empty transactional id
            INVALID_REQUEST
            an id without an epoch, or an epoch without an id, is INVALID_REQUEST
            while no id can be allocated, COORDINATOR_LOAD_IN_PROGRESS, which all clients retry
Left out    transactions that are prepared and decided elsewhere (v6, KIP-939)
Versions    v2 flexible · v3 current id and epoch · v4 PRODUCER_FENCED · v5 TRANSACTION_ABORTABLE
"""

import logging
from typing import Final

from streamhouse.errors import Retriable, StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.model.transaction import ProducerIdentity
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from streamhouse.wire.kafka.schema import Response
from streamhouse.wire.kafka.transaction_errors import BackgroundResponse, VersionedCodes

log = logging.getLogger(__name__)

CODES: Final = VersionedCodes(fenced_since=4, abortable_since=5)
NONE: Final = -1


@handles(
    InitProducerIdRequest,
    (0, 5),
    needs=all_of(
        need((Operation.WRITE, ResourceType.TRANSACTIONAL_ID), when="with a transactional id"),
        need(
            (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
            (Operation.WRITE, ResourceType.TOPIC),
            when="without one; any topic will do",
        ),
    ),
)
async def handle(context: Context, request: InitProducerIdRequest) -> HandlerResult:
    if (code := _check(request)) is not ErrorCode.NONE:
        return _rejection(context, code)
    if (denied := _denied(context, request)) is not None:
        return _rejection(context, denied)
    if request.transactional_id is not None:
        return BackgroundResponse(_take_over(context, request, request.transactional_id), name="init-producer")
    try:
        producer_id = await context.broker.allocate_producer_id()
    except Retriable as error:
        log.warning("no producer id could be allocated", extra={"why": str(error), "client": context.client_id})
        return _rejection(context, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _take_over(context: Context, request: InitProducerIdRequest, transactional_id: str) -> Response:
    known = None
    if request.producer_id != NONE:
        known = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        producer = await context.broker.transactions.init_producer(
            transactional_id, request.transaction_timeout_ms, known
        )
    except StreamhouseError as error:
        return _rejection(context, CODES.code(context.version, error))
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _denied(context: Context, request: InitProducerIdRequest) -> ErrorCode | None:
    if request.transactional_id is not None:
        is_allowed = context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    writes = context.broker.security.access.allows_any(context.caller, Operation.WRITE, ResourceType.TOPIC)
    is_allowed = writes or context.allows_cluster(Operation.IDEMPOTENT_WRITE)
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _check(request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _rejection(context: Context, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=context.count_error(code), producer_id=-1, producer_epoch=-1)
