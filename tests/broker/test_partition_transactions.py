"""Transactions in a partition, through the broker: who reads what, what is stored, and what the next leader knows."""

import asyncio
import uuid
from dataclasses import replace

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.broker.segments.transaction_isolation import with_batches
from streamhouse.config import FlushSettings, TransactionSettings
from streamhouse.errors import (
    AbortedSequence,
    InvalidTransactionState,
    OffsetOutOfRange,
    StaleProducerEpoch,
    StreamhouseError,
)
from streamhouse.format.batch import assign_offset
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.transaction import AbortedTransaction, Marker, ProducerIdentity, TransactionCall
from tests.broker.conftest import MakeWorld
from tests.broker.support import (
    MANY_BYTES,
    NOW_MS,
    ORDERS,
    World,
    batch,
    current,
    fetch,
    idempotent,
    produce,
    records_of,
    settle,
)


class Client:
    """A transactional producer whose markers come whenever a test says so."""

    def __init__(self, broker: Broker, name: str, identity: ProducerIdentity) -> None:
        self.broker = broker
        self.name = name
        self.identity = identity
        self.sequence = 0
        self.number = 0

    def batch(self, *values: bytes) -> memoryview:
        producer, epoch = self.identity
        return idempotent(*values, sequence=self.sequence, producer=producer, epoch=epoch, is_transactional=True)

    async def send(self, *values: bytes, enlists: bool = True) -> PendingAppend:
        transaction = ProduceTransaction(self.name, enlists=enlists)
        pending = await self.broker.append(ORDERS, self.batch(*values), transaction)
        await self.broker.acknowledge(pending)
        self.sequence += len(values)
        return pending

    async def end(self, *, commit: bool) -> None:
        self.number += 1
        marker = Marker(producer=self.identity, number=self.number, is_commit=commit)
        outcomes = await self.broker.transactions.mark(marker, [ORDERS])
        assert outcomes == {ORDERS: None}

    def aborted(self, first: int, last: int) -> AbortedTransaction:
        return AbortedTransaction(self.identity.producer_id, first, last)


async def client(broker: Broker, name: str = "alice") -> Client:
    return Client(broker, name, await broker.transactions.init_producer(name, 10_000, None))


async def fetch_committed(
    broker: Broker, offset: int = 0, *, wait_s: float = 0, max_bytes: int = MANY_BYTES
) -> FetchResult:
    request = PartitionFetch(ORDERS, offset, max_bytes, committed=True)
    (result,) = await broker.fetch([request], max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=wait_s)
    return result


def offsets(found: FetchResult) -> list[int]:
    return [record.offset for record in records_of(found.records)]


async def flush(broker: Broker) -> None:
    await current(broker).flusher.flush_all()


async def rows(world: World, broker: Broker) -> list[AbortedTransaction]:
    partition = (await broker.open_log(ORDERS)).partition
    return list((await world.sqlite.aborted({partition: 0}, limit=100)).get(partition, ()))


# --- reading


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_readers_of_committed_records_get_nothing_at_or_above_the_last_stable_offset(
    world: World, is_flushed: bool
) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await produce(broker, batch(b"a", b"b"))
    await alice.send(b"open")
    await produce(broker, batch(b"c"))
    if is_flushed:
        await flush(broker)
    result = await fetch_committed(broker)
    assert offsets(result) == [0, 1]
    assert (result.last_stable, result.high_watermark, list(result.aborted)) == (2, 4, [])
    assert offsets(await fetch_committed(broker, 2)) == []
    everything = await fetch(broker, 0)
    assert len(offsets(await fetch(broker, 2))) == 2
    assert (everything.last_stable, everything.high_watermark) == (2, 4)


async def test_what_retention_took_elsewhere_is_not_passed_over_as_if_it_had_never_been(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a", b"b"))
    await flush(broker)
    await (await client(broker)).send(b"open")
    await flush(broker)
    partition = (await broker.open_log(ORDERS)).partition
    await world.sqlite.advance_log_start({partition: 2})
    broker.reader.runs.forget(partition)
    assert isinstance((await fetch_committed(broker)).error, OffsetOutOfRange)


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_readers_are_told_which_transactions_of_what_they_get_are_void(world: World, is_flushed: bool) -> None:
    broker = await world.start_with()
    alice, bob = await client(broker), await client(broker, "bob")
    await alice.send(b"a")  # 0
    await bob.send(b"b")  # 1
    await alice.end(commit=False)  # 2
    await bob.end(commit=True)  # 3
    await bob.send(b"c")  # 4
    await bob.end(commit=False)  # 5
    if is_flushed:
        await flush(broker)
    result = await fetch_committed(broker)
    assert sorted(result.aborted) == sorted([alice.aborted(0, 2), bob.aborted(4, 5)])
    assert result.last_stable == 6
    assert list((await fetch_committed(broker, 3)).aborted) == [bob.aborted(4, 5)]
    assert list((await fetch_committed(broker, 1, max_bytes=1)).aborted) == []
    assert list((await fetch_committed(broker, 0, max_bytes=1)).aborted) == [alice.aborted(0, 2)]
    assert list((await fetch(broker, 0)).aborted) == []


async def test_a_long_poll_for_committed_records_ends_with_the_marker(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"a")
    waiting = asyncio.ensure_future(fetch_committed(broker, 0, wait_s=10))
    await settle()
    await alice.send(b"b")
    await settle()
    assert not waiting.done()
    await alice.end(commit=True)
    await settle()
    assert offsets(waiting.result()) == [0, 1, 2]


async def test_the_end_for_readers_of_committed_records_is_the_last_stable_offset(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await produce(broker, batch(b"a", timestamp_ms=NOW_MS))
    await alice.send(b"b")
    assert (await broker.latest(ORDERS)).offset == 2
    assert (await broker.latest(ORDERS, committed=True)).offset == 1
    await flush(broker)
    await produce(broker, batch(b"c", timestamp_ms=NOW_MS + 5))
    for timestamp_ms, at, committed_at in ((NOW_MS, 0, 0), (NOW_MS + 1, 2, None)):
        result = await broker.at_time(ORDERS, timestamp_ms)
        committed = await broker.at_time(ORDERS, timestamp_ms, committed=True)
        assert (result.offset if result else None, committed.offset if committed else None) == (at, committed_at)


async def test_deleting_records_up_to_an_open_transaction_leaves_it_open(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"a")
    await alice.send(b"b")
    await alice.send(b"c")
    await flush(broker)
    await broker.topic_admin.delete_records(ORDERS, 2)
    log = await broker.open_log(ORDERS)
    assert (log.log_start, log.last_stable_offset, log.high_watermark) == (2, 2, 3)
    assert offsets(await fetch_committed(broker, 2)) == []
    await alice.end(commit=False)
    await flush(broker)
    result = await fetch_committed(broker, 2)
    assert (offsets(result), list(result.aborted)) == ([2, 3], [alice.aborted(0, 3)])
    assert await rows(world, broker) == [alice.aborted(0, 3)]


async def test_what_is_too_much_to_keep_is_requested(make_world: MakeWorld) -> None:
    world = await make_world(transactions=TransactionSettings(aborted_kept=2))
    broker = await world.start_with()
    alice = await client(broker)
    results = []
    for at in range(0, 12, 2):
        await alice.send(b"a")
        await alice.end(commit=False)
        await flush(broker)
        results.append(alice.aborted(at, at + 1))
    assert world.metadata.count("aborted") == 1  # when the log was opened
    assert list((await fetch_committed(broker, 8)).aborted) == results[4:]
    assert world.metadata.count("aborted") == 1
    requests = [row for offset in (0, 4) for row in (await fetch_committed(broker, offset)).aborted]
    assert requests[0] == results[0]
    assert results[2] in requests
    world.kill()
    broker = await world.start()
    assert (await fetch_committed(broker, 0)).aborted[0] == results[0]
    assert list((await fetch_committed(broker, 10)).aborted) == results[5:]


async def test_a_caller_that_reads_below_a_log_start_that_moved_meanwhile_gets_that_error(
    make_world: MakeWorld,
) -> None:
    world = await make_world(transactions=TransactionSettings(aborted_kept=1))
    broker = await world.start_with()
    alice = await client(broker)
    for _ in range(3):
        await alice.send(b"a")
        await alice.end(commit=False)
        await flush(broker)
    partition = (await broker.open_log(ORDERS)).partition
    await world.sqlite.advance_log_start({partition: 4})  # by another agent, with its rows
    result = await fetch_committed(broker, 0)
    assert isinstance(result.error, OffsetOutOfRange)


async def test_a_log_that_opens_while_its_start_moves_shows_nothing_that_was_aborted_below(world: World) -> None:
    """Its leader before it applies retention once more: the rows of aborted transactions go with the log start, which
    was read with the lease."""
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"a")
    await alice.end(commit=False)
    await flush(broker)
    partition = (await broker.open_log(ORDERS)).partition
    world.kill()
    broker = await world.start()
    resume = world.metadata.hold("aborted")
    reading = asyncio.ensure_future(fetch_committed(broker, 0))
    await settle()
    await world.sqlite.advance_log_start({partition: 2})
    resume.set()
    assert isinstance((await reading).error, OffsetOutOfRange)
    assert (await broker.open_log(ORDERS)).log_start == 2


async def test_a_caller_that_reads_while_all_that_was_aborted_is_deleted_gets_that_error(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"a")
    await alice.end(commit=False)
    await flush(broker)
    resume = world.objects.hold_answer("get_range")
    reading = asyncio.ensure_future(fetch_committed(broker, 0))
    await settle()
    assert world.objects.count("get_range") > 0
    (await broker.open_log(ORDERS)).advance_log_start(2)
    resume.set()
    assert isinstance((await reading).error, OffsetOutOfRange)


def test_a_transaction_without_batches_among_those_read_is_not_reported() -> None:
    def stored(base: int, data: memoryview) -> memoryview:
        assign_offset(data, base_offset=base, leader_epoch=0)
        return data

    aborted = [AbortedTransaction(7, 0, 3), AbortedTransaction(7, 4, 6), AbortedTransaction(8, 4, 9)]
    records = [
        stored(4, idempotent(b"a", sequence=0, is_transactional=True)),
        stored(5, idempotent(b"b", sequence=0, producer=8)),
        stored(7, idempotent(b"c", sequence=1, is_transactional=True)),
    ]
    assert with_batches(aborted, records) == [AbortedTransaction(7, 4, 6)]


# --- what is stored


async def test_a_flush_stores_what_is_aborted_with_the_run_that_has_the_marker(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"a")
    await flush(broker)
    await alice.end(commit=False)
    assert await rows(world, broker) == []
    await flush(broker)
    assert await rows(world, broker) == [alice.aborted(0, 1)]
    await alice.send(b"b")
    await alice.end(commit=True)
    await flush(broker)
    assert await rows(world, broker) == [alice.aborted(0, 1)]


def test_a_commit_without_some_runs_has_not_their_aborted_transactions() -> None:
    one, other = (PartitionId(TopicId(uuid.UUID(int=1)), number) for number in (0, 1))
    run = Run(
        partition=one,
        base=0,
        end=1,
        stored_base=0,
        epoch=Epoch(1),
        object_key="k",
        position=0,
        length=1,
        index_position=1,
        index_length=1,
        records=1,
        max_timestamp_ms=0,
    )
    aborted_rows = (AbortedTransaction(7, 0, 0),)
    commit = SegmentCommit(
        segment=SegmentObject(key="k", size_bytes=1, created_at_ms=0),
        runs=(run, replace(run, partition=other)),
        aborted={one: aborted_rows, other: aborted_rows},
    )
    assert commit.only([run]) == SegmentCommit(segment=commit.segment, runs=(run,), aborted={one: aborted_rows})


async def test_recovery_stores_what_markers_in_the_log_abort_from_where_segments_say_that_it_began(
    world: World,
) -> None:
    broker = await world.start_with()
    alice, bob = await client(broker), await client(broker, "bob")
    await alice.send(b"a")  # 0
    await flush(broker)
    await alice.send(b"b")  # 1
    await alice.end(commit=False)  # 2
    await alice.send(b"c")  # 3
    await bob.send(b"d")  # 4
    await bob.end(commit=False)  # 5
    world.kill()
    broker = await world.start()
    assert await rows(world, broker) == [alice.aborted(0, 2), bob.aborted(4, 5)]
    log = await broker.open_log(ORDERS)
    assert (log.last_stable_offset, log.high_watermark) == (3, 6)
    result = await fetch_committed(broker)
    assert (offsets(result), list(result.aborted)) == ([0, 1, 2], [alice.aborted(0, 2)])


async def test_recovered_segments_have_their_own_aborted_transactions_each(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(segment_bytes=1))
    broker = await world.start_with()
    alice = await client(broker)
    for _ in range(3):
        await alice.send(b"a")
        await alice.end(commit=False)
    world.kill()
    broker = await world.start()
    assert await rows(world, broker) == [alice.aborted(at, at + 1) for at in (0, 2, 4)]


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_the_next_leader_knows_what_is_open_and_ends_it(world: World, is_flushed: bool) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"a")
    if is_flushed:
        await flush(broker)
    world.kill()
    broker = await world.start()
    alice.broker = broker
    log = await broker.open_log(ORDERS)
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    before = world.metadata.count("find_transaction") + world.metadata.count("add_transaction_partitions")
    await alice.send(b"b")
    assert world.metadata.count("find_transaction") + world.metadata.count("add_transaction_partitions") == before
    with pytest.raises(InvalidTransactionState):
        await produce(broker, idempotent(b"x", sequence=2, producer=alice.identity.producer_id))
    await alice.end(commit=False)
    await flush(broker)
    assert await rows(world, broker) == [alice.aborted(0, 2)]
    assert log.last_stable_offset == 3


async def test_the_next_leader_takes_no_marker_twice(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"a")
    await alice.end(commit=True)
    world.kill()
    broker = await world.start()
    alice.broker = broker
    alice.number -= 1
    await alice.end(commit=True)
    assert (await broker.open_log(ORDERS)).next_offset == 2


@pytest.mark.parametrize("how", ["open", "recovered", "flushed"])
async def test_a_batch_with_the_numbers_of_an_aborted_one_is_not_acknowledged_as_stored(world: World, how: str) -> None:
    """As librdkafka sends it when the responses to the aborted transaction's batches were lost with their leader."""
    broker = await world.start_with()
    alice = await client(broker)
    await alice.send(b"aborted")  # 0
    await alice.end(commit=False)  # 1
    if how == "flushed":
        await flush(broker)
    if how != "open":
        world.kill()
        broker = alice.broker = await world.start()
    alice.sequence = 0
    with pytest.raises(AbortedSequence):
        await alice.send(b"of the next transaction")
    assert (await broker.open_log(ORDERS)).next_offset == 2
    alice.sequence = 1
    assert (await alice.send(b"what follows what was stored")).base_offset == 2


# --- verification


async def test_a_batch_of_a_transaction_that_nobody_knows_is_refused(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    with pytest.raises(StreamhouseError):
        await alice.send(b"a", enlists=False)
    assert (await broker.open_log(ORDERS)).next_offset == 0
    with pytest.raises(InvalidTransactionState):
        await broker.append(ORDERS, alice.batch(b"a"))
    await broker.transactions.add_partitions(_call(alice), [ORDERS])
    await alice.send(b"a", enlists=False)


async def test_a_transaction_is_asked_about_once_per_partition(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await broker.transactions.add_partitions(_call(alice), [ORDERS])
    before = world.metadata.count("find_transaction")
    for value in (b"a", b"b", b"c"):
        await alice.send(value, enlists=False)
    assert world.metadata.count("find_transaction") == before + 1


async def test_a_marker_that_comes_while_the_transaction_is_asked_about_makes_the_response_invalid(
    world: World,
) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await broker.transactions.add_partitions(_call(alice), [ORDERS])
    before = world.metadata.count("find_transaction")
    response = world.metadata.hold_answer("find_transaction")
    sending = asyncio.ensure_future(alice.send(b"late", enlists=False))
    await settle()
    await alice.end(commit=False)
    response.set()
    pending = await sending
    assert world.metadata.count("find_transaction") == before + 2
    assert pending.base_offset == 1


async def test_a_marker_with_another_epoch_fences_a_batch_that_is_on_its_way(world: World) -> None:
    broker = await world.start_with()
    alice = await client(broker)
    await broker.transactions.add_partitions(_call(alice), [ORDERS])
    response = world.metadata.hold_answer("find_transaction")
    sending = asyncio.ensure_future(alice.send(b"late", enlists=False))
    await settle()
    newer = alice.identity._replace(epoch=alice.identity.epoch + 1)
    await broker.transactions.mark(Marker(producer=newer, number=1, is_commit=False), [ORDERS])
    response.set()
    with pytest.raises(StaleProducerEpoch):
        await sending


def _call(alice: Client) -> TransactionCall:
    return TransactionCall(alice.name, alice.identity)
