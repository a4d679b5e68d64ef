"""Checks: what a transaction is, decided from its row alone.

Data path   transactions, watching -> **checks**
Owns        which names and times are accepted, whether a batch belongs to a transaction, which transactions are listed
Leaves      changes of rows to `model.transaction_transitions`; nothing here does I/O
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from streamhouse.config.coordination import TransactionSettings
from streamhouse.errors import (
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    ProducerFenced,
    StreamhouseError,
    TransactionAbortable,
    TransactionalIdInvalid,
    UnknownProducerId,
)
from streamhouse.model.group import shard_of
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.transaction import MAX_EPOCH, StoredTransaction, TransactionCall, TransactionState

COORDINATORS: Final = TopicId(UUID(int=0x7472616E73616374696F6E73))
"""A topic that isn't there: agents are chosen for its partitions as for any other's, and nobody holds a lease."""

SPARE_EPOCHS: Final = 16
"""A producer that has no more epochs than this before it brings an id along that it may go on under."""


def shard(transactional_id: str, settings: TransactionSettings) -> PartitionId:
    """What a transactional id's coordinator is chosen by."""
    return PartitionId(COORDINATORS, shard_of(transactional_id, settings.shards))


def check_id(transactional_id: str, settings: TransactionSettings) -> None:
    if not transactional_id:
        raise TransactionalIdInvalid("transactional id is empty")
    if "\0" in transactional_id:
        raise TransactionalIdInvalid("transactional id has a character that no database takes; character=0")
    if (size_bytes := len(transactional_id.encode())) > settings.max_id_bytes:
        raise TransactionalIdInvalid(
            f"transactional id is too long; bytes={size_bytes} limit={settings.max_id_bytes} "
            "setting=transactions.max_id_bytes"
        )


def check_timeout(timeout_ms: int, settings: TransactionSettings) -> None:
    limit_ms = round(settings.max_timeout_s * 1000)
    if not 0 < timeout_ms <= limit_ms:
        raise InvalidTransactionTimeout(timeout_ms=timeout_ms, limit_ms=limit_ms)


def needs_fresh_id(call: TransactionCall) -> bool:
    """Whether the producer's epochs may be used up by its next step."""
    return call.producer.epoch >= MAX_EPOCH - SPARE_EPOCHS


def describe_rejection(
    found: StoredTransaction | None, call: TransactionCall, partitions: Collection[PartitionId]
) -> StreamhouseError | None:
    """Why batches of this producer may not be the first of its transaction in the partitions; None when they may."""
    name, producer = call
    if found is None or found.producer.producer_id != producer.producer_id:
        return UnknownProducerId(name, producer_id=producer.producer_id)
    if found.producer.epoch != producer.epoch:
        return ProducerFenced(name, epoch=producer.epoch, current=found.producer.epoch)
    if found.state.is_prepared:
        return ConcurrentTransactions(name)
    missing = set(partitions).difference(found.partitions if found.state is TransactionState.ONGOING else ())
    if missing:
        return TransactionAbortable(
            f"the partition is in no transaction that is under way; transactional_id={name!r} partition={min(missing)}"
        )
    return None


def is_listed(
    each: StoredTransaction,
    *,
    states: Collection[TransactionState],
    producer_ids: Collection[int],
    min_duration_ms: int,
    now_ms: int,
) -> bool:
    """Whether the filters let it through; empty ones, and a duration below 0, let everything."""
    if states and each.state not in states:
        return False
    if producer_ids and each.producer.producer_id not in producer_ids:
        return False
    if min_duration_ms < 0:
        return True
    is_under_way = each.state is TransactionState.ONGOING or each.state.is_prepared
    return is_under_way and now_ms - each.started_at_ms > min_duration_ms
