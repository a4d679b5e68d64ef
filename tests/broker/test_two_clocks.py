"""A clock that runs ahead alone, the agent's or the store's, deletes nothing of what users wrote: both must say so.

Nor does a clock that is behind write times that make other agents delete early.
"""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups import MemberRef
from streamhouse.clock import Clock
from streamhouse.config.fields import Address
from streamhouse.format.object_keys import segment_key
from streamhouse.format.records import Record, build_batch
from streamhouse.model.names import SessionId
from streamhouse.model.transaction import Marker, ProducerIdentity
from streamhouse.stores.metadata.base import NewSession
from streamhouse.stores.metadata.transaction_store import OffsetsRequest
from tests.broker.groups.scene import at, committed, open_scene
from tests.broker.support import (
    ORDERS,
    StepClock,
    World,
    batch,
    current,
    fetch,
    idempotent,
    produce,
    records_of,
    values_of,
)

DAY_MS = 86_400_000
YEAR_S = 365 * 86_400


class Ahead:
    """The same time, but for the wall clock."""

    def __init__(self, inner: StepClock) -> None:
        self._inner = inner
        self.by_ms = 0

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def now_ms(self) -> int:
        return self._inner.now_ms() + self.by_ms

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


@pytest.fixture
def agents(world: World) -> Ahead:
    """The agent's clock; the store has the world's."""
    return Ahead(world.clock)


@pytest.fixture
async def broker(world: World, agents: Clock) -> Broker:
    broker = Broker(world.dependencies(clock=agents))
    await broker.start()
    await broker.create_topic("orders", partitions=1, overrides={"retention.ms": "60000"})
    for value in (b"a", b"b"):
        await produce(broker, batch(value))
        await current(broker).flusher.flush_all()
    return broker


@pytest.mark.parametrize("who", ["agent", "store"])
async def test_retention_keeps_what_only_one_clock_says_is_old(
    world: World, agents: Ahead, broker: Broker, who: str
) -> None:
    agents.by_ms = 1000 * YEAR_S
    if who == "store":
        world.clock.jumped_ms, agents.by_ms = 1000 * YEAR_S, -1000 * YEAR_S
    assert await broker.retention.apply() == 0
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    agents.by_ms, world.clock.jumped_ms = 0, 1000 * YEAR_S
    assert await broker.retention.apply() == 1


async def test_groups_keep_offsets_that_only_the_agents_clock_says_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_scene() as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=1)
        await agent.groups.commit("g", MemberRef(), at(1))
        stores_ms = scene.clock.now_ms()

        async def now_ms() -> int:
            return stores_ms

        monkeypatch.setattr(scene.database, "now_ms", now_ms)
        scene.clock._now += YEAR_S
        assert await agent.groups.expiry.sweep() == 0
        assert await committed(agent.groups) == [1]
        stores_ms = scene.clock.now_ms()
        assert await agent.groups.expiry.sweep() == 1


async def test_an_offset_that_an_agent_commits_whose_clock_is_behind_has_the_stores_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_scene() as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=1)
        stores_ms = scene.clock.now_ms() + YEAR_S * 1000

        async def now_ms() -> int:
            return stores_ms

        monkeypatch.setattr(scene.database, "now_ms", now_ms)
        await agent.groups.expiry.sweep()  # has read the store's clock, as an agent has when its session begins
        await agent.groups.commit("g", MemberRef(), at(1))
        [stored] = await scene.database.committed_offsets([OffsetsRequest("g", None)])
        assert stored.committed.committed_at_ms == stores_ms


# --- compaction


async def start_compacted(world: World, agents: Clock) -> Broker:
    """A compacted topic that keeps tombstones and markers for an hour."""
    broker = Broker(world.dependencies(clock=agents))
    await broker.start()
    overrides = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "3600000"}
    await broker.create_topic("orders", partitions=1, overrides=overrides)
    return broker


async def put(broker: Broker, key: bytes, value: bytes | None) -> None:
    await produce(broker, memoryview(build_batch([Record(key=key, value=value, timestamp_ms=0)])))
    await current(broker).flusher.flush_all()


async def offsets_of(broker: Broker) -> list[int]:
    """Of everything that is there, markers too."""
    return [record.offset for record in records_of((await fetch(broker, 0)).records)]


async def compact_once_more(broker: Broker, key: bytes) -> None:
    await put(broker, key, b"new")
    await broker.compactor.run_once()


async def test_an_agent_whose_clock_is_a_day_ahead_keeps_tombstones(world: World, agents: Ahead) -> None:
    broker = await start_compacted(world, agents)
    await put(broker, b"a", b"1")
    await put(broker, b"a", None)
    await compact_once_more(broker, b"b")  # the tombstone may go an hour after this
    agents.by_ms = DAY_MS
    await compact_once_more(broker, b"c")
    assert await values_of(broker) == {1: None, 2: b"new", 3: b"new"}
    agents.by_ms, world.clock.jumped_ms = 0, DAY_MS
    await compact_once_more(broker, b"d")
    assert await values_of(broker) == {2: b"new", 3: b"new", 4: b"new"}


async def test_tombstones_first_met_by_an_agent_whose_clock_is_a_day_behind_stay_for_their_time(
    world: World, agents: Ahead
) -> None:
    broker = await start_compacted(world, agents)
    await put(broker, b"a", b"1")
    await put(broker, b"a", None)
    agents.by_ms = -DAY_MS
    await compact_once_more(broker, b"b")
    agents.by_ms = 0
    await compact_once_more(broker, b"c")
    assert await values_of(broker) == {1: None, 2: b"new", 3: b"new"}


async def test_an_agent_whose_clock_is_a_day_ahead_keeps_markers(world: World, agents: Ahead) -> None:
    broker = await start_compacted(world, agents)
    opened = await broker.open_log(ORDERS)
    marker = Marker(producer=ProducerIdentity(7, 0), number=1, is_commit=True)
    await opened.append_marker(marker, now=agents.monotonic(), now_ms=agents.now_ms()).wait_durable()
    broker.budget.take(opened.tail_bytes)
    await compact_once_more(broker, b"b")  # nothing is left of the transaction: the marker may go an hour after this
    agents.by_ms = DAY_MS
    await compact_once_more(broker, b"c")
    assert await offsets_of(broker) == [0, 1, 2]
    agents.by_ms, world.clock.jumped_ms = 0, DAY_MS
    await compact_once_more(broker, b"d")
    assert await offsets_of(broker) == [1, 2, 3]


# --- producers


async def restarted(world: World, broker: Broker) -> Broker:
    await current(broker).flusher.flush_all()
    world.kill()
    again = Broker(world.dependencies())
    await again.start()
    return again


@pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, -2 * DAY_MS])
async def test_producers_are_remembered_when_a_flush_happens_under_a_clock_that_is_wrong(
    world: World, agents: Ahead, broker: Broker, ahead_ms: int
) -> None:
    if ahead_ms < 0:  # it writes times that are too early, and what follows judges them by the right clock
        agents.by_ms = ahead_ms
    await produce(broker, idempotent(b"c", sequence=0, timestamp_ms=0))
    await current(broker).flusher.flush_all()
    agents.by_ms = max(0, ahead_ms)
    await produce(broker, batch(b"d"))
    again = await restarted(world, broker)
    assert (await produce(again, idempotent(b"c", sequence=0, timestamp_ms=0))).base_offset == 2


async def test_producers_are_remembered_by_a_recovery_under_a_clock_that_is_ahead(
    world: World, agents: Ahead, broker: Broker
) -> None:
    await produce(broker, idempotent(b"c", sequence=0, timestamp_ms=0))
    await current(broker).flusher.flush_all()
    await produce(broker, batch(b"d"))  # left in the write-ahead log
    world.kill()
    agents.by_ms = 2 * DAY_MS
    rescuer = Broker(world.dependencies(clock=agents))
    await rescuer.start()
    assert (await produce(rescuer, idempotent(b"c", sequence=0, timestamp_ms=0))).base_offset == 2


# --- objects that no row names


async def test_an_agent_whose_clock_is_ahead_takes_no_young_object_for_an_orphan(
    world: World, agents: Ahead, broker: Broker
) -> None:
    ended = SessionId(f"s-{0:032x}")
    new = NewSession(session_id=ended, kafka=Address("a", 1), http=Address("a", 2), ttl_ms=10**6)
    await world.sqlite.open_session(new)
    await world.sqlite.end_session(ended)
    await world.bucket.put_new(segment_key(ended, 1), [b"young"])
    agents.by_ms = 1000 * YEAR_S
    assert await broker.retention.delete_orphans() == 0
