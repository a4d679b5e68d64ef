"""Transactions: the stored state of transactional producers, markers, and aborted transactions.

Owns        the types
Leaves      transitions to `model.transaction_transitions`, rows to the metadata store, coordination to
            `broker.transactions`, the bytes of markers to `format.transactions`

A transaction is a row, and every step is one guarded, idempotent change of that row. Agents have no state of it that
may not be lost, so any agent may serve any transaction.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from streamhouse.model.group import CommittedOffset
from streamhouse.model.names import PartitionId

MAX_EPOCH: Final = 2**15 - 1
"""The last epoch is reserved for fencing: a producer whose epoch would reach it gets another id."""

MAX_NUMBER: Final = 2**31 - 1
"""The maximum that fits in a marker."""


class TransactionState(StrEnum):
    """Kafka's names, which tools print."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, and its markers are not all written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}/{self.epoch}"


class TransactionCall(NamedTuple):
    """The caller of a transaction's request."""

    transactional_id: str
    producer: ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerRequest:
    """A client wants to be the producer of a transactional id.

    `fresh_id` is a producer id that nobody ever had, for where one is needed. `known` is who the client says that it
    is, if it was the producer before. `after` is the producer whose end was waited for: whoever has taken its place
    meanwhile may be the same client, which asked again, and is not fenced by what it asked first.
    """

    transactional_id: str
    timeout_ms: int
    fresh_id: int
    known: ProducerIdentity | None = None
    after: ProducerIdentity | None = None


class PendingOffset(NamedTuple):
    """An offset that is committed with its transaction."""

    partition: PartitionId
    committed: CommittedOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The end of a transaction in one partition.

    `number` counts the transactions of a producer: a partition takes the marker of each number once, however often and
    however late it comes again. Kafka calls the field the coordinator's epoch.
    """

    producer: ProducerIdentity
    number: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTransaction:
    """A transactional id, its producer, and the transaction that is under way or was the last.

    `previous` is who the producer was before its last change, so that a call that comes again is known. `marked_as` is
    whom the markers name. Partitions are kept until every marker is written.
    """

    transactional_id: str
    producer: ProducerIdentity
    previous: ProducerIdentity | None
    marked_as: ProducerIdentity
    timeout_ms: int
    state: TransactionState
    number: int
    started_at_ms: int
    changed_at_ms: int
    partitions: tuple[PartitionId, ...] = ()

    @property
    def marker(self) -> Marker:
        """The marker for its partitions; only of a decided transaction."""
        assert self.state.is_prepared, f"not decided; transaction={self!r}"
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return Marker(producer=self.marked_as, number=self.number, is_commit=is_commit)


class AbortedTransaction(NamedTuple):
    """An aborted transaction in a partition: transactional batches of this producer in [first_offset, last_offset] must
    be skipped; the marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
