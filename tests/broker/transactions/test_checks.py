"""What is decided from a row alone."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from streamhouse.broker.cluster.cluster import Leader
from streamhouse.broker.transactions.checks import (
    check_id,
    check_timeout,
    describe_rejection,
    is_listed,
    needs_fresh_id,
    shard,
)
from streamhouse.broker.transactions.completion import MarkerTargets, is_marked, marker_targets
from streamhouse.config.coordination import TransactionSettings
from streamhouse.config.fields import Address
from streamhouse.errors import (
    ConcurrentTransactions,
    InvalidTransactionTimeout,
    MarkerFenced,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdInvalid,
    Unavailable,
    UnknownProducerId,
)
from streamhouse.model.cluster import Session, SessionState
from streamhouse.model.names import NodeId, PartitionId, SessionId, TopicId
from streamhouse.model.transaction import (
    MAX_EPOCH,
    ProducerIdentity,
    StoredTransaction,
    TransactionCall,
    TransactionState,
)

SETTINGS = TransactionSettings()
TOPIC = TopicId(UUID(int=1))
HERE, THERE, NOWHERE = (PartitionId(TOPIC, number) for number in range(3))
ALICE = ProducerIdentity(5, 3)
CALL = TransactionCall("alice", ALICE)
ROW = StoredTransaction(
    transactional_id="alice",
    producer=ALICE,
    previous=None,
    marked_as=ALICE,
    timeout_ms=1000,
    state=TransactionState.ONGOING,
    number=7,
    started_at_ms=100,
    changed_at_ms=100,
    partitions=(HERE,),
)


@pytest.mark.parametrize("name", ["", "x" * 1001, "\N{MATHEMATICAL FRAKTUR CAPITAL U}" * 251, "a\0b"])
def test_a_transactional_id_has_some_characters_and_not_too_many(name: str) -> None:
    with pytest.raises(TransactionalIdInvalid):
        check_id(name, SETTINGS)


def test_an_id_as_long_as_may_be_is_accepted() -> None:
    check_id("x" * SETTINGS.max_id_bytes, SETTINGS)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_transaction_may_not_be_open_forever(timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        check_timeout(timeout_ms, SETTINGS)
    check_timeout(900_000, SETTINGS)


def test_the_ids_are_divided_among_as_many_shards_as_are_set() -> None:
    settings = TransactionSettings(shards=4)
    assert {shard(f"id-{number}", settings).partition for number in range(100)} == {0, 1, 2, 3}


def test_only_a_producer_whose_epochs_run_out_brings_an_id_along() -> None:
    assert not needs_fresh_id(CALL)
    assert needs_fresh_id(CALL._replace(producer=ProducerIdentity(5, MAX_EPOCH - 1)))


def test_the_first_batch_in_a_partition_that_takes_part_is_accepted() -> None:
    assert describe_rejection(ROW, CALL, [HERE]) is None


@pytest.mark.parametrize(
    ("changes", "call", "partition", "refused_as"),
    [
        ({}, CALL, THERE, TransactionAbortable),
        ({"state": TransactionState.EMPTY}, CALL, HERE, TransactionAbortable),
        ({"state": TransactionState.COMPLETE_COMMIT}, CALL, HERE, TransactionAbortable),
        ({"state": TransactionState.PREPARE_ABORT}, CALL, HERE, ConcurrentTransactions),
        ({}, CALL._replace(producer=ProducerIdentity(5, 2)), HERE, ProducerFenced),
        ({}, CALL._replace(producer=ProducerIdentity(5, 4)), HERE, ProducerFenced),
        ({}, CALL._replace(producer=ProducerIdentity(6, 3)), HERE, UnknownProducerId),
    ],
)
def test_a_batch_of_anything_else_is_refused(
    changes: dict[str, Any], call: TransactionCall, partition: PartitionId, refused_as: type[Exception]
) -> None:
    assert isinstance(describe_rejection(replace(ROW, **changes), call, [HERE, partition]), refused_as)


def test_a_batch_of_a_transactional_id_that_nobody_has_is_refused() -> None:
    assert isinstance(describe_rejection(None, CALL, [HERE]), UnknownProducerId)


@pytest.mark.parametrize(
    ("filters", "listed"),
    [
        ({}, True),
        ({"states": [TransactionState.ONGOING]}, True),
        ({"states": [TransactionState.EMPTY]}, False),
        ({"producer_ids": [5, 6]}, True),
        ({"producer_ids": [6]}, False),
        ({"min_duration_ms": 99}, True),
        ({"min_duration_ms": 100}, False),
    ],
)
def test_filters_choose_what_is_listed(filters: dict[str, Any], listed: bool) -> None:
    given: dict[str, Any] = {"states": (), "producer_ids": (), "min_duration_ms": -1, "now_ms": 200, **filters}
    assert is_listed(ROW, **given) is listed


def test_what_has_ended_lasts_no_time() -> None:
    over = replace(ROW, state=TransactionState.COMPLETE_ABORT)
    assert not is_listed(over, states=(), producer_ids=(), min_duration_ms=0, now_ms=10**6)


def session(number: int) -> Session:
    address = Address("127.0.0.1", number)
    return Session(
        session_id=SessionId(f"s{number}"),
        node_id=NodeId(number),
        kafka=address,
        http=address,
        state=SessionState.LIVE,
        started_at_ms=0,
        expires_at_ms=0,
    )


def test_partitions_are_divided_by_who_leads_them_and_without_a_leader_left_for_later() -> None:
    leaders = {HERE: Leader(session(1), 4), THERE: Leader(session(2), 5), NOWHERE: Leader(None, -1)}
    divided = marker_targets([HERE, THERE, NOWHERE], leaders, SessionId("s1"))
    assert divided == MarkerTargets([HERE], {Address("127.0.0.1", 2): [THERE]})


def test_a_partition_that_knows_of_a_later_transaction_needs_no_marker() -> None:
    assert is_marked(None)
    assert is_marked(MarkerFenced("late"))
    assert not is_marked(Unavailable("away"))
