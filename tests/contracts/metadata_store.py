"""What every metadata store must do: written once, subclassed per engine.

A subclass gives the fixture `store` (open, empty, on the `clock` fixture).
"""

import asyncio
import uuid
from dataclasses import replace

import pytest

from streamhouse.errors import Internal, InvalidPartitions, LeaseLost, SessionLost, TopicExists
from streamhouse.model.lease import Address, PartitionState, SessionState
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import MetadataStore, NewSession
from tests.contracts.clocks import ManualClock

TTL_MS = 30_000
ORDERS = TopicId(uuid.UUID(int=1))
CLICKS = TopicId(uuid.UUID(int=2))
ALICE = SessionId("s-" + "a" * 32)
BOB = SessionId("s-" + "b" * 32)
CAROL = SessionId("s-" + "c" * 32)
NOBODY = SessionId("s-" + "0" * 32)


def topic(topic_id: TopicId = ORDERS, name: str = "orders", partitions: int = 3) -> Topic:
    return Topic(
        topic_id=topic_id, name=name, partitions=partitions, overrides={"retention.ms": "1000"}, created_at_ms=123
    )


def part(number: int, topic_id: TopicId = ORDERS) -> PartitionId:
    return PartitionId(topic_id, number)


def new_session(session_id: SessionId) -> NewSession:
    return NewSession(
        session_id=session_id,
        kafka=Address(host="127.0.0.1", port=9092),
        http=Address(host="::1", port=8080),
        ttl_ms=TTL_MS,
    )


def run_of(state: PartitionState, base: int, end: int, key: str) -> Run:
    return Run(
        partition=state.partition,
        base=base,
        end=end,
        stored_base=base,
        epoch=state.epoch,
        object_key=key,
        position=32,
        length=1000,
        index_position=1032,
        index_length=64,
        records=end - base,
        max_timestamp_ms=end,
    )


def commit_of(key: str, *runs: Run) -> SegmentCommit:
    return SegmentCommit(
        segment=SegmentObject(key=key, size_bytes=4096, created_at_ms=99),
        runs=tuple(replace(run, object_key=key) for run in runs),
    )


async def lead(store: MetadataStore, session: SessionId, *partitions: PartitionId) -> list[PartitionState]:
    """Acquire these and insist on having all of them."""
    states = list(await store.acquire(session, partitions))
    assert [state.partition for state in states] == sorted(partitions)
    return states


async def publish(store: MetadataStore, session: SessionId, state: PartitionState, *ends: int) -> None:
    """One object per run, the runs one after the other from the flushed end."""
    base = state.flushed_end
    for end in ends:
        key = f"segments/{state.partition}/{base}"
        await store.commit_segments(session, [commit_of(key, run_of(state, base, end, key))])
        base = end


async def state_of(store: MetadataStore, partition: PartitionId) -> PartitionState:
    return next(s for s in await store.partitions([partition.topic_id]) if s.partition == partition)


async def spans(store: MetadataStore, partition: PartitionId, from_offset: int = 0) -> list[tuple[int, int]]:
    return [(run.base, run.end) for run in await store.runs(partition, from_offset=from_offset, limit=1000)]


class MetadataStoreContract:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def ready(self, store: MetadataStore) -> MetadataStore:
        """The topic `orders` with three partitions, and Alice's and Bob's sessions."""
        await store.create_topic(topic())
        await store.open_session(new_session(ALICE))
        await store.open_session(new_session(BOB))
        return store

    # --- topics

    async def test_a_topic_comes_back_as_it_was_created(self, store: MetadataStore) -> None:
        await store.create_topic(topic())
        assert list(await store.topics()) == [topic()]

    async def test_topics_are_listed_by_name(self, store: MetadataStore) -> None:
        await store.create_topic(topic())
        await store.create_topic(topic(CLICKS, "clicks"))
        assert [each.name for each in await store.topics()] == ["clicks", "orders"]

    async def test_a_new_topic_has_empty_free_partitions_in_order(self, store: MetadataStore) -> None:
        await store.create_topic(topic(partitions=12))
        states = await store.partitions([ORDERS])
        assert [state.partition for state in states] == [part(n) for n in range(12)]
        assert {(s.holder, s.log_start, s.flushed_end) for s in states} == {(None, 0, 0)}

    async def test_creating_the_same_topic_again_changes_nothing(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await ready.create_topic(topic())
        assert await state_of(ready, part(0)) == state

    async def test_a_name_belongs_to_one_topic(self, store: MetadataStore) -> None:
        await store.create_topic(topic())
        with pytest.raises(TopicExists):
            await store.create_topic(topic(CLICKS, "orders"))
        assert [each.topic_id for each in await store.topics()] == [ORDERS]
        assert list(await store.partitions([CLICKS])) == []

    async def test_a_topic_needs_a_partition(self, store: MetadataStore) -> None:
        with pytest.raises(InvalidPartitions):
            await store.create_topic(topic(partitions=0))
        assert list(await store.topics()) == []

    async def test_sixteen_creators_of_one_name_leave_one_topic(self, store: MetadataStore) -> None:
        rivals = [topic(TopicId(uuid.UUID(int=100 + n))) for n in range(16)]
        results = await asyncio.gather(*(store.create_topic(each) for each in rivals), return_exceptions=True)
        assert sum(result is None for result in results) == 1
        assert sum(isinstance(result, TopicExists) for result in results) == 15
        assert len(await store.topics()) == 1

    async def test_partitions_of_unknown_topics_are_left_out(self, ready: MetadataStore) -> None:
        assert list(await ready.partitions([CLICKS])) == []
        assert len(await ready.partitions([CLICKS, ORDERS, ORDERS])) == 3

    async def test_a_deleted_topic_is_gone_with_everything(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        await ready.delete_topic(ORDERS)
        assert list(await ready.topics()) == []
        assert list(await ready.partitions([ORDERS])) == []
        assert list(await ready.held_by(ALICE)) == []
        assert await spans(ready, part(0)) == []
        assert await ready.last_run(part(0)) is None

    async def test_deleting_a_topic_twice_is_no_error(self, ready: MetadataStore) -> None:
        await ready.delete_topic(ORDERS)
        await ready.delete_topic(ORDERS)

    async def test_deleting_a_topic_dooms_only_objects_that_no_other_topic_needs(self, ready: MetadataStore) -> None:
        await ready.create_topic(topic(CLICKS, "clicks"))
        orders, clicks = await lead(ready, ALICE, part(0), part(0, CLICKS))
        await ready.commit_segments(
            ALICE, [commit_of("shared", run_of(orders, 0, 5, "shared"), run_of(clicks, 0, 5, "shared"))]
        )
        await ready.commit_segments(ALICE, [commit_of("own", run_of(orders, 5, 9, "own"))])
        await ready.delete_topic(ORDERS)
        assert [each.key for each in await ready.doomed_objects(grace_ms=0, limit=10)] == ["own"]
        await ready.delete_topic(CLICKS)
        assert {each.key for each in await ready.doomed_objects(grace_ms=0, limit=10)} == {"own", "shared"}

    # --- sessions

    async def test_a_session_lives_from_now_by_the_stores_clock(self, store: MetadataStore, clock: ManualClock) -> None:
        session = await store.open_session(new_session(ALICE))
        assert session.state is SessionState.LIVE
        assert (session.kafka, session.http) == (new_session(ALICE).kafka, new_session(ALICE).http)
        assert (session.started_at_ms, session.expires_at_ms) == (clock.now_ms(), clock.now_ms() + TTL_MS)
        assert session.claim == 0
        assert list(await store.sessions()) == [session]
        assert await store.now_ms() == clock.now_ms()

    async def test_node_ids_are_the_lowest_that_no_unended_session_uses(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        names = [SessionId(f"s-{n:032x}") for n in range(6)]
        assert [(await store.open_session(new_session(name))).node_id for name in names[:3]] == [1, 2, 3]
        await store.end_session(names[1])
        assert (await store.open_session(new_session(names[3]))).node_id == 2
        await store.end_session(names[0])
        assert (await store.open_session(new_session(names[4]))).node_id == 1
        clock.advance(ms=TTL_MS + 1)
        await store.claim_recovery(names[2], by=names[3], proven_dead=True)
        assert (await store.open_session(new_session(names[5]))).node_id == 4
        assert [session.node_id for session in await store.sessions()] == [1, 2, 3, 4]

    async def test_opening_a_live_session_again_returns_it_renewed(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        first = await store.open_session(new_session(ALICE))
        clock.advance(ms=100)
        again = await store.open_session(new_session(ALICE))
        assert again == replace(first, expires_at_ms=first.expires_at_ms + 100)

    async def test_a_session_id_never_comes_back(self, ready: MetadataStore) -> None:
        await ready.end_session(ALICE)
        with pytest.raises(SessionLost):
            await ready.open_session(new_session(ALICE))
        await ready.claim_recovery(BOB, by=(await ready.open_session(new_session(CAROL))).session_id, proven_dead=True)
        with pytest.raises(SessionLost):
            await ready.open_session(new_session(BOB))

    async def test_a_heartbeat_extends_the_session(self, ready: MetadataStore, clock: ManualClock) -> None:
        clock.advance(ms=TTL_MS - 1)
        await ready.renew_session(ALICE, TTL_MS)
        alice = next(s for s in await ready.sessions() if s.session_id == ALICE)
        assert alice.expires_at_ms == clock.now_ms() + TTL_MS

    async def test_an_expired_session_that_nobody_claimed_is_live_again_by_a_heartbeat(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        clock.advance(ms=TTL_MS)
        with pytest.raises(SessionLost):
            await ready.acquire(ALICE, [part(0)])
        await ready.renew_session(ALICE, TTL_MS)
        assert await ready.acquire(ALICE, [part(0)])

    async def test_an_unknown_or_ended_session_has_no_heartbeat(self, ready: MetadataStore) -> None:
        await ready.end_session(ALICE)
        for session_id in (ALICE, NOBODY):
            with pytest.raises(SessionLost):
                await ready.renew_session(session_id, TTL_MS)

    async def test_ending_a_session_frees_its_leases(self, ready: MetadataStore) -> None:
        await lead(ready, ALICE, part(0), part(1))
        await ready.end_session(ALICE)
        assert [s.session_id for s in await ready.sessions()] == [BOB]
        assert {state.holder for state in await ready.partitions([ORDERS])} == {None}
        await lead(ready, BOB, part(0), part(1))

    async def test_ending_a_session_twice_is_no_error(self, ready: MetadataStore) -> None:
        await ready.end_session(ALICE)
        await ready.end_session(ALICE)

    # --- leases

    async def test_a_free_lease_is_taken_with_a_new_epoch(self, ready: MetadataStore) -> None:
        before = await state_of(ready, part(1))
        [state] = await lead(ready, ALICE, part(1))
        assert state.holder == ALICE
        assert state.epoch > before.epoch
        assert state == await state_of(ready, part(1))

    async def test_a_lease_already_held_stays_as_it_is(self, ready: MetadataStore) -> None:
        [held] = await lead(ready, ALICE, part(0))
        again = await ready.acquire(ALICE, [part(1), part(0), part(0)])
        assert again[0] == held
        assert [state.partition for state in again] == [part(0), part(1)]

    async def test_a_lease_held_by_another_session_is_left_out(self, ready: MetadataStore) -> None:
        [held] = await lead(ready, ALICE, part(0))
        assert [s.partition for s in await ready.acquire(BOB, [part(0), part(1)])] == [part(1)]
        assert await state_of(ready, part(0)) == held

    async def test_the_lease_of_an_expired_session_must_be_recovered_first(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        await lead(ready, ALICE, part(0))
        clock.advance(ms=TTL_MS * 10)
        await ready.renew_session(BOB, TTL_MS)
        assert list(await ready.acquire(BOB, [part(0)])) == []
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=False)
        assert claim is not None
        assert list(await ready.acquire(BOB, [part(0)])) == []
        await ready.finish_recovery(ALICE, claim, [])
        await lead(ready, BOB, part(0))

    async def test_only_a_live_unexpired_session_acquires(self, ready: MetadataStore, clock: ManualClock) -> None:
        await ready.claim_recovery(BOB, by=ALICE, proven_dead=True)
        clock.advance(ms=TTL_MS)
        for session_id in (ALICE, BOB, NOBODY):
            with pytest.raises(SessionLost):
                await ready.acquire(session_id, [part(0)])
        assert (await state_of(ready, part(0))).holder is None

    async def test_unknown_partitions_are_left_out_of_an_acquire(self, ready: MetadataStore) -> None:
        assert list(await ready.acquire(ALICE, [part(99), part(0, CLICKS)])) == []

    async def test_a_released_lease_is_free_and_keeps_its_epoch(self, ready: MetadataStore) -> None:
        [held] = await lead(ready, ALICE, part(0))
        await ready.release(ALICE, [part(0), part(1)])
        assert await state_of(ready, part(0)) == replace(held, holder=None)

    async def test_nobody_releases_the_lease_of_another(self, ready: MetadataStore) -> None:
        [held] = await lead(ready, ALICE, part(0))
        await ready.release(BOB, [part(0)])
        assert await state_of(ready, part(0)) == held

    async def test_a_claimed_session_can_not_release_what_must_be_recovered(self, ready: MetadataStore) -> None:
        [held] = await lead(ready, ALICE, part(0))
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        with pytest.raises(SessionLost):
            await ready.release(ALICE, [part(0)])
        with pytest.raises(SessionLost):
            await ready.end_session(ALICE)
        assert await state_of(ready, part(0)) == held

    async def test_epochs_only_grow_across_release_recovery_delete_and_recreation(self, ready: MetadataStore) -> None:
        epochs: list[int] = []

        async def take(session_id: SessionId, partition: PartitionId) -> None:
            [state] = await lead(ready, session_id, partition)
            epochs.append(state.epoch)

        await take(ALICE, part(0))
        await ready.release(ALICE, [part(0)])
        await take(BOB, part(0))
        claim = await ready.claim_recovery(BOB, by=ALICE, proven_dead=True)
        assert claim is not None
        await ready.finish_recovery(BOB, claim, [])
        await take(ALICE, part(0))
        await ready.delete_topic(ORDERS)
        await ready.create_topic(topic(CLICKS, "orders"))
        assert (await state_of(ready, part(0, CLICKS))).epoch >= epochs[-1]
        await take(ALICE, part(0, CLICKS))
        assert epochs == sorted(set(epochs))

    async def test_of_sixteen_sessions_that_race_for_a_lease_one_gets_it(self, store: MetadataStore) -> None:
        await store.create_topic(topic())
        names = [SessionId(f"s-{n:032x}") for n in range(16)]
        await asyncio.gather(*(store.open_session(new_session(name)) for name in names))
        results = await asyncio.gather(*(store.acquire(name, [part(0)]) for name in names))
        winners = [states[0].holder for states in results if states]
        assert winners == [(await state_of(store, part(0))).holder]

    async def test_held_by_names_the_leases_of_one_session(self, ready: MetadataStore) -> None:
        held = await lead(ready, ALICE, part(0), part(2))
        await lead(ready, BOB, part(1))
        assert list(await ready.held_by(ALICE)) == held
        assert list(await ready.held_by(NOBODY)) == []

    # --- commits

    async def test_a_commit_publishes_its_runs_and_moves_the_flushed_ends(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        commit = commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))
        await ready.commit_segments(ALICE, [commit])
        assert await state_of(ready, part(0)) == replace(first, flushed_end=10)
        assert await state_of(ready, part(1)) == replace(second, flushed_end=7)
        assert list(await ready.runs(part(0), from_offset=0, limit=9)) == [commit.runs[0]]
        assert await ready.last_run(part(1)) == commit.runs[1]
        assert await ready.known_objects() == {"k"}

    async def test_large_offsets_survive(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        edges = [2**31 - 1, 2**31 + 1, 2**32, 2**53 + 1, 2**63 - 1]
        await publish(ready, ALICE, state, *edges)
        assert [end for _, end in await spans(ready, part(0))] == edges
        assert (await state_of(ready, part(0))).flushed_end == 2**63 - 1

    async def test_several_runs_of_a_partition_chain_in_one_commit(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commits = [
            commit_of("a", run_of(state, 0, 3, "a"), run_of(state, 3, 4, "a")),
            commit_of("b", run_of(state, 4, 9, "b")),
        ]
        await ready.commit_segments(ALICE, commits)
        assert await spans(ready, part(0)) == [(0, 3), (3, 4), (4, 9)]
        assert (await state_of(ready, part(0))).flushed_end == 9

    async def test_runs_that_chain_may_come_in_any_order(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commits = [commit_of("b", run_of(state, 4, 9, "b")), commit_of("a", run_of(state, 0, 4, "a"))]
        await ready.commit_segments(ALICE, commits)
        assert await spans(ready, part(0)) == [(0, 4), (4, 9)]

    @pytest.mark.parametrize("wrong", ["epoch", "older epoch", "holder", "gap", "overlap", "released", "deleted"])
    async def test_a_commit_whose_guard_fails_changes_nothing_and_names_the_partition(
        self, ready: MetadataStore, wrong: str
    ) -> None:
        good, bad = await lead(ready, ALICE, part(0), part(1))
        await publish(ready, ALICE, bad, 5)
        run = run_of(bad, 5, 8, "k")
        if wrong == "epoch":
            run = replace(run, epoch=Epoch(bad.epoch + 1))
        elif wrong == "older epoch":
            await ready.release(ALICE, [part(1)])
            await lead(ready, ALICE, part(1))
        elif wrong == "holder":
            await ready.release(ALICE, [part(1)])
            [taken] = await lead(ready, BOB, part(1))
            run = replace(run, epoch=taken.epoch)
        elif wrong == "gap":
            run = replace(run, base=6)
        elif wrong == "overlap":
            run = replace(run, base=4)
        elif wrong == "released":
            await ready.release(ALICE, [part(1)])
        elif wrong == "deleted":
            run = replace(run, partition=part(1, CLICKS))
        before = await ready.partitions([ORDERS])
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", run_of(good, 0, 10, "k"), run)])
        assert lost.value.partitions == (run.partition,)
        assert await ready.partitions([ORDERS]) == before
        assert await spans(ready, part(0)) == []
        assert "k" not in await ready.known_objects()
        await ready.commit_segments(ALICE, [commit_of("k", run_of(good, 0, 10, "k"))])

    async def test_a_broken_chain_fails_as_a_whole(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commits = [commit_of("a", run_of(state, 0, 3, "a")), commit_of("b", run_of(state, 4, 9, "b"))]
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, commits)
        assert lost.value.partitions == (part(0),)
        assert (await state_of(ready, part(0))).flushed_end == 0
        assert await ready.known_objects() == frozenset()

    async def test_every_failing_partition_is_named_once(self, ready: MetadataStore) -> None:
        states = await lead(ready, ALICE, part(0), part(1), part(2))
        runs = [run_of(states[0], 0, 1, "k"), run_of(states[1], 1, 2, "k"), run_of(states[1], 2, 3, "k")]
        runs.append(run_of(states[2], 7, 8, "k"))
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", *runs)])
        assert sorted(map(str, lost.value.partitions)) == [str(part(1)), str(part(2))]

    async def test_a_commit_after_its_topic_was_deleted_names_its_partitions(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await ready.delete_topic(ORDERS)
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", run_of(state, 0, 1, "k"))])
        assert lost.value.partitions == (part(0),)
        assert await ready.known_objects() == frozenset()

    async def test_a_repeated_commit_is_a_no_op_also_after_later_ones(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        commit = commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))
        await ready.commit_segments(ALICE, [commit])
        await ready.commit_segments(ALICE, [commit])
        await ready.commit_segments(ALICE, [commit_of("l", run_of(first, 10, 20, "l"))])
        before = await ready.partitions([ORDERS])
        await ready.commit_segments(ALICE, [commit])
        assert await ready.partitions([ORDERS]) == before
        assert await spans(ready, part(0)) == [(0, 10), (10, 20)]

    async def test_a_repeated_commit_is_a_no_op_after_retention_or_deletion(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        commit = commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))
        await ready.commit_segments(ALICE, [commit])
        await ready.commit_segments(ALICE, [commit_of("l", run_of(first, 10, 20, "l"))])
        await ready.advance_log_start({part(0): 10})
        await ready.commit_segments(ALICE, [commit])
        await ready.delete_topic(ORDERS)
        await ready.commit_segments(ALICE, [commit])
        assert {each.key for each in await ready.doomed_objects(grace_ms=0, limit=9)} == {"k", "l"}

    async def test_a_repeated_commit_may_bring_a_new_one_along(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        first = commit_of("k", run_of(state, 0, 10, "k"))
        await ready.commit_segments(ALICE, [first])
        await ready.commit_segments(ALICE, [first, commit_of("l", run_of(state, 10, 20, "l"))])
        assert await spans(ready, part(0)) == [(0, 10), (10, 20)]

    async def test_a_known_object_can_not_silently_swallow_a_run_it_never_published(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        await ready.commit_segments(ALICE, [commit_of("k", run_of(first, 0, 10, "k"))])
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", run_of(first, 0, 10, "k"), run_of(second, 0, 7, "k"))])
        assert lost.value.partitions == (part(1),)
        assert (await state_of(ready, part(1))).flushed_end == 0

    async def test_a_commit_of_a_collected_object_does_not_bring_it_back(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        await ready.advance_log_start({part(0): 10})
        [gone] = await ready.doomed_objects(grace_ms=0, limit=9)
        await ready.forget_objects([gone.key])
        with pytest.raises(LeaseLost):
            await ready.commit_segments(ALICE, [commit_of(gone.key, run_of(state, 0, 10, gone.key))])
        assert gone.key not in await ready.known_objects()

    async def test_an_expired_session_that_nobody_claimed_may_still_publish(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        [state] = await lead(ready, ALICE, part(0))
        clock.advance(ms=TTL_MS * 2)
        await publish(ready, ALICE, state, 10)
        assert (await state_of(ready, part(0))).flushed_end == 10

    async def test_an_object_without_runs_or_with_foreign_or_empty_runs_is_refused(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        foreign = replace(commit_of("k"), runs=(run_of(state, 0, 1, "other"),))
        twice = commit_of("k", run_of(state, 0, 1, "k"))
        for commits in ([commit_of("k")], [foreign], [commit_of("k", run_of(state, 0, 0, "k"))], [twice, twice]):
            with pytest.raises(Internal):
                await ready.commit_segments(ALICE, commits)
        assert await ready.known_objects() == frozenset()

    async def test_an_empty_commit_is_no_error(self, ready: MetadataStore) -> None:
        await ready.commit_segments(ALICE, [])

    async def test_racing_commits_of_one_partition_let_one_win(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        rivals = [commit_of(f"k{n}", run_of(state, 0, n + 1, f"k{n}")) for n in range(16)]
        results = await asyncio.gather(*(ready.commit_segments(ALICE, [c]) for c in rivals), return_exceptions=True)
        assert sum(result is None for result in results) == 1
        assert sum(isinstance(result, LeaseLost) for result in results) == 15
        winner = rivals[results.index(None)]
        assert list(await ready.runs(part(0), from_offset=0, limit=99)) == list(winner.runs)
        assert await ready.known_objects() == {winner.segment.key}

    # --- reading runs

    async def test_runs_begin_with_the_one_that_holds_the_offset(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        assert await spans(ready, part(0), 0) == [(0, 10), (10, 20), (20, 30)]
        assert await spans(ready, part(0), 9) == [(0, 10), (10, 20), (20, 30)]
        assert await spans(ready, part(0), 10) == [(10, 20), (20, 30)]
        assert await spans(ready, part(0), 29) == [(20, 30)]
        assert await spans(ready, part(0), 30) == []
        assert [run.base for run in await ready.runs(part(0), from_offset=5, limit=2)] == [0, 10]

    async def test_runs_below_the_first_that_is_left_are_skipped(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0), 3) == [(20, 30)]

    async def test_runs_of_one_partition_do_not_show_in_another(self, ready: MetadataStore) -> None:
        first, _ = await lead(ready, ALICE, part(0), part(1))
        await publish(ready, ALICE, first, 10)
        assert await spans(ready, part(1)) == []
        assert await ready.last_run(part(1)) is None

    async def test_a_time_finds_the_first_run_that_has_it(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        late = [100, 50, 100, 300, 200]
        runs = [replace(run_of(state, n, n + 1, "k"), max_timestamp_ms=each) for n, each in enumerate(late)]
        await ready.commit_segments(ALICE, [commit_of("k", *reversed(runs[:3]))])
        await ready.commit_segments(ALICE, [commit_of("l", *runs[3:])])

        async def first(timestamp_ms: int, from_offset: int = 0) -> int | None:
            run = await ready.run_at_time(part(0), timestamp_ms=timestamp_ms, from_offset=from_offset)
            return None if run is None else run.base

        assert [await first(each) for each in (0, 100, 101, 300, 301)] == [0, 0, 3, 3, None]
        assert [await first(100, start) for start in range(6)] == [0, 2, 2, 3, 4, None]
        assert [await first(300, start) for start in (3, 4)] == [3, None]
        await ready.advance_log_start({part(0): 4})
        assert [await first(each) for each in (0, 200, 250)] == [4, 4, None]
        assert await ready.run_at_time(part(1), timestamp_ms=0, from_offset=0) is None

    async def test_the_latest_run_is_the_first_with_the_largest_timestamp(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        assert await ready.latest_run(part(0), from_offset=0) is None
        late = [100, 300, 300, 200]
        runs = [replace(run_of(state, n, n + 1, "k"), max_timestamp_ms=each) for n, each in enumerate(late)]
        commit = commit_of("k", *runs)
        await ready.commit_segments(ALICE, [commit])
        found = [await ready.latest_run(part(0), from_offset=start) for start in range(5)]
        assert found == [commit.runs[1], commit.runs[1], commit.runs[2], commit.runs[3], None]

    async def test_an_epoch_ends_where_its_last_run_ends(self, ready: MetadataStore) -> None:
        epochs: list[int] = []
        for end in (10, 20, 30):
            [state] = await lead(ready, ALICE, part(0))
            await publish(ready, ALICE, state, end - 5, end)
            await ready.release(ALICE, [part(0)])
            await lead(ready, BOB, part(0))
            await ready.release(BOB, [part(0)])
            epochs.append(state.epoch)
        first, second, third = epochs
        for asked, epoch, end in ((first, first, 10), (first + 1, first, 10), (second, second, 20), (99, third, 30)):
            found = await ready.epoch_end(part(0), asked)
            assert found is not None
            assert (found.epoch, found.end) == (epoch, end)
        assert await ready.epoch_end(part(0), first - 1) is None
        assert await ready.epoch_end(part(1), 99) is None

    async def test_a_refusal_is_not_a_failure_of_the_store(self, ready: MetadataStore) -> None:
        with pytest.raises(SessionLost):
            await ready.renew_session(NOBODY, TTL_MS)
        assert ready.failures_in_a_row == 0

    # --- recovery

    async def test_a_live_session_is_not_claimed_unless_proven_dead(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        clock.advance(ms=TTL_MS - 1)
        assert await ready.claim_recovery(ALICE, by=BOB, proven_dead=False) is None
        await ready.renew_session(ALICE, TTL_MS)
        assert await ready.claim_recovery(ALICE, by=BOB, proven_dead=True) is not None

    async def test_a_session_is_claimed_when_its_time_is_up(self, ready: MetadataStore, clock: ManualClock) -> None:
        clock.advance(ms=TTL_MS)
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=False)
        assert claim is not None
        alice = next(s for s in await ready.sessions() if s.session_id == ALICE)
        assert (alice.state, alice.claim) == (SessionState.RECOVERING, claim)

    async def test_what_ended_or_never_was_can_not_be_claimed(self, ready: MetadataStore) -> None:
        await ready.end_session(ALICE)
        assert await ready.claim_recovery(ALICE, by=BOB, proven_dead=True) is None
        assert await ready.claim_recovery(NOBODY, by=BOB, proven_dead=True) is None

    async def test_a_session_does_not_claim_itself(self, ready: MetadataStore) -> None:
        assert await ready.claim_recovery(ALICE, by=ALICE, proven_dead=True) is None
        await ready.renew_session(ALICE, TTL_MS)

    async def test_only_a_live_session_claims(self, ready: MetadataStore) -> None:
        await ready.end_session(BOB)
        for session_id in (BOB, NOBODY):
            with pytest.raises(SessionLost):
                await ready.claim_recovery(ALICE, by=session_id, proven_dead=True)
        await ready.renew_session(ALICE, TTL_MS)

    async def test_a_claimed_session_neither_renews_nor_acquires_nor_commits(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        with pytest.raises(SessionLost):
            await ready.renew_session(ALICE, TTL_MS)
        with pytest.raises(SessionLost):
            await ready.acquire(ALICE, [part(2)])
        with pytest.raises(LeaseLost) as lost:
            await ready.commit_segments(ALICE, [commit_of("k", run_of(first, 0, 5, "k"), run_of(second, 0, 5, "k"))])
        assert lost.value.partitions == (part(0), part(1))
        assert {state.flushed_end for state in await ready.partitions([ORDERS])} == {0}

    async def test_a_claimed_session_still_learns_that_its_commit_had_happened(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        commit = commit_of("k", run_of(state, 0, 5, "k"))
        await ready.commit_segments(ALICE, [commit])
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        await ready.commit_segments(ALICE, [commit])
        assert await spans(ready, part(0)) == [(0, 5)]

    async def test_finishing_a_recovery_publishes_frees_and_ends_together(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        assert list(await ready.held_by(ALICE)) == [state]
        await ready.finish_recovery(ALICE, claim, [commit_of("k", run_of(state, 0, 5, "k"))])
        assert await state_of(ready, part(0)) == replace(state, holder=None, flushed_end=5)
        assert [s.session_id for s in await ready.sessions()] == [BOB]
        with pytest.raises(SessionLost):
            await ready.renew_session(ALICE, TTL_MS)

    async def test_a_recovery_whose_guard_fails_changes_nothing(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        with pytest.raises(LeaseLost) as lost:
            await ready.finish_recovery(
                ALICE, claim, [commit_of("k", run_of(first, 0, 5, "k"), run_of(second, 1, 5, "k"))]
            )
        assert lost.value.partitions == (part(1),)
        assert list(await ready.held_by(ALICE)) == [first, second]
        await ready.finish_recovery(ALICE, claim, [commit_of("k", run_of(first, 0, 5, "k"))])

    async def test_a_topic_deleted_during_recovery_is_named_and_can_be_left_out(self, ready: MetadataStore) -> None:
        await ready.create_topic(topic(CLICKS, "clicks"))
        orders, clicks = await lead(ready, ALICE, part(0), part(0, CLICKS))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        await ready.delete_topic(CLICKS)
        kept, gone = run_of(orders, 0, 5, "k"), run_of(clicks, 0, 5, "k")
        with pytest.raises(LeaseLost) as lost:
            await ready.finish_recovery(ALICE, claim, [commit_of("k", kept, gone)])
        assert lost.value.partitions == (part(0, CLICKS),)
        await ready.finish_recovery(ALICE, claim, [commit_of("k", kept)])
        assert (await state_of(ready, part(0))).flushed_end == 5

    async def test_claims_only_grow_and_an_older_one_can_not_finish(self, ready: MetadataStore) -> None:
        await ready.open_session(new_session(CAROL))
        [state] = await lead(ready, ALICE, part(0))
        older = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        newer = await ready.claim_recovery(ALICE, by=CAROL, proven_dead=True)
        assert older is not None
        assert newer is not None
        assert newer > older
        with pytest.raises(SessionLost):
            await ready.finish_recovery(ALICE, older, [commit_of("old", run_of(state, 0, 5, "old"))])
        assert await state_of(ready, part(0)) == state
        await ready.finish_recovery(ALICE, newer, [commit_of("new", run_of(state, 0, 6, "new"))])
        with pytest.raises(SessionLost):
            await ready.finish_recovery(ALICE, older, [])
        assert await ready.known_objects() == {"new"}

    async def test_finishing_twice_is_a_no_op(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        commits = [commit_of("k", run_of(state, 0, 5, "k"))]
        await ready.finish_recovery(ALICE, claim, commits)
        [taken] = await lead(ready, BOB, part(0))
        await publish(ready, BOB, taken, 9)
        await ready.finish_recovery(ALICE, claim, commits)
        assert await state_of(ready, part(0)) == replace(taken, flushed_end=9)
        assert await spans(ready, part(0)) == [(0, 5), (5, 9)]

    async def test_nobody_finishes_without_a_claim(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        for session_id, claim in ((ALICE, 0), (ALICE, 1), (NOBODY, 0)):
            with pytest.raises(SessionLost):
                await ready.finish_recovery(session_id, claim, [])
        assert await state_of(ready, part(0)) == state

    async def test_of_sixteen_claims_only_the_newest_finishes(self, ready: MetadataStore) -> None:
        claims = await asyncio.gather(
            *(ready.claim_recovery(ALICE, by=BOB, proven_dead=True) for _ in range(16)),
        )
        numbers = sorted(claim for claim in claims if claim is not None)
        assert len(set(numbers)) == 16
        results = await asyncio.gather(
            *(ready.finish_recovery(ALICE, number, []) for number in numbers), return_exceptions=True
        )
        assert [result is None for result in results] == [False] * 15 + [True]

    # --- retention and collection

    async def test_the_log_start_drops_what_ends_at_or_below_it(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        await ready.advance_log_start({part(0): 15})
        assert await spans(ready, part(0)) == [(10, 20), (20, 30)]
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0)) == [(20, 30)]
        assert (await state_of(ready, part(0))).log_start == 20
        assert len(await ready.doomed_objects(grace_ms=0, limit=9)) == 2

    async def test_the_newest_run_always_stays(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0)) == [(10, 20)]
        moved = await state_of(ready, part(0))
        assert (moved.log_start, moved.flushed_end) == (20, 20)
        await publish(ready, ALICE, moved, 25)
        await ready.advance_log_start({part(0): 20})
        assert await spans(ready, part(0)) == [(20, 25)]

    async def test_the_log_start_never_goes_back_nor_past_the_flushed_end(self, ready: MetadataStore) -> None:
        first, _ = await lead(ready, ALICE, part(0), part(1))
        await publish(ready, ALICE, first, 10)
        await ready.advance_log_start({part(0): 7, part(1): 100, part(99): 5, part(0, CLICKS): 1})
        assert (await state_of(ready, part(0))).log_start == 7
        assert (await state_of(ready, part(1))).log_start == 0
        await ready.advance_log_start({part(0): 3})
        assert (await state_of(ready, part(0))).log_start == 7
        await ready.advance_log_start({part(0): 1000})
        assert (await state_of(ready, part(0))).log_start == 10

    async def test_an_object_is_doomed_only_when_its_last_run_is_gone(self, ready: MetadataStore) -> None:
        first, second = await lead(ready, ALICE, part(0), part(1))
        await ready.commit_segments(
            ALICE, [commit_of("shared", run_of(first, 0, 5, "shared"), run_of(second, 0, 5, "shared"))]
        )
        await ready.commit_segments(
            ALICE, [commit_of("next", run_of(first, 5, 6, "next"), run_of(second, 5, 6, "next"))]
        )
        await ready.advance_log_start({part(0): 5})
        assert list(await ready.doomed_objects(grace_ms=0, limit=9)) == []
        await ready.advance_log_start({part(1): 5})
        assert [each.key for each in await ready.doomed_objects(grace_ms=0, limit=9)] == ["shared"]

    async def test_doomed_objects_wait_for_their_grace_by_the_stores_clock(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20, 30)
        await ready.advance_log_start({part(0): 10})
        doomed_at = clock.now_ms()
        clock.advance(ms=100)
        await ready.advance_log_start({part(0): 20})
        assert list(await ready.doomed_objects(grace_ms=101, limit=9)) == []
        [first] = await ready.doomed_objects(grace_ms=100, limit=9)
        assert first.doomed_at_ms == doomed_at
        clock.advance(ms=100)
        assert [each.doomed_at_ms for each in await ready.doomed_objects(grace_ms=100, limit=9)] == [
            doomed_at,
            doomed_at + 100,
        ]
        assert list(await ready.doomed_objects(grace_ms=100, limit=1)) == [first]

    async def test_known_objects_are_the_live_and_the_doomed_until_forgotten(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10, 20)
        keys = await ready.known_objects()
        await ready.advance_log_start({part(0): 10})
        assert await ready.known_objects() == keys
        [doomed] = await ready.doomed_objects(grace_ms=0, limit=9)
        await ready.forget_objects([doomed.key])
        await ready.forget_objects([doomed.key])
        assert await ready.known_objects() == keys - {doomed.key}
        assert list(await ready.doomed_objects(grace_ms=0, limit=9)) == []

    async def test_a_live_object_can_not_be_forgotten(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await publish(ready, ALICE, state, 10)
        keys = await ready.known_objects()
        await ready.forget_objects(sorted(keys))
        assert await ready.known_objects() == keys

    # --- producers

    async def test_producer_ids_are_never_given_twice(self, store: MetadataStore) -> None:
        firsts = await asyncio.gather(*(store.allocate_producer_ids(10) for _ in range(20)))
        ids = [first + n for first in firsts for n in range(10)]
        assert len(set(ids)) == 200
        assert min(ids) >= 0
        assert await store.allocate_producer_ids(1) > max(ids)
