"""AddOffsetsToTxn, API key 25, versions 0-4: add a group's offsets to a producer's transaction.

Behaviour   begins a transaction, or extends the one under way; answered when that is durable
            errors are those of AddPartitionsToTxn; an invalid group id is INVALID_GROUP_ID
Left out    nothing; clients with transaction.version 2 leave it to TxnOffsetCommit and don't send it
Versions    v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from streamhouse.wire.kafka.transaction_errors import VersionedCodes, transaction_call

CODES: Final = VersionedCodes(fenced_since=2, abortable_since=4)


@handles(
    AddOffsetsToTxnRequest,
    (0, 4),
    needs=all_of(need((Operation.WRITE, ResourceType.TRANSACTIONAL_ID)), need((Operation.READ, ResourceType.GROUP))),
)
async def handle(context: Context, request: AddOffsetsToTxnRequest) -> HandlerResult:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=context.count_error(ErrorCode.INVALID_REQUEST))
    call = transaction_call(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        context.check_transactional_id(Operation.WRITE, request.transactional_id)
        context.check_group(Operation.READ, request.group_id)
        await context.broker.transactions.add_offsets(call, request.group_id)
    except StreamhouseError as error:
        return AddOffsetsToTxnResponse(error_code=context.count_error(CODES.code(context.version, error)))
    return AddOffsetsToTxnResponse()
