"""A session: may we append, what ends us, and what the next one finds."""

import asyncio

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.wal.base import Wal
from streamhouse.config import AgentSettings
from streamhouse.errors import (
    AppendFailed,
    LeaseHeld,
    LeaseLost,
    PredecessorRefused,
    Retriable,
    SessionLost,
    SessionSealed,
    Stopping,
)
from streamhouse.model.cluster import SessionState
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.support import (
    CLICKS,
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


async def claimed_by_a_rival(world: World, broker: Broker) -> None:
    """Another agent takes the broker for dead and claims its session."""
    rival = Broker(world.dependencies(single_agent=False))
    await rival.start()
    by = current(rival).session.session_id
    assert await world.sqlite.claim_recovery(current(broker).session.session_id, by=by, proven_dead=True)
    await current(rival).wal.aclose(remove=True)


# --- the heartbeat


async def test_heartbeats_keep_a_tenure_valid(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await world.clock.advance(10 * world.settings.lease.ttl_s)
    assert broker.not_ready() is None
    await produce(broker, batch(b"a"))
    await world.stop(broker, task)


async def test_a_late_heartbeat_means_no_append_until_it_is_made_up_for(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    world.metadata.refuse("renew_session", 1000)
    await world.clock.advance(world.settings.lease.ttl_s)
    assert broker.not_ready() is not None
    with pytest.raises(LeaseLost, match="heartbeat"):
        await broker.append(ORDERS, batch(b"b"))
    assert await values_of(broker) == {0: b"a"}
    world.metadata.heal()
    await world.clock.advance(2.0)
    assert (await produce(broker, batch(b"b"))).base_offset == 1
    await world.stop(broker, task)


async def test_a_late_heartbeat_means_no_ack_for_what_was_placed_in_time(world: World) -> None:
    broker = await world.start_with()
    pending = await broker.append(ORDERS, batch(b"a"))
    world.clock.skip(world.settings.lease.ttl_s - world.settings.lease.margin_s)
    with pytest.raises(AppendFailed, match="lease ended"):
        await broker.acknowledge(pending)


async def test_the_time_of_a_heartbeat_counts_from_the_request_not_from_the_response(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    lease = world.settings.lease
    resume = world.metadata.hold_answer("renew_session")
    await world.clock.advance(lease.renew_s)
    world.clock.skip(lease.ttl_s - lease.margin_s)
    resume.set()
    await settle()
    assert not current(broker).is_valid
    await world.stop(broker, task)


# --- the end of a session


async def test_a_lost_session_ends_the_tenure_without_touching_the_wal_and_the_next_recovers_it(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    first = current(broker)
    await produce(broker, idempotent(b"a", sequence=0))
    await claimed_by_a_rival(world, broker)
    await world.clock.advance(2 * world.settings.lease.renew_s)
    assert current(broker) is not first
    assert isinstance(first.end_reason, SessionLost)
    assert world.objects.count("put_new") == 1  # by the recovery, not by the session that had lost it
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 1
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    await world.stop(broker, task)


async def test_once_a_commit_says_that_the_session_is_lost_nothing_is_acknowledged_any_more(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    task = world.run(broker)
    first = current(broker)
    await produce(broker, batch(b"a"))
    pending = await broker.append(CLICKS, batch(b"b"))
    await claimed_by_a_rival(world, broker)
    with pytest.raises(SessionLost):
        await first.flusher.flush_all()
    first._end(SessionLost(first.session.session_id, why="said so"))
    assert not first.is_valid
    with pytest.raises(Retriable):
        await broker.acknowledge(pending)
    await world.clock.advance(1.0)
    assert (await values_of(broker), await values_of(broker, CLICKS)) == ({0: b"a"}, {0: b"b"})
    await world.stop(broker, task)


async def test_the_budget_is_empty_after_a_tenure_that_lost_its_session(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    await claimed_by_a_rival(world, broker)
    await world.clock.advance(2 * world.settings.lease.renew_s)
    assert broker.budget.used_bytes == 0
    await world.stop(broker, task)


# --- a failed WAL


async def test_a_failed_wal_loses_nothing_acknowledged_and_the_next_tenure_goes_on(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    first = current(broker)
    await produce(broker, idempotent(b"a", sequence=0))
    world.files.fill_up_after(10)
    pending = await broker.append(ORDERS, idempotent(b"b", sequence=1))
    with pytest.raises(AppendFailed):
        await broker.acknowledge(pending)
    with pytest.raises(Retriable):
        await broker.append(ORDERS, idempotent(b"c", sequence=2))
    world.files.make_room()
    await world.clock.advance(5.0)
    assert current(broker) is not first
    assert first.session.session_id not in {each.session_id for each in (await world.sqlite.membership()).sessions}
    assert world.wal_sessions() == [current(broker).session.session_id]
    assert await values_of(broker) == {0: b"a"}
    # The state of the producers is what is durable: a is a duplicate, b is new.
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 1
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    await world.stop(broker, task)


async def test_after_a_failed_wal_no_batch_is_stored_before_its_predecessor_that_was_in_flight(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    first = current(broker)
    world.files.fill_up_after(10)
    pending = await broker.append(ORDERS, idempotent(b"a", sequence=0))
    with pytest.raises(AppendFailed):
        await broker.acknowledge(pending)
    world.files.make_room()
    await world.clock.advance(5.0)
    assert current(broker) is not first
    # The producer had both in flight, and the connection that carried the second was the quicker one.
    with pytest.raises(PredecessorRefused):
        await broker.append(ORDERS, idempotent(b"b", sequence=1))
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 1
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    await world.stop(broker, task)


async def test_after_a_lost_lease_no_batch_is_stored_before_its_predecessor_that_was_in_flight(world: World) -> None:
    broker = await world.start_with()
    agent_session = current(broker)
    opened = await broker.open_log(ORDERS)
    await broker.append(ORDERS, idempotent(b"a", sequence=0))  # in flight: nobody has seen the WAL's answer
    await agent_session.logs.drop_lost(opened, LeaseLost([ORDERS], why="another agent had it for a while"))
    with pytest.raises(PredecessorRefused):
        await broker.append(ORDERS, idempotent(b"b", sequence=1))
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 1


async def test_acknowledged_records_survive_a_failed_wal_and_a_store_that_is_away_for_a_while(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    world.objects.refuse("put_new", 5)
    world.files.fill_up_after(0)
    with pytest.raises(Retriable):
        await produce(broker, batch(b"b"))
    world.files.make_room()
    await world.clock.advance(60.0)
    assert await values_of(broker) == {0: b"a"}
    assert broker.not_ready() is None
    await world.stop(broker, task)


async def test_a_long_poll_meets_the_next_tenure(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    world.files.fill_up_after(0)
    with pytest.raises(Retriable):
        await produce(broker, batch(b"b"))
    world.files.make_room()
    await world.clock.advance(5.0)
    await produce(broker, batch(b"b"))
    assert (await fetch(broker, 1)).high_watermark == 2
    await world.stop(broker, task)


async def test_a_tenure_that_cannot_begin_is_tried_again_and_leaves_nothing_behind(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    await claimed_by_a_rival(world, broker)
    world.objects.refuse("put_new", 6)  # so that recovery fails, and the new session with it
    await world.clock.advance(120.0)
    sessions = [each for each in (await world.sqlite.membership()).sessions if each.state is SessionState.LIVE]
    assert current(broker).session.session_id in {each.session_id for each in sessions}
    assert len(sessions) == 1
    assert world.wal_sessions() == [current(broker).session.session_id]
    assert await values_of(broker) == {0: b"a"}
    await world.stop(broker, task)


async def test_a_session_whose_log_cannot_be_opened_is_ended_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or others would wait for it, and recover a log that never was."""

    async def fail(_: SessionId, **__: object) -> Wal:
        raise OSError("the disk is gone")

    dependencies = world.dependencies()
    monkeypatch.setattr(dependencies.wal_factory, "open", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        await Broker(dependencies).start()
    assert world.metadata.count("open_session") == 1
    assert list((await world.sqlite.membership()).sessions) == []


async def test_no_session_begins_while_nothing_can_be_written_to_the_object_store(world: World) -> None:
    """Others would see an agent come and go again and again, and make room for it each time."""
    dependencies = world.dependencies()
    broker = Broker(dependencies)
    await broker.start()
    task = world.run(broker)
    await claimed_by_a_rival(world, broker)
    world.objects.refuse("put_new", 1000)
    dependencies.puts.failing_since = world.clock.monotonic()
    begun = world.metadata.count("open_session")
    await world.clock.advance(60.0)
    assert world.metadata.count("open_session") == begun
    world.objects.heal()
    await world.clock.advance(60.0)
    assert world.metadata.count("open_session") > begun
    await world.stop(broker, task)


async def test_a_log_that_another_agent_sealed_ends_the_tenure_as_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    first = current(broker)

    async def wait_failed() -> Exception:
        return SessionSealed(first.session.session_id, sequence=3, why="by=another")

    monkeypatch.setattr(first.wal, "wait_failed", wait_failed)
    await first._watch_wal()
    assert isinstance(first.end_reason, SessionLost)
    await settle()
    assert not first.is_valid
    await world.clock.advance(30.0)
    await world.stop(broker, task)


async def test_a_stop_during_the_search_for_a_new_tenure_ends_the_search(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    await claimed_by_a_rival(world, broker)
    world.objects.refuse("put_new", 1000)
    await world.clock.advance(30.0)
    await world.stop(broker, task, within_s=30.0)
    world.objects.heal()
    world.kill()
    assert await values_of(await world.start()) == {0: b"a"}


async def test_a_stop_while_a_new_tenure_begins_stops_that_one(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await claimed_by_a_rival(world, broker)
    resume = world.metadata.hold("finish_recovery")
    await world.clock.advance(2 * world.settings.lease.renew_s)
    broker.stop()
    resume.set()
    await world.until_done(task, within_s=10.0)
    assert list((await world.sqlite.membership()).sessions) == []
    assert world.wal_sessions() == []


# --- stopping


async def test_a_graceful_stop_flushes_ends_the_session_and_leaves_no_wal(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    task = world.run(broker)
    for name in (ORDERS, CLICKS):
        await produce(broker, idempotent(b"a", sequence=0), name)
    await world.stop(broker, task, within_s=1.0)
    assert list((await world.sqlite.membership()).sessions) == []
    assert world.wal_sessions() == []
    assert len(await world.object_keys()) == 1
    assert broker.budget.used_bytes == 0
    broker = await world.start()
    assert broker.recovered.sessions == 0
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert await values_of(broker) == {0: b"a"}


async def test_a_stopping_agent_refuses_appends_and_acknowledges_what_it_had_taken(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await settle()
    pending = await broker.append(ORDERS, batch(b"a"))
    broker.stop()
    assert broker.not_ready() == "stopping"
    await broker.acknowledge(pending)
    await settle()
    with pytest.raises(Stopping):
        await broker.append(ORDERS, batch(b"b"))
    late = await broker.create_topic("late", partitions=1, overrides={})
    with pytest.raises(LeaseLost, match="stopping"):
        await current(broker).logs.open(late, 0)
    await world.until_done(task)
    assert await values_of(await world.start()) == {0: b"a"}


async def test_a_stop_while_the_object_store_is_away_keeps_the_wal_and_the_next_start_recovers(
    make_world: MakeWorld,
) -> None:
    world = await make_world(agent=AgentSettings(stop_timeout_s=5.0))
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, idempotent(b"a", sequence=0))
    world.objects.refuse("put_new", 1000)
    await world.stop(broker, task, within_s=10.0)
    assert world.wal_sessions() == [current(broker).session.session_id]
    assert broker.budget.used_bytes == 0
    world.objects.heal()
    world.kill()
    broker = await world.start()
    assert (broker.recovered.sessions, broker.recovered.records) == (1, 1)
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == 0
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 1


ELSEWHERE = {ORDERS: LeaseLost([ORDERS], why="another agent leads it")}


async def test_appends_go_on_while_a_hand_over_flushes_and_all_of_them_are_stored_when_it_is_done(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    item = await broker.open_log(ORDERS)
    flushed = world.objects.hold("put_new")
    handing_over = asyncio.ensure_future(current(broker).transfer([item], ELSEWHERE))
    await settle()
    await produce(broker, batch(b"b"))  # the first flush, without it, is on its way
    in_flight = await broker.append(ORDERS, batch(b"c"))  # the write-ahead log has not taken it yet
    flushed.set()
    await handing_over
    assert in_flight.log.flushed_end == 3
    assert world.metadata.count("release") == 1
    world.kill()
    assert await values_of(await world.start()) == {0: b"a", 1: b"b", 2: b"c"}


async def test_what_is_in_flight_when_a_hand_over_begins_is_stored_when_it_is_done(world: World) -> None:
    broker = await world.start_with()
    item = await broker.open_log(ORDERS)
    pending = await broker.append(ORDERS, batch(b"a"))
    assert item.high_watermark == 0
    await current(broker).transfer([item], ELSEWHERE)
    await broker.acknowledge(pending)  # its producer would send it again
    world.kill()
    assert await values_of(await world.start()) == {0: b"a"}


async def test_what_is_known_of_a_partition_is_read_again_after_it_was_handed_over(world: World) -> None:
    """Others lead it meanwhile, and give it other runs."""
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    item = await broker.open_log(ORDERS)
    agent_session = current(broker)
    await agent_session.flusher.flush_all()
    assert await values_of(broker) == {0: b"a"}  # its run is known from now on
    assert agent_session.logs.leases.names() == {item.partition: ORDERS}
    await agent_session.transfer([item], ELSEWHERE)
    assert agent_session.logs.leases.names() == {}
    assert agent_session.logs.unopened() == {}
    calls_before = world.metadata.count("runs")
    assert await values_of(broker) == {0: b"a"}
    assert world.metadata.count("runs") > calls_before


async def test_a_hand_over_that_outlives_a_stop_gives_no_lease_away(make_world: MakeWorld) -> None:
    """Records that the stop could not flush are in the WAL; the next leader must not begin before they are
    recovered."""
    world = await make_world(agent=AgentSettings(stop_timeout_s=5.0))
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    agent_session, item = current(broker), await broker.open_log(ORDERS)
    world.objects.refuse("put_new", 1000)
    await world.stop(broker, task, within_s=10.0)
    world.objects.heal()
    assert (
        agent_session.logs.unopened() == {}
    )  # nor are there leases that look like those of logs that could not be opened
    await agent_session.transfer([item], {ORDERS: LeaseLost([ORDERS], why="another agent leads it")})
    assert world.metadata.count("release") == 0
    world.kill()
    assert await values_of(await world.start()) == {0: b"a"}


async def test_a_stop_without_metadata_keeps_the_wal_too(make_world: MakeWorld) -> None:
    world = await make_world(agent=AgentSettings(stop_timeout_s=5.0))
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"a"))
    world.metadata.refuse("commit_segments", 1000)
    await world.stop(broker, task, within_s=10.0)
    world.metadata.heal()
    world.kill()
    assert await values_of(await world.start()) == {0: b"a"}


# --- opening logs


async def test_a_log_is_opened_once_however_many_want_it(world: World) -> None:
    broker = await world.start_with()
    opened = await asyncio.gather(*(broker.open_log(ORDERS) for _ in range(20)))
    assert len({id(log) for log in opened}) == 1
    assert world.metadata.count("acquire") == 1
    assert current(broker).logs._opening.pending() == []


async def test_a_failed_opening_fails_for_all_who_wait_and_is_tried_again_by_the_next(world: World) -> None:
    broker = await world.start_with()
    world.metadata.refuse("last_runs")
    opened = await asyncio.gather(*(broker.open_log(ORDERS) for _ in range(3)), return_exceptions=True)
    assert [isinstance(log, Exception) for log in opened] == [True, True, True]
    assert (await broker.open_log(ORDERS)).closed is None


async def test_logs_that_are_wanted_together_are_opened_together(world: World) -> None:
    broker = await world.start()
    await broker.create_topic("wide", partitions=500, overrides={})
    names = [TopicPartition("wide", number) for number in range(500)]
    for name in names:
        await produce(broker, batch(b"a"), name)
    await current(broker).flusher.flush_all()
    world.kill()
    broker = await world.start()
    world.metadata.calls.clear()
    world.objects.calls.clear()
    await broker.open_many(names)
    assert (world.metadata.count("acquire"), world.metadata.count("last_runs")) == (1, 1)
    assert world.objects.count("get_range") == 1
    assert all(current(broker).logs.find(name) is not None for name in names)


async def test_a_caller_that_gives_up_waiting_for_a_log_leaves_the_others_alone(world: World) -> None:
    broker = await world.start_with(ORDERS, CLICKS)
    resume = world.metadata.hold("acquire")
    first, second = (asyncio.ensure_future(broker.open_log(ORDERS)) for _ in range(2))
    await settle()
    third = asyncio.ensure_future(broker.open_log(CLICKS))
    await settle()
    first.cancel()
    resume.set()
    assert (await second).name == ORDERS
    assert (await third).name == CLICKS


async def test_a_lease_that_another_session_holds_is_not_opened(world: World) -> None:
    broker = await world.start_with()
    await broker.open_log(ORDERS)
    rival = Broker(world.dependencies(single_agent=False))
    await rival.start()
    with pytest.raises(LeaseHeld):
        await current(rival).logs.open(await rival.topic("orders"), 0)
    assert current(rival).logs.unopened() == {}, "it was refused, so there is nothing to give up"


async def test_leases_are_given_up_however_long_the_metadata_store_is_away(world: World) -> None:
    broker = await world.start_with()
    opened = await broker.open_log(ORDERS)
    world.metadata.refuse("release", 5)
    why = LeaseLost([ORDERS], why="another agent leads it now")
    handing_over = asyncio.create_task(current(broker).transfer([opened], {ORDERS: why}))
    await world.clock.advance(60.0)
    await handing_over
    [state] = await world.sqlite.partitions([opened.partition.topic_id])
    assert (state.holder, world.metadata.count("release")) == (None, 6)


async def test_a_lease_that_this_session_does_not_know_is_not_given_up(world: World) -> None:
    broker = await world.start_with()
    topic = await broker.topic("orders")
    await current(broker).logs.release_unopened(PartitionId(topic.topic_id, 0), ORDERS)
    assert world.metadata.count("release") == 0


async def test_a_tenure_that_ends_while_a_log_is_being_opened_does_not_get_it(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    resume = world.metadata.hold_answer("acquire")
    opening = asyncio.ensure_future(broker.open_log(ORDERS))
    await settle()
    broker.stop()
    resume.set()
    with pytest.raises(LeaseLost, match="ending"):
        await opening
    await world.until_done(task)
    assert list((await world.sqlite.membership()).sessions) == []


async def test_a_log_of_a_deleted_topic_gives_way_to_its_successor_and_returns_its_memory(world: World) -> None:
    broker = await world.start_with()
    await produce(broker, batch(b"old"))
    old = await broker.open_log(ORDERS)
    await world.sqlite.delete_topic(old.partition.topic_id)  # by another agent
    broker.catalog._loaded_at = None
    await broker.create_topic("orders", partitions=1, overrides={})
    await produce(broker, batch(b"new"))
    assert isinstance(old.closed, LeaseLost)
    assert broker.budget.used_bytes == len(batch(b"new"))
    assert await values_of(broker) == {0: b"new"}


async def test_what_a_dropped_log_had_in_flight_is_not_acknowledged(world: World) -> None:
    broker = await world.start_with()
    topic = await broker.topic("orders")
    pending = await broker.append(ORDERS, batch(b"a"))
    await current(broker).logs.drop_topic(topic)  # at once: a moment later the WAL has it
    with pytest.raises(Retriable):
        await broker.acknowledge(pending)
    assert pending.log.high_watermark == 0


async def test_a_tenure_that_is_over_leaves_nobody_waiting_for_a_log(world: World) -> None:
    broker = await world.start_with(ORDERS)
    task = world.run(broker)
    world.metadata.hold("acquire")
    topic = await broker.topic(ORDERS.topic)
    agent_session = current(broker)
    pending = asyncio.ensure_future(agent_session.logs.open(topic, ORDERS.partition))
    await settle()
    await world.stop(broker, task)
    with pytest.raises(LeaseLost):
        await pending
