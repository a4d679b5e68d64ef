"""Recovery of dead sessions: claims, and finishing exactly once."""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.errors import LeaseLost, SessionLost
from streamhouse.model.cluster import SessionState
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CAROL,
    CLICKS,
    NOBODY,
    ORDERS,
    TTL_MS,
    MetadataScene,
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


class RecoveryContract(MetadataScene):
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
        alice = next(s for s in (await ready.membership()).sessions if s.session_id == ALICE)
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
        assert [s.session_id for s in (await ready.membership()).sessions] == [BOB]
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
