"""Many agents on one store: who is there, who drains, who recovers whom, where partitions belong."""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.errors import SessionLost
from streamhouse.model.cluster import PutReport, Session, SessionState
from streamhouse.model.names import NodeId, SessionId
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CAROL,
    NOBODY,
    ORDERS,
    TTL_MS,
    MetadataScene,
    commit_of,
    lead,
    new_session,
    part,
    run_of,
    spans,
    state_of,
    topic,
)


async def session_of(store: MetadataStore, session_id: SessionId) -> Session:
    return next(each for each in (await store.membership()).sessions if each.session_id == session_id)


class ClusterContract(MetadataScene):
    # --- the roll

    async def test_a_roll_call_shows_the_time_by_which_leases_end(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        clock.advance(ms=TTL_MS)
        await ready.renew_session(BOB, TTL_MS)
        roll = await ready.membership()
        assert roll.now_ms == clock.now_ms()
        assert [(each.session_id, each.expires_at_ms > roll.now_ms) for each in roll.sessions] == [
            (ALICE, False),
            (BOB, True),
        ]

    async def test_who_departed_lately_is_known_and_whether_they_died(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        async def departed(within_ms: int = 10 * TTL_MS, limit: int = 10) -> list[tuple[SessionId, int, bool]]:
            return [
                (each.session.session_id, each.ago_ms, each.died) for each in await ready.departures(within_ms, limit)
            ]

        await ready.open_session(new_session(CAROL))
        assert await departed() == []
        await ready.end_session(CAROL)
        clock.advance(ms=TTL_MS)
        await ready.renew_session(BOB, TTL_MS)
        assert await departed() == [(ALICE, 0, True), (CAROL, TTL_MS, False)]
        clock.advance(ms=1000)
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=False)
        assert claim is not None
        await ready.finish_recovery(ALICE, claim, [])
        clock.advance(ms=500)
        assert await departed() == [(ALICE, 1500, True), (CAROL, TTL_MS + 1500, False)]
        assert await departed(within_ms=1501) == await departed(limit=1) == [(ALICE, 1500, True)]
        assert await departed(within_ms=1500) == []

    async def test_a_session_shows_where_its_unflushed_records_are(self, store: MetadataStore) -> None:
        await store.open_session(new_session(ALICE))
        await store.open_session(replace(new_session(BOB), wal="object"))
        assert [(each.wal, each.wal_start) for each in (await store.membership()).sessions] == [
            ("disk", 0),
            ("object", 0),
        ]

    async def test_a_session_has_the_zone_of_its_agent(self, store: MetadataStore) -> None:
        await store.open_session(new_session(ALICE))
        opened = await store.open_session(replace(new_session(BOB), zone="eu-1b"))
        assert opened.zone == "eu-1b"
        assert [each.zone for each in (await store.membership()).sessions] == ["", "eu-1b"]
        await store.end_session(BOB)
        assert [each.session.zone for each in await store.departures(TTL_MS, 10)] == ["eu-1b"]

    async def test_a_heartbeat_shows_the_others_whether_writes_reach_the_object_store(
        self, ready: MetadataStore
    ) -> None:
        await ready.renew_session(ALICE, TTL_MS, puts=PutReport(age_ms=400, failing=True))
        roll = await ready.membership()
        [alice] = [each for each in roll.sessions if each.session_id == ALICE]
        assert (roll.now_ms - alice.put_at_ms, alice.put_failing) == (400, True)
        await ready.renew_session(ALICE, TTL_MS, puts=PutReport(age_ms=None))
        [again] = [each for each in (await ready.membership()).sessions if each.session_id == ALICE]
        assert (again.put_at_ms, again.put_failing) == (alice.put_at_ms, False)

    async def test_a_heartbeat_moves_the_start_of_the_wal_and_never_back(self, ready: MetadataStore) -> None:
        for given, kept in ((7, 7), (3, 7), (0, 7), (9, 9)):
            await ready.renew_session(ALICE, TTL_MS, wal_start=given)
            assert (await session_of(ready, ALICE)).wal_start == kept
        await ready.renew_session(ALICE, TTL_MS)
        await ready.open_session(new_session(ALICE))
        assert (await session_of(ready, ALICE)).wal_start == 9
        assert (await session_of(ready, BOB)).wal_start == 0

    async def test_a_heartbeat_says_how_far_the_wal_is_durable_and_never_less(self, ready: MetadataStore) -> None:
        for given, kept in ((7, 7), (3, 7), (0, 7), (9, 9)):
            await ready.renew_session(ALICE, TTL_MS, wal_durable=given)
            assert (await session_of(ready, ALICE)).wal_durable == kept
        await ready.open_session(new_session(ALICE))
        assert (await session_of(ready, ALICE)).wal_durable == 9
        assert (await session_of(ready, BOB)).wal_durable == 0

    async def test_a_claimed_session_keeps_the_start_of_its_wal(self, ready: MetadataStore) -> None:
        await ready.renew_session(ALICE, TTL_MS, wal_start=5)
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        with pytest.raises(SessionLost):
            await ready.renew_session(ALICE, TTL_MS, wal_start=6)
        assert (await session_of(ready, ALICE)).wal_start == 5

    async def test_a_session_drains_until_it_says_otherwise(self, ready: MetadataStore, clock: ManualClock) -> None:
        assert not (await session_of(ready, ALICE)).draining
        clock.advance(ms=TTL_MS)  # nobody has claimed it, so it may still come back
        for draining in (True, True, False, False):
            await ready.drain_session(ALICE, draining=draining)
            assert (await session_of(ready, ALICE)).draining is draining
        assert not (await session_of(ready, BOB)).draining

    async def test_a_draining_session_stays_so_through_heartbeats_and_keeps_its_leases(
        self, ready: MetadataStore
    ) -> None:
        held = await lead(ready, ALICE, part(0))
        await ready.drain_session(ALICE)
        await ready.renew_session(ALICE, TTL_MS)
        assert (await session_of(ready, ALICE)).draining
        assert list(await ready.held_by(ALICE)) == held

    async def test_only_a_live_session_drains(self, ready: MetadataStore) -> None:
        await ready.open_session(new_session(CAROL))
        await ready.end_session(CAROL)
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        for session_id in (ALICE, CAROL, NOBODY):
            with pytest.raises(SessionLost):
                await ready.drain_session(session_id)
        assert not (await session_of(ready, ALICE)).draining

    # --- claims

    async def test_a_claim_shows_who_made_it(self, ready: MetadataStore) -> None:
        assert (await session_of(ready, ALICE)).claimed_by is None
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert (await session_of(ready, ALICE)).claimed_by == BOB

    async def test_healthy_agents_do_not_take_a_recovery_from_each_other(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        await ready.open_session(new_session(CAROL))
        clock.advance(ms=TTL_MS)
        for session_id in (BOB, CAROL):
            await ready.renew_session(session_id, TTL_MS)
        claims = await asyncio.gather(
            *(ready.claim_recovery(ALICE, by=each, proven_dead=False) for each in (BOB, CAROL))
        )
        [claim] = [each for each in claims if each is not None]
        [winner] = [each for each, got in zip((BOB, CAROL), claims, strict=True) if got is not None]
        loser = CAROL if winner == BOB else BOB
        clock.advance(ms=TTL_MS - 1)
        await ready.renew_session(loser, TTL_MS)
        assert await ready.claim_recovery(ALICE, by=loser, proven_dead=False) is None
        await ready.finish_recovery(ALICE, claim, [])

    async def test_a_claimer_may_claim_again_and_its_first_claim_is_over(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        clock.advance(ms=TTL_MS)
        await ready.renew_session(BOB, TTL_MS)
        first = await ready.claim_recovery(ALICE, by=BOB, proven_dead=False)
        second = await ready.claim_recovery(ALICE, by=BOB, proven_dead=False)
        assert first is not None
        assert second is not None
        assert second > first
        with pytest.raises(SessionLost):
            await ready.finish_recovery(ALICE, first, [])
        await ready.finish_recovery(ALICE, second, [])

    @pytest.mark.parametrize("how", ["expired", "ended", "claimed"])
    async def test_the_death_of_a_recoverer_frees_what_it_had_claimed(
        self, ready: MetadataStore, clock: ManualClock, how: str
    ) -> None:
        await ready.open_session(new_session(CAROL))
        [state] = await lead(ready, ALICE, part(0))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        assert await ready.claim_recovery(ALICE, by=CAROL, proven_dead=False) is None
        if how == "expired":
            clock.advance(ms=TTL_MS)
            await ready.renew_session(CAROL, TTL_MS)
        elif how == "ended":
            await ready.end_session(BOB)
        else:
            await ready.claim_recovery(BOB, by=CAROL, proven_dead=True)
        newer = await ready.claim_recovery(ALICE, by=CAROL, proven_dead=False)
        assert newer is not None
        assert newer > claim
        with pytest.raises(SessionLost):
            await ready.finish_recovery(ALICE, claim, [])
        await ready.finish_recovery(ALICE, newer, [commit_of("k", run_of(state, 0, 5, "k"))])
        assert await spans(ready, part(0)) == [(0, 5)]

    async def test_proof_of_death_takes_a_recovery_from_anybody(self, ready: MetadataStore) -> None:
        await ready.open_session(new_session(CAROL))
        older = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        newer = await ready.claim_recovery(ALICE, by=CAROL, proven_dead=True)
        assert older is not None
        assert newer is not None
        assert newer > older

    # --- where partitions belong

    async def test_a_partition_belongs_where_it_was_pinned_until_it_is_unpinned(self, ready: MetadataStore) -> None:
        [held] = await lead(ready, ALICE, part(1))
        await ready.pin_partitions({part(1): NodeId(2), part(2): NodeId(7), part(99): NodeId(1)})
        assert [each.pinned_to for each in await ready.partitions([ORDERS])] == [None, 2, 7]
        assert await state_of(ready, part(1)) == replace(held, pinned_to=NodeId(2))
        [again] = await ready.acquire(ALICE, [part(1)])
        assert again.pinned_to == 2
        await ready.pin_partitions({part(1): None, part(2): NodeId(8)})
        assert [each.pinned_to for each in await ready.partitions([ORDERS])] == [None, None, 8]
        assert await state_of(ready, part(1)) == held

    async def test_the_agents_of_a_partition_keep_their_order_until_it_is_pinned_again(
        self, ready: MetadataStore
    ) -> None:
        lists = {part(0): (2, 1, 3), part(1): (3,)}
        await ready.pin_partitions({part(0): NodeId(2), part(1): NodeId(3), part(2): NodeId(1)}, lists)
        assert [each.replicas for each in await ready.partitions([ORDERS])] == [(2, 1, 3), (3,), ()]
        [held] = await lead(ready, ALICE, part(0))
        assert (held.pinned_to, held.replicas) == (2, (2, 1, 3))
        await ready.pin_partitions({part(0): NodeId(1), part(1): None})
        assert [each.replicas for each in await ready.partitions([ORDERS])] == [(), (), ()]

    async def test_pins_outlast_leases_and_go_with_the_topic(self, ready: MetadataStore) -> None:
        await lead(ready, ALICE, part(0))
        await ready.pin_partitions({part(0): NodeId(2)})
        await ready.end_session(ALICE)
        assert (await state_of(ready, part(0))).pinned_to == 2
        await ready.delete_topic(ORDERS)
        await ready.create_topic(topic())
        assert (await state_of(ready, part(0))).pinned_to is None

    async def test_pinning_nothing_is_no_error(self, ready: MetadataStore) -> None:
        await ready.pin_partitions({})

    # --- many at once

    async def test_a_thousand_partitions_are_taken_published_and_released_together(self, store: MetadataStore) -> None:
        await store.create_topic(topic(partitions=1000))
        await store.open_session(new_session(ALICE))
        everything = [part(n) for n in range(1000)]
        states = await lead(store, ALICE, *everything)
        assert len({state.epoch for state in states}) == 1
        await store.commit_segments(ALICE, [commit_of("k", *(run_of(state, 0, 3, "k") for state in states))])
        await store.reserve_offsets(ALICE, dict.fromkeys(everything, 100))
        await store.pin_partitions(dict.fromkeys(everything, NodeId(1)))
        expected = [replace(each, flushed_end=3, reserved_until=100, pinned_to=NodeId(1)) for each in states]
        assert list(await store.partitions([ORDERS])) == expected
        await store.release(ALICE, everything)
        assert {each.holder for each in await store.partitions([ORDERS])} == {None}

    # --- forgetting

    async def test_sessions_that_ended_long_ago_are_forgotten_oldest_first(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        names = [SessionId(f"s-{n:032x}") for n in range(4)]
        for name in names:
            await store.open_session(new_session(name))
        for name in names[:3]:
            await store.end_session(name)
            clock.advance(ms=1000)
        assert await store.forget_sessions(older_than_ms=3001, limit=10) == 0
        assert await store.forget_sessions(older_than_ms=2000, limit=1) == 1
        assert await store.forget_sessions(older_than_ms=2000, limit=10) == 1
        assert await store.forget_sessions(older_than_ms=2000, limit=10) == 0
        assert await store.forget_sessions(older_than_ms=0, limit=10) == 1
        assert [each.session_id for each in (await store.membership()).sessions] == [names[3]]
        assert (await store.open_session(new_session(names[0]))).state is SessionState.LIVE  # it was a stranger

    async def test_a_forgotten_session_can_do_nothing(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await ready.end_session(ALICE)
        assert await ready.forget_sessions(older_than_ms=0, limit=10) == 1
        with pytest.raises(SessionLost):
            await ready.renew_session(ALICE, TTL_MS)
        with pytest.raises(SessionLost):
            await ready.acquire(ALICE, [part(0)])
        assert await ready.claim_recovery(ALICE, by=BOB, proven_dead=True) is None
        assert await state_of(ready, part(0)) == replace(state, holder=None)

    async def test_only_what_has_ended_is_forgotten(self, ready: MetadataStore, clock: ManualClock) -> None:
        await ready.open_session(new_session(CAROL))
        await lead(ready, ALICE, part(0))
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        clock.advance(ms=TTL_MS * 1000)
        assert await ready.forget_sessions(older_than_ms=0, limit=10) == 0
        assert [each.session_id for each in (await ready.membership()).sessions] == [ALICE, BOB, CAROL]

    async def test_a_recovered_session_is_forgotten_from_the_end_of_its_recovery_on(
        self, ready: MetadataStore, clock: ManualClock
    ) -> None:
        clock.advance(ms=TTL_MS)
        await ready.renew_session(BOB, TTL_MS)
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=False)
        assert claim is not None
        clock.advance(ms=1000)
        await ready.finish_recovery(ALICE, claim, [])
        clock.advance(ms=500)
        assert await ready.forget_sessions(older_than_ms=501, limit=10) == 0
        assert await ready.forget_sessions(older_than_ms=500, limit=10) == 1
