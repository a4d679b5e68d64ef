"""A transaction that is open in a partition and over everywhere else doesn't hold readers back for ever."""

from dataclasses import replace
from typing import Any

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.transactions.sweeper import Hanging, missing_marker
from streamhouse.errors import ConcurrentTransactions
from streamhouse.format.producer_snapshot import ProducerEntry
from streamhouse.model.names import PartitionId
from streamhouse.model.transaction import (
    Marker,
    ProducerIdentity,
    StoredTransaction,
    TransactionState,
)
from tests.broker.support import CLICKS, ORDERS, settle
from tests.broker.transactions.support import Producer, committed, running
from tests.broker.transactions.test_checks import HERE, ROW, THERE

OPEN = ProducerEntry(5, 3, (), 0, transaction_first=10, marker_number=4)
EMPTY, ONGOING, PREPARED, COMMITTED, ABORTED = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


@pytest.mark.parametrize(
    ("changes", "partition", "expected"),
    [
        ({"state": ONGOING}, HERE, None),
        ({"state": PREPARED}, HERE, None),
        ({"state": ONGOING, "number": 5}, THERE, None),
        ({"state": ONGOING}, THERE, (6, False)),
        ({"state": PREPARED}, THERE, (6, False)),
        ({"state": ONGOING, "producer": ProducerIdentity(5, 4)}, HERE, (6, False)),
        ({"state": EMPTY, "producer": ProducerIdentity(5, 4)}, HERE, (7, False)),
        ({"state": ABORTED}, HERE, (7, False)),
        ({"state": COMMITTED}, HERE, (7, False)),
        ({"state": COMMITTED, "number": 5}, HERE, (5, True)),
        (
            {"state": COMMITTED, "marked_as": ProducerIdentity(5, 4), "previous": ProducerIdentity(5, 3)},
            HERE,
            (7, True),
        ),
        ({"state": COMMITTED, "marked_as": ProducerIdentity(5, 4)}, HERE, (7, False)),  # of whoever came after
        ({"state": COMMITTED, "marked_as": ProducerIdentity(5, 4), "number": 5}, HERE, (5, False)),
        ({"state": COMMITTED, "number": 4}, HERE, None),
    ],
)
def test_how_a_stray_is_ended_follows_from_its_row(
    changes: dict[str, Any], partition: PartitionId, expected: tuple[int, bool] | None
) -> None:
    row: StoredTransaction = replace(ROW, **changes)
    marker = missing_marker(row, Hanging(partition, OPEN))
    assert (None if marker is None else (marker.number, marker.is_commit)) == expected


def test_what_may_be_ended_under_another_id_is_left_alone() -> None:
    assert missing_marker(None, Hanging(HERE, OPEN)) is None


async def lose_the_marker(broker: Broker, alice: Producer, *, commit: bool) -> ProducerIdentity:
    """The row is closed, as if the partition's marker had been written and lost with the power. Returns who the
    producer is now."""
    metadata = broker.transactions._metadata
    ended = await metadata.end_transaction(alice.call, commit=commit, bump=alice.modern, fresh_id=-1)
    await metadata.complete_transaction(alice.name, ended.number)
    return ended.producer


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("commit", [False, True])
async def test_a_lost_marker_is_written_again_as_the_row_says(commit: bool, modern: bool) -> None:
    async with running() as (world, broker):
        alice = await Producer(broker, modern=modern).init()
        await alice.send(b"x")
        await lose_the_marker(broker, alice, commit=commit)
        assert (await broker.latest(ORDERS, committed=True)).offset == 0
        await world.clock.advance(6)
        assert (await broker.latest(ORDERS, committed=True)).offset == 2
        assert await committed(broker) == ([b"x"] if commit else [])
        assert broker.transactions.hanging.ended == 1


async def test_a_transaction_that_is_under_way_is_asked_after_and_left_alone() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init(timeout_ms=800_000)
        await alice.send(b"x")
        await world.clock.advance(300)
        calls_before = world.metadata.count("transaction_of")
        assert 3 <= calls_before <= 10
        await alice.end(commit=True)
        assert await committed(broker) == [b"x"]
        assert broker.transactions.hanging.ended == 0


async def test_a_batch_that_comes_while_the_row_is_read_keeps_the_transaction_open() -> None:
    async with running() as (world, broker):
        alice = await Producer(broker).init()
        await alice.send(b"x")
        await lose_the_marker(broker, alice, commit=False)
        resume = world.metadata.hold_answer("transaction_of")
        await world.clock.advance(6)
        assert world.metadata.count("transaction_of") == 1
        await alice.add(ORDERS)
        await broker.acknowledge(await alice.place(b"y"))
        resume.set()
        await settle()
        assert broker.transactions.hanging.ended == 0
        late = Marker(producer=alice.identity, number=2, is_commit=True)
        assert await broker.transactions.mark(late, [ORDERS]) == {ORDERS: None}


async def test_a_stray_of_the_producer_before_is_not_committed_with_what_its_successor_commits() -> None:
    async with running() as (world, broker):
        old = await Producer(broker).init()
        await old.send(b"void")
        await lose_the_marker(broker, old, commit=False)
        new = await Producer(broker).init()
        await new.send(b"elsewhere", name=CLICKS)
        await new.end(commit=True)
        await world.clock.advance(6)
        assert broker.transactions.hanging.ended == 1
        assert await committed(broker) == []


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_stray_does_not_end_as_the_next_transaction_of_its_producer_does(is_new: bool) -> None:
    async with running() as (world, broker):
        alice = await Producer(broker, modern=True).init()
        await alice.send(b"void")
        alice._are(await lose_the_marker(broker, alice, commit=False))
        if is_new:
            alice = await Producer(broker, modern=True).init()
        with pytest.raises(ConcurrentTransactions):
            await alice.send(b"kept")
        await world.clock.advance(6)
        await alice.send(b"kept")
        await alice.end(commit=True)
        assert await committed(broker) == [b"kept"]
