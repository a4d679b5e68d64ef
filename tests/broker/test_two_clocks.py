"""A clock that runs ahead alone, the agent's or the store's, deletes nothing of what users wrote: both must say so."""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups import Caller
from streamhouse.clock import Clock
from tests.broker.groups.scene import at, committed, open_scene
from tests.broker.support import StepClock, World, batch, current, produce, values_of

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
    broker = Broker(world.doors(clock=agents))
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
    assert await broker.collector.retain() == 0
    assert await values_of(broker) == {0: b"a", 1: b"b"}
    agents.by_ms, world.clock.jumped_ms = 0, 1000 * YEAR_S
    assert await broker.collector.retain() == 1


async def test_groups_keep_offsets_that_only_the_agents_clock_says_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_scene() as scene:
        agent = await scene.agent()
        await agent.catalogue.create("orders", partitions=1)
        await agent.groups.commit("g", Caller(), at(1))
        stores_ms = scene.clock.now_ms()

        async def now_ms() -> int:
            return stores_ms

        monkeypatch.setattr(scene.database, "now_ms", now_ms)
        scene.clock._now += YEAR_S
        assert await agent.groups.expiry.sweep() == 0
        assert await committed(agent.groups) == [1]
        stores_ms = scene.clock.now_ms()
        assert await agent.groups.expiry.sweep() == 1
