"""EndTxn, API key 26, versions 0-5: a transaction is committed or aborted.

Behaviour   responds when the decision is durable and, as a rule, all markers are written; if a partition takes longer
            than `transactions.end_wait_s`, the rest is written after the response
            offsets committed in it become visible with the decision, or never
            the same request again is answered the same; the opposite one is INVALID_TXN_STATE, and so is the end of a
            transaction that never began
            from v5 on (transaction.version 2) each transaction has an epoch of its own: the answer names the producer
            id and epoch of the next one, so that what comes late belongs to no other; an abort without a transaction
            gives a new epoch too
            a transaction that took longer than its timeout was aborted, and its producer is PRODUCER_FENCED (before
            v2 INVALID_PRODUCER_EPOCH)
Left out    nothing
Versions    v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE · v5 the next producer id and epoch
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from streamhouse.wire.kafka.schema import Response
from streamhouse.wire.kafka.transaction_errors import BackgroundResponse, VersionedCodes, transaction_call

CODES: Final = VersionedCodes(fenced_since=2, abortable_since=4)
BUMPS_SINCE: Final = 5


@handles(EndTxnRequest, (0, 5), needs=needs(Operation.WRITE, ResourceType.TRANSACTIONAL_ID))
async def handle(context: Context, request: EndTxnRequest) -> HandlerResult:
    if not request.transactional_id:
        return EndTxnResponse(error_code=context.count_error(ErrorCode.INVALID_REQUEST))
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=context.count_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    return BackgroundResponse(_end(context, request), name="end-of-transaction")


async def _end(context: Context, request: EndTxnRequest) -> Response:
    call = transaction_call(request.transactional_id, request.producer_id, request.producer_epoch)
    bump = context.version >= BUMPS_SINCE
    try:
        producer = await context.broker.transactions.end(call, commit=request.committed, bump=bump)
    except StreamhouseError as error:
        return EndTxnResponse(error_code=context.count_error(CODES.code(context.version, error)))
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
