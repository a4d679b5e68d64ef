"""Checks of transactions, by their row alone; nothing here does I/O.

Data path   coordinator, sweeper -> **checks**
Owns        limits on names and timeouts, whether a batch belongs to a transaction, which transactions are listed
Leaves      changes of rows to `model.transaction_transitions`
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
"""A topic id without a topic: its partitions select coordinators as for any topic, without leases."""

SPARE_EPOCHS: Final = 16
"""A producer with no more epochs left than this gets a fresh producer id with its next call."""


def shard(transactional_id: str, settings: TransactionSettings) -> PartitionId:
    """The shard that selects a transactional id's coordinator."""
    return PartitionId(COORDINATORS, shard_of(transactional_id, settings.shards))


def check_id(transactional_id: str, settings: TransactionSettings) -> None:
    if not transactional_id:
        raise TransactionalIdInvalid("transactional id is empty")
    if "\0" in transactional_id:
        raise TransactionalIdInvalid("transactional id contains a NUL character")
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
    row: StoredTransaction | None, call: TransactionCall, partitions: Collection[PartitionId]
) -> StreamhouseError | None:
    """Why batches of this producer may not be the first of its transaction in the partitions; None when they may."""
    name, producer = call
    if row is None or row.producer.producer_id != producer.producer_id:
        return UnknownProducerId(name, producer_id=producer.producer_id)
    if row.producer.epoch != producer.epoch:
        return ProducerFenced(name, epoch=producer.epoch, current=row.producer.epoch)
    if row.state.is_prepared:
        return ConcurrentTransactions(name)
    missing = set(partitions).difference(row.partitions if row.state is TransactionState.ONGOING else ())
    if missing:
        return TransactionAbortable(
            f"the partition is in no open transaction; transactional_id={name!r} partition={min(missing)}"
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
    """Whether it matches the filters; an empty one, and a duration below 0, match all."""
    if states and each.state not in states:
        return False
    if producer_ids and each.producer.producer_id not in producer_ids:
        return False
    if min_duration_ms < 0:
        return True
    is_under_way = each.state is TransactionState.ONGOING or each.state.is_prepared
    return is_under_way and now_ms - each.started_at_ms > min_duration_ms
