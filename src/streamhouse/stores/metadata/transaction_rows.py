"""Rows of transactions: conversion of model values to rows and back.

Data path   between `procedures.transactions` and the engines
Owns        both directions, for transactional ids, pending offsets and aborted transactions
Leaves      column names to `sql/`, other rows to `rows`
"""

import json
import uuid
from collections.abc import Iterable, Iterator

from streamhouse.model.group import GroupOffset
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.segment import SegmentCommit
from streamhouse.model.transaction import (
    AbortedTransaction,
    PendingOffset,
    ProducerIdentity,
    StoredTransaction,
    TransactionState,
)
from streamhouse.model.transaction_transitions import due_at_ms
from streamhouse.stores.metadata.rows import Params, Row, offset_params, partition_of, partition_params


def transaction_params(transaction: StoredTransaction) -> Params:
    previous = transaction.previous
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer.producer_id,
        "producer_epoch": transaction.producer.epoch,
        "previous_id": None if previous is None else previous.producer_id,
        "previous_epoch": None if previous is None else previous.epoch,
        "marked_id": transaction.marked_as.producer_id,
        "marked_epoch": transaction.marked_as.epoch,
        "timeout_ms": transaction.timeout_ms,
        "state": transaction.state.value,
        "number": transaction.number,
        "started_at_ms": transaction.started_at_ms,
        "changed_at_ms": transaction.changed_at_ms,
        "due_at_ms": due_at_ms(transaction),
        "partitions": partitions_text(transaction.partitions),
    }


def transaction_of(row: Row) -> StoredTransaction:
    has_previous = row["previous_id"] is not None
    return StoredTransaction(
        transactional_id=row["transactional_id"],
        producer=ProducerIdentity(row["producer_id"], row["producer_epoch"]),
        previous=ProducerIdentity(row["previous_id"], row["previous_epoch"]) if has_previous else None,
        marked_as=ProducerIdentity(row["marked_id"], row["marked_epoch"]),
        timeout_ms=row["timeout_ms"],
        state=TransactionState(row["state"]),
        number=row["number"],
        started_at_ms=row["started_at_ms"],
        changed_at_ms=row["changed_at_ms"],
        partitions=partitions_of(row["partitions"]),
    )


def partitions_text(partitions: Iterable[PartitionId]) -> str:
    """Partition numbers by topic: a transaction has many partitions of few topics."""
    by_topic: dict[str, list[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(str(topic_id), []).append(partition)
    return json.dumps(by_topic, separators=(",", ":"))


def partitions_of(text: str) -> tuple[PartitionId, ...]:
    by_topic = {TopicId(uuid.UUID(topic_id)): numbers for topic_id, numbers in json.loads(text).items()}
    return tuple(PartitionId(topic_id, number) for topic_id, numbers in by_topic.items() for number in numbers)


def pending_params(transactional_id: str, shard: PartitionId, group_id: str, pending: PendingOffset) -> Params:
    return {
        "transactional_id": transactional_id,
        "shard_topic_id": str(shard.topic_id),
        "shard": shard.partition,
        **offset_params(GroupOffset(group_id, pending.partition), pending.committed),
    }


def group_offset_of(row: Row) -> GroupOffset:
    return GroupOffset(row["group_id"], partition_of(row))


def aborted_params(commits: Iterable[SegmentCommit]) -> Iterator[Params]:
    """Parameters of aborted transactions with markers in runs of their commit; others belong to runs that were left
    out."""
    for commit in commits:
        for run in commit.runs:
            for each in commit.aborted.get(run.partition, ()):
                if run.base <= each.last_offset < run.end:
                    yield {**partition_params(run.partition), **each._asdict()}


def aborted_of(row: Row) -> AbortedTransaction:
    return AbortedTransaction(row["producer_id"], row["first_offset"], row["last_offset"])
