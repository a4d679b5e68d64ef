"""Transactions: what each call does in each state."""

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from streamhouse.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    ProducerFenced,
    StreamhouseError,
    TransactionTooLarge,
    UnknownProducerId,
)
from streamhouse.model import transaction_transitions as changes
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.transaction import (
    MAX_EPOCH,
    MAX_NUMBER,
    InitProducerRequest,
    ProducerIdentity,
    StoredTransaction,
    TransactionCall,
    TransactionState,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

ORDERS = TopicId(uuid.UUID(int=1))
NOW_MS = 10_000
STARTED_MS = 9_000
FRESH = 99
IN_FORCE = ProducerIdentity(7, 3)
BEFORE = ProducerIdentity(7, 2)
Outcome = TransactionState | type[StreamhouseError] | None
"""The state that follows; None: the row stays as it is."""


def part(number: int) -> PartitionId:
    return PartitionId(ORDERS, number)


def row(
    state: TransactionState, *, previous: ProducerIdentity | None = None, producer: ProducerIdentity = IN_FORCE
) -> StoredTransaction:
    has_partitions = state is ONGOING or state.is_prepared
    return StoredTransaction(
        transactional_id="t",
        producer=producer,
        previous=previous,
        marked_as=producer,
        timeout_ms=1000,
        state=state,
        number=5,
        started_at_ms=STARTED_MS,
        changed_at_ms=STARTED_MS,
        partitions=(part(0),) if has_partitions else (),
    )


def call(producer: ProducerIdentity = IN_FORCE) -> TransactionCall:
    return TransactionCall("t", producer)


def requested(known: ProducerIdentity | None = None) -> InitProducerRequest:
    return InitProducerRequest(transactional_id="t", timeout_ms=2000, fresh_id=FRESH, known=known)


def outcome_of(before: StoredTransaction, change: Callable[[], StoredTransaction]) -> Outcome:
    try:
        after = change()
    except StreamhouseError as error:
        return type(error)
    return None if after is before else after.state


def end(
    before: StoredTransaction | None, *, commit: bool, bump: bool, by: ProducerIdentity = IN_FORCE
) -> StoredTransaction:
    return changes.end(before, call(by), commit=commit, bump=bump, fresh_id=FRESH, now_ms=NOW_MS)


# --- the tables


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (EMPTY, EMPTY),
        (ONGOING, PREPARE_ABORT),
        (PREPARE_COMMIT, None),
        (PREPARE_ABORT, None),
        (COMPLETE_COMMIT, EMPTY),
        (COMPLETE_ABORT, EMPTY),
    ],
)
@pytest.mark.parametrize("known", [None, IN_FORCE])
def test_a_producer_comes_anew(state: TransactionState, outcome: Outcome, known: ProducerIdentity | None) -> None:
    before = row(state)
    assert outcome_of(before, lambda: changes.init_producer(before, requested(known), now_ms=NOW_MS)) is outcome


@pytest.mark.parametrize("state", list(TransactionState))
@pytest.mark.parametrize("known", [BEFORE, ProducerIdentity(7, 4), ProducerIdentity(6, 3)])
def test_a_producer_that_was_replaced_does_not_come_back(state: TransactionState, known: ProducerIdentity) -> None:
    before = row(state)
    assert outcome_of(before, lambda: changes.init_producer(before, requested(known), now_ms=NOW_MS)) is ProducerFenced


@pytest.mark.parametrize("state", list(TransactionState))
def test_who_waited_for_another_producer_takes_nobody_elses_place(state: TransactionState) -> None:
    before = row(state)
    waited = replace(requested(), after=BEFORE)
    assert outcome_of(before, lambda: changes.init_producer(before, waited, now_ms=NOW_MS)) is ConcurrentTransactions
    in_time = replace(requested(), after=IN_FORCE)
    assert changes.init_producer(before, in_time, now_ms=NOW_MS) == changes.init_producer(
        before, requested(), now_ms=NOW_MS
    )


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (EMPTY, ONGOING),
        (ONGOING, ONGOING),
        (PREPARE_COMMIT, ConcurrentTransactions),
        (PREPARE_ABORT, ConcurrentTransactions),
        (COMPLETE_COMMIT, ONGOING),
        (COMPLETE_ABORT, ONGOING),
    ],
)
def test_partitions_are_enlisted(state: TransactionState, outcome: Outcome) -> None:
    before = row(state)
    assert (
        outcome_of(before, lambda: changes.add_partitions(before, call(), [part(1)], limit=9, now_ms=NOW_MS)) is outcome
    )


@pytest.mark.parametrize(
    ("state", "plain", "beginning"),
    [
        (EMPTY, InvalidTransactionState, ONGOING),
        (ONGOING, None, None),
        (PREPARE_COMMIT, ConcurrentTransactions, ConcurrentTransactions),
        (PREPARE_ABORT, ConcurrentTransactions, ConcurrentTransactions),
        (COMPLETE_COMMIT, InvalidTransactionState, ONGOING),
        (COMPLETE_ABORT, InvalidTransactionState, ONGOING),
    ],
)
def test_offsets_are_taken(state: TransactionState, plain: Outcome, beginning: Outcome) -> None:
    before = row(state)
    for begins, outcome in ((False, plain), (True, beginning)):
        result = outcome_of(before, lambda: changes.add_offsets(before, call(), begins=begins, now_ms=NOW_MS))  # noqa: B023
        assert result is outcome


INVALID = InvalidTransactionState


@pytest.mark.parametrize(
    ("state", "commit", "abort", "bumping_commit", "bumping_abort"),
    [
        (EMPTY, INVALID, INVALID, INVALID, COMPLETE_ABORT),
        (ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_COMMIT, PREPARE_ABORT),
        (PREPARE_COMMIT, None, INVALID, ConcurrentTransactions, ConcurrentTransactions),
        (PREPARE_ABORT, INVALID, None, ConcurrentTransactions, ConcurrentTransactions),
        (COMPLETE_COMMIT, None, INVALID, INVALID, COMPLETE_ABORT),
        (COMPLETE_ABORT, INVALID, None, INVALID, COMPLETE_ABORT),
    ],
)
def test_a_transaction_is_ended(
    state: TransactionState, commit: Outcome, abort: Outcome, bumping_commit: Outcome, bumping_abort: Outcome
) -> None:
    before = row(state)
    assert outcome_of(before, lambda: end(before, commit=True, bump=False)) is commit
    assert outcome_of(before, lambda: end(before, commit=False, bump=False)) is abort
    assert outcome_of(before, lambda: end(before, commit=True, bump=True)) is bumping_commit
    assert outcome_of(before, lambda: end(before, commit=False, bump=True)) is bumping_abort


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (EMPTY, ProducerFenced, ProducerFenced),
        (ONGOING, ProducerFenced, ProducerFenced),
        (PREPARE_COMMIT, None, INVALID),
        (PREPARE_ABORT, INVALID, None),
        (COMPLETE_COMMIT, None, INVALID),
        (COMPLETE_ABORT, INVALID, None),
    ],
)
def test_the_end_that_changed_the_producer_comes_again(
    state: TransactionState, commit: Outcome, abort: Outcome
) -> None:
    before = row(state, previous=BEFORE)
    assert outcome_of(before, lambda: end(before, commit=True, bump=True, by=BEFORE)) is commit
    assert outcome_of(before, lambda: end(before, commit=False, bump=True, by=BEFORE)) is abort
    assert outcome_of(before, lambda: end(before, commit=True, bump=False, by=BEFORE)) is ProducerFenced


@pytest.mark.parametrize("state", list(TransactionState))
@pytest.mark.parametrize(
    ("speaker", "error"),
    [
        (BEFORE, ProducerFenced),
        (ProducerIdentity(7, 4), ProducerFenced),
        (ProducerIdentity(8, 3), UnknownProducerId),
    ],
)
def test_nobody_else_speaks_for_a_transaction(
    state: TransactionState, speaker: ProducerIdentity, error: type[StreamhouseError]
) -> None:
    before = row(state)
    with pytest.raises(error):
        changes.add_partitions(before, call(speaker), [], limit=9, now_ms=NOW_MS)
    with pytest.raises(error):
        changes.add_offsets(before, call(speaker), begins=True, now_ms=NOW_MS)
    for bump in (False, True):
        with pytest.raises(error):
            end(before, commit=False, bump=bump, by=speaker)


def test_nobody_speaks_for_a_transactional_id_that_is_not_there() -> None:
    with pytest.raises(UnknownProducerId):
        changes.add_partitions(None, call(), [], limit=9, now_ms=NOW_MS)
    with pytest.raises(UnknownProducerId):
        changes.add_offsets(None, call(), begins=True, now_ms=NOW_MS)
    with pytest.raises(UnknownProducerId):
        end(None, commit=True, bump=True)


@pytest.mark.parametrize("state", list(TransactionState))
def test_only_an_ongoing_transaction_expires(state: TransactionState) -> None:
    expired = changes.expire(row(state), 5, now_ms=NOW_MS)
    if state is not ONGOING:
        assert expired is None
        return
    assert expired is not None
    assert (expired.state, expired.producer, expired.marked_as) == (PREPARE_ABORT, (7, 4), (7, 4))
    assert expired.previous == (7, 3)
    assert expired.partitions == (part(0),)


def test_a_transaction_expires_when_its_time_is_up_and_not_before() -> None:
    assert changes.expire(row(ONGOING), 5, now_ms=STARTED_MS + 999) is None
    assert changes.expire(row(ONGOING), 4, now_ms=STARTED_MS + 1000) is None
    assert changes.expire(None, 5, now_ms=STARTED_MS + 1000) is None
    assert changes.expire(row(ONGOING), 5, now_ms=STARTED_MS + 1000) is not None


def test_a_producer_whose_time_was_up_is_told_what_happened_and_goes_on_after_an_abort() -> None:
    expired = changes.expire(row(ONGOING), 5, now_ms=NOW_MS)
    assert expired is not None
    over = changes.complete(expired, 5, now_ms=NOW_MS)
    assert over is not None
    for result in (expired, over):
        with pytest.raises(InvalidTransactionState):  # not a replaced producer: there is no other
            end(result, commit=True, bump=True)
        assert end(result, commit=False, bump=True).producer == (7, 4)
        for commit in (True, False):
            with pytest.raises(ProducerFenced):  # one that can't be told its next epoch
                end(result, commit=commit, bump=False)
    with pytest.raises(ProducerFenced):
        changes.add_partitions(over, call(), [part(1)], limit=9, now_ms=NOW_MS)
    assert changes.init_producer(over, requested(), now_ms=NOW_MS).producer == (7, 5)


def test_a_producer_whose_time_was_up_in_its_last_epoch_is_fenced_for_good() -> None:
    expired = changes.expire(row(ONGOING, producer=ProducerIdentity(7, MAX_EPOCH - 1)), 5, now_ms=NOW_MS)
    assert expired is not None
    assert (expired.producer, expired.previous) == ((7, MAX_EPOCH), None)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (EMPTY, None),
        (ONGOING, None),
        (PREPARE_COMMIT, COMPLETE_COMMIT),
        (PREPARE_ABORT, COMPLETE_ABORT),
        (COMPLETE_COMMIT, None),
        (COMPLETE_ABORT, None),
    ],
)
def test_a_transaction_is_complete(state: TransactionState, outcome: Outcome) -> None:
    completed = changes.complete(row(state), 5, now_ms=NOW_MS)
    assert (None if completed is None else completed.state) is outcome
    assert completed is None or completed.partitions == ()
    assert changes.complete(row(state), 4, now_ms=NOW_MS) is None
    assert changes.complete(None, 5, now_ms=NOW_MS) is None


@pytest.mark.parametrize(
    ("state", "due_ms"),
    [
        (EMPTY, None),
        (ONGOING, STARTED_MS + 1000),
        (PREPARE_COMMIT, STARTED_MS),
        (PREPARE_ABORT, STARTED_MS),
        (COMPLETE_COMMIT, None),
        (COMPLETE_ABORT, None),
    ],
)
def test_someone_looks_after_what_is_under_way(state: TransactionState, due_ms: int | None) -> None:
    assert changes.due_at_ms(row(state)) == due_ms


# --- what changes, where it does


def test_a_new_transactional_id_begins_with_the_fresh_producer_whatever_producer_id_the_client_sends() -> None:
    created = changes.new_transaction(requested(BEFORE), now_ms=NOW_MS)
    assert (created.producer, created.previous, created.state) == ((FRESH, 0), None, EMPTY)
    assert (created.number, created.started_at_ms, created.timeout_ms) == (0, -1, 2000)


def test_a_producer_that_comes_anew_has_the_next_epoch_and_its_own_timeout() -> None:
    after = changes.init_producer(row(COMPLETE_COMMIT, previous=BEFORE), requested(), now_ms=NOW_MS)
    assert (after.producer, after.previous, after.timeout_ms) == ((7, 4), None, 2000)
    assert (after.number, after.started_at_ms, after.changed_at_ms) == (5, -1, NOW_MS)


def test_a_producer_that_was_known_is_given_the_same_when_it_retries() -> None:
    after = changes.init_producer(row(EMPTY), requested(IN_FORCE), now_ms=NOW_MS)
    assert (after.producer, after.previous) == ((7, 4), IN_FORCE)
    again = changes.init_producer(after, requested(IN_FORCE), now_ms=NOW_MS)
    assert again == after
    replaced = changes.init_producer(again, requested(), now_ms=NOW_MS)
    with pytest.raises(ProducerFenced):
        changes.init_producer(replaced, requested(IN_FORCE), now_ms=NOW_MS)


def test_a_producer_that_comes_anew_in_the_middle_of_a_transaction_has_it_aborted_and_retries() -> None:
    fenced = changes.init_producer(row(ONGOING), requested(), now_ms=NOW_MS)
    assert (fenced.producer, fenced.marked_as, fenced.number) == ((7, 4), (7, 4), 5)
    assert changes.init_producer(fenced, requested(), now_ms=NOW_MS) is fenced
    completed = changes.complete(fenced, 5, now_ms=NOW_MS)
    assert completed is not None
    assert changes.init_producer(completed, requested(), now_ms=NOW_MS).producer == (7, 5)


def test_a_producer_that_is_known_may_leave_its_own_transaction_behind() -> None:
    fenced = changes.init_producer(row(ONGOING), requested(IN_FORCE), now_ms=NOW_MS)
    completed = changes.complete(fenced, 5, now_ms=NOW_MS)
    assert completed is not None
    after = changes.init_producer(completed, requested(IN_FORCE), now_ms=NOW_MS)
    assert (after.producer, after.state) == ((7, 4), EMPTY)


@pytest.mark.parametrize("epoch", [MAX_EPOCH - 1, MAX_EPOCH])
def test_a_producer_whose_epochs_are_used_up_gets_another_id(epoch: int) -> None:
    last = ProducerIdentity(7, epoch)
    after = changes.init_producer(row(COMPLETE_ABORT, producer=last), requested(last), now_ms=NOW_MS)
    assert (after.producer, after.previous) == ((FRESH, 0), last)
    assert changes.init_producer(after, requested(last), now_ms=NOW_MS) == after


def test_the_epoch_that_is_kept_for_fencing_is_given_to_nobody() -> None:
    last = ProducerIdentity(7, MAX_EPOCH - 1)
    fenced = changes.init_producer(row(ONGOING, producer=last), requested(last), now_ms=NOW_MS)
    assert fenced.marked_as == (7, MAX_EPOCH)
    completed = changes.complete(fenced, 5, now_ms=NOW_MS)
    assert completed is not None
    after = changes.init_producer(completed, requested(last), now_ms=NOW_MS)
    assert after.producer == (FRESH, 0)
    assert changes.init_producer(after, requested(last), now_ms=NOW_MS) == after


def test_a_transaction_begins_with_the_next_number_and_without_a_past() -> None:
    begun = changes.add_partitions(row(COMPLETE_ABORT, previous=BEFORE), call(), [part(1)], limit=9, now_ms=NOW_MS)
    assert (begun.number, begun.started_at_ms, begun.previous) == (6, NOW_MS, None)
    assert begun.partitions == (part(1),)
    assert changes.add_partitions(begun, call(), [part(1)], limit=9, now_ms=NOW_MS + 1) is begun
    more = changes.add_partitions(begun, call(), [part(2), part(1), part(2)], limit=9, now_ms=NOW_MS + 1)
    assert (more.number, more.started_at_ms, more.partitions) == (6, NOW_MS, (part(1), part(2)))


def test_a_transaction_without_partitions_is_one_too() -> None:
    assert changes.add_partitions(row(EMPTY), call(), [], limit=0, now_ms=NOW_MS).state is ONGOING


def test_a_transaction_is_about_so_many_partitions_at_most() -> None:
    assert len(changes.add_partitions(row(ONGOING), call(), [part(1)], limit=2, now_ms=NOW_MS).partitions) == 2
    with pytest.raises(TransactionTooLarge):
        changes.add_partitions(row(ONGOING), call(), [part(1), part(2)], limit=2, now_ms=NOW_MS)


def test_markers_name_the_producer_that_ended_its_transaction() -> None:
    after = end(row(ONGOING), commit=True, bump=False)
    assert (after.producer, after.previous, after.marked_as) == (IN_FORCE, None, IN_FORCE)
    assert after.marker.number == 5
    assert after.marker.is_commit


def test_an_end_that_changes_the_producer_marks_with_the_next_epoch() -> None:
    after = end(row(ONGOING), commit=False, bump=True)
    assert (after.producer, after.previous, after.marked_as) == ((7, 4), IN_FORCE, (7, 4))
    assert not after.marker.is_commit


def test_an_end_that_uses_up_the_epochs_marks_the_old_producer_and_goes_on_with_another() -> None:
    last = ProducerIdentity(7, MAX_EPOCH - 1)
    before = row(ONGOING, producer=last)
    after = end(before, commit=True, bump=True, by=last)
    assert (after.producer, after.previous, after.marked_as) == ((FRESH, 0), last, (7, MAX_EPOCH))
    assert end(after, commit=True, bump=True, by=last) is after
    completed = changes.complete(after, 5, now_ms=NOW_MS)
    assert completed is not None
    assert end(completed, commit=True, bump=True, by=last) is completed


def test_what_never_began_is_aborted_by_another_epoch_alone() -> None:
    after = end(row(EMPTY), commit=False, bump=True)
    assert (after.producer, after.previous, after.number) == ((7, 4), IN_FORCE, 5)
    assert end(after, commit=False, bump=True) is after


def test_a_producer_that_counted_far_gets_another_id_and_counts_anew() -> None:
    far = replace(row(COMPLETE_COMMIT), number=changes.MANY)
    after = changes.init_producer(far, requested(), now_ms=NOW_MS)
    assert (after.producer, after.number) == ((FRESH, 0), 0)


def test_a_producer_that_can_not_count_on_must_come_anew() -> None:
    with pytest.raises(ProducerFenced):
        changes.add_partitions(replace(row(COMPLETE_COMMIT), number=MAX_NUMBER), call(), [], limit=9, now_ms=NOW_MS)
