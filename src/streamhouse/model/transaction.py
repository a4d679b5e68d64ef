"""Transactions: the stored state of transactional producers, markers, and aborted transactions.

A transaction is a row of the metadata store, and every step is one guarded, idempotent change of that row. Agents keep
no other state of it, so any agent may coordinate any transaction. `model.transaction_transitions` has the rules.
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
        """Whether it is decided, but not all markers are written."""
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
    """A client's request to become the producer of a transactional id (InitProducerId).

    `fresh_id` is an unused producer id, in case a new one is needed. `known` is the identity that the client claims, if
    it was the producer before (KIP-360). `after` is the producer whose transaction the request has waited for. If
    another one has replaced it meanwhile, that may be the same client with a repeated request, and the first request
    must not fence it.
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

    `number` counts the transactions of a producer: a partition appends the marker of each number once, however often
    and however late it is sent. In Kafka's format it is the coordinator epoch.
    """

    producer: ProducerIdentity
    number: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTransaction:
    """A transactional id, its producer, and its current or last transaction.

    `previous` is the producer's identity before its last change, by which a repeated call is recognised. `marked_as` is
    the identity in the markers. Partitions are kept until every marker is written.
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
        """The marker for its partitions; the transaction must be decided."""
        assert self.state.is_prepared, f"not decided; transaction={self!r}"
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return Marker(producer=self.marked_as, number=self.number, is_commit=is_commit)


class AbortedTransaction(NamedTuple):
    """An aborted transaction in a partition: transactional batches of this producer in [first_offset, last_offset] must
    be skipped; the marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
