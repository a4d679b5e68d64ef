"""Change notifications: their content and time, and the isolation of listeners."""

import asyncio
import logging
import uuid
from collections.abc import Callable

import pytest

from streamhouse.errors import LeaseLost, SessionLost, TopicExists
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.group import ShardCommit
from streamhouse.model.names import NodeId, TopicId
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.metadata_scene import (
    ALICE,
    BOB,
    CAROL,
    CLICKS,
    ORDERS,
    TTL_MS,
    MetadataScene,
    commit_of,
    lead,
    new_session,
    part,
    run_of,
    topic,
)

TIMEOUT_S = 20.0
EVERYTHING = Change(ChangeKind.EVERYTHING)
SESSIONS = Change(ChangeKind.SESSIONS)
SETTINGS = Change(ChangeKind.SETTINGS)


def topics(topic_id: TopicId = ORDERS) -> Change:
    return Change(ChangeKind.TOPICS, topic_id)


def leases(topic_id: TopicId | None = ORDERS) -> Change:
    return Change(ChangeKind.LEASES, topic_id)


class Ear:
    """A listener of a store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._received: asyncio.Queue[Change] = asyncio.Queue()
        self.unsubscribe: Callable[[], None] = store.subscribe(self._received.put_nowait)

    async def next(self) -> Change:
        async with asyncio.timeout(TIMEOUT_S):
            return await self._received.get()

    async def until(self, change: Change) -> list[Change]:
        """What is heard before this one."""
        before: list[Change] = []
        while (received := await self.next()) != change:
            before.append(received)
        return before

    async def since_last(self) -> list[Change]:
        """What was heard of everything that is committed by now, which a change of our own makes sure of."""
        mark = TopicId(uuid.uuid4())
        await self._store.create_topic(topic(mark, f"mark-{mark}"))
        return await self.until(topics(mark))


async def listening(store: MetadataStore) -> Ear:
    ear = Ear(store)
    if not store.is_listening:
        assert await ear.next() == EVERYTHING
    assert store.is_listening
    return ear


class ChangeContract(MetadataScene):
    async def test_changes_of_topics_are_heard(self, store: MetadataStore) -> None:
        ear = await listening(store)
        await store.create_topic(topic())
        assert await ear.next() == topics()
        await store.alter_topic(ORDERS, expected=topic().overrides, overrides={})
        assert await ear.next() == topics()
        await store.add_partitions(ORDERS, from_count=3, to_count=4)
        assert await ear.next() == topics()
        await store.delete_topic(ORDERS)
        assert await ear.next() == topics()

    async def test_changes_of_sessions_are_heard(self, ready: MetadataStore) -> None:
        ear = await listening(ready)
        await ready.open_session(new_session(CAROL))
        assert await ear.next() == SESSIONS
        await ready.drain_session(CAROL)
        assert await ear.next() == SESSIONS
        await ready.end_session(CAROL)
        assert await ear.next() == SESSIONS
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert await ear.next() == SESSIONS
        assert claim is not None
        await ready.finish_recovery(ALICE, claim, [])
        assert await ear.next() == SESSIONS
        assert await ear.since_last() == []

    async def test_changes_of_leases_are_heard_by_topic(self, ready: MetadataStore) -> None:
        await ready.create_topic(topic(CLICKS, "clicks"))
        ear = await listening(ready)
        await lead(ready, ALICE, part(0), part(1))
        assert await ear.since_last() == [leases()]
        await ready.release(ALICE, [part(0)])
        assert await ear.since_last() == [leases()]
        await ready.pin_partitions({part(0, CLICKS): NodeId(1)})
        assert await ear.since_last() == [leases(CLICKS)]
        await lead(ready, ALICE, part(0, CLICKS))
        assert await ear.since_last() == [leases(CLICKS)]
        await ready.end_session(ALICE)
        assert sorted(await ear.since_last()) == sorted([SESSIONS, leases(), leases(CLICKS)])

    @pytest.mark.parametrize("how", ["finished", "abandoned"])
    async def test_leases_freed_by_a_recovery_are_heard(self, ready: MetadataStore, how: str) -> None:
        await lead(ready, ALICE, part(0), part(1))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        ear = await listening(ready)
        if how == "finished":
            await ready.finish_recovery(ALICE, claim, [])
        else:
            await ready.abandon_recovery(ALICE, claim)
        assert await ear.since_last() == [SESSIONS, leases()]

    async def test_leases_of_very_many_topics_are_one_change(self, ready: MetadataStore) -> None:
        many = [TopicId(uuid.UUID(int=1000 + n)) for n in range(50)]
        for topic_id in many:
            await ready.create_topic(topic(topic_id, f"t-{topic_id}", partitions=1))
        ear = await listening(ready)
        await lead(ready, ALICE, *(part(0, topic_id) for topic_id in many))
        assert await ear.next() == leases(None)
        assert await ear.since_last() == []

    async def test_changes_of_settings_are_heard(self, store: MetadataStore) -> None:
        ear = await listening(store)
        await store.alter_broker_settings(None, expected={}, configs={"a": "1"})
        assert await ear.next() == SETTINGS
        await store.alter_broker_settings(None, expected={}, configs={"a": "2"})  # somebody was quicker
        assert await ear.since_last() == []

    async def test_what_happens_all_the_time_is_not_reported(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        ear = await listening(ready)
        await ready.renew_session(ALICE, TTL_MS, wal_start=3)
        await ready.commit_segments(ALICE, [commit_of("k", run_of(state, 0, 5, "k"))])
        await ready.reserve_offsets(ALICE, {part(0): 100})
        await ready.commit_groups(ALICE, [ShardCommit(shard=part(0), epoch=state.epoch, sequence=1, changes=())])
        await ready.advance_log_start({part(0): 2})
        await ready.allocate_producer_ids(3)
        assert await ear.since_last() == []

    async def test_what_changes_nothing_is_not_reported(self, ready: MetadataStore) -> None:
        await lead(ready, ALICE, part(0))
        await ready.open_session(new_session(CAROL))
        await ready.end_session(CAROL)
        ear = await listening(ready)
        await ready.create_topic(topic())
        await ready.alter_topic(ORDERS, expected={"no": "such"}, overrides={})
        await ready.delete_topic(CLICKS)
        await ready.acquire(ALICE, [part(0)])
        await ready.acquire(BOB, [part(0)])
        await ready.release(BOB, [part(0)])
        await ready.open_session(new_session(ALICE))
        await ready.end_session(CAROL)
        await ready.claim_recovery(ALICE, by=BOB, proven_dead=False)
        await ready.pin_partitions({part(99): NodeId(1)})
        assert await ear.since_last() == []

    async def test_what_was_refused_is_not_reported(self, ready: MetadataStore) -> None:
        [state] = await lead(ready, ALICE, part(0))
        claim = await ready.claim_recovery(ALICE, by=BOB, proven_dead=True)
        assert claim is not None
        ear = await listening(ready)
        with pytest.raises(LeaseLost):
            await ready.finish_recovery(ALICE, claim, [commit_of("k", run_of(state, 7, 9, "k"))])
        with pytest.raises(SessionLost):
            await ready.drain_session(ALICE)
        with pytest.raises(TopicExists):
            await ready.create_topic(topic(CLICKS, "orders"))
        assert await ear.since_last() == []

    async def test_what_is_heard_can_be_read(self, store: MetadataStore) -> None:
        ear = await listening(store)
        opening = asyncio.create_task(store.open_session(new_session(ALICE)))
        assert await ear.next() == SESSIONS
        assert [each.session_id for each in (await store.membership()).sessions] == [ALICE]
        await opening

    async def test_listeners_are_called_in_the_order_of_changes(self, store: MetadataStore) -> None:
        ear = await listening(store)
        names = [TopicId(uuid.UUID(int=100 + n)) for n in range(20)]
        for name in names:
            await store.create_topic(topic(name, f"t-{name}"))
        assert [await ear.next() for _ in names] == [topics(name) for name in names]

    async def test_a_listener_that_fails_disturbs_nobody(
        self, store: MetadataStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(change: Change) -> None:
            raise RuntimeError("deaf")

        store.subscribe(fail)
        ear = await listening(store)
        with caplog.at_level(logging.ERROR):
            await store.create_topic(topic())
            await store.delete_topic(ORDERS)
            assert await ear.until(topics()) in ([], [EVERYTHING])
            assert await ear.next() == topics()
        assert "a listener failed" in caplog.text

    async def test_a_listener_that_has_unsubscribed_hears_nothing_more(self, store: MetadataStore) -> None:
        ear, other = await listening(store), Ear(store)
        other.unsubscribe()
        other.unsubscribe()
        await store.create_topic(topic())
        assert await ear.next() == topics()
        assert other._received.empty()

    async def test_a_listener_may_end_its_subscription_while_it_is_called(self, store: MetadataStore) -> None:
        ear = await listening(store)
        received: list[Change] = []

        def once(change: Change) -> None:
            received.append(change)
            unsubscribe()

        unsubscribe = store.subscribe(once)
        await store.create_topic(topic())
        await store.delete_topic(ORDERS)
        assert await ear.next() == topics()
        assert await ear.next() == topics()
        assert received == [topics()]
