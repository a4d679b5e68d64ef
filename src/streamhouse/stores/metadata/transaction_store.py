"""TransactionStore: transactions of producers; a part of the metadata store's interface.

Data path   broker.transactions, broker.groups, broker.segments -> **transaction_store** -> one transaction each
Owns        the contract of each call
Leaves      SQL to the engines and `sql/`, state transitions to `model.transaction_transitions`

A producer's transaction is a row, and deciding it commits or drops its offsets (decision 0025). Times are the store's.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from streamhouse.model.group import GroupOffset
from streamhouse.model.names import Epoch, PartitionId, SessionId
from streamhouse.model.transaction import (
    AbortedTransaction,
    InitProducerRequest,
    PendingOffset,
    StoredTransaction,
    TransactionCall,
)


class OffsetsRequest(NamedTuple):
    """Requested partitions of a group's offsets; None: all."""

    group_id: str
    partitions: Sequence[PartitionId] | None


class TransactionStore(Protocol):
    # --- a producer and its transaction
    async def init_producer(self, requested: InitProducerRequest, *, by: SessionId | None = None) -> StoredTransaction:
        """Become the producer of a transactional id: its state is `EMPTY` then, and the previous producer is fenced.

        An ongoing transaction is aborted first: then the returned row is prepared, as it is if it was prepared before.
        The caller completes the transaction and calls again. Raises `ProducerFenced` if `known` is neither the current
        producer nor the previous one in a call repeated by `known`. Raises `SessionLost` unless the session `by` is
        live and unexpired: an agent that was paused must not apply a request that another agent has since served.
        """
        ...

    async def add_transaction_partitions(
        self, call: TransactionCall, partitions: Sequence[PartitionId], *, limit: int
    ) -> StoredTransaction:
        """Begin a transaction or add partitions to it; partitions that don't exist are skipped.

        Raises `UnknownProducerId`, `ProducerFenced`, `ConcurrentTransactions` while the previous transaction is
        prepared, and `TransactionTooLarge` beyond `limit` partitions.
        """
        ...

    async def find_transaction(self, transactional_id: str) -> StoredTransaction | None: ...

    async def transaction_of(self, producer_id: int) -> StoredTransaction | None:
        """The transaction whose producer has this id now."""
        ...

    async def end_transaction(
        self, call: TransactionCall, *, commit: bool, bump: bool, fresh_id: int, by: SessionId | None = None
    ) -> StoredTransaction:
        """Commit or abort a transaction; its pending offsets are committed or deleted with the decision.

        Offsets are committed if the group and the partition still exist. With `bump` the producer continues under the
        next epoch, or under `fresh_id` when epochs are used up; an abort without a transaction only does that.
        Repeating the call returns the same result. Raises `UnknownProducerId`, `ProducerFenced`,
        `InvalidTransactionState` if the other decision was made or there is no transaction, and `SessionLost` as
        `init_producer` does, because the producer's next transaction may have the same epoch.
        """
        ...

    async def expire_transaction(self, transactional_id: str, number: int) -> StoredTransaction | None:
        """Abort a transaction that is ongoing for longer than its timeout, and fence its producer; None if it is not,
        or no longer, such a transaction."""
        ...

    async def complete_transaction(self, transactional_id: str, number: int) -> None:
        """Complete a transaction after all its markers are written. No-op unless it is prepared."""
        ...

    async def due_transactions(
        self, *, prepared_before_ms: int, limit: int, after: StoredTransaction | None = None
    ) -> Sequence[StoredTransaction]:
        """Transactions that are prepared for at least `prepared_before_ms`, or ongoing for longer than their timeouts;
        the longest overdue first, `after` the last one of the previous page."""
        ...

    async def transactions(self, *, after: str | None, limit: int) -> Sequence[StoredTransaction]:
        """All transactions, by transactional id, after `after`."""
        ...

    async def forget_transactions(self, older_than_ms: int, limit: int) -> int:
        """Delete transactional ids without an open transaction for at least `older_than_ms`; returns their number."""
        ...

    # --- offsets in transactions
    async def put_pending_offsets(
        self,
        session_id: SessionId,
        shard: PartitionId,
        epoch: Epoch,
        call: TransactionCall,
        group_id: str,
        offsets: Sequence[PendingOffset],
        *,
        begins: bool,
    ) -> None:
        """Store offsets of a group that are committed or dropped with a transaction; skips partitions that don't exist.

        Raise `LeaseLost` unless the session is live and holds the group's shard under the epoch; the errors of
        `add_transaction_partitions` for the caller; `InvalidTransactionState` unless a transaction is ongoing or
        `begins` here.
        """
        ...

    async def pending_offsets(self, requested: Sequence[OffsetsRequest]) -> Set[GroupOffset]:
        """The subset of the offsets that belongs to an undecided transaction."""
        ...

    # --- aborted transactions in partitions
    async def aborted(
        self, from_offsets: Mapping[PartitionId, int], *, limit: int
    ) -> Mapping[PartitionId, Sequence[AbortedTransaction]]:
        """Per partition the aborted transactions with markers at or above the offset, by marker, at most `limit`;
        partitions without any are left out."""
        ...

    async def forget_aborted(self, partition: PartitionId, last_offsets: Sequence[int]) -> None:
        """Delete aborted transactions whose markers were compacted. No error for missing ones."""
        ...
