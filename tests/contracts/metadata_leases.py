"""Topics, sessions and leases, and producer ids: who is there and who may act."""

import asyncio
import uuid
from dataclasses import replace

import pytest

from streamhouse.config.fields import Address
from streamhouse.errors import InvalidPartitions, SessionLost, TopicExists
from streamhouse.model.cluster import SessionState
from streamhouse.model.names import PartitionId, SessionId, TopicId
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


class LeaseContract(MetadataScene):
    # --- topics

    async def test_the_first_name_proposed_is_the_clusters_forever(self, store: MetadataStore) -> None:
        assert await store.cluster_id("first") == "first"
        assert await store.cluster_id("second") == "first"

    async def test_the_version_of_the_tables_is_reported(self, store: MetadataStore) -> None:
        assert await store.schema_version() >= 1

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
        assert list(await ready.last_runs([part(0)])) == []

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
        assert [each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=10)] == ["own"]
        await ready.delete_topic(CLICKS)
        assert {each.key for each in await ready.objects_pending_deletion(grace_ms=0, limit=10)} == {"own", "shared"}

    # --- sessions

    async def test_a_session_lives_from_now_by_the_stores_clock(self, store: MetadataStore, clock: ManualClock) -> None:
        session = await store.open_session(new_session(ALICE))
        assert session.state is SessionState.LIVE
        assert (session.kafka, session.http) == (new_session(ALICE).kafka, new_session(ALICE).http)
        assert (session.started_at_ms, session.expires_at_ms) == (clock.now_ms(), clock.now_ms() + TTL_MS)
        assert session.claim == 0
        assert list((await store.membership()).sessions) == [session]
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
        assert [session.node_id for session in (await store.membership()).sessions] == [1, 2, 3, 4]

    async def test_a_node_id_never_means_another_address(self, store: MetadataStore) -> None:
        here, there = Address("10.0.0.1", 9092), Address("10.0.0.2", 9092)
        first, second, third, fourth = (replace(new_session(SessionId(f"s-{n:032x}")), kafka=here) for n in range(4))
        assert (await store.open_session(first)).node_id == 1
        await store.end_session(first.session_id)
        assert (await store.open_session(replace(second, kafka=there))).node_id == 2
        assert (await store.open_session(third)).node_id == 1
        await store.end_session(third.session_id)
        assert (await store.open_session(replace(fourth, kafka=Address("10.0.0.1", 9093)))).node_id == 3

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
        alice = next(s for s in (await ready.membership()).sessions if s.session_id == ALICE)
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
        assert [s.session_id for s in (await ready.membership()).sessions] == [BOB]
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

    # --- producers

    async def test_producer_ids_are_never_given_twice(self, store: MetadataStore) -> None:
        firsts = await asyncio.gather(*(store.allocate_producer_ids(10) for _ in range(20)))
        ids = [first + n for first in firsts for n in range(10)]
        assert len(set(ids)) == 200
        assert min(ids) >= 0
        assert await store.allocate_producer_ids(1) > max(ids)
