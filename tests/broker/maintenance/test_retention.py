"""Retention and collection: the log start moves, and objects go late, marked, or not at all."""

import asyncio
import uuid
from contextlib import suppress

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.maintenance import retention as module
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config import RetentionSettings
from streamhouse.config.fields import Address
from streamhouse.errors import CommitRefused, OffsetOutOfRange, SessionLost, Unavailable
from streamhouse.format.object_keys import segment_key, topic_key, wal_key
from streamhouse.model.names import SessionId, TopicId, TopicPartition
from streamhouse.model.segment import Run
from streamhouse.stores.metadata import store as store_module
from streamhouse.stores.metadata.base import NewSession
from streamhouse.stores.objects.base import ObjectExists
from tests.broker.conftest import MakeWorld
from tests.broker.external_commits.support import until_done, written
from tests.broker.support import (
    CLICKS,
    NOW_MS,
    ORDERS,
    World,
    batch,
    current,
    fetch,
    idempotent,
    produce,
    settle,
    values_of,
)

DAY_S = 86_400
GRACE_S = RetentionSettings().grace_s
ORPHAN_AGE_S = RetentionSettings().orphan_age_s
NOBODY = SessionId("s-" + "0" * 32)


async def flushed(broker: Broker, *values: bytes, age_s: int = 0) -> None:
    """One run of its own."""
    await produce(broker, batch(*values, timestamp_ms=NOW_MS - 1000 * age_s))
    await current(broker).flusher.flush_all()


# --- retention


async def test_old_runs_leave_the_log_and_a_fetch_below_its_start_is_out_of_range(world: World) -> None:
    broker = await world.start_with(**{"retention.ms": str(1000 * DAY_S)})
    await flushed(broker, b"a", b"b", age_s=2 * DAY_S)
    await flushed(broker, b"c", age_s=1)
    assert await broker.retention.apply() == 1
    assert (await broker.earliest(ORDERS)).offset == 2
    for offset in (0, 1):
        assert isinstance((await fetch(broker, offset)).error, OffsetOutOfRange)
    assert await values_of(broker, offset=2) == {2: b"c"}
    assert await broker.retention.apply() == 0


async def registered(broker: Broker) -> list[Run]:
    page = await broker.run_listing.page([await broker.topic("orders")], limit=9)
    return [run for _, run in page.runs]


async def test_the_oldest_runs_of_a_log_that_is_too_large_leave_it(world: World) -> None:
    broker = await world.start_with(**{"retention.bytes": "1", "retention.ms": "-1"})
    for value in (b"a", b"b", b"c"):
        await flushed(broker, value)
    await broker.retention.apply()
    assert (await broker.earliest(ORDERS)).offset == 2


async def test_a_long_log_that_is_too_large_leaves_page_by_page_and_no_further_than_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    broker = await world.start_with(**{"retention.ms": "-1"})
    for _ in range(9):
        await flushed(broker, b"v")
    stay = sum(run.length for run in (await registered(broker))[7:])
    await broker.topic_admin.alter_topic("orders", lambda now: {**now, "retention.bytes": str(stay)})
    await broker.retention.apply()
    assert (await broker.earliest(ORDERS)).offset == 7
    assert [run.base for run in await registered(broker)] == [7, 8]
    assert await broker.retention.apply() == 0


async def test_runs_that_a_far_move_of_the_log_start_left_are_dropped_by_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DELETED_PER_TRANSACTION", 2)
    broker = await world.start_with(**{"retention.ms": "-1", "retention.bytes": "1000000"})
    for _ in range(9):
        await flushed(broker, b"v")
    await broker.topic_admin.delete_records(ORDERS, 7)
    assert [run.base for run in await registered(broker)] == [2, 3, 4, 5, 6, 7, 8]
    assert await values_of(broker, offset=7) == {7: b"v", 8: b"v"}
    await broker.retention.apply()
    assert [run.base for run in await registered(broker)] == [7, 8]
    assert (await broker.earliest(ORDERS)).offset == 7


async def test_what_is_kept_forever_is_kept(world: World) -> None:
    broker = await world.start_with(**{"retention.ms": "-1"})
    await broker.create_topic("clicks", partitions=1, overrides={"cleanup.policy": "compact"})
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a", timestamp_ms=1), name)
    await current(broker).flusher.flush_all()
    assert await broker.retention.apply() == 0


async def test_a_start_that_moved_is_known_to_the_next_agent(world: World) -> None:
    broker = await world.start_with(**{"retention.ms": "1000"})
    await flushed(broker, b"a", age_s=DAY_S)
    await flushed(broker, b"b", age_s=DAY_S)
    await broker.retention.apply()
    world.kill()
    broker = await world.start()
    assert ((await broker.earliest(ORDERS)).offset, (await broker.latest(ORDERS)).offset) == (2, 2)


async def test_the_newest_run_stays_and_with_it_what_is_known_of_producers(world: World) -> None:
    broker = await world.start_with(**{"retention.ms": "1000"})
    await produce(broker, idempotent(b"a", sequence=0, timestamp_ms=NOW_MS - 1000 * DAY_S))
    await current(broker).flusher.flush_all()
    await broker.retention.apply()
    await world.clock.advance(GRACE_S + 1)
    assert await broker.retention.delete_pending() == 0
    assert len(await world.object_keys()) == 1
    world.kill()
    broker = await world.start()
    assert (await broker.earliest(ORDERS)).offset == 1
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 1


async def test_by_age_a_long_log_is_read_only_as_far_as_it_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    broker = await world.start_with(**{"retention.ms": str(1000 * DAY_S)})
    for age in (5, 4, 3, 0, 0, 0, 0, 0, 0):
        await flushed(broker, b"v", age_s=age * DAY_S)
    calls_before = world.metadata.count("runs_of")
    await broker.retention.apply()
    assert world.metadata.count("runs_of") - calls_before == 3  # the oldest run, and two pages
    assert (await broker.earliest(ORDERS)).offset == 3


async def test_by_size_a_long_log_is_read_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    broker = await world.start_with(**{"retention.bytes": "1"})
    for _ in range(5):
        await flushed(broker, b"v")
    await broker.retention.apply()
    assert (await broker.earliest(ORDERS)).offset == 4


async def test_a_failing_store_moves_nothing(world: World) -> None:
    broker = await world.start_with(**{"retention.ms": "1000"})
    await flushed(broker, b"a", age_s=DAY_S)
    world.metadata.refuse("advance_log_start")
    with pytest.raises(Unavailable):
        await broker.retention.apply()
    assert (await broker.earliest(ORDERS)).offset == 0
    assert await values_of(broker) == {0: b"a"}


# --- collection


async def doomed(broker: Broker) -> None:
    """Two runs, of which the first is doomed."""
    await flushed(broker, b"a", age_s=DAY_S)
    await flushed(broker, b"b")
    await broker.retention.apply()


@pytest.fixture
async def retaining(world: World) -> Broker:
    return await world.start_with(**{"retention.ms": "1000"})


async def test_a_doomed_object_goes_after_its_grace_time_and_not_before(world: World, retaining: Broker) -> None:
    await doomed(retaining)
    keys = await world.object_keys()
    assert await retaining.retention.delete_pending() == 0
    await world.clock.advance(GRACE_S - 1)
    assert await retaining.retention.delete_pending() == 0
    assert await world.object_keys() == keys
    await world.clock.advance(1)
    assert await retaining.retention.delete_pending() == 1
    assert await world.object_keys() == keys[1:]
    assert await retaining.retention.delete_pending() == 0
    assert retaining.retention.deleted_objects == 1


async def test_the_row_goes_after_the_object_so_that_a_failed_delete_is_tried_again(
    world: World, retaining: Broker
) -> None:
    await doomed(retaining)
    await world.clock.advance(GRACE_S)
    world.objects.refuse("delete")
    assert await retaining.retention.delete_pending() == 0
    assert retaining.retention.deleted_objects == 0
    world.metadata.refuse("forget_objects")
    with pytest.raises(Unavailable):
        await retaining.retention.delete_pending()
    assert await retaining.retention.delete_pending() == 1


async def test_a_reader_who_is_late_gets_out_of_range_when_the_object_is_gone(world: World, retaining: Broker) -> None:
    await flushed(retaining, b"a", age_s=DAY_S)
    await flushed(retaining, b"b")
    resume = world.metadata.hold_answer("runs")
    reading = asyncio.ensure_future(fetch(retaining, 0))
    await settle()
    log = await retaining.open_log(ORDERS)
    await world.sqlite.advance_log_start({log.partition: 1})
    log.advance_log_start(1)
    await world.clock.advance(GRACE_S)
    await retaining.retention.delete_pending()
    resume.set()
    assert isinstance((await reading).error, OffsetOutOfRange)


async def test_an_object_of_a_deleted_topic_goes_when_no_other_topic_is_in_it(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    for name in (ORDERS, CLICKS):
        await produce(broker, batch(b"a"), name)
    await current(broker).flusher.flush_all()
    await broker.delete_topic(await broker.topic("orders"))
    await world.clock.advance(GRACE_S)
    assert await broker.retention.delete_pending() == 0
    assert await values_of(broker, CLICKS) == {0: b"a"}
    await broker.delete_topic(await broker.topic("clicks"))
    await world.clock.advance(GRACE_S)
    assert await broker.retention.delete_pending() == 1
    assert await world.object_keys() == []


async def test_a_leader_learns_of_a_log_start_that_another_agent_has_moved(world: World) -> None:
    """One that led before it, and was still applying retention."""
    broker = await world.start_with()
    await flushed(broker, b"a", b"b")
    opened = await broker.open_log(ORDERS)
    await world.sqlite.advance_log_start({opened.partition: 2})
    assert opened.log_start == 0
    await broker.retention.apply()
    assert opened.log_start == 2


# --- orphans


async def end_a_session(world: World, session_id: SessionId = NOBODY) -> SessionId:
    """A session that began and ended."""
    new = NewSession(session_id=session_id, kafka=Address("a", 1), http=Address("a", 2), ttl_ms=10**9)
    await world.sqlite.open_session(new)
    await world.sqlite.end_session(session_id)
    return session_id


async def test_what_a_session_wrote_that_the_database_does_not_know_stays_however_old(world: World) -> None:
    """It may be all that is left of what a newer database, or another one, has registered."""
    broker = await world.start_with()
    await world.bucket.put_new(segment_key(NOBODY, 1), [b"somebody's records"])
    await world.bucket.put_new(wal_key(NOBODY, 1), [b"somebody's log"])
    await world.clock.advance(30 * ORPHAN_AGE_S)
    assert await broker.retention.delete_orphans() == 0
    assert await broker.retention.sweep_logs() == 0
    assert await world.object_keys() == [segment_key(NOBODY, 1)]
    assert [meta.key async for meta in world.bucket.list("wal/")] == [wal_key(NOBODY, 1)]


async def test_an_orphan_goes_when_it_is_old_and_its_session_has_ended(world: World) -> None:
    broker = await world.start_with()
    await flushed(broker, b"a")
    await end_a_session(world)
    (known,) = await world.object_keys()
    await world.bucket.put_new(segment_key(NOBODY, 1), [b"left behind"])
    assert await broker.retention.delete_orphans() == 0
    await world.clock.advance(ORPHAN_AGE_S + 1)
    assert await broker.retention.delete_orphans() == 1
    assert await world.object_keys() == [known]
    assert broker.retention.deleted_orphans == 1


async def test_an_orphan_of_a_session_that_has_not_ended_stays_however_old(world: World) -> None:
    broker = await world.start_with()
    key = segment_key(current(broker).session.session_id, 99)
    await world.bucket.put_new(key, [b"being registered"])
    await world.clock.advance(30 * ORPHAN_AGE_S)
    assert await broker.retention.delete_orphans() == 0
    assert await world.object_keys() == [key]


async def test_the_name_of_a_deleted_topic_goes_when_it_is_old_and_others_stay(world: World) -> None:
    broker = await world.start_with()
    deleted = topic_key(TopicId(uuid.UUID(int=7)))
    (known,) = [topic_key(topic.topic_id) for topic in await world.sqlite.topics()]
    for key in (deleted, known, "topics/readme"):
        with suppress(ObjectExists):
            await world.bucket.put_new(key, [b"a name"])
    assert await broker.retention.delete_orphans() == 0
    await world.clock.advance(ORPHAN_AGE_S + 1)
    young = topic_key(TopicId(uuid.UUID(int=8)))
    await world.bucket.put_new(young, [b"of a topic that was deleted a moment ago"])
    world.metadata.refuse("topics")
    with pytest.raises(Unavailable):
        await broker.retention.delete_orphans()
    assert await broker.retention.delete_orphans() == 1
    left = {meta.key async for meta in world.bucket.list("topics/")}
    assert left == {known, young, "topics/readme"}


async def test_what_is_not_a_segment_is_nobodys_orphan(world: World) -> None:
    broker = await world.start_with()
    for key in ("segments/readme", f"segments/{NOBODY}/1", "wal/something"):
        await world.bucket.put_new(key, [b"not ours"])
    await world.clock.advance(ORPHAN_AGE_S + 1)
    assert await broker.retention.delete_orphans() == 0


@pytest.mark.parametrize("call", ["identity", "membership", "sessions_among", "known_among"])
async def test_one_failing_query_deletes_nothing(world: World, call: str) -> None:
    broker = await world.start_with()
    await flushed(broker, b"a")
    await end_a_session(world)
    await world.bucket.put_new(segment_key(NOBODY, 1), [b"left behind"])
    await world.clock.advance(ORPHAN_AGE_S + 1)
    world.metadata.refuse(call)
    with pytest.raises(Unavailable):
        await broker.retention.delete_orphans()
    assert len(await world.object_keys()) == 2
    assert world.objects.count("delete") == 0


async def test_a_listing_that_breaks_off_deletes_nothing(world: World) -> None:
    broker = await world.start_with()
    await end_a_session(world)
    await world.bucket.put_new(segment_key(NOBODY, 1), [b"left behind"])
    await world.clock.advance(ORPHAN_AGE_S + 1)
    world.objects.lose_answer("list")
    with pytest.raises(Unavailable):
        await broker.retention.delete_orphans()
    assert world.objects.count("delete") == 0


async def test_an_object_registered_during_the_sweep_is_not_taken_for_an_orphan(world: World) -> None:
    """The names are read after the listing, and sessions before the names."""
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    resume = world.metadata.hold("commit_segments")
    flushing = asyncio.ensure_future(current(broker).flusher.flush_all())
    await settle()
    world.clock.skip(ORPHAN_AGE_S + 1)
    asking = world.metadata.hold("membership")
    sweeping = asyncio.ensure_future(broker.retention.delete_orphans())
    await settle()
    resume.set()
    await flushing
    await world.sqlite.end_session(current(broker).session.session_id)
    asking.set()
    assert await sweeping == 0
    assert len(await world.object_keys()) == 1


async def test_a_clock_that_jumps_ahead_does_not_make_a_young_object_an_orphan_of_a_live_session(world: World) -> None:
    broker = await world.start_with()
    await world.bucket.put_new(segment_key(current(broker).session.session_id, 99), [b"young"])
    world.clock.jumped_ms = 365 * DAY_S * 1000
    assert await broker.retention.delete_orphans() == 0


# --- as loops


async def test_maintenance_runs_by_itself_and_survives_a_store_that_is_away(make_world: MakeWorld) -> None:
    world = await make_world(retention=RetentionSettings(check_s=10, grace_s=20, sweep_s=10, orphan_age_s=10))
    broker = await world.start_with(**{"retention.ms": "1000"})
    task = world.run(broker)
    await flushed(broker, b"a", age_s=DAY_S)
    await flushed(broker, b"b", age_s=-DAY_S // 48)
    await end_a_session(world)
    await world.bucket.put_new(segment_key(NOBODY, 1), [b"left behind"])
    for call in ("partitions", "objects_pending_deletion", "known_among"):
        world.metadata.refuse(call)
    await world.clock.advance(60)
    assert (await broker.earliest(ORDERS)).offset == 1
    assert (broker.retention.deleted_objects, broker.retention.deleted_orphans) == (1, 1)
    assert len(await world.object_keys()) == 1
    await world.stop(broker, task)


# --- what ended sessions left of their logs


class _Logs:
    """Logs in the object store, of sessions that ended, that are live, or that are unknown."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wals = ObjectWalFactory(world.objects, world.settings.wal, clock=world.clock, ids=world.ids)

    async def session(self, outbound: str) -> SessionId:
        session_id = SessionId("s-" + outbound * 32)
        new = NewSession(session_id=session_id, kafka=Address("a", 1), http=Address("a", 2), ttl_ms=10**9, wal="object")
        await self.world.sqlite.open_session(new)
        return session_id

    async def left(self) -> set[str]:
        return {meta.key[len("wal/s-")] async for meta in self.world.objects.list("wal/")}


async def test_what_ended_sessions_left_goes_when_it_is_old_and_nothing_else_does(world: World) -> None:
    logs = _Logs(world)
    broker = Broker(world.dependencies(single_agent=False, wal_factory=logs.wals))
    await broker.start()
    ended, live = await logs.session("a"), await logs.session("b")
    for session_id in (ended, live, SessionId("s-" + "c" * 32)):
        await world.objects.put_new(wal_key(session_id, 0), [b"seal"])
    await world.sqlite.end_session(ended)
    assert await broker.retention.sweep_logs() == 0
    world.clock.skip(world.settings.wal.seal_retention_s + 1)
    assert await broker.retention.sweep_logs() == 1
    assert await logs.left() == {"b", "c"}
    await broker.reader.aclose()


async def test_a_session_is_forgotten_after_what_it_left(world: World) -> None:
    logs = _Logs(world)
    broker = Broker(world.dependencies(single_agent=False, wal_factory=logs.wals))
    await broker.start()
    ended = await logs.session("a")
    await world.sqlite.end_session(ended)
    world.clock.skip(world.settings.wal.seal_retention_s + 1)
    await broker.retention.sweep_logs()
    await world.sqlite.end_session(ended)  # it is still known
    world.clock.skip(world.settings.wal.seal_retention_s + 1)
    await broker.retention.sweep_logs()
    with pytest.raises(SessionLost):
        await world.sqlite.end_session(ended)
    await broker.reader.aclose()


async def test_looking_after_many_partitions_takes_as_many_requests_as_after_one(make_world: MakeWorld) -> None:
    requests = {}
    for partitions in (1, 300):
        world = await make_world()
        broker = await world.start()
        await broker.create_topic("wide", partitions=partitions, overrides={"retention.bytes": "1000000"})
        for number in range(partitions):
            await produce(broker, batch(b"a"), TopicPartition("wide", number))
        await current(broker).flusher.flush_all()
        world.metadata.calls.clear()
        assert await broker.retention.apply() == 0
        await broker.compactor.run_once()
        requests[partitions] = len(world.metadata.calls)
    assert requests[300] <= requests[1] + 2


# --- segments that others wrote


async def test_a_segment_that_nobody_committed_for_long_is_given_up_and_then_deleted(world: World) -> None:
    broker = await world.start_with(ORDERS)
    pending = await written(broker, world.bucket, {ORDERS: [b"x"]}, epoch=1)
    left = await written(broker, world.bucket, {ORDERS: [b"y"]}, epoch=2)
    await until_done(world, broker.commits.commit(pending))
    world.clock.skip(ORPHAN_AGE_S - 60)
    assert await broker.retention.delete_orphans() == 0
    world.clock.skip(120)
    assert await broker.retention.delete_orphans() == 1
    (key,) = (each.segment.key for each in left.segments)
    assert [meta.key async for meta in world.bucket.list("placed/")] == sorted(
        [key, *(each.segment.key for each in pending.segments)]
    )
    world.clock.skip(GRACE_S + 1)
    assert await broker.retention.delete_pending() == 1
    assert [meta.key async for meta in world.bucket.list("placed/")] == [each.segment.key for each in pending.segments]
    assert await values_of(broker) == {0: b"x"}


async def test_a_segment_that_was_given_up_is_placed_no_more_though_its_bytes_are_there(world: World) -> None:
    broker = await world.start_with(ORDERS)
    late = await written(broker, world.bucket, {ORDERS: [b"x"]})
    world.clock.skip(ORPHAN_AGE_S + 60)
    assert await broker.retention.delete_orphans() == 1
    with pytest.raises(CommitRefused, match="has expired"):
        await until_done(world, broker.commits.commit(late))


async def test_a_commit_that_races_with_the_sweep_has_its_objects_or_is_refused(world: World) -> None:
    """It has looked at its objects; they are given up, and deleted, before its transaction comes."""
    broker = await world.start_with(ORDERS)
    late = await written(broker, world.bucket, {ORDERS: [b"x"]})
    going_on = world.metadata.hold("commit_external_segments")
    placing = asyncio.ensure_future(broker.commits.commit(late))
    await settle()
    world.clock.skip(ORPHAN_AGE_S + 60)
    assert await broker.retention.delete_orphans() == 1
    going_on.set()
    with pytest.raises(CommitRefused, match="given up"):
        await until_done(world, placing)
    assert await values_of(broker) == {}


async def test_queries_that_were_silent_for_long_are_forgotten(world: World) -> None:
    broker = await world.start_with(ORDERS)
    commit = await written(broker, world.bucket, {ORDERS: [b"x"]})
    await until_done(world, broker.commits.commit(commit))
    await broker.retention.sweep_logs()
    assert await world.sqlite.last_commit(commit.query) is not None
    world.clock.skip(world.settings.placing.remember_s + 1)
    await broker.retention.sweep_logs()
    assert await world.sqlite.last_commit(commit.query) is None
