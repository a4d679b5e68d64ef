"""Error codes: every error has one, and clients do with it what we mean."""

import pytest

from streamhouse import errors
from streamhouse.errors import StreamhouseError
from streamhouse.wire.kafka.errors import CODES, ErrorCode, error_code, read_error_code
from tests.wire.error_tree import every_error

# What the Java client and librdkafka both retry in a Produce answer, under the same sequence numbers.
RETRIED_BY_PRODUCERS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}

# What consumers retry, and producers never get: the answers of a group's coordinator.
RETRIED_BY_MEMBERS: dict[type[StreamhouseError], ErrorCode] = {
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.CoordinatorUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.UnstableOffsets: ErrorCode.UNSTABLE_OFFSET_COMMIT,
}

# What transactional producers retry in the answers of a coordinator.
RETRIED_IN_TRANSACTIONS: dict[type[StreamhouseError], ErrorCode] = {
    errors.TransactionUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
}

# What administrators' clients retry, after the time in the answer.
RETRIED_BY_ADMINS: dict[type[StreamhouseError], ErrorCode] = {
    errors.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}

OURS = every_error()


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_of_its_own(kind: type[StreamhouseError]) -> None:
    assert kind in CODES


def test_the_root_has_none_so_a_new_branch_must_be_placed() -> None:
    assert StreamhouseError not in CODES
    assert Exception not in CODES


@pytest.mark.parametrize("kind", [kind for kind in OURS if issubclass(kind, errors.Retriable)])
def test_what_may_succeed_later_is_retried_by_clients(kind: type[StreamhouseError]) -> None:
    by_others = {**RETRIED_BY_MEMBERS, **RETRIED_IN_TRANSACTIONS, **RETRIED_BY_ADMINS}.get(kind)
    assert CODES[kind] in RETRIED_BY_PRODUCERS or CODES[kind] is by_others


@pytest.mark.parametrize("kind", OURS)
def test_no_error_breaks_an_idempotent_producer(kind: type[StreamhouseError]) -> None:
    assert CODES[kind] not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)


def test_an_error_of_another_module_has_its_parents_code() -> None:
    class Special(errors.RecordTooLarge):
        """Only here."""

    assert error_code(Special("orders-0", size_bytes=2, limit_bytes=1)) is ErrorCode.MESSAGE_TOO_LARGE


# What the Java consumer does something about in a Fetch answer; on any other code it throws IllegalStateException.
KNOWN_TO_READERS = {
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


@pytest.mark.parametrize("kind", [kind for kind in OURS if issubclass(kind, errors.Retriable)])
def test_what_may_succeed_later_is_no_error_of_producers_to_readers(kind: type[StreamhouseError]) -> None:
    error = kind.__new__(kind)
    assert read_error_code(error) in KNOWN_TO_READERS


@pytest.mark.parametrize("kind", [errors.MissingRecords, errors.DamagedRecords, errors.OffsetOutOfRange])
def test_what_readers_must_hear_of_has_its_code(kind: type[StreamhouseError]) -> None:
    error = kind.__new__(kind)
    assert read_error_code(error) is CODES[kind]
    assert CODES[kind] in KNOWN_TO_READERS
