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
        """Become the producer of a transactional id: its state is `EMPTY` then, and whoever was it is fenced.

        What is ongoing is aborted first: the row comes back prepared, as it does where it was prepared before. The
        caller has that ended, and asks again. Raise `ProducerFenced` when `known` is neither the producer nor, where
        it changed for `known` itself, the one before. Raise `SessionLost` unless the session `by` is live and in time:
        what an agent was asked before it was paused has been asked of another one since.
        """
        ...

    async def add_transaction_partitions(
        self, call: TransactionCall, partitions: Sequence[PartitionId], *, limit: int
    ) -> StoredTransaction:
        """Begin a transaction or add partitions to it; those that don't exist are passed over.

        Raise `UnknownProducerId`, `ProducerFenced`, `ConcurrentTransactions` while the one before is prepared, and
        `TransactionTooLarge` beyond `limit` partitions.
        """
        ...

    async def find_transaction(self, transactional_id: str) -> StoredTransaction | None: ...

    async def transaction_of(self, producer_id: int) -> StoredTransaction | None:
        """The transaction whose producer has this id now."""
        ...

    async def end_transaction(
        self, call: TransactionCall, *, commit: bool, bump: bool, fresh_id: int, by: SessionId | None = None
    ) -> StoredTransaction:
        """Decide a transaction; its pending offsets are committed, or gone, with the decision.

        They are committed where the group and the partition still exist. With `bump` the producer goes on under the
        next epoch, or `fresh_id` when epochs are used up; a producer that aborts what never began gets that at once,
        and is complete. The same call again returns what it came to. Raise `UnknownProducerId`, `ProducerFenced`, and
        `InvalidTransactionState` when it was decided otherwise, or there is nothing to decide; `SessionLost` as
        `init_producer` does, for the next transaction of a producer may have the epoch of the one before.
        """
        ...

    async def expire_transaction(self, transactional_id: str, number: int) -> StoredTransaction | None:
        """Decide to abort a transaction that is ongoing for longer than its timeout, and fence its producer; None when
        this one isn't so, or isn't any more."""
        ...

    async def complete_transaction(self, transactional_id: str, number: int) -> None:
        """Complete a transaction after all its markers are written. No-op unless it is prepared."""
        ...

    async def due_transactions(
        self, *, prepared_before_ms: int, limit: int, after: StoredTransaction | None = None
    ) -> Sequence[StoredTransaction]:
        """Those prepared for at least `prepared_before_ms`, and those ongoing for longer than their timeouts; the
        longest overdue first, from behind one that was found before."""
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
        """Those of the offsets that have an undecided transaction."""
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
