"""Several agents on one pair of stores: who leads, how leadership moves, and what survives a death."""

import asyncio
from collections.abc import Sequence

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.session.flush import wal_objects_allowed
from streamhouse.broker.session.recovery import WalSessionRecovery
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.config import FlushSettings, WalSettings
from streamhouse.config.fields import Address
from streamhouse.errors import (
    AppendFailed,
    CoordinatorLoading,
    LeaseLost,
    NotCoordinator,
    NotLeader,
    OutOfOrderSequence,
    PredecessorRefused,
    Retriable,
    SessionLost,
    Unavailable,
)
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import NodeId, PartitionId, TopicPartition
from streamhouse.model.transaction import Marker, ProducerIdentity
from tests.broker.conftest import MakeWorld
from tests.broker.support import ORDERS, World, batch, current, fetch, idempotent, produce, settle, values_of

PARTITIONS = 12


class BrokerCluster:
    """Agents on the same stores, each with its own processes' worth of tasks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.agents: list[Broker] = []
        self.tasks: dict[Broker, asyncio.Task[None]] = {}

    async def join(self, *, at: Address | None = None) -> Broker:
        address = at or Address("127.0.0.1", 9001 + len(self.agents))
        world = self.world
        broker = Broker(
            world.dependencies(
                single_agent=False,
                wal_factory=ObjectWalFactory(world.objects, world.settings.wal, clock=world.clock, ids=world.ids),
                kafka=address,
            )
        )
        await broker.start()
        self.agents.append(broker)
        self.tasks[broker] = world.run(broker)
        await self.pass_time(0.1)
        return broker

    async def topic(self, name: str = "orders", partitions: int = PARTITIONS) -> None:
        await self.agents[0].create_topic(name, partitions=partitions, overrides={})

    async def leader(self, name: TopicPartition) -> Broker:
        """The agent that Metadata names."""
        topic = await self.agents[0].topic(name.topic)
        partition = PartitionId(topic.topic_id, name.partition)
        reported = {(await each.leaders([topic]))[partition].node_id for each in self.alive()}
        assert len(reported) == 1, f"agents disagree: {reported}"
        (node,) = reported
        return next(each for each in reversed(self.agents) if each.node_id == node)

    async def led_by(self, broker: Broker) -> list[TopicPartition]:
        return [name for name in names() if await self.leader(name) is broker]

    def alive(self) -> list[Broker]:
        return [each for each in self.agents if not self.tasks[each].done()]

    async def kill(self, broker: Broker) -> None:
        self.tasks[broker].cancel()
        await asyncio.gather(self.tasks[broker], return_exceptions=True)

    async def pass_time(self, seconds: float, *, step: float = 0.05) -> None:
        for _ in range(round(seconds / step)):
            await self.world.clock.advance(step)

    async def produce(self, name: TopicPartition, data: bytes, *, tries: int = 100) -> int:
        """As a client does: ask who leads, send there, try again; time passes meanwhile. Returns the offset."""
        for _ in range(tries):
            leader = await self.leader(name)
            if self.tasks[leader].done():  # its death isn't known yet
                await self.world.clock.advance(0.1)
                continue
            work = asyncio.ensure_future(produce(leader, batch(data), name))
            while not work.done():
                await self.world.clock.advance(0.02)
            try:
                return work.result().base_offset
            except Retriable:
                await self.world.clock.advance(0.1)
        raise AssertionError(f"{name} could not be written in {tries} tries")


@pytest.fixture
async def cluster(make_world: MakeWorld) -> BrokerCluster:
    return BrokerCluster(
        await make_world(flush=FlushSettings(block_bytes=256, age_s=5.0), wal=WalSettings(window_ms=0))
    )


def names(topic: str = "orders") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


async def test_agents_share_the_partitions_and_agree_about_who_leads_what(cluster: BrokerCluster) -> None:
    for _ in range(3):
        await cluster.join()
    await cluster.topic()
    leaders = [await cluster.leader(name) for name in names()]
    assert {leader.node_id for leader in leaders} == {1, 2, 3}
    for name, leader in zip(names(), leaders, strict=True):
        assert await cluster.produce(name, b"a") == 0
        assert (await cluster.leader(name)) is leader


async def test_a_client_of_the_wrong_agent_gets_the_right_one(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(second)
    with pytest.raises(NotLeader) as refused:
        await first.append(name, batch(b"a"))
    assert (refused.value.node_id, refused.value.address) == (second.node_id, Address("127.0.0.1", 9002))
    assert isinstance((await fetch(first, 0, name)).error, NotLeader)


async def test_an_agent_that_joins_gets_its_share_and_offsets_go_on(cluster: BrokerCluster) -> None:
    first = await cluster.join()
    await cluster.topic()
    for name in names():
        assert await cluster.produce(name, b"before") == 0
    second = await cluster.join()
    await cluster.pass_time(3)
    moved = await cluster.led_by(second)
    assert 0 < len(moved) < PARTITIONS
    for name in names():
        assert await cluster.produce(name, b"after") == 1
        leader = second if name in moved else first
        assert await values_of(leader, name) == {0: b"before", 1: b"after"}
    assert first.balancer.handed_over == len(moved)


async def test_an_agent_that_stops_hands_over_everything_before_it_ends(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    for name in names():
        await cluster.produce(name, b"a")
    first.stop()
    await cluster.world.until_done(cluster.tasks[first])
    assert [each.session_id for each in (await cluster.world.sqlite.membership()).sessions] == [
        current(second).session.session_id
    ]
    await cluster.pass_time(1.2)
    for name in names():
        assert await cluster.produce(name, b"b") == 1
        assert await values_of(second, name) == {0: b"a", 1: b"b"}
    assert second.dead_session_recovery.recovered.sessions == 0


async def test_an_agent_that_stops_and_hands_over_everything_does_not_warn_that_partitions_stay(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    for name in names():
        await cluster.produce(name, b"a")
    for agent in (first, second):  # the second has nobody to hand over to
        agent.stop()
        # Time passes between the end of the session and that of its tasks, as it does with a store that is far away.
        held = cluster.world.metadata.hold("end_session")
        await cluster.pass_time(3.0)
        held.set()
        await cluster.world.until_done(cluster.tasks[agent])
        cluster.world.metadata._held.clear()
    assert [line.message for line in caplog.records if "stay where they are" in line.message] == []


async def test_partitions_that_can_not_be_handed_over_are_said_to_stay(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await cluster.join()

    async def refuse() -> None:
        raise Unavailable("the metadata store is away")

    monkeypatch.setattr(agent.groups, "balance", refuse)
    await cluster.pass_time(3.0)
    assert "partitions stay where they are for now" in [line.message for line in caplog.records]


async def test_an_agent_whose_heartbeat_is_late_says_that_and_nothing_about_partitions_and_groups(
    cluster: BrokerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    agent, _ = await cluster.join(), await cluster.join()
    await coordinators(cluster, [f"readers-{number}" for number in range(20)])
    cluster.world.metadata.refuse("renew_session", times=1000)
    lease, groups = cluster.world.settings.lease, cluster.world.settings.groups
    await cluster.pass_time(lease.usable_s + max(3.0, groups.lag_interval_s))
    lines = [line.message for line in caplog.records]
    warnings = set(lines)
    assert not current(agent).is_valid
    assert lines.count("the heartbeat is late, leases are not acted on") == 2  # each agent says it once
    assert not warnings & {"partitions stay where they are for now", "group lag not measured, will retry"}


async def test_what_a_dead_agent_acknowledged_is_recovered_by_another_within_the_ttl(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    mine = await cluster.led_by(first)
    for name in mine:
        for value in (b"a", b"b"):
            await cluster.produce(name, value)
    await cluster.kill(first)
    died = cluster.world.clock.monotonic()
    for name in mine:
        assert await cluster.produce(name, b"c", tries=1000) == 2
    assert cluster.world.clock.monotonic() - died <= cluster.world.settings.lease.ttl_s
    for name in mine:
        assert await values_of(second, name) == {0: b"a", 1: b"b", 2: b"c"}
    assert second.dead_session_recovery.recovered.records == 2 * len(mine)


async def test_a_dead_agent_is_named_for_a_while_beside_the_living_and_then_forgotten(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    dead = second.node_id
    await cluster.kill(second)
    lease, listed_s = cluster.world.settings.lease, cluster.world.settings.cluster.departed_listed_s
    assert [each.node_id for each in first.agents()] == [first.node_id, dead]
    await cluster.pass_time(lease.ttl_s - lease.takeover_s + 1)
    assert [each.node_id for each in first.agents()] == [first.node_id]
    assert [each.node_id for each in first.departed()] == [dead]
    await cluster.pass_time(listed_s)
    assert first.departed() == []


async def test_an_agent_that_left_in_order_is_not_named_any_more(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    second.stop()
    await cluster.pass_time(1)
    assert cluster.tasks[second].done()
    assert [each.node_id for each in first.agents()] == [first.node_id]
    assert first.departed() == []


async def test_an_agent_that_starts_knows_who_departed_before_like_all_others(cluster: BrokerCluster) -> None:
    """Java's Admin gets the agents from one of them, and then waits for a node id that another agent doesn't know."""
    first, second, third = await cluster.join(), await cluster.join(), await cluster.join()
    lease, redirected_s = cluster.world.settings.lease, cluster.world.settings.cluster.departed_redirected_s
    await cluster.kill(second)
    await cluster.pass_time(lease.life_ms / 1000 + 1)
    third.stop()
    await cluster.pass_time(3)
    late = await cluster.join()
    known = [second.node_id, third.node_id]
    assert [each.node_id for each in first.redirected()] == [each.node_id for each in late.redirected()] == known
    assert [each.node_id for each in late.departed()] == [second.node_id]
    await cluster.pass_time(redirected_s - 2)
    assert first.redirected() == late.redirected() == []


async def test_an_id_that_is_redirected_stays_while_the_agents_that_it_leads_to_die(cluster: BrokerCluster) -> None:
    first, second, third = await cluster.join(), await cluster.join(), await cluster.join()
    lease, redirected_s = cluster.world.settings.lease, cluster.world.settings.cluster.departed_redirected_s
    await cluster.kill(second)
    await cluster.pass_time(redirected_s)  # it was noticed later, so it is still redirected, maybe to the third
    await cluster.kill(third)
    await cluster.pass_time(lease.life_ms / 1000 + 1)
    assert [each.node_id for each in first.redirected()] == [second.node_id, third.node_id]
    await cluster.pass_time(redirected_s)
    assert first.redirected() == []


async def test_an_agent_that_died_and_is_back_leads_nothing_until_clients_connect_to_its_address_again(
    cluster: BrokerCluster,
) -> None:
    first, second, third = await cluster.join(), await cluster.join(), await cluster.join()
    await cluster.topic()
    lease, wait_s = cluster.world.settings.lease, cluster.world.settings.cluster.return_wait_s
    lost = await cluster.led_by(second)
    await cluster.kill(second)
    await cluster.pass_time(lease.ttl_s - lease.takeover_s + 1)
    for name in names():
        await cluster.produce(name, b"a")
    back = await cluster.join(at=Address("127.0.0.1", 9002))
    await cluster.pass_time(wait_s - 5)
    assert back.node_id == second.node_id
    assert await cluster.led_by(back) == []
    assert (first.balancer.handed_over, third.balancer.handed_over) == (0, 0)
    await cluster.pass_time(8)
    assert await cluster.led_by(back) == lost
    for name in names():
        assert await cluster.produce(name, b"b") == 1


async def test_an_agent_that_is_back_long_before_its_death_is_noticed_leads_again_as_soon_as_it_is(
    cluster: BrokerCluster,
) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    for name in names():
        await cluster.produce(name, b"a")
    await cluster.kill(second)
    back = await cluster.join(at=Address("127.0.0.1", 9002))
    lease, wait_s = cluster.world.settings.lease, cluster.world.settings.cluster.return_wait_s
    assert lease.ttl_s - lease.takeover_s > wait_s
    await cluster.pass_time(lease.ttl_s - lease.takeover_s + 1)
    assert [each.node_id for each in first.agents()] == [first.node_id, back.node_id]
    assert await cluster.led_by(back)


async def test_a_pin_waits_for_its_agent_to_be_found_again(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    lease, wait_s = cluster.world.settings.lease, cluster.world.settings.cluster.return_wait_s
    (name, *_) = await cluster.led_by(first)
    await first.cluster_admin.move(name, second.node_id)
    await cluster.pass_time(2)
    await cluster.kill(second)
    await cluster.pass_time(lease.ttl_s - lease.takeover_s + 1)
    await cluster.produce(name, b"a")
    back = await cluster.join(at=Address("127.0.0.1", 9002))
    await cluster.pass_time(2)
    assert await cluster.leader(name) is first
    await cluster.pass_time(wait_s)
    assert await cluster.leader(name) is back


async def test_the_last_agent_hands_over_to_one_that_has_only_just_come_back(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    lease = cluster.world.settings.lease
    await cluster.kill(second)
    await cluster.pass_time(lease.ttl_s - lease.takeover_s + 1)
    for name in names():
        await cluster.produce(name, b"a")
    back = await cluster.join(at=Address("127.0.0.1", 9002))
    await cluster.pass_time(1)
    first.stop()
    await cluster.world.until_done(cluster.tasks[first])
    assert back.dead_session_recovery.recovered.sessions == 0
    for name in names():
        assert await cluster.produce(name, b"b") == 1


async def test_a_paused_agent_acknowledges_nothing_after_its_lease(cluster: BrokerCluster) -> None:
    first, _second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await cluster.produce(name, b"a")
    resume = cluster.world.objects.hold("put_new")
    pending = await first.append(name, batch(b"late"))
    acked = asyncio.ensure_future(first.acknowledge(pending))
    await settle()
    cluster.world.clock.skip(cluster.world.settings.lease.ttl_s + 1)  # nobody renewed anything meanwhile
    resume.set()
    with pytest.raises(AppendFailed):
        await acked


async def test_a_paused_agent_acknowledges_no_marker_after_its_lease(cluster: BrokerCluster) -> None:
    first, _second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    resume = cluster.world.objects.hold("put_new")
    marker = Marker(producer=ProducerIdentity(7, 0), number=1, is_commit=True)
    marking = asyncio.ensure_future(first.transactions.mark(marker, [name]))
    await settle()
    cluster.world.clock.skip(cluster.world.settings.lease.ttl_s + 1)
    resume.set()
    outcomes = await marking
    assert isinstance(outcomes[name], AppendFailed)


async def test_a_long_poll_is_sent_on_when_the_heartbeat_is_late_for_another_agent_may_lead(
    cluster: BrokerCluster,
) -> None:
    first, _ = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await cluster.produce(name, b"a")
    wanted = [PartitionFetch(name, 1, 1000)]
    polling = asyncio.ensure_future(first.fetch(wanted, max_bytes=1000, min_bytes=1, max_wait_s=60))
    cluster.world.metadata.refuse("renew_session", times=1000)
    await cluster.pass_time(cluster.world.settings.lease.usable_s + 0.2)
    assert polling.done()
    (reported,) = await polling
    assert isinstance(reported.error, LeaseLost)


async def test_a_zombie_learns_of_its_death_from_the_seal(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await cluster.produce(name, b"a")
    zombie = current(first)
    claim = await cluster.world.sqlite.claim_recovery(
        zombie.session.session_id, by=current(second).session.session_id, proven_dead=True
    )
    assert claim is not None
    await cluster.pass_time(
        2
    )  # the second agent goes on with its own claim, and seals; no heartbeat of the first is due
    with pytest.raises((AppendFailed, LeaseLost, NotLeader)):
        await produce(first, batch(b"zombie"), name)
    assert await values_of(second, name) == {0: b"a"}


async def test_a_zombie_that_hands_over_begins_another_session_instead_of_ending(cluster: BrokerCluster) -> None:
    """It lost its session while it flushed what it was about to give away."""
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await cluster.produce(name, b"a")
    zombie = current(first)
    by = current(second).session.session_id
    assert await cluster.world.sqlite.claim_recovery(zombie.session.session_id, by=by, proven_dead=True) is not None
    await cluster.world.sqlite.pin_partitions({(await first.open_log(name)).partition: second.node_id})
    with pytest.raises(SessionLost):
        await first.balancer.balance(zombie)
    await cluster.pass_time(6)
    assert not cluster.tasks[first].done()
    assert current(first) is not zombie
    assert await values_of(second, name) == {0: b"a"}


async def test_a_recoverer_that_dies_too_is_succeeded(cluster: BrokerCluster) -> None:
    first, second, third = await cluster.join(), await cluster.join(), await cluster.join()
    await cluster.topic()
    mine = await cluster.led_by(first)
    for name in mine:
        await cluster.produce(name, b"a")
    await cluster.kill(first)
    cluster.world.metadata.hold("finish_recovery")
    await cluster.pass_time(cluster.world.settings.lease.ttl_s)
    (recovering,) = [s for s in (await cluster.world.sqlite.membership()).sessions if s.claimed_by is not None]
    claimer = second if recovering.claimed_by == current(second).session.session_id else third
    other = third if claimer is second else second
    await cluster.kill(claimer)
    cluster.world.metadata._held.clear()
    for name in mine:
        assert await cluster.produce(name, b"b", tries=2000) == 1
        assert await values_of(other, name) == {0: b"a", 1: b"b"}


async def test_recovery_begins_at_the_mark_as_it_stands_after_the_claim(
    cluster: BrokerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an older mark, recovery would find the first object missing, and take that for the end of the log."""
    first = await cluster.join()
    await cluster.topic()
    (known_long_ago,) = (await cluster.world.sqlite.membership()).sessions
    await cluster.produce(ORDERS, b"a")
    await current(first).flusher.flush_all()
    await cluster.pass_time(cluster.world.settings.lease.renew_s + 1)
    (session,) = (await cluster.world.sqlite.membership()).sessions
    assert known_long_ago.wal_start < session.wal_start
    await cluster.produce(ORDERS, b"b")
    await cluster.kill(first)
    second = await cluster.join()
    monkeypatch.setattr(second.dead_session_recovery, "_due", list)
    await cluster.pass_time(cluster.world.settings.lease.ttl_s)
    recovery = WalSessionRecovery(
        second._dependencies,
        by=current(second).session.session_id,
        reader=second.reader,
        before_removal=second._session_manager.identity.cover,
    )
    assert (await recovery.recover(known_long_ago)).records == 1
    assert await values_of(second, ORDERS) == {0: b"a", 1: b"b"}


async def test_an_idempotent_producer_is_known_by_the_next_leader(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    assert (await produce(first, idempotent(b"a", sequence=0), name)).base_offset == 0
    assert (await produce(first, idempotent(b"b", sequence=1), name)).base_offset == 1
    await cluster.kill(first)
    await cluster.pass_time(cluster.world.settings.lease.ttl_s + 1)
    again = await produce(second, idempotent(b"b", sequence=1), name)
    assert again.base_offset == 1
    assert (await produce(second, idempotent(b"c", sequence=2), name)).base_offset == 2


async def test_a_pinned_partition_moves_to_its_node_and_stays(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await cluster.produce(name, b"a")
    topic = await first.topic("orders")
    await cluster.world.sqlite.pin_partitions({PartitionId(topic.topic_id, name.partition): NodeId(second.node_id)})
    await cluster.pass_time(2)
    assert await cluster.leader(name) is second
    assert await cluster.produce(name, b"b") == 1


async def test_a_draining_agent_gives_everything_away_and_lives_on(cluster: BrokerCluster) -> None:
    first, _second = await cluster.join(), await cluster.join()
    await cluster.topic()
    for name in names():
        await cluster.produce(name, b"a")
    await cluster.world.sqlite.drain_session(current(first).session.session_id)
    await cluster.pass_time(2)
    assert await cluster.led_by(first) == []
    assert list(current(first).logs) == []
    for name in names():
        assert await cluster.produce(name, b"b") == 1
    with pytest.raises(NotLeader):
        await first.append(ORDERS, batch(b"c"))


async def test_settings_and_deletions_by_one_agent_hold_for_logs_of_another(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await cluster.produce(name, b"a")
    await second.topic_admin.alter_topic("orders", lambda old: {**old, "max.message.bytes": "100"})
    await cluster.pass_time(0.5)
    assert (await first.open_log(name)).config.max_message_bytes == 100
    await second.delete_topic(await second.topic("orders"))
    await cluster.pass_time(0.5)
    assert list(current(first).logs) == []


async def test_retention_moves_the_log_starts_of_what_an_agent_leads_and_of_nothing_else(
    cluster: BrokerCluster,
) -> None:
    """If another agent moves a log start, the leader doesn't know, and keeps the old one."""
    first, second = await cluster.join(), await cluster.join()
    await first.create_topic("orders", partitions=PARTITIONS, overrides={"retention.ms": "1000"})
    for name in names():
        await cluster.produce(name, b"a")
    await cluster.pass_time(7)  # all is flushed, and old
    led = await cluster.led_by(second)
    assert 0 < len(led) < PARTITIONS
    assert await second.retention.apply() == len(led)
    assert await first.retention.apply() == PARTITIONS - len(led)


async def test_a_zombie_never_says_that_an_offset_is_out_of_range(cluster: BrokerCluster) -> None:
    """With OffsetOutOfRange a consumer would reset its position; the next leader may have the records beyond."""
    first, _second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await cluster.produce(name, b"a")
    cluster.world.clock.skip(cluster.world.settings.lease.ttl_s)
    assert isinstance((await fetch(first, 7, name)).error, LeaseLost)
    with pytest.raises(LeaseLost):
        await first.latest(name)


async def test_a_lease_whose_log_could_not_be_opened_goes_to_the_agent_that_should_lead(cluster: BrokerCluster) -> None:
    first = await cluster.join()
    await cluster.topic()
    cluster.world.metadata.refuse("last_runs", times=PARTITIONS)
    for name in names():
        with pytest.raises(Retriable):
            await first.append(name, batch(b"a"))
    second = await cluster.join()
    await cluster.pass_time(3)
    assert len(await cluster.led_by(second)) > 0
    for name in names():
        assert await cluster.produce(name, b"b") == 0


async def test_groups_let_go_by_a_late_heartbeat_go_to_the_agent_that_should_coordinate_them(
    cluster: BrokerCluster,
) -> None:
    first = await cluster.join()
    lease, groups = cluster.world.settings.lease, [f"readers-{number}" for number in range(20)]
    assert await coordinators(cluster, groups) == {first}
    cluster.world.metadata.refuse("renew_session", times=1000)
    await cluster.pass_time(lease.usable_s + 0.2)
    assert current(first).is_valid is False
    second = await cluster.join()
    cluster.world.metadata.heal()
    await cluster.pass_time(3)
    assert current(first).is_valid
    assert await coordinators(cluster, groups) == {first, second}


async def coordinators(cluster: BrokerCluster, groups: Sequence[str]) -> set[Broker]:
    """The agents that coordinate these groups, all of which answer."""
    by_session = {current(each).session.session_id: each for each in cluster.agents}
    found = {group: by_session[(await cluster.agents[0].groups.coordinator_of(group)).session_id] for group in groups}
    for group, agent in found.items():
        assert not isinstance((await agent.groups.describe([group]))[group], NotCoordinator | CoordinatorLoading)
    return set(found.values())


async def test_groups_whose_lease_was_taken_without_a_response_go_to_the_agent_that_should_coordinate_them(
    cluster: BrokerCluster,
) -> None:
    first, groups = await cluster.join(), [f"readers-{number}" for number in range(20)]
    cluster.world.metadata.lose_answer("acquire", times=1000)
    refused = (await first.groups.describe(groups)).values()
    assert {type(each) for each in refused} == {CoordinatorLoading}
    second = await cluster.join()
    cluster.world.metadata.heal()
    await cluster.pass_time(3)
    assert await coordinators(cluster, groups) == {first, second}


async def test_a_session_that_is_still_being_recovered_holds_up_nothing_in_the_next_one(cluster: BrokerCluster) -> None:
    first, second = await cluster.join(), await cluster.join()
    groups = [f"readers-{number}" for number in range(20)]
    await cluster.pass_time(3)
    for agent in (first, second):
        await agent.groups.fetch(dict.fromkeys(groups))
    before = current(first).session.session_id
    cluster.world.metadata.refuse("finish_recovery", times=1000)
    assert await cluster.world.sqlite.claim_recovery(before, by=current(second).session.session_id, proven_dead=True)
    await cluster.pass_time(cluster.world.settings.lease.renew_s + 4)
    assert current(first).session.session_id != before
    await first.groups.balance()


async def test_successors_of_a_batch_that_was_refused_for_now_are_not_out_of_order(cluster: BrokerCluster) -> None:
    """Clients with several requests under way would begin another epoch, and store again what they are unsure of."""
    broker = await cluster.join()
    await cluster.topic()
    (name, *_) = names()
    for sequence in (0, 1):
        await produce(broker, idempotent(b"%d" % sequence, sequence=sequence), name)
    current(broker)._deadline.at -= 1000  # the heartbeat is late
    for sequence in (1, 2):  # the first of them was stored, and its producer doesn't know
        with pytest.raises(LeaseLost):
            await broker.append(name, idempotent(b"%d" % sequence, sequence=sequence))
    await current(broker).renew()
    with pytest.raises(PredecessorRefused):
        await broker.append(name, idempotent(b"3", sequence=3))
    for sequence in (2, 3):
        await produce(broker, idempotent(b"%d" % sequence, sequence=sequence), name)
    assert list((await values_of(broker, name)).values()) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(PredecessorRefused):
        await broker.append(name, idempotent(b"5", sequence=5))
    await cluster.pass_time(cluster.world.settings.producers.settle_s + 0.1)
    with pytest.raises(OutOfOrderSequence):
        await broker.append(name, idempotent(b"5", sequence=5))


async def test_whichever_agent_dies_leaves_no_longer_log_than_can_be_read_in_the_time_for_taking_over(
    make_world: MakeWorld,
) -> None:
    never = FlushSettings(block_bytes=256, age_s=1e6)
    world = await make_world(flush=never, wal=WalSettings(window_ms=0, recovery_per_s=1))
    allowed = wal_objects_allowed(world.settings)
    cluster = BrokerCluster(world)
    agent = await cluster.join()
    await cluster.topic(partitions=1)
    for _ in range(3 * allowed):
        await cluster.produce(ORDERS, b"a")
        await world.clock.advance(never.check_s)
        assert current(agent).wal.needed_objects <= allowed + 1
    assert current(agent).flusher.flushed_segments >= 2


async def test_a_cluster_at_rest_does_not_read_the_topics_again_and_again(cluster: BrokerCluster) -> None:
    await cluster.join()
    await cluster.join()
    await cluster.topic()
    await cluster.pass_time(5)
    requested = cluster.world.metadata.count("topics")
    await cluster.pass_time(30)
    assert cluster.world.metadata.count("topics") == requested
