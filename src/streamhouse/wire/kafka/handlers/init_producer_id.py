"""InitProducerId, API key 22, versions 0-5: an identity for an idempotent producer.

Behaviour   a producer id that nobody ever had, with epoch 0
            a producer that asks again, with the id and epoch it has (KIP-360), gets a new id too, as Kafka gives to
            producers without transactions: its sequences begin anew
            an id without an epoch, or an epoch without an id, is INVALID_REQUEST
            while no id can be had, COORDINATOR_LOAD_IN_PROGRESS, on which all clients ask again
Left out    transactions: a transactional id is refused with UNSUPPORTED_VERSION, which ends the producer
Versions    v2 flexible · v3 id and epoch of a producer that asks again
"""

import logging

from streamhouse.errors import Retriable
from streamhouse.wire.kafka.answer import Answer, Context
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from streamhouse.wire.kafka.support import serves

log = logging.getLogger(__name__)


@serves(InitProducerIdRequest, (0, 5))
async def handle(context: Context, request: InitProducerIdRequest) -> Answer:
    if (code := _refusal(request)) is not ErrorCode.NONE:
        return _refused(context, code)
    try:
        producer_id = await context.broker.allocate_producer_id()
    except Retriable as error:
        log.warning("no producer id to give", extra={"why": str(error), "client": context.client_id})
        return _refused(context, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id is not None:
        return ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _refused(context: Context, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=context.refused(code), producer_id=-1, producer_epoch=-1)
