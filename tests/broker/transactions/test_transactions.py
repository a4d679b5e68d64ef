"""Transactions of producers: the decision is durable first, reaches all partitions, and survives its coordinator."""

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups import MemberRef, OffsetToCommit
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.config import ProducerSettings, TransactionSettings
from streamhouse.errors import (
    ConcurrentTransactions,
    InvalidTopicName,
    InvalidTransactionState,
    MarkerFenced,
    ProducerFenced,
    StaleProducerEpoch,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionUnavailable,
    UnknownTopic,
    UnstableOffsets,
)
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import Marker, ProducerIdentity, StoredTransaction, TransactionState
from tests.broker.support import CLICKS, ORDERS, batch, current, idempotent, produce, settle
from tests.broker.transactions.support import Producer, committed, running

NOWHERE = TopicPartition("nowhere", 0)


@pytest.mark.parametrize("modern", [False, True])
async def test_a_committed_transaction_is_read_wholly_and_an_aborted_one_not_at_all(modern: bool) -> None:
    async with running() as (_, broker):
        alice = await Producer(broker, modern=modern).init()
        await alice.send(b"kept")
        await alice.send(b"kept too", name=CLICKS)
        assert await committed(broker) == []
        await alice.end(commit=True)
        await alice.send(b"void")
        await alice.end(commit=False)
        assert await committed(broker) == [b"kept"]
        assert await committed(broker, CLICKS) == [b"kept too"]


async def test_what_comes_after_an_open_transaction_waits_for_it() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await alice.send(b"open")
        await produce(broker, batch(b"plain"))
        assert await committed(broker) == []
        await alice.end(commit=False)
        assert await committed(broker) == [b"plain"]


async def test_a_producer_that_takes_the_id_over_aborts_what_was_open_and_fences_the_other() -> None:
    async with running() as (_, broker):
        old = await Producer(broker).init()
        await old.send(b"half")
        new = await Producer(broker).init()
        assert new.identity.epoch > old.identity.epoch
        with pytest.raises((ProducerFenced, StaleProducerEpoch)):
            await old.place(b"zombie")
        with pytest.raises(ProducerFenced):
            await old.end(commit=True)
        await new.send(b"new")
        await new.end(commit=True)
        assert await committed(broker) == [b"new"]


async def test_a_producer_that_says_who_it_was_goes_on_under_the_next_epoch() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await alice.send(b"half")
        before = alice.identity
        await alice.init(before)
        assert alice.identity.producer_id == before.producer_id
        assert alice.identity.epoch > before.epoch
        await alice.add(ORDERS)  # whoever can do that has had the answer, so nobody asks again
        stranger = Producer(broker)
        with pytest.raises(ProducerFenced):
            await stranger.init(before)


async def test_a_producer_whose_answer_was_lost_is_known_when_it_retries() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await alice.send(b"half")
        before = alice.identity
        await alice.init(before)
        answered = alice.identity
        await alice.init(before)
        assert alice.identity == answered
        await alice.send(b"whole")
        await alice.end(commit=True)
        assert await committed(broker) == [b"whole"]


@pytest.mark.parametrize("commit", [False, True])
async def test_the_next_transaction_is_not_ended_while_the_one_before_is(commit: bool) -> None:
    async with running() as (world, broker):
        alice = await Producer(broker, modern=True).init()
        await alice.send(b"first")
        resume = world.metadata.hold("complete_transaction")
        ending = asyncio.create_task(alice.end(commit=True))
        await world.clock.advance(6)
        await ending
        with pytest.raises(ConcurrentTransactions):
            await alice.end(commit=commit)
        resume.set()
        await settle()


async def test_a_client_that_retries_is_not_fenced_by_what_it_asked_first() -> None:
    """Both wait for the end of what the one before left open; the client listens to its second call alone."""
    async with running() as (world, broker):
        before = await Producer(broker).init()
        await before.send(b"left")
        resume = world.metadata.hold("complete_transaction")
        calls = [asyncio.create_task(Producer(broker).init()) for _ in range(2)]
        await settle()
        resume.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in outcomes].count(ConcurrentTransactions) == 1
        (alice,) = [each for each in outcomes if isinstance(each, Producer)]
        await alice.send(b"kept")
        await alice.end(commit=True)
        assert await committed(broker) == [b"kept"]


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init(timeout_ms=2_000)
        await alice.send(b"slow")
        await world.clock.advance(4)
        assert broker.transactions.watch.expired == 1
        assert (await broker.latest(ORDERS, committed=True)).offset == 2
        with pytest.raises(ProducerFenced):
            await alice.end(commit=True)
        assert await committed(broker) == []


async def test_a_batch_outside_of_every_transaction_is_refused() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        with pytest.raises(TransactionAbortable):
            await alice.place(b"never enlisted")
        await alice.add(CLICKS)
        with pytest.raises(TransactionAbortable):
            await alice.place(b"not here")


async def test_partitions_are_added_all_or_none() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        internal = TopicPartition(OFFSETS_TOPIC, 0)
        outcomes = await broker.transactions.add_partitions(alice.call, [ORDERS, NOWHERE, internal])
        assert outcomes[ORDERS] is None
        assert isinstance(outcomes[NOWHERE], UnknownTopic)
        assert isinstance(outcomes[internal], InvalidTopicName)
        assert (await row(broker)).state is TransactionState.EMPTY


async def test_a_repeated_end_returns_the_outcome() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker, modern=True).init()
        await alice.send(b"once")
        before = alice.call
        await alice.end(commit=True)
        again = await broker.transactions.end(before, commit=True, bump=True)
        assert again == alice.identity
        with pytest.raises(InvalidTransactionState):
            await broker.transactions.end(before, commit=False, bump=True)
        assert broker.transactions.marker_writer.written == 1


async def test_offsets_are_committed_with_the_transaction_or_not_at_all() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        for commit, reported in ((False, None), (True, 5)):
            await broker.transactions.add_offsets(alice.call, "readers")
            outcomes = await broker.groups.commit_in_transaction(
                "readers", MemberRef(), alice.call, {ORDERS: OffsetToCommit(offset=5)}, begins=False
            )
            assert outcomes == {ORDERS: None}
            pending = (await broker.groups.fetch({"readers": [ORDERS]}, stable=True))["readers"]
            assert isinstance(pending, dict)
            assert isinstance(pending[ORDERS], UnstableOffsets)
            await alice.end(commit=commit)
            stable = (await broker.groups.fetch({"readers": [ORDERS]}, stable=True))["readers"]
            assert isinstance(stable, dict)
            found = stable.get(ORDERS)
            assert (None if found is None or isinstance(found, UnstableOffsets) else found.offset) == reported


async def test_a_stable_answer_never_has_the_offset_from_before_a_transaction_that_ends_meanwhile() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await broker.transactions.add_offsets(alice.call, "readers")
        offsets = {ORDERS: OffsetToCommit(offset=5)}
        await broker.groups.commit_in_transaction("readers", MemberRef(), alice.call, offsets, begins=False)
        answers = [world.metadata.hold_answer(call) for call in ("pending_offsets", "committed_offsets")]
        asked = asyncio.create_task(broker.groups.fetch({"readers": [ORDERS]}, stable=True))
        await settle()
        await alice.end(commit=True)
        for each in answers:
            each.set()
        result = (await asked)["readers"]
        assert isinstance(result, dict)
        found = result.get(ORDERS)
        assert isinstance(found, UnstableOffsets) or (found is not None and found.offset == 5)


async def test_offsets_of_a_transaction_that_was_not_begun_are_refused() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        offsets = {ORDERS: OffsetToCommit(offset=5)}
        with pytest.raises(InvalidTransactionState):
            await broker.groups.commit_in_transaction("readers", MemberRef(), alice.call, offsets, begins=False)
        await broker.groups.commit_in_transaction("readers", MemberRef(), alice.call, offsets, begins=True)
        assert (await row(broker)).state is TransactionState.ONGOING


async def test_a_store_that_does_not_answer_is_a_coordinator_that_cannot() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        world.metadata.lose_answer("end_transaction")
        with pytest.raises(TransactionUnavailable):
            await alice.end(commit=True)
        await alice.end(commit=True)
        assert await committed(broker) == [b"x"]


async def test_an_end_is_tried_again_until_its_row_is_closed() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        world.metadata.refuse("complete_transaction", 3)
        ending = asyncio.ensure_future(alice.end(commit=True))
        await world.clock.advance(3)
        await ending
        assert (await row(broker)).state is TransactionState.COMPLETE_COMMIT
        assert broker.transactions.endings.retries == 3


async def test_ends_that_can_not_come_do_not_keep_others_from_theirs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(transactions=TransactionSettings(max_waiting=2)) as (world, broker):
        endings = broker.transactions.endings
        alice, bob, carol = [await Producer(broker, name).init() for name in ("alice", "bob", "carol")]
        stuck = {alice.identity.producer_id, bob.identity.producer_id}
        mark = endings._round

        async def mark_some(marker: Marker, partitions: Sequence[PartitionId]) -> Sequence[PartitionId]:
            return partitions if marker.producer.producer_id in stuck else await mark(marker, partitions)

        monkeypatch.setattr(endings, "_round", mark_some)
        for each in (alice, bob, carol):
            await each.send(each.name.encode())
        ends = [asyncio.ensure_future(each.end(commit=True)) for each in (alice, bob, carol)]
        await world.clock.advance(5.1)
        await asyncio.gather(*ends)
        assert (await row(broker, "carol")).state is TransactionState.PREPARE_COMMIT
        await world.clock.advance(15)
        assert (await row(broker, "carol")).state is TransactionState.COMPLETE_COMMIT
        stuck.clear()
        await world.clock.advance(25)
        assert await committed(broker) == [b"alice", b"bob", b"carol"]
        assert (await row(broker, "alice")).state is TransactionState.COMPLETE_COMMIT
        assert endings.retries > 20
        lines = [each for each in caplog.records if each.message == "transaction not ended yet"]
        assert 1 < len(lines) < 10


async def test_an_end_is_answered_after_a_while_and_goes_on() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        resume = world.metadata.hold("complete_transaction")
        ending = asyncio.ensure_future(alice.end(commit=True))
        await world.clock.advance(5.1)
        assert ending.done()
        with pytest.raises(ConcurrentTransactions):
            await alice.add(ORDERS)
        waiting = asyncio.ensure_future(Producer(broker).init())
        await world.clock.advance(1)
        assert not waiting.done()
        resume.set()
        await settle()
        assert (await waiting).identity.epoch == alice.identity.epoch + 1


async def test_taking_an_id_over_gives_up_when_the_end_before_takes_too_long() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        world.metadata.hold("complete_transaction")
        taking = asyncio.ensure_future(Producer(broker).init())
        await world.clock.advance(6)
        with pytest.raises(ConcurrentTransactions):
            await taking


async def test_an_agent_that_stops_leaves_a_decision_to_the_next_one() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        world.metadata.hold("complete_transaction")
        ending = asyncio.ensure_future(alice.end(commit=True))
        await world.clock.advance(1)
        world.kill()
        await settle()
        await asyncio.gather(ending, return_exceptions=True)
        world.metadata._held.clear()
        after = await world.start()
        world.run(after)
        await world.clock.advance(6)
        assert (await row(after)).state is TransactionState.COMPLETE_COMMIT
        assert await committed(after) == [b"x"]


async def test_an_end_that_is_requested_while_the_agent_stops_is_decided_and_left_to_others() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        resume = world.metadata.hold_answer("end_transaction")
        ending = asyncio.ensure_future(alice.end(commit=True))
        await settle()
        world.kill()
        resume.set()
        await ending
        assert (await row(broker)).state is TransactionState.PREPARE_COMMIT


async def test_a_decision_that_never_reached_a_partition_is_written_by_a_live_agent() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        await world.metadata.end_transaction(alice.call, commit=True, bump=False, fresh_id=-1)
        await world.clock.advance(6)
        assert await committed(broker) == [b"x"]
        assert (await row(broker)).state is TransactionState.COMPLETE_COMMIT


async def test_an_agent_that_was_taken_for_dead_ends_nothing_that_it_was_asked_to_end_long_ago() -> None:
    """Its producer, which keeps its epoch, has used another agent since, and is in its next transaction."""
    async with running() as (world, broker):
        paused = Broker(world.dependencies(single_agent=False))
        await paused.start()
        alice = await Producer(broker).init()
        requested = alice.call
        await alice.send(b"first")
        await alice.end(commit=True)
        await alice.send(b"half")
        await world.sqlite.claim_recovery(
            current(paused).session.session_id, by=current(broker).session.session_id, proven_dead=True
        )
        with pytest.raises(TransactionUnavailable):
            await paused.transactions.end(requested, commit=True, bump=False)
        assert (await row(broker)).state is TransactionState.ONGOING
        await alice.end(commit=False)
        assert await committed(broker) == [b"first"]


async def test_a_topic_that_is_gone_does_not_hold_the_end_up() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        await alice.send(b"y", name=CLICKS)
        await broker.delete_topic(await broker.topic(CLICKS.topic))
        await alice.end(commit=True)
        assert (await row(broker)).state is TransactionState.COMPLETE_COMMIT
        assert await committed(broker) == [b"x"]


async def test_a_marker_that_comes_late_does_not_end_the_next_transaction() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await alice.send(b"first")
        await alice.end(commit=True)
        await alice.send(b"second")
        late = Marker(producer=alice.identity, number=1, is_commit=True)
        assert await broker.transactions.mark(late, [ORDERS]) == {ORDERS: None}
        assert await committed(broker) == [b"first"]
        await alice.end(commit=False)
        assert await committed(broker) == [b"first"]


async def test_a_marker_that_comes_late_does_not_end_what_a_forgotten_producer_has_begun_since() -> None:
    async with running(producers=ProducerSettings(max_per_partition=1)) as (_, broker):
        alice = await Producer(broker).init()
        late = Marker(producer=alice.identity, number=1, is_commit=True)
        await alice.send(b"first")
        await alice.end(commit=True)
        await produce(broker, idempotent(b"another's", sequence=0, producer=1000))
        await alice.send(b"half")
        outcomes = await broker.transactions.mark(late, [ORDERS], only_due=True)
        assert isinstance(outcomes[ORDERS], MarkerFenced)
        assert await committed(broker) == [b"first", b"another's"]
        await alice.end(commit=False)
        assert await committed(broker) == [b"first", b"another's"]


async def test_markers_of_partitions_that_are_not_here_say_so() -> None:
    async with running() as (_, broker):
        outcomes = await broker.transactions.mark(
            Marker(producer=ProducerIdentity(1, 1), number=1, is_commit=True), [ORDERS, NOWHERE]
        )
        assert outcomes[ORDERS] is None
        assert isinstance(outcomes[NOWHERE], UnknownTopic)


async def test_transactions_are_described_and_listed() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await Producer(broker, "bob").init()
        await alice.send(b"x")
        reported = await broker.transactions.describe(["alice", "nobody"])
        assert isinstance(reported["alice"], StoredTransaction)
        assert isinstance(reported["nobody"], TransactionalIdNotFound)
        assert [each.transactional_id for each in await broker.transactions.list()] == ["alice", "bob"]
        ongoing = await broker.transactions.list(states=[TransactionState.ONGOING])
        assert [each.transactional_id for each in ongoing] == ["alice"]


async def test_memory_of_markers_is_given_back_when_they_are_flushed() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        await alice.end(commit=True)
        assert broker.budget.used_bytes > 0
        await world.clock.advance(60)
        assert broker.budget.used_bytes == 0


async def test_transactions_are_counted() -> None:
    async with running() as (_, broker):
        registry = CollectorRegistry()
        registry.register(BrokerMetrics(broker))
        alice = await Producer(broker).init()
        await alice.send(b"x")
        assert registry.get_sample_value("streamhouse_transactions_open") == 1
        for commit in (True, False):
            await alice.send(b"y", name=CLICKS)
            await alice.end(commit=commit)
        for outcome in ("committed", "aborted"):
            assert registry.get_sample_value("streamhouse_transactions_ended_total", {"outcome": outcome}) == 1
        assert registry.get_sample_value("streamhouse_transaction_markers_total") == 3
        assert registry.get_sample_value("streamhouse_transactions_open") == 0


async def row(broker: Broker, name: str = "alice") -> StoredTransaction:
    found = (await broker.transactions.describe([name]))[name]
    assert isinstance(found, StoredTransaction)
    return found


def first_batch(alice: Producer, value: bytes) -> memoryview:
    producer_id, epoch = alice.identity
    return idempotent(value, sequence=0, producer=producer_id, epoch=epoch, is_transactional=True)


@pytest.mark.parametrize("modern", [False, True])
async def test_the_first_batches_of_a_request_are_asked_after_together(modern: bool) -> None:
    async with running() as (world, broker):
        alice = await Producer(broker, modern=modern).init()
        if not modern:
            await alice.add(ORDERS, CLICKS)
        await broker.open_many([ORDERS, CLICKS])
        requested = "add_transaction_partitions" if modern else "find_transaction"
        before = world.metadata.count(requested)
        batches = {name: first_batch(alice, b"x") for name in (ORDERS, CLICKS)}
        reported = await broker.verify_ahead(ProduceTransaction(alice.name, enlists=modern), batches)
        for name, data in batches.items():
            await broker.acknowledge(await broker.append(name, data, reported))
        assert world.metadata.count(requested) == before + 1
        await alice.end(commit=True)
        assert await committed(broker) == await committed(broker, CLICKS) == [b"x"]


async def test_the_status_of_a_request_is_invalid_once_the_transaction_has_ended() -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await alice.add(ORDERS, CLICKS)
        await broker.open_many([ORDERS, CLICKS])
        batches = {name: first_batch(alice, b"late") for name in (ORDERS, CLICKS)}
        reported = await broker.verify_ahead(ProduceTransaction(alice.name, enlists=False), batches)
        await alice.end(commit=False)
        for name, data in batches.items():
            with pytest.raises(TransactionAbortable):
                await broker.append(name, data, reported)


async def test_requests_with_batches_of_nobody_ask_for_nothing() -> None:
    async with running() as (world, broker):
        await broker.open_many([ORDERS, CLICKS])
        transaction = ProduceTransaction("alice", enlists=True)
        assert await broker.verify_ahead(transaction, {ORDERS: b"", CLICKS: b"nonsense"}) == transaction
        assert world.metadata.count("add_transaction_partitions") == 0


async def test_a_batch_is_not_placed_in_a_topic_that_took_the_name_while_it_was_asked_after() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.add(ORDERS)
        resume = world.metadata.hold_answer("find_transaction")
        placing = asyncio.ensure_future(alice.place(b"x"))
        await settle()
        await broker.delete_topic(await broker.catalog.find(ORDERS.topic))
        await broker.create_topic(ORDERS.topic, partitions=1, overrides={})
        resume.set()
        with pytest.raises(TransactionAbortable):
            await placing


async def test_a_batch_of_an_open_transaction_waits_while_segments_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as (_, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        opened = await broker.open_log(ORDERS)
        open_log = broker._append_service._open_log
        times = 0

        async def shut_the_second_time(name: TopicPartition) -> PartitionLog:
            nonlocal times
            times += 1
            if times == 2:
                await opened.barrier.shut()
            return await open_log(name)

        monkeypatch.setattr(broker._append_service, "_open_log", shut_the_second_time)
        placing = asyncio.ensure_future(alice.place(b"y"))
        await settle()
        assert not placing.done()
        opened.barrier.open()
        await placing
