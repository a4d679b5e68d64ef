"""Several agents on one database: who wins, who waits for whom, and who doesn't."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from typing import Any

import asyncpg
import pytest

from streamhouse.errors import CommitRefused, LeaseLost, SessionLost, UnknownTopicId
from streamhouse.model.group import CommittedOffset, GroupOffset, PutOffset, ShardCommit
from streamhouse.model.names import SessionId
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.engine import Transaction, Work
from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from streamhouse.stores.metadata.postgres.connection import PostgresSettings
from streamhouse.stores.metadata.procedures.external_commits import commit_external_segments
from streamhouse.stores.metadata.procedures.segments import replace_runs
from streamhouse.stores.metadata.procedures.sessions import release
from streamhouse.stores.metadata.transaction_store import OffsetsRequest
from tests.contracts.metadata_placing import placed_run, placement
from tests.contracts.metadata_replacements import merged, rows
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CLICKS,
    ORDERS,
    TTL_MS,
    commit_of,
    lead,
    new_session,
    part,
    publish,
    run_of,
    spans,
    state_of,
    topic,
)

pytestmark = pytest.mark.postgres

Pair = tuple[PostgresMetadataStore, PostgresMetadataStore]


@pytest.fixture
async def pair(database: str) -> AsyncIterator[Pair]:
    """Two stores, as two agents have them, with Alice's and Bob's sessions and the topic `orders`."""
    first, second = [await PostgresMetadataStore(database).open() for _ in range(2)]
    await first.create_topic(topic())
    await first.open_session(new_session(ALICE))
    await second.open_session(new_session(BOB))
    yield first, second
    await first.aclose()
    await second.aclose()


async def test_of_two_stores_that_commit_the_same_offsets_exactly_one_wins_every_time(pair: Pair) -> None:
    [state] = await lead(pair[0], ALICE, part(0))
    for number in range(20):
        base = (await state_of(pair[0], part(0))).flushed_end
        rivals = [commit_of(f"{number}-{who}", run_of(state, base, base + 1, "")) for who in range(2)]
        results = await asyncio.gather(
            *(store.commit_segments(ALICE, [rival]) for store, rival in zip(pair, rivals, strict=True)),
            return_exceptions=True,
        )
        assert [type(result) for result in results if result is not None] == [LeaseLost]
    assert await spans(pair[0], part(0)) == [(n, n + 1) for n in range(20)]


async def test_one_commit_that_two_stores_repeat_at_once_happens_once(pair: Pair) -> None:
    first, second = await lead(pair[0], ALICE, part(0), part(1))
    for number in range(10):
        runs = [run_of(first, number, number + 1, ""), run_of(second, number, number + 1, "")]
        commit = commit_of(f"{number}", *runs)
        await asyncio.gather(*(store.commit_segments(ALICE, [commit]) for store in (*pair, *pair)))
    assert await pair[0].sizes([ORDERS]) == {part(0): 10_000, part(1): 10_000}


async def test_a_claim_and_a_commit_that_race_leave_one_story(pair: Pair) -> None:
    """Either the commit came first and the recoverer finds it, or it is refused. Nothing is published after a claim."""
    numbers = count()
    for _ in range(10):
        name = SessionId(f"s-{next(numbers):032x}")
        await pair[0].open_session(new_session(name))
        [state] = await lead(pair[0], name, part(0))
        base = state.flushed_end
        commit = commit_of(f"key-{name}", run_of(state, base, base + 1, ""))
        published, claim = await asyncio.gather(
            pair[0].commit_segments(name, [commit]),
            pair[1].claim_recovery(name, by=BOB, proven_dead=True),
            return_exceptions=True,
        )
        assert isinstance(claim, int)
        after = (await state_of(pair[1], part(0))).flushed_end
        assert after == (base if isinstance(published, LeaseLost) else base + 1)
        await pair[1].finish_recovery(name, claim, [])


async def test_a_lease_is_never_left_with_a_session_that_ends_meanwhile(pair: Pair) -> None:
    for number in range(10):
        name = SessionId(f"s-{number:032x}")
        await pair[0].open_session(new_session(name))
        taken, ended = await asyncio.gather(
            pair[0].acquire(name, [part(0), part(1)]), pair[1].end_session(name), return_exceptions=True
        )
        assert ended is None
        assert not isinstance(taken, BaseException) or isinstance(taken, SessionLost)
        assert {state.holder for state in await pair[0].partitions([ORDERS])} == {None}


async def test_sessions_that_two_stores_open_at_once_have_different_node_ids(pair: Pair) -> None:
    names = [SessionId(f"s-{number:032x}") for number in range(12)]
    opened = await asyncio.gather(
        *(pair[number % 2].open_session(new_session(name)) for number, name in enumerate(names))
    )
    assert sorted(session.node_id for session in opened) == list(range(3, 15))


async def test_an_object_whose_last_two_runs_go_at_once_is_doomed(pair: Pair) -> None:
    """Each of the two sees the other's run while it looks; one of them has to look again."""
    await pair[0].create_topic(topic(CLICKS, "clicks"))
    states = await lead(pair[0], ALICE, part(0), part(0, CLICKS))
    for number in range(10):
        shared = commit_of(f"{number}", *(run_of(state, number, number + 1, "") for state in states))
        await pair[0].commit_segments(ALICE, [shared])
    for number in range(1, 10):
        await asyncio.gather(
            *(store.advance_log_start({state.partition: number}) for store, state in zip(pair, states, strict=True))
        )
    doomed = {each.key for each in await pair[0].objects_pending_deletion(grace_ms=-(10**12), limit=100)}
    assert doomed == {f"{number}" for number in range(9)}
    assert await pair[0].known_objects() == {f"{number}" for number in range(10)}


async def test_offsets_of_a_topic_that_is_deleted_meanwhile_are_passed_over(pair: Pair) -> None:
    [shard] = await lead(pair[0], ALICE, part(0))
    for number in range(1, 8):
        gone = topic(CLICKS, "clicks", partitions=4)
        await pair[1].create_topic(gone)
        offset = CommittedOffset(offset=1, leader_epoch=0, metadata="", committed_at_ms=1, expires_at_ms=None)
        changes = tuple(PutOffset(at=GroupOffset("g", part(n, CLICKS)), committed=offset) for n in reversed(range(4)))
        commit = ShardCommit(shard=part(0), epoch=shard.epoch, sequence=number, changes=changes)
        await asyncio.gather(pair[0].commit_groups(ALICE, [commit]), pair[1].delete_topic(CLICKS))
        assert list(await pair[0].committed_offsets([OffsetsRequest("g", None)])) == []


async def test_a_long_open_transaction_elsewhere_stalls_nobody(pair: Pair, database: str) -> None:
    [state] = await lead(pair[0], ALICE, part(0))
    elsewhere = await asyncpg.connect(database)
    async with elsewhere.transaction(isolation="repeatable_read"):
        await elsewhere.execute("CREATE TABLE unrelated (n INTEGER)")
        await elsewhere.execute("INSERT INTO unrelated VALUES (1)")
        assert await elsewhere.fetchval("SELECT count(*) FROM runs") == 0
        await publish(pair[0], ALICE, state, 1, 2, 3)
        assert await spans(pair[1], part(0)) == [(0, 1), (1, 2), (2, 3)]
        assert (await state_of(pair[1], part(0))).flushed_end == 3
        await pair[0].renew_session(ALICE, TTL_MS)
        await elsewhere.execute("DROP TABLE unrelated")
    await elsewhere.close()


async def test_a_heartbeat_does_not_wait_for_a_commit_that_takes_long(pair: Pair) -> None:
    await lead(pair[0], ALICE, part(0))
    held, done = asyncio.Event(), asyncio.Event()

    async def slow(tx: Transaction) -> None:
        await tx.row(tx.sql.find_session, {"session_id": ALICE})
        held.set()
        await done.wait()

    commit = asyncio.create_task(pair[0]._database.write(slow))
    await held.wait()
    await pair[1].renew_session(ALICE, TTL_MS)
    claim = asyncio.create_task(pair[1].claim_recovery(ALICE, by=BOB, proven_dead=True))
    for _ in range(20):  # many more round trips than a claim needs that nobody stops
        await pair[1].renew_session(BOB, TTL_MS)
    assert not claim.done()
    done.set()
    await commit
    assert await claim == 1


async def test_a_lease_whose_release_is_late_is_not_taken_for_held(pair: Pair) -> None:
    """Whoever gave the release up and asks for the lease again gets it after the release, under another epoch."""
    [before] = await lead(pair[0], ALICE, part(0))
    released, done = asyncio.Event(), asyncio.Event()

    async def late(tx: Transaction) -> None:
        await release(tx, ALICE, [part(0)])
        released.set()
        await done.wait()

    releasing = asyncio.create_task(pair[0]._database.write(late))
    await released.wait()
    acquiring = asyncio.create_task(pair[0].acquire(ALICE, [part(0)]))
    for _ in range(20):  # many more round trips than it needs that nobody stops
        await pair[1].renew_session(BOB, TTL_MS)
    assert not acquiring.done()
    done.set()
    await releasing
    [after] = await acquiring
    assert (after.holder, after.epoch > before.epoch) == (ALICE, True)


async def test_transactions_that_wait_for_each_other_are_tried_again_and_succeed(pair: Pair) -> None:
    meet = asyncio.Barrier(2)
    attempts: list[str] = []

    async def both(tx: Transaction, first: int, second: int) -> None:
        attempts.append(f"{first}")
        await _touch(tx, first)
        if len(attempts) <= 2:
            await meet.wait()
        await _touch(tx, second)

    await asyncio.gather(
        pair[0]._database.write(lambda tx: both(tx, 0, 1)), pair[1]._database.write(lambda tx: both(tx, 1, 0))
    )
    assert len(attempts) > 2
    assert await pair[0]._database.read_one(_touched) == [2, 2, 0]


async def _touch(tx: Transaction, number: int) -> None:
    await tx.change(
        "UPDATE partitions SET size_bytes = size_bytes + 1 WHERE partition = :partition", {"partition": number}
    )


async def _touched(tx: Transaction) -> list[int]:
    return [row["size_bytes"] for row in await tx.rows("SELECT size_bytes FROM partitions ORDER BY partition")]


async def test_a_topic_that_grows_while_it_is_deleted_is_gone_as_a_whole(pair: Pair) -> None:
    for number in range(10):
        await pair[0].create_topic(topic(CLICKS, f"clicks-{number}"))
        grown, deleted = await asyncio.gather(
            pair[0].add_partitions(CLICKS, from_count=3, to_count=9),
            pair[1].delete_topic(CLICKS),
            return_exceptions=True,
        )
        assert deleted is None
        assert isinstance(grown, Topic | UnknownTopicId)
        assert list(await pair[0].partitions([CLICKS])) == []


async def test_an_epoch_of_a_transaction_that_failed_was_never_anybodys(pair: Pair) -> None:
    [before] = await lead(pair[0], ALICE, part(0))

    async def fail(tx: Transaction) -> None:
        await tx.row(tx.sql.next_epoch)
        raise SessionLost(ALICE, why="a test")

    for _ in range(3):
        with pytest.raises(SessionLost):
            await pair[0]._database.write(fail)
    [after] = await lead(pair[1], BOB, part(1))
    assert after.epoch > before.epoch
    await pair[0].release(ALICE, [part(0)])
    [again] = await lead(pair[0], ALICE, part(0))
    assert again.epoch > after.epoch
    assert replace(again, epoch=before.epoch) == before


async def test_calls_that_need_more_connections_than_there_are_take_turns(database: str) -> None:
    store = await PostgresMetadataStore(database, PostgresSettings(max_connections=2, timeout_s=30)).open()
    await store.create_topic(topic())
    results = await asyncio.gather(*(store.allocate_producer_ids(1) for _ in range(50)))
    assert len(set(results)) == 50
    assert store._database._pool.get_size() <= 2
    await store.aclose()


async def test_an_object_is_placed_or_given_up_and_never_both(pair: Pair) -> None:
    [state] = await lead(pair[0], ALICE, part(0))
    for number in range(20):
        base = (await state_of(pair[0], part(0))).flushed_end
        key = f"k{number}"
        pending, given_up = await asyncio.gather(
            pair[0].commit_external_segments(placement(placed_run(state, base, base + 1, key), epoch=number)),
            pair[1].abandon_objects([key]),
            return_exceptions=True,
        )
        assert given_up is None
        doomed = key in {item.key for item in await pair[0].objects_pending_deletion(grace_ms=0, limit=100)}
        assert isinstance(pending, CommitRefused) == doomed


async def test_one_placement_that_two_agents_make_at_once_happens_once(pair: Pair) -> None:
    [state] = await lead(pair[0], ALICE, part(0))
    for number in range(20):
        rivals = [placement(placed_run(state, number, number + 1, f"{number}-{who}"), epoch=number) for who in range(2)]
        done = await asyncio.gather(
            *(store.commit_external_segments(each) for store, each in zip(pair, rivals, strict=True))
        )
        assert sorted(each.is_replayed for each in done) == [False, True]
        assert done[0].placed == done[1].placed
    assert await spans(pair[0], part(0)) == [(n, n + 1) for n in range(20)]


class PausedAfterKnown:
    """A transaction that stops right after it has looked whether a key is known, and before it acts on that."""

    def __init__(self, tx: Transaction, *, looked: asyncio.Event, go_on: asyncio.Event) -> None:
        self._tx, self._looked, self._go_on = tx, looked, go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def rows(self, statement: str, params: Any = None) -> Any:
        result = await self._tx.rows(statement, params)
        if statement == self._tx.sql.known_among:
            self._looked.set()
            await self._go_on.wait()
        return result


async def given_up_between_look_and_insert(pair: Pair, key: str, work: Work[object]) -> bool:
    """Whether another agent can give up an object that `work` has found unknown and is about to name."""
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def paused(tx: Transaction) -> object:
        return await work(PausedAfterKnown(tx, looked=looked, go_on=go_on))

    naming = asyncio.create_task(pair[0]._database.write(paused))
    await looked.wait()
    giving_up = asyncio.create_task(pair[1].abandon_objects([key]))
    for _ in range(20):  # many more round trips than giving up needs when nothing holds it
        await pair[1].renew_session(BOB, TTL_MS)
    was_given_up = giving_up.done()
    go_on.set()
    await asyncio.gather(naming, giving_up)
    assert key in {run.object_key for run in await rows(pair[0])}
    doomed = {item.key for item in await pair[0].objects_pending_deletion(grace_ms=0, limit=100)}
    assert (key in doomed) == was_given_up
    return was_given_up


async def test_an_object_that_is_about_to_replace_runs_is_not_given_up(pair: Pair) -> None:
    [state] = await lead(pair[0], ALICE, part(0))
    await publish(pair[0], ALICE, state, 1, 2, 3)
    old = await rows(pair[0])
    commit = merged(old, "placed")
    assert not await given_up_between_look_and_insert(pair, "placed", lambda tx: replace_runs(tx, ALICE, old, commit))


async def test_an_object_that_is_about_to_be_placed_is_not_given_up(pair: Pair) -> None:
    [state] = await lead(pair[0], ALICE, part(0))
    request = placement(placed_run(state, 0, 1, "placed"))
    assert not await given_up_between_look_and_insert(pair, "placed", lambda tx: commit_external_segments(tx, request))
