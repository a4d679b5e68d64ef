"""Transactions, request by request: what becomes visible when, and what is told to those who are late or replaced."""

import asyncio
from collections.abc import Sequence

import pytest

from streamhouse.config import KafkaSettings, Settings
from streamhouse.config.coordination import TransactionSettings
from streamhouse.format.batch import read_header
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from streamhouse.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from streamhouse.wire.kafka.messages.fetch import PartitionData
from streamhouse.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.wire.kafka.producing import NEW, OLD, Transactional, good, init
from tests.wire.kafka.talk import (
    TIMEOUT_S,
    Client,
    Served,
    a_batch,
    batches_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    quick_settings,
)

COMMITTED = 1


@pytest.fixture
def settings(kafka_settings: KafkaSettings) -> Settings:
    quick = quick_settings(kafka_settings)
    return Settings(
        kafka=quick.kafka, wal=quick.wal, flush=quick.flush, transactions=TransactionSettings(check_s=0.02, grace_s=0.1)
    )


@pytest.fixture
async def orders(client: Client) -> str:
    await create_topic(client, "orders", partitions=2)
    return "orders"


async def read(client: Client, topic: str, partition: int = 0, *, level: int = 0, offset: int = 0) -> PartitionData:
    request = fetch_request(topic, (partition, offset), isolation_level=level)
    (part,) = await fetch(client, request)
    return part


def offsets_of(part: PartitionData) -> list[int]:
    return [read_header(batch).base_offset for batch in batches_of(part)]


async def latest(client: Client, topic: str, *, level: int, timestamp: int = -1) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=level, topics=[ListOffsetsTopic(name=topic, partitions=[part])]
    )
    response = await client.call(request, ListOffsetsResponse, 7)
    (result,) = response.topics[0].partitions
    assert result.error_code == ErrorCode.NONE
    return result.offset


async def until_stable(client: Client, topic: str) -> PartitionData:
    """Until nothing is open in partition 0 any more: the markers of a transaction may come after the answer."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            part = await read(client, topic, level=COMMITTED)
            if part.last_stable_offset == part.high_watermark:
                return part
            await asyncio.sleep(0.01)


# --- what is seen when


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_records_are_seen_by_those_who_want_committed_ones_once_they_are(
    client: Client, orders: str, version: int
) -> None:
    producer = await Transactional.begin(client)
    produces = 12 if version == NEW else 11
    if version == OLD:
        assert await producer.add(orders, 0) == [ErrorCode.NONE]
    assert (await producer.send(orders, 0, b"a", b"b", version=produces)).base_offset == 0
    before = await read(client, orders, level=COMMITTED)
    assert (before.last_stable_offset, before.high_watermark, batches_of(before)) == (0, 2, [])
    assert len(batches_of(await read(client, orders))) == 1
    assert (await producer.end(commit=True, version=version)).error_code == ErrorCode.NONE
    after = await until_stable(client, orders)
    assert (after.last_stable_offset, offsets_of(after), after.aborted_transactions) == (3, [0, 2], [])
    assert [read_header(batch).is_control for batch in batches_of(after)] == [False, True]


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_what_was_aborted_is_among_the_records_and_named(client: Client, orders: str, version: int) -> None:
    producer = await Transactional.begin(client)
    first = producer.producer_id
    await produce(client, orders, (0, a_batch(b"of somebody else")))
    await producer.add(orders, 0)
    assert (await producer.send(orders, 0, b"a")).base_offset == 1
    assert (await producer.end(commit=False, version=version)).error_code == ErrorCode.NONE
    after = await until_stable(client, orders)
    assert offsets_of(after) == [0, 1, 2]
    assert [(each.producer_id, each.first_offset) for each in after.aborted_transactions or ()] == [(first, 1)]
    assert (await read(client, orders)).aborted_transactions is None


async def test_offsets_of_open_transactions_are_not_the_end_for_those_who_want_committed_records(
    client: Client, orders: str
) -> None:
    await produce(client, orders, (0, a_batch(b"x", timestamp_ms=1_000)))
    producer = await Transactional.begin(client)
    await producer.add(orders, 0)
    await producer.send(orders, 0, b"a")
    assert await latest(client, orders, level=0) == 2
    assert await latest(client, orders, level=COMMITTED) == 1
    await producer.end(commit=True)
    await until_stable(client, orders)
    assert await latest(client, orders, level=COMMITTED) == 3


async def test_a_long_poll_for_committed_records_ends_when_they_are_committed(served: Served, orders: str) -> None:
    client, reader = await served.client(), await served.client()
    producer = await Transactional.begin(client)
    await producer.add(orders, 0)
    await producer.send(orders, 0, b"a")
    request = fetch_request(orders, (0, 0), isolation_level=COMMITTED, max_wait_ms=15_000)
    waiting = asyncio.create_task(fetch(reader, request))
    await producer.end(commit=True)
    (part,) = await waiting
    assert offsets_of(part)[0] == 0


# --- partitions


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_all_or_none(client: Client, orders: str, version: int) -> None:
    producer = await Transactional.begin(client)
    assert await producer.add(orders, 0, 1, version=version) == [ErrorCode.NONE] * 2
    assert await producer.add(orders, 0, 7, version=version) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def many(
    client: Client, *requested: tuple[Transactional, str, Sequence[int]], verify: bool = False, version: int = 5
) -> list[list[int]]:
    response = await client.call(
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=producer.transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=verify,
                    topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(numbers))],
                )
                for producer, topic, numbers in requested
            ]
        ),
        AddPartitionsToTxnResponse,
        version,
    )
    return [
        [part.partition_error_code for topic in each.topic_results for part in topic.results_by_partition]
        for each in response.results_by_transaction
    ]


async def test_one_request_adds_to_many_transactions_each_on_its_own(client: Client, orders: str) -> None:
    first, second = await Transactional.begin(client, "first"), await Transactional.begin(client, "second")
    assert await many(client, (first, orders, [0]), (second, orders, [9])) == [
        [ErrorCode.NONE],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert (await first.send(orders, 0, b"a")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [4, 5])
async def test_partitions_can_be_verified_without_being_added(client: Client, orders: str, version: int) -> None:
    code = ErrorCode.TRANSACTION_ABORTABLE
    producer = await Transactional.begin(client)
    await producer.add(orders, 0)
    for _ in range(2):
        assert await many(client, (producer, orders, [0, 1]), verify=True, version=version) == [[ErrorCode.NONE, code]]


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_a_batch_of_no_transaction_is_not_stored(
    client: Client, orders: str, version: int, code: ErrorCode
) -> None:
    producer = await Transactional.begin(client)
    assert (await producer.send(orders, 0, b"a", version=version)).error_code == code
    await producer.add(orders, 1)
    assert (await producer.send(orders, 0, b"a", version=version)).error_code == code
    assert (await read(client, orders)).high_watermark == 0


async def test_a_transactional_batch_needs_a_transactional_id(client: Client, orders: str) -> None:
    producer = await Transactional.begin(client)
    await producer.add(orders, 0)
    batch = a_batch(
        b"a", producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0, is_transactional=True
    )
    (part,) = await produce(client, orders, (0, batch))
    assert part.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# --- ends


async def test_an_end_that_comes_again_is_answered_the_same_and_the_opposite_is_refused(
    client: Client, orders: str
) -> None:
    producer = await Transactional.begin(client)
    await producer.add(orders, 0)
    await producer.send(orders, 0, b"a")
    for _ in range(2):
        assert (await producer.end(commit=True)).error_code == ErrorCode.NONE
    assert (await producer.end(commit=False)).error_code == ErrorCode.INVALID_TXN_STATE
    assert offsets_of(await until_stable(client, orders)) == [0, 1]


async def test_the_end_of_nothing_is_refused(client: Client) -> None:
    producer = await Transactional.begin(client)
    assert (await producer.end(commit=True)).error_code == ErrorCode.INVALID_TXN_STATE


async def test_each_transaction_has_an_epoch_of_its_own(client: Client, orders: str) -> None:
    producer = await Transactional.begin(client)
    epochs = []
    for _ in range(3):
        assert (await producer.send(orders, 0, b"a", version=12)).error_code == ErrorCode.NONE
        epochs.append(producer.epoch)
        assert (await producer.end(commit=True, version=NEW)).error_code == ErrorCode.NONE
    assert epochs == sorted(set(epochs))
    assert [read_header(batch).producer_epoch for batch in batches_of(await until_stable(client, orders))][
        ::2
    ] == epochs


async def test_an_end_that_comes_again_names_the_same_next_epoch(client: Client, orders: str) -> None:
    producer = await Transactional.begin(client)
    await producer.send(orders, 0, b"a", version=12)
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    first = await producer.end(commit=True, version=NEW)
    again = await client.call(request, EndTxnResponse, NEW)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, first.producer_epoch)


async def test_a_late_batch_of_the_transaction_before_is_of_an_old_epoch(client: Client, orders: str) -> None:
    producer = await Transactional.begin(client)
    await producer.send(orders, 0, b"a", version=12)
    late = Transactional(
        client=client, transactional_id="payments", producer_id=producer.producer_id, epoch=producer.epoch
    )
    late.sequences.update(producer.sequences)
    await producer.end(commit=True, version=NEW)
    await until_stable(client, orders)
    assert (await late.send(orders, 0, b"late", version=12)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await producer.send(orders, 0, b"b", version=12)).error_code == ErrorCode.NONE


async def test_an_abort_without_a_transaction_gives_the_next_epoch(client: Client) -> None:
    producer = await Transactional.begin(client)
    before = producer.epoch
    assert (await producer.end(commit=False, version=NEW)).error_code == ErrorCode.NONE
    assert producer.epoch > before


# --- fencing


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
async def test_a_second_producer_fences_the_first_and_aborts_what_it_left_open(
    client: Client, orders: str, version: int, code: ErrorCode
) -> None:
    first = await Transactional.begin(client)
    await first.add(orders, 0)
    await first.send(orders, 0, b"a")
    second = await Transactional.begin(client)
    assert (second.producer_id, second.epoch > first.epoch) == (first.producer_id, True)
    after = await until_stable(client, orders)
    assert [each.first_offset for each in after.aborted_transactions or ()] == [0]
    assert await first.add(orders, 1, version=version) == [code]
    assert (await first.end(commit=True, version=version)).error_code == code
    assert await first.add_offsets("readers", version=version) == code
    assert (await first.send(orders, 0, b"b")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert good(await second.add(orders, 0))


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    client: Client, orders: str
) -> None:
    producer = await Transactional.begin(client, timeout_ms=100)
    await producer.add(orders, 0)
    await producer.send(orders, 0, b"a")
    after = await until_stable(client, orders)
    assert [each.first_offset for each in after.aborted_transactions or ()] == [0]
    assert (await producer.end(commit=True)).error_code == ErrorCode.PRODUCER_FENCED


async def test_a_newer_producer_whose_transaction_took_too_long_is_told_so_and_goes_on_after_an_abort(
    client: Client, orders: str
) -> None:
    producer = await Transactional.begin(client, timeout_ms=100)
    await producer.send(orders, 0, b"a", version=12)
    await until_stable(client, orders)
    before = producer.epoch
    assert (await producer.end(commit=True, version=NEW)).error_code == ErrorCode.INVALID_TXN_STATE
    assert (await producer.end(commit=False, version=NEW)).error_code == ErrorCode.NONE
    assert producer.epoch == before + 1
    assert (await producer.send(orders, 0, b"b", version=12)).error_code == ErrorCode.NONE
    assert (await producer.end(commit=True, version=NEW)).error_code == ErrorCode.NONE


async def test_a_producer_that_says_who_it_is_gets_its_next_epoch_and_one_that_is_not_it_any_more_is_fenced(
    client: Client,
) -> None:
    producer = await Transactional.begin(client)
    known = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    again = await init(client, "payments", **known)
    assert (again.error_code, again.producer_id) == (ErrorCode.NONE, producer.producer_id)
    assert again.producer_epoch == producer.epoch + 1
    await Transactional.begin(client)
    assert (await init(client, "payments", **known)).error_code == ErrorCode.PRODUCER_FENCED
    assert (await init(client, "payments", version=3, **known)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_an_id_that_is_not_the_transactional_ids_is_no_mapping(client: Client, orders: str) -> None:
    producer = await Transactional.begin(client)
    producer.producer_id += 1
    assert await producer.add(orders, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert (await producer.end(commit=True)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nobody = Transactional(client=client, transactional_id="nobody", producer_id=1, epoch=0)
    assert await nobody.add(orders, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
async def test_impossible_timeouts_are_refused(client: Client, timeout_ms: int) -> None:
    response = await init(client, "payments", timeout_ms=timeout_ms)
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)


async def test_nobody_has_the_empty_transactional_id(client: Client, orders: str) -> None:
    nobody = Transactional(client=client, transactional_id="", producer_id=1, epoch=0)
    assert (await init(client, "")).error_code == ErrorCode.INVALID_REQUEST
    assert await nobody.add(orders, 0) == [ErrorCode.INVALID_REQUEST]
    assert await nobody.add_offsets("readers") == ErrorCode.INVALID_REQUEST
    assert await nobody.commit_offsets("readers", {(orders, 0): 1}) == [ErrorCode.INVALID_REQUEST]
    assert (await nobody.end(commit=True)).error_code == ErrorCode.INVALID_REQUEST
