"""Transaction errors: the error codes for transactional producers, by the version of the request.

Data path   errors of broker.transactions -> **transaction_errors** -> the handlers of transactions, and Produce
Owns        the code of an error in each version; common parts of several handlers
Leaves      the table of all errors to `errors`

Producers branch on codes: some are retried, some abort the transaction, some are fatal. So they get the code that Kafka
returns in the same case:
  PRODUCER_FENCED        is known from a version of each API on; before it, INVALID_PRODUCER_EPOCH
  TRANSACTION_ABORTABLE  (KIP-890) likewise; before it, INVALID_TXN_STATE
  retriable errors have coordinator codes, on which every client looks up the coordinator again and retries
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
"""Above all versions."""

PRODUCE_ABORTABLE_SINCE: Final = 11
PRODUCE_ADDS_PARTITIONS_SINCE: Final = 12
"""The leader adds the partition to the transaction, not the client (KIP-890)."""

_COORDINATORS: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class VersionedCodes(NamedTuple):
    """The versions of an API from which clients know the newer codes."""

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
    """The code of a batch. Before v12 producers don't know coordinator codes: they get one on which they retry at the
    same leader."""
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
    """Work that starts at once and continues while later requests of the connection start. It is also finished if the
    client disconnects; otherwise the transaction sweeper completes it.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[None, None, Response], *, name: str) -> None:
        self._work = asyncio.get_running_loop().create_task(work, name=name)

    def is_ready(self) -> bool:
        return self._work.done()

    async def respond(self) -> Response:
        return await asyncio.shield(self._work)
