"""Transitions of a transaction: Kafka's rules, from one row to the next.

Data path   a call -> the store locks the row -> **transaction_transitions** -> the store writes the result
Owns        the states of a transactional id: which caller is valid, the effect of each call in each state, the result
            of a repeated call
Leaves      locking and writing the row, and its offsets, to the metadata store; markers to `broker.transactions`

Every function returns the resulting row; the same object if nothing changes. Producer identities follow KIP-98; a
client may keep its identity after errors (KIP-360), and for clients that support it every end changes the epoch
(KIP-890).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from streamhouse.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    ProducerFenced,
    TransactionTooLarge,
    UnknownProducerId,
)
from streamhouse.model.names import PartitionId
from streamhouse.model.transaction import (
    MAX_EPOCH,
    MAX_NUMBER,
    InitProducerRequest,
    ProducerIdentity,
    StoredTransaction,
    TransactionCall,
    TransactionState,
)

NEVER: Final = -1
"""The start time of a transaction that never started."""

MANY: Final = MAX_NUMBER // 2
"""Number of transactions after which a reinitialized producer gets a new id, and its count starts again."""

_PREPARED: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE: Final = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
_COMPLETED: Final = {_PREPARED[kind]: _COMPLETE[kind] for kind in (True, False)}


def new_transaction(request: InitProducerRequest, *, now_ms: int) -> StoredTransaction:
    """The row of a new transactional id. The client's claimed identity is ignored: it has expired."""
    producer = ProducerIdentity(request.fresh_id, 0)
    return StoredTransaction(
        transactional_id=request.transactional_id,
        producer=producer,
        previous=None,
        marked_as=producer,
        timeout_ms=request.timeout_ms,
        state=TransactionState.EMPTY,
        number=0,
        started_at_ms=NEVER,
        changed_at_ms=now_ms,
    )


def init_producer(row: StoredTransaction, request: InitProducerRequest, *, now_ms: int) -> StoredTransaction:
    """Give the transactional id to a new incarnation of its producer. An ongoing transaction is aborted first, a
    decided one completes first; in both cases the returned row is the old producer's.

    Raises `ProducerFenced` if the producer isn't the one that `known` names, and `ConcurrentTransactions` if it isn't
    the one whose transaction the request has waited for.
    """
    if request.known is not None and request.known not in (row.producer, row.previous):
        raise ProducerFenced(row.transactional_id, epoch=request.known.epoch, current=row.producer.epoch)
    if request.after is not None and request.after != row.producer:
        raise ConcurrentTransactions(row.transactional_id)
    if row.state.is_prepared:
        return row
    if row.state is TransactionState.ONGOING:
        return replace(_fenced(row, now_ms=now_ms), previous=request.known)
    if (
        request.known is not None and request.known == row.previous and row.producer.epoch < MAX_EPOCH
    ):  # a repeated request
        return _emptied(row, request, producer=row.producer, previous=row.previous, number=row.number, now_ms=now_ms)
    is_counted_out = row.number >= MANY
    return _emptied(
        row,
        request,
        producer=_next(row.producer, fresh_id=request.fresh_id, is_used_up=is_counted_out),
        previous=request.known,
        number=0 if is_counted_out else row.number,
        now_ms=now_ms,
    )


def add_partitions(
    row: StoredTransaction | None,
    call: TransactionCall,
    partitions: Iterable[PartitionId],
    *,
    limit: int,
    now_ms: int,
) -> StoredTransaction:
    """Start a transaction, or add to the ongoing one."""
    row = _check_caller(row, call)
    if row.state.is_prepared:
        raise ConcurrentTransactions(row.transactional_id)
    begun = _begun(row, now_ms=now_ms)
    known = set(begun.partitions)
    added = tuple(each for each in dict.fromkeys(partitions) if each not in known)
    if len(begun.partitions) + len(added) > limit:
        raise TransactionTooLarge(row.transactional_id, partitions=len(begun.partitions) + len(added), limit=limit)
    return replace(begun, partitions=begun.partitions + added, changed_at_ms=now_ms) if added else begun


def add_offsets(
    row: StoredTransaction | None, call: TransactionCall, *, begins: bool, now_ms: int
) -> StoredTransaction:
    """Require an ongoing transaction for offsets; with `begins`, start one if necessary."""
    row = _check_caller(row, call)
    if row.state.is_prepared:
        raise ConcurrentTransactions(row.transactional_id)
    if row.state is not TransactionState.ONGOING and not begins:
        raise InvalidTransactionState(row.transactional_id, why=f"none is ongoing, state is {row.state}")
    return _begun(row, now_ms=now_ms)


def end(
    row: StoredTransaction | None, call: TransactionCall, *, commit: bool, bump: bool, fresh_id: int, now_ms: int
) -> StoredTransaction:
    """Decide a transaction, or return the same earlier decision. With `bump` the producer continues with a new
    identity."""
    row = _check_caller(row, call, or_previous=bump)
    is_again = call.producer != row.producer
    if row.state is TransactionState.ONGOING and not is_again:
        return _decided(row, commit=commit, bump=bump, fresh_id=fresh_id, now_ms=now_ms)
    if row.state.is_prepared and bump and not is_again:  # of the previous one: this one has not started
        raise ConcurrentTransactions(row.transactional_id)
    if row.state is _PREPARED[commit]:
        return row
    if row.state is _COMPLETE[commit] and (is_again or not bump):
        return row
    if bump and not commit and not is_again and not row.state.is_prepared:
        return _skipped(row, fresh_id=fresh_id, now_ms=now_ms)
    raise InvalidTransactionState(
        row.transactional_id, why=f"state is {row.state}, requested is {'commit' if commit else 'abort'}"
    )


def expire(row: StoredTransaction | None, number: int, *, now_ms: int) -> StoredTransaction | None:
    """Decide to abort a transaction that exceeds its timeout; None if it doesn't.

    The producer is fenced, but not replaced: if it asks to commit with `bump`, the result is `InvalidTransactionState`,
    and after it has aborted it continues under the next epoch, as in Kafka.
    """
    if row is None or row.state is not TransactionState.ONGOING or row.number != number:
        return None
    if row.started_at_ms + row.timeout_ms > now_ms:
        return None
    fenced = _fenced(row, now_ms=now_ms)
    return replace(fenced, previous=row.producer) if fenced.producer.epoch < MAX_EPOCH else fenced


def complete(row: StoredTransaction | None, number: int, *, now_ms: int) -> StoredTransaction | None:
    """Complete after all markers are written; None if there is nothing to do."""
    if row is None or not row.state.is_prepared or row.number != number:
        return None
    return replace(row, state=_COMPLETED[row.state], partitions=(), changed_at_ms=now_ms)


def due_at_ms(row: StoredTransaction) -> int | None:
    """The time from which the sweeper handles it; None: never."""
    if row.state is TransactionState.ONGOING:
        return row.started_at_ms + row.timeout_ms
    return row.changed_at_ms if row.state.is_prepared else None


def _check_caller(
    row: StoredTransaction | None, call: TransactionCall, *, or_previous: bool = False
) -> StoredTransaction:
    """The row if the caller is the producer, or the previous one that repeats the call that replaced it."""
    if row is None:
        raise UnknownProducerId(call.transactional_id, producer_id=call.producer.producer_id)
    has_ended = row.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    if call.producer == row.producer or (or_previous and has_ended and call.producer == row.previous):
        return row
    if call.producer.producer_id != row.producer.producer_id:
        raise UnknownProducerId(call.transactional_id, producer_id=call.producer.producer_id)
    raise ProducerFenced(call.transactional_id, epoch=call.producer.epoch, current=row.producer.epoch)


def _emptied(
    row: StoredTransaction,
    request: InitProducerRequest,
    *,
    producer: ProducerIdentity,
    previous: ProducerIdentity | None,
    number: int,
    now_ms: int,
) -> StoredTransaction:
    return replace(
        row,
        producer=producer,
        previous=previous,
        marked_as=producer,
        timeout_ms=request.timeout_ms,
        state=TransactionState.EMPTY,
        number=number,
        started_at_ms=NEVER,
        changed_at_ms=now_ms,
    )


def _begun(row: StoredTransaction, *, now_ms: int) -> StoredTransaction:
    """Start a transaction. `previous` is cleared: the producer has received its last response, since it uses the new
    identity."""
    if row.state is TransactionState.ONGOING:
        return row
    if row.number >= MAX_NUMBER:  # marker numbers are used up: a reinitialized producer gets a new id
        raise ProducerFenced(row.transactional_id, epoch=row.producer.epoch, current=row.producer.epoch)
    return replace(
        row,
        previous=None,
        marked_as=row.producer,
        state=TransactionState.ONGOING,
        number=row.number + 1,
        started_at_ms=now_ms,
        changed_at_ms=now_ms,
        partitions=(),
    )


def _decided(row: StoredTransaction, *, commit: bool, bump: bool, fresh_id: int, now_ms: int) -> StoredTransaction:
    state = _PREPARED[commit]
    if not bump:
        return replace(row, state=state, marked_as=row.producer, previous=None, changed_at_ms=now_ms)
    return replace(
        row,
        state=state,
        producer=_next(row.producer, fresh_id=fresh_id),
        previous=row.producer,
        marked_as=_above(row.producer),
        changed_at_ms=now_ms,
    )


def _skipped(row: StoredTransaction, *, fresh_id: int, now_ms: int) -> StoredTransaction:
    """The end of a transaction without partitions: only the identity changes, no marker is needed."""
    producer = _next(row.producer, fresh_id=fresh_id)
    return replace(
        row,
        state=TransactionState.COMPLETE_ABORT,
        producer=producer,
        previous=row.producer,
        marked_as=producer,
        started_at_ms=now_ms,
        changed_at_ms=now_ms,
    )


def _fenced(row: StoredTransaction, *, now_ms: int) -> StoredTransaction:
    """Abort and fence the producer."""
    producer = _above(row.producer)
    return replace(
        row,
        state=TransactionState.PREPARE_ABORT,
        producer=producer,
        previous=None,
        marked_as=producer,
        changed_at_ms=now_ms,
    )


def _above(producer: ProducerIdentity) -> ProducerIdentity:
    return producer._replace(epoch=min(producer.epoch + 1, MAX_EPOCH))


def _next(producer: ProducerIdentity, *, fresh_id: int, is_used_up: bool = False) -> ProducerIdentity:
    if is_used_up or producer.epoch >= MAX_EPOCH - 1:
        return ProducerIdentity(fresh_id, 0)
    return _above(producer)
