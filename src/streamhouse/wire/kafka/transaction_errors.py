"""Transacting: the codes in which coordinators speak to transactional producers, by the version of the request.

Data path   broker.transactions raises -> **transacting** -> the handlers of transactions, and Produce
Owns        which code stands for an error in which version; what the answers of several handlers have in common
Leaves      the table of all errors to `errors`

Producers branch on codes: some are tried again, some make them abort, some end them for good. So they hear what Kafka
would say in the same place:
  PRODUCER_FENCED        is known from a version of each API on; before it, INVALID_PRODUCER_EPOCH
  TRANSACTION_ABORTABLE  (KIP-890) likewise; before it, INVALID_TXN_STATE
  what may succeed later is said in a coordinator's words, on which every client asks again, and looks for it
"""

import asyncio
from collections.abc import Coroutine
from typing import Final, NamedTuple

from streamhouse.errors import (
    ConcurrentTransactions,
    ProducerFenced,
    Retriable,
    StreamhouseError,
    TransactionAbortable,
)
from streamhouse.model.transaction import ProducerIdentity, TransactionCall
from streamhouse.wire.kafka.context import PendingResponse
from streamhouse.wire.kafka.errors import ErrorCode, error_code
from streamhouse.wire.kafka.schema import Response

NEVER: Final = 1 << 15
"""Above every version."""

PRODUCE_ABORTABLE_SINCE: Final = 11
PRODUCE_ADDS_PARTITIONS_SINCE: Final = 12
"""The client leaves it to the leader to make a partition a part of the transaction (KIP-890)."""

_COORDINATORS: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class VersionedCodes(NamedTuple):
    """Since which version clients of an API know the newer codes."""

    fenced_since: int
    abortable_since: int

    def code(self, version: int, error: StreamhouseError) -> ErrorCode:
        if isinstance(error, ProducerFenced) and version < self.fenced_since:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if isinstance(error, TransactionAbortable) and version < self.abortable_since:
            return ErrorCode.INVALID_TXN_STATE
        code = error_code(error)
        if isinstance(error, Retriable) and code not in _COORDINATORS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code


def produce_code(version: int, error: StreamhouseError) -> ErrorCode:
    """What a producer is told of a batch. Before v12 a coordinator's words mean nothing to it: it is to come again,
    without looking for another leader."""
    if isinstance(error, ProducerFenced):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, TransactionAbortable) and version < PRODUCE_ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    code = error_code(error)
    if isinstance(error, ConcurrentTransactions) and version >= PRODUCE_ADDS_PARTITIONS_SINCE:
        return code
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _COORDINATORS else code


def transaction_call(transactional_id: str, producer_id: int, epoch: int) -> TransactionCall:
    return TransactionCall(transactional_id, ProducerIdentity(producer_id, epoch))


class BackgroundResponse(PendingResponse):
    """Work that begins at once and goes on while later requests of the connection begin.

    When the client goes away nobody waits for it any more: it is finished all the same, or left to whoever looks after
    transactions that are half ended.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[None, None, Response], *, name: str) -> None:
        self._work = asyncio.get_running_loop().create_task(work, name=name)

    def is_ready(self) -> bool:
        return self._work.done()

    async def respond(self) -> Response:
        return await asyncio.shield(self._work)
