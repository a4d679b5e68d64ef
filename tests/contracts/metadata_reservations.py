"""Offsets that only a disk knows of: reserved ahead, and skipped when the disk can't be reached."""

from dataclasses import replace

import pytest

from streamhouse.errors import LeaseLost, SessionLost
from streamhouse.model.cluster import AbandonedRange, PartitionState
from streamhouse.model.names import PartitionId, SessionId
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


async def claimed(store: MetadataStore, dead: SessionId, by: SessionId = BOB) -> int:
    claim = await store.claim_recovery(dead, by=by, proven_dead=True)
    assert claim is not None
    return claim


class ReservationContract(MetadataScene):
    async def test_reservations_only_grow_and_outlast_the_lease(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        assert state.reserved_until == 0
        for given, kept in ((100, 100), (50, 100), (200, 200)):
            await ready.reserve_offsets(ALICE, {part(0): given})
            assert await state_of(ready, part(0)) == replace(state, reserved_until=kept)
        await ready.release(ALICE, [part(0)])
        [taken] = await lead(ready, BOB, part(0))
        assert taken.reserved_until == 200
        assert taken.flushed_end == 0

    async def test_offsets_are_reserved_only_under_the_lease(self, ready: MetadataStore) -> None:
        await lead(ready, ALICE, part(0))
        await lead(ready, BOB, part(1))
        expected = {part(0): 10, part(1): 10, part(2): 10, part(0, CLICKS): 10}
        with pytest.raises(LeaseLost) as lost:
            await ready.reserve_offsets(ALICE, expected)
        assert lost.value.partitions == (part(1), part(2), part(0, CLICKS))
        assert {each.reserved_until for each in await ready.partitions([ORDERS])} == {0}

    async def test_only_a_live_unexpired_session_reserves(self, ready: MetadataStore, clock: ManualClock) -> None:
        await lead(ready, ALICE, part(0))
        await claimed(ready, BOB, by=ALICE)
        clock.advance(ms=TTL_MS)
        for session_id in (ALICE, BOB, NOBODY):
            with pytest.raises(SessionLost):
                await ready.reserve_offsets(session_id, {part(0): 10})
        assert (await state_of(ready, part(0))).reserved_until == 0

    async def test_reserving_nothing_is_no_error(self, ready: MetadataStore) -> None:
        await ready.reserve_offsets(ALICE, {})

    async def abandoned(self, store: MetadataStore) -> tuple[PartitionState, PartitionState]:
        """Alice has flushed 10 of partition 0 and reserved up to 100, and nothing of partition 1; her disk is gone."""
        first, second = await lead(store, ALICE, part(0), part(1))
        await publish(store, ALICE, first, 4, 10)
        await store.reserve_offsets(ALICE, {part(0): 100})
        await store.abandon_recovery(ALICE, await claimed(store, ALICE))
        return first, second

    async def test_an_abandoned_partition_goes_on_behind_what_was_reserved(self, ready: MetadataStore) -> None:
        first, second = await self.abandoned(ready)
        assert await state_of(ready, part(0)) == replace(first, holder=None, flushed_end=100, reserved_until=100)
        assert await state_of(ready, part(1)) == replace(second, holder=None)
        assert [each.session_id for each in (await ready.membership()).sessions] == [BOB]
        assert list(await ready.abandoned_ranges(ALICE)) == [
            AbandonedRange(session_id=ALICE, partition=part(0), epoch=first.epoch, from_offset=10, until=100),
            AbandonedRange(session_id=ALICE, partition=part(1), epoch=second.epoch, from_offset=0, until=0),
        ]
        assert list(await ready.abandoned_ranges(BOB)) == []
        assert await ready.abandoned_sessions() == {ALICE: 1}
        await ready.forget_abandoned(ALICE)
        assert await ready.abandoned_sessions() == {}

    async def test_what_was_reserved_and_flushed_since_is_no_gap(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        await ready.reserve_offsets(ALICE, {part(0): 10})
        await publish(ready, ALICE, state, 10, 20)
        await ready.abandon_recovery(ALICE, await claimed(ready, ALICE))
        assert (await state_of(ready, part(0))).flushed_end == 20
        [gone] = await ready.abandoned_ranges(ALICE)
        assert (gone.from_offset, gone.until) == (20, 20)

    async def test_the_dead_session_publishes_nothing_into_the_gap(self, ready: MetadataStore) -> None:
        first, _ = await self.abandoned(ready)
        for base, end in ((10, 20), (100, 110)):
            with pytest.raises(LeaseLost):
                await ready.commit_segments(ALICE, [commit_of(f"k{base}", run_of(first, base, end, ""))])
        with pytest.raises(SessionLost):
            await ready.renew_session(ALICE, TTL_MS)
        await lead(ready, BOB, part(0))
        with pytest.raises(LeaseLost):
            await ready.commit_segments(ALICE, [commit_of("k", run_of(first, 100, 110, "k"))])
        assert await spans(ready, part(0)) == [(0, 4), (4, 10)]

    async def test_the_dead_session_still_learns_that_a_commit_had_happened(self, ready: MetadataStore) -> None:
        first, _ = await self.abandoned(ready)
        key = f"segments/{part(0)}/4"
        await ready.commit_segments(ALICE, [commit_of(key, run_of(first, 4, 10, key))])
        assert (await state_of(ready, part(0))).flushed_end == 100

    async def test_the_next_leader_publishes_behind_the_gap_and_everything_is_found(self, ready: MetadataStore) -> None:
        first, _ = await self.abandoned(ready)
        [last] = await ready.last_runs([part(0)])
        assert last is not None
        assert (last.base, last.end) == (4, 10)
        [taken] = await lead(ready, BOB, part(0))
        with pytest.raises(LeaseLost):
            await ready.commit_segments(BOB, [commit_of("into", run_of(taken, 10, 20, "into"))])
        await publish(ready, BOB, taken, 120, 130)
        assert (await state_of(ready, part(0))).flushed_end == 130
        assert await spans(ready, part(0)) == [(0, 4), (4, 10), (100, 120), (120, 130)]
        for offset in (10, 50, 99, 100):
            assert await spans(ready, part(0), offset) == [(100, 120), (120, 130)]
        late = await ready.run_at_time(part(0), timestamp_ms=11, from_offset=0)
        assert late is not None
        assert late.base == 100
        latest = await ready.latest_run(part(0), from_offset=0)
        assert latest is not None
        assert latest.base == 120
        old, new = await ready.epoch_end(part(0), first.epoch), await ready.epoch_end(part(0), taken.epoch)
        assert old is not None
        assert new is not None
        assert ((old.epoch, old.end), (new.epoch, new.end)) == ((first.epoch, 10), (taken.epoch, 130))

    async def test_a_log_may_begin_in_the_gap_or_at_its_end(self, ready: MetadataStore) -> None:
        await self.abandoned(ready)
        await ready.advance_log_start({part(0): 50})
        assert (await state_of(ready, part(0))).log_start == 50
        assert await spans(ready, part(0)) == [(4, 10)]  # it carries the producers' state
        await ready.advance_log_start({part(0): 1000})
        state = await state_of(ready, part(0))
        assert (state.log_start, state.flushed_end) == (100, 100)
        [taken] = await lead(ready, BOB, part(0))
        await publish(ready, BOB, taken, 110)
        await ready.advance_log_start({part(0): 105})
        assert await spans(ready, part(0)) == [(100, 110)]

    async def test_a_session_that_was_abandoned_can_be_recovered_by_nobody(self, ready: MetadataStore) -> None:
        await ready.open_session(new_session(CAROL))
        await self.abandoned(ready)
        assert await ready.claim_recovery(ALICE, by=CAROL, proven_dead=True) is None

    async def test_only_the_newest_claim_abandons(self, ready: MetadataStore) -> None:
        await ready.open_session(new_session(CAROL))
        [state] = await lead(ready, ALICE, part(0))
        await ready.reserve_offsets(ALICE, {part(0): 100})
        for session_id, claim in ((ALICE, 0), (ALICE, 1), (NOBODY, 0)):
            with pytest.raises(SessionLost):
                await ready.abandon_recovery(session_id, claim)
        older, newer = await claimed(ready, ALICE), await claimed(ready, ALICE, by=CAROL)
        with pytest.raises(SessionLost):
            await ready.abandon_recovery(ALICE, older)
        assert await state_of(ready, part(0)) == replace(state, reserved_until=100)
        await ready.abandon_recovery(ALICE, newer)
        assert (await state_of(ready, part(0))).flushed_end == 100

    async def test_abandoning_twice_or_after_a_finish_changes_nothing(self, ready: MetadataStore) -> None:
        await ready.open_session(new_session(CAROL))
        [state] = await lead(ready, ALICE, part(0))
        [other] = await lead(ready, CAROL, part(1))
        await ready.reserve_offsets(ALICE, {part(0): 100})
        await ready.reserve_offsets(CAROL, {part(1): 100})
        claim, finished = await claimed(ready, ALICE), await claimed(ready, CAROL)
        await ready.abandon_recovery(ALICE, claim)
        [taken] = await lead(ready, BOB, part(0))
        await publish(ready, BOB, taken, 110)
        await ready.abandon_recovery(ALICE, claim)
        await ready.finish_recovery(ALICE, claim, [commit_of("k", run_of(state, 0, 5, "k"))])
        await ready.finish_recovery(CAROL, finished, [])
        await ready.abandon_recovery(CAROL, finished)
        assert (await state_of(ready, part(0))).flushed_end == 110
        assert await state_of(ready, part(1)) == replace(other, holder=None, reserved_until=100)
        assert [each.partition for each in await ready.abandoned_ranges(ALICE)] == [part(0)]
        assert list(await ready.abandoned_ranges(CAROL)) == []

    async def test_a_session_is_remembered_as_long_as_its_ranges_are(self, ready: MetadataStore) -> None:
        await self.abandoned(ready)
        assert await ready.forget_sessions(older_than_ms=0, limit=10) == 0
        await ready.forget_abandoned(ALICE)
        await ready.forget_abandoned(ALICE)
        assert list(await ready.abandoned_ranges(ALICE)) == []
        assert await ready.forget_sessions(older_than_ms=0, limit=10) == 1

    async def test_ranges_go_with_their_topic(self, ready: MetadataStore) -> None:
        await ready.create_topic(topic(CLICKS, "clicks"))
        held: list[PartitionId] = [part(0), part(0, CLICKS)]
        await lead(ready, ALICE, *held)
        await ready.reserve_offsets(ALICE, dict.fromkeys(held, 100))
        await ready.abandon_recovery(ALICE, await claimed(ready, ALICE))
        await ready.delete_topic(ORDERS)
        assert [each.partition for each in await ready.abandoned_ranges(ALICE)] == [part(0, CLICKS)]
