"""Several agents that change one producer's transaction at once: one decision, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from streamhouse.errors import ConcurrentTransactions, InvalidTransactionState, ProducerFenced
from streamhouse.model.cluster import PartitionState
from streamhouse.model.group import OFFSETS_TOPIC, DropGroup, PutGroup
from streamhouse.model.transaction import PendingOffset, StoredTransaction, TransactionCall, TransactionState
from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from tests.contracts.metadata_groups import SHARDS, commit, committed, group, offsets, put, shard
from tests.contracts.metadata_producing import begin, end, init, pend, undecided
from tests.contracts.metadata_scene import ALICE, BOB, CLICKS, lead, new_session, part, topic
from tests.support.postgres import DatabaseClock

pytestmark = pytest.mark.postgres

Pair = tuple[PostgresMetadataStore, PostgresMetadataStore]
Refused = (ProducerFenced, ConcurrentTransactions, InvalidTransactionState)


@pytest.fixture
async def pair(database: str) -> AsyncIterator[Pair]:
    """Two stores, as two agents have them."""
    first, second = [await PostgresMetadataStore(database).open() for _ in range(2)]
    await first.create_topic(topic())
    await first.create_topic(topic(SHARDS, OFFSETS_TOPIC, partitions=2))
    await first.open_session(new_session(ALICE))
    await second.open_session(new_session(BOB))
    yield first, second
    await first.aclose()
    await second.aclose()


@pytest.fixture
async def coordinated(pair: Pair) -> PartitionState:
    """Alice's lease of shard 0, where the group `g` is."""
    [state] = await lead(pair[0], ALICE, shard())
    await pair[0].commit_groups(ALICE, [commit(state, 1, PutGroup(group=group()))])
    return state


async def test_a_transaction_that_is_committed_and_aborted_at_once_is_decided_once(
    pair: Pair, coordinated: PartitionState
) -> None:
    for number in range(1, 11):
        name = f"t{number}"
        call = await begin(pair[0], name, part(0), fresh_id=number)
        await pend(pair[0], coordinated, call, p0=number)
        before = await offsets(pair[0])
        results = await asyncio.gather(
            end(pair[0], call, commit=True), end(pair[1], call, commit=False), return_exceptions=True
        )
        [decided] = [each for each in results if isinstance(each, StoredTransaction)]
        assert [type(each) for each in results if each is not decided] == [InvalidTransactionState]
        assert await pair[1].find_transaction(name) == decided
        is_commit = decided.state is TransactionState.PREPARE_COMMIT
        assert await offsets(pair[1]) == ({0: number} if is_commit else before)
        assert await undecided(pair[1]) == set()


async def test_a_transaction_that_ends_while_it_expires_is_decided_once(
    database: str, pair: Pair, coordinated: PartitionState
) -> None:
    clock = DatabaseClock(database)
    for number in range(1, 11):
        name = f"t{number}"
        call = await begin(pair[0], name, part(0), fresh_id=number)
        await pend(pair[0], coordinated, call, p0=number)
        before = await offsets(pair[0])
        clock.advance(ms=60_000)
        ended, expired = await asyncio.gather(
            end(pair[0], call), pair[1].expire_transaction(name, 1), return_exceptions=True
        )
        result = await pair[0].find_transaction(name)
        assert result is not None
        if isinstance(ended, StoredTransaction):
            assert (result, expired) == (ended, None)
            assert await offsets(pair[1]) == {0: number}
        else:
            assert isinstance(ended, ProducerFenced)
            assert (result, result.state) == (expired, TransactionState.PREPARE_ABORT)
            assert await offsets(pair[1]) == before
    clock.close()


async def test_one_end_that_comes_to_two_agents_at_once_changes_the_producer_once(pair: Pair) -> None:
    for number in range(1, 11):
        call = await begin(pair[0], f"t{number}", part(0), fresh_id=number)
        both = await asyncio.gather(*(end(store, call, bump=True) for store in (*pair, *pair)))
        assert {each.producer for each in both} == {(number, 1)}


async def test_producers_that_ask_two_agents_for_a_new_name_at_once_are_different(pair: Pair) -> None:
    for number in range(10):
        first, second = await asyncio.gather(
            init(pair[0], f"t{number}", fresh_id=2 * number), init(pair[1], f"t{number}", fresh_id=2 * number + 1)
        )
        assert first.producer.producer_id == second.producer.producer_id
        assert {first.producer.epoch, second.producer.epoch} == {0, 1}


async def test_partitions_that_two_agents_enlist_at_once_are_all_there(pair: Pair) -> None:
    call = await begin(pair[0])
    await asyncio.gather(
        *(pair[number % 2].add_transaction_partitions(call, [part(number % 3)], limit=9) for number in range(6)),
    )
    result = await pair[0].find_transaction("t")
    assert result is not None
    assert (set(result.partitions), result.number) == ({part(0), part(1), part(2)}, 1)


async def test_what_is_enlisted_while_a_transaction_ends_is_marked_or_refused(pair: Pair) -> None:
    for number in range(1, 11):
        call = await begin(pair[0], f"t{number}", part(0), fresh_id=number)
        ended, enlisted = await asyncio.gather(
            end(pair[0], call), pair[1].add_transaction_partitions(call, [part(1)], limit=9), return_exceptions=True
        )
        assert isinstance(ended, StoredTransaction)
        assert (part(1) in ended.partitions) == isinstance(enlisted, StoredTransaction)
        assert isinstance(enlisted, StoredTransaction | ConcurrentTransactions)


async def test_offsets_that_are_put_while_a_transaction_ends_are_decided_or_refused(
    pair: Pair, coordinated: PartitionState
) -> None:
    for number in range(1, 11):
        call = await begin(pair[0], f"t{number}", fresh_id=number)
        before = await offsets(pair[0])
        ended, pending = await asyncio.gather(
            end(pair[1], call), pend(pair[0], coordinated, call, p0=number), return_exceptions=True
        )
        assert isinstance(ended, StoredTransaction)
        assert pending is None or isinstance(pending, Refused)
        assert await offsets(pair[0]) == ({0: number} if pending is None else before)
        assert await undecided(pair[0]) == set()


async def test_a_name_that_is_forgotten_while_it_begins_is_gone_or_under_way(pair: Pair) -> None:
    for number in range(1, 11):
        call = TransactionCall(f"t{number}", (await init(pair[0], f"t{number}", fresh_id=number)).producer)
        begun, forgotten = await asyncio.gather(
            pair[0].add_transaction_partitions(call, [part(0)], limit=9),
            pair[1].forget_transactions(older_than_ms=-60_000, limit=100),
            return_exceptions=True,
        )
        result = await pair[0].find_transaction(call.transactional_id)
        assert forgotten == (0 if isinstance(begun, StoredTransaction) else 1)
        assert result == (begun if isinstance(begun, StoredTransaction) else None)


async def test_offsets_are_decided_while_topics_and_groups_go_and_commits_come(
    pair: Pair, coordinated: PartitionState
) -> None:
    """Everybody who takes the same rows, at once and in many ways; each call ends well, and no offset is left over."""
    for number in range(1, 6):
        await pair[1].create_topic(topic(CLICKS, "clicks"))
        calls = [await begin(pair[0], f"t{number}-{each}", part(0), fresh_id=10 * number + each) for each in range(3)]
        places = [part(2), part(1, CLICKS), part(0), part(0, CLICKS)]
        for call in calls:
            pending = [PendingOffset(at, committed(number)) for at in places]
            await pair[0].put_pending_offsets(ALICE, shard(), coordinated.epoch, call, "g", pending, begins=False)
        await asyncio.gather(
            *(end(pair[each % 2], call) for each, call in enumerate(calls)),
            pair[1].delete_topic(CLICKS),
            pair[0].commit_groups(ALICE, [commit(coordinated, 10 * number, put(7, 2), put(7, 0))]),
        )
        dropped = commit(coordinated, 10 * number + 1, DropGroup(group_id="g"), PutGroup(group=group()))
        assert set(await offsets(pair[0])) == {0, 2}
        assert await undecided(pair[0]) == set()
        await pair[0].commit_groups(ALICE, [dropped])
