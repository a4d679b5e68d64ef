"""The codes in which coordinators speak to transactional producers: what Kafka says in the same place."""

import asyncio

import pytest

from streamhouse import errors
from streamhouse.errors import StreamhouseError
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from streamhouse.wire.kafka.messages.end_txn import EndTxnResponse
from streamhouse.wire.kafka.transaction_errors import BackgroundResponse, VersionedCodes, produce_code

FENCED = errors.ProducerFenced("payments", epoch=1, current=2)
ABORTABLE = errors.TransactionAbortable("not a part of it")
CONCURRENT = errors.ConcurrentTransactions("payments")
AWAY = errors.Unavailable("the store is away")

# First version that has the code: KafkaApis and the notes in Kafka's message definitions.
FENCED_SINCE = {init_producer_id: 4, add_partitions_to_txn: 2, add_offsets_to_txn: 2, end_txn: 2}
ABORTABLE_SINCE = {init_producer_id: 5, add_partitions_to_txn: 4, add_offsets_to_txn: 4, end_txn: 4}


@pytest.mark.parametrize("handler", FENCED_SINCE, ids=lambda handler: handler.__name__.rpartition(".")[2])
def test_a_replaced_producer_hears_so_in_words_that_its_version_knows(handler: object) -> None:
    codes: VersionedCodes = handler.CODES  # type: ignore[attr-defined]
    since = FENCED_SINCE[handler]  # type: ignore[index]
    assert codes.code(since - 1, FENCED) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes.code(since, FENCED) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("handler", ABORTABLE_SINCE, ids=lambda handler: handler.__name__.rpartition(".")[2])
def test_what_may_be_aborted_is_fatal_where_the_version_knows_no_better(handler: object) -> None:
    codes: VersionedCodes = handler.CODES  # type: ignore[attr-defined]
    since = ABORTABLE_SINCE[handler]  # type: ignore[index]
    assert codes.code(since - 1, ABORTABLE) is ErrorCode.INVALID_TXN_STATE
    assert codes.code(since, ABORTABLE) is ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize("version", range(7))
def test_offsets_of_a_replaced_producer_are_an_old_epoch_in_every_version(version: int) -> None:
    assert txn_offset_commit.CODES.code(version, FENCED) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CONCURRENT, ErrorCode.CONCURRENT_TRANSACTIONS),
        (errors.CoordinatorLoading("g", why="it begins"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (errors.UnknownProducerId("payments", producer_id=7), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (errors.InvalidTransactionState("payments", why="empty"), ErrorCode.INVALID_TXN_STATE),
        (errors.InvalidTransactionTimeout(timeout_ms=1, limit_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (errors.UnknownTopic("orders"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        # librdkafka knows a coordinator's words and no others: anything else would end the transaction.
        (AWAY, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (errors.Stopping("the agent is stopping"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_coordinator_speaks_as_coordinators_do(error: StreamhouseError, code: ErrorCode) -> None:
    assert end_txn.CODES.code(5, error) is code


@pytest.mark.parametrize(
    ("version", "error", "code"),
    [
        (13, FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (9, FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (11, ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (10, ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (12, CONCURRENT, ErrorCode.CONCURRENT_TRANSACTIONS),
        (11, CONCURRENT, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, errors.CoordinatorUnavailable("g", why="it is away"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, AWAY, ErrorCode.KAFKA_STORAGE_ERROR),
        (12, errors.UnknownProducerId("payments", producer_id=7), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_batch_is_refused_in_words_that_producers_of_its_version_know(
    version: int, error: StreamhouseError, code: ErrorCode
) -> None:
    assert produce_code(version, error) is code


async def test_work_that_is_underway_is_finished_although_nobody_waits_for_its_response() -> None:
    goes_on, finished = asyncio.Event(), asyncio.Event()

    async def work() -> EndTxnResponse:
        await goes_on.wait()
        finished.set()
        return EndTxnResponse()

    underway = BackgroundResponse(work(), name="test")
    waiting = asyncio.create_task(underway.respond())
    await asyncio.sleep(0)
    assert not underway.is_ready()
    waiting.cancel()
    goes_on.set()
    await asyncio.wait_for(finished.wait(), 5)
    assert await underway.respond() == EndTxnResponse()
    assert underway.is_ready()
