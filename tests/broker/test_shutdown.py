"""A graceful stop ends within its limits, whatever is away, and what it could not finish is found by recovery."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Literal, TypeAlias

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups import JoinRequest
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config import AgentSettings, FlushSettings, WalSettings
from streamhouse.errors import NotCoordinator, Retriable
from streamhouse.model.group import OfferedProtocol
from streamhouse.model.names import TopicPartition
from tests.broker.cluster.test_cluster import BrokerCluster
from tests.broker.conftest import MakeWorld
from tests.broker.support import ORDERS, World, batch, current, produce, settle, values_of
from tests.broker.test_agent_session import claimed_by_a_rival

How: TypeAlias = Literal["refuse", "swallow"]
Away: TypeAlias = Literal["bucket", "metadata", "both"]
HOW: Sequence[How] = ("refuse", "swallow")
AWAY: Sequence[Away] = ("bucket", "metadata", "both")

STOP_S, CLOSE_S = 5.0, 2.0
LIMIT_S = STOP_S + 2 * CLOSE_S
"""Of a stop without handing over: flushing, closing the log, telling the others."""
AGENT = AgentSettings(stop_timeout_s=STOP_S, close_timeout_s=CLOSE_S)
FLUSH = FlushSettings(block_bytes=256, age_s=1e6)
WAL = WalSettings(window_ms=0, close_s=1.0)


JOIN = JoinRequest(
    member_id="",
    client_id="c",
    learns_id=False,
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=(OfferedProtocol("range", b""),),
)


def hold_close(agent_session: AgentSession, closing: asyncio.Event) -> None:
    """The log of this session doesn't close; the event says that it should."""

    async def aclose(*, remove: bool) -> None:
        closing.set()
        await asyncio.get_running_loop().create_future()

    agent_session.wal.aclose = aclose  # type: ignore[method-assign]


def cut(world: World, away: Away, how: How) -> None:
    if away in ("bucket", "both"):
        world.objects.cut(how)
    if away in ("metadata", "both"):
        world.metadata.cut(how)


def heal(world: World) -> None:
    world.objects.heal()
    world.metadata.heal()


async def started(world: World, *, wal: Literal["disk", "object"]) -> Broker:
    """One agent of a cluster, with a topic."""
    dependencies = world.dependencies(single_agent=False)
    if wal == "object":
        objects = ObjectWalFactory(world.objects, world.settings.wal, clock=world.clock, ids=world.ids)
        dependencies = world.dependencies(single_agent=False, wal_factory=objects)
    broker = Broker(dependencies)
    await broker.start()
    await broker.create_topic(ORDERS.topic, partitions=1, overrides={})
    return broker


async def successor(world: World) -> Broker:
    """Another agent, which takes over as soon as it may."""
    objects = ObjectWalFactory(world.objects, world.settings.wal, clock=world.clock, ids=world.ids)
    broker = Broker(world.dependencies(single_agent=False, wal_factory=objects))
    await broker.start()
    world.run(broker)
    return broker


@pytest.mark.parametrize(("away", "how"), list(itertools.product(AWAY, HOW)))
@pytest.mark.parametrize("stage", ["idle", "unflushed", "pending", "opening"])
@pytest.mark.parametrize("wal", ["disk", "object"])
async def test_a_stop_ends_in_time_whatever_is_away(
    make_world: MakeWorld, wal: Literal["disk", "object"], stage: str, away: Away, how: How
) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal=wal)
    task = world.run(broker)
    waiting: list[asyncio.Future[object]] = []
    if stage in ("unflushed", "pending"):
        await produce(broker, batch(b"acked"))
    cut(world, away, how)
    if stage == "pending":
        pending = await broker.append(ORDERS, batch(b"pending"))
        waiting.append(asyncio.ensure_future(broker.acknowledge(pending)))
    opening = asyncio.ensure_future(broker.open_log(ORDERS)) if stage == "opening" else None
    await settle()
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)
    if opening is not None:  # a call of the metadata store has a deadline of its own, which this one has not
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
    for each in waiting:  # nobody waits for an agent that has stopped
        assert each.done()
        assert isinstance(each.exception(), Retriable | None)


@pytest.mark.parametrize("how", HOW)
async def test_an_append_that_a_stop_could_not_make_durable_fails_with_an_error_that_says_try_again(
    make_world: MakeWorld, how: How
) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    world.objects.cut(how)
    pending = await broker.append(ORDERS, batch(b"pending"))
    acknowledged = asyncio.ensure_future(broker.acknowledge(pending))
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)
    with pytest.raises(Retriable):
        await acknowledged
    assert broker.left_behind is not None
    assert (broker.left_behind.pending_bytes > 0, broker.left_behind.partitions) == (True, 1)


async def test_what_a_stop_left_is_taken_over_at_once(make_world: MakeWorld) -> None:
    """Not after the session's time: its agent has said that it is gone."""
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    world.objects.cut("swallow")
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)
    world.objects.heal()
    heir = await successor(world)
    await world.clock.advance(3.0)
    assert await values_of(heir) == {0: b"acked"}


async def test_heartbeats_end_with_a_stop_that_gave_up(make_world: MakeWorld) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    world.objects.cut("swallow")
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)
    renewed = world.metadata.count("renew_session")
    await world.clock.advance(3 * world.settings.lease.ttl_s)
    assert world.metadata.count("renew_session") == renewed


async def test_no_heartbeat_is_sent_while_a_stop_that_gave_up_closes_its_log(make_world: MakeWorld) -> None:
    """One that is answered after the session was given up would bring it back to life."""
    close_s = 20.0
    agent = AgentSettings(stop_timeout_s=STOP_S, close_timeout_s=close_s)
    world = await make_world(agent=agent, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    world.objects.cut("swallow")
    agent_session, closing = current(broker), asyncio.Event()
    hold_close(agent_session, closing)
    broker.stop()
    while not closing.is_set():
        await world.clock.advance(0.25)
    renewed = world.metadata.count("renew_session")
    assert close_s > 3 * world.settings.lease.renew_s
    await world.clock.advance(close_s - 0.5)
    assert world.metadata.count("renew_session") == renewed
    await world.until_done(task, within_s=close_s)
    assert world.metadata.arguments("renew_session")[renewed:] == [(agent_session.session.session_id, 0)]


@pytest.mark.parametrize("away", [False, True])
async def test_a_log_that_does_not_close_keeps_a_stop_for_a_limited_time_only(
    make_world: MakeWorld, away: bool
) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    hold_close(current(broker), asyncio.Event())
    if away:
        world.objects.cut("swallow")
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)
    assert (broker.left_behind is not None) == away


async def test_a_session_that_ended_leaves_nothing_behind_although_its_log_could_not_be_removed_in_time(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_world(agent=AgentSettings(stop_timeout_s=1.0, close_timeout_s=5.0), flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    hold_close(current(broker), asyncio.Event())
    await world.stop(broker, task, within_s=12.0)
    assert broker.left_behind is None
    assert "session ended, its log could not be removed" in caplog.text
    assert list((await world.sqlite.membership()).sessions) == []


async def test_what_a_stop_left_is_counted_by_the_partitions_that_have_some_of_it(make_world: MakeWorld) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    await broker.create_topic("idle", partitions=3, overrides={})
    task = world.run(broker)
    for number in range(3):
        await broker.open_log(TopicPartition("idle", number))
    await produce(broker, batch(b"acked"))
    world.objects.cut("refuse")
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)
    assert broker.left_behind is not None
    assert broker.left_behind.partitions == 1


async def test_a_stop_whose_session_was_lost_while_it_ended_leaves_the_log_to_its_new_owner(
    make_world: MakeWorld,
) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="disk")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    resume = world.metadata.hold("end_session")
    broker.stop()
    while not world.metadata.count("end_session"):  # everything is flushed
        await world.clock.advance(0.1)
    await claimed_by_a_rival(world, broker)
    resume.set()
    await world.until_done(task, within_s=LIMIT_S)
    assert current(broker).session.session_id in world.wal_sessions()


async def test_a_caller_that_waits_for_a_group_is_sent_on_as_soon_as_a_stop_begins(make_world: MakeWorld) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="disk")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    joining = asyncio.ensure_future(broker.groups.join("g", JOIN))
    await settle()
    assert not joining.done()
    world.objects.cut("swallow")  # so that the session goes on for a while
    broker.stop()
    await settle()
    with pytest.raises(NotCoordinator, match="stopping"):
        await joining
    await world.until_done(task, within_s=LIMIT_S)


async def test_a_stop_with_everything_there_leaves_nothing(make_world: MakeWorld) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    await world.stop(broker, task, within_s=1.0)
    assert broker.left_behind is None
    assert list((await world.sqlite.membership()).sessions) == []


@pytest.mark.parametrize("how", HOW)
async def test_a_stop_with_a_full_disk_ends_in_time_and_keeps_what_was_acknowledged(
    make_world: MakeWorld, how: How
) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WalSettings(fsync="always", close_s=1.0))
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    world.files.fill_up_after(0)
    world.objects.cut(how)
    with pytest.raises(Retriable):
        await produce(broker, batch(b"lost"))
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)
    heal(world)
    world.files.make_room()
    world.kill()
    assert await values_of(await world.start()) == {0: b"acked"}


@pytest.mark.parametrize(("away", "how"), list(itertools.product(AWAY, HOW)))
async def test_a_stop_while_no_session_can_begin_ends_in_time(make_world: MakeWorld, away: Away, how: How) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="disk")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    world.files.fill_up_after(0)  # its log fails, so that another session must begin
    cut(world, away, how)
    with pytest.raises(Retriable):
        await produce(broker, batch(b"lost"))
    await world.clock.advance(30.0)
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)


@pytest.mark.parametrize("call", ["open_session", "claim_recovery", "finish_recovery"])
async def test_a_stop_while_the_next_session_begins_and_gets_no_response_ends_in_time(
    make_world: MakeWorld, call: str
) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await world.start_with()
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    await claimed_by_a_rival(world, broker)
    world.metadata.hold(call)
    await world.clock.advance(2 * world.settings.lease.renew_s)
    await world.stop(broker, task, within_s=LIMIT_S + 0.5)


@pytest.mark.parametrize(("away", "how"), list(itertools.product(AWAY, HOW)))
async def test_a_stop_that_hands_over_ends_in_time_too(make_world: MakeWorld, away: Away, how: How) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    cluster = BrokerCluster(world)
    first, _ = await cluster.join(), await cluster.join()
    await cluster.topic()
    for number in range(12):
        await cluster.produce(TopicPartition("orders", number), b"acked")
    cut(world, away, how)
    await cluster.pass_time(0.5)
    await world.stop(first, cluster.tasks[first], within_s=STOP_S + LIMIT_S + 0.5)


@pytest.mark.parametrize("how", HOW)
async def test_a_stop_while_recovery_waits_for_a_store_ends_in_time(make_world: MakeWorld, how: How) -> None:
    world = await make_world(agent=AGENT, flush=FLUSH, wal=WAL)
    broker = await started(world, wal="object")
    task = world.run(broker)
    await produce(broker, batch(b"acked"))
    world.kill()
    await asyncio.gather(task, return_exceptions=True)
    heir = await successor(world)
    task = world._running[-1]
    world.objects.cut(how)
    await world.clock.advance(2 * world.settings.lease.ttl_s)
    await world.stop(heir, task, within_s=LIMIT_S + 0.5)
    assert current(heir).end_reason is not None
