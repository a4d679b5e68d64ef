"""The store goes away at any call of a new group's first steps and comes back: every call is answered, the group reads.

The store is away for a moment, for longer than a call waits, or for longer than the session may be acted on. Meanwhile
its calls are refused at once (nobody listens), lose their answers (the transaction may have happened), or hang until
their time is up (the host is gone).
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from streamhouse.errors import Unavailable
from tests.broker.groups.consumers import Book, Consumer, Link
from tests.broker.groups.scene import ORDERS, SESSION_S, Agent, Scene, StandingClock, open_scene, settle
from tests.support.depth import scaled

T = TypeVar("T")

CALLS = 16
"""About as many calls as it takes from an empty store to the first commits of a group of two."""
CALL_S = 10.0
"""A call that hangs ends with an error after so long, as in PostgreSQL's pool."""
USABLE_S = 20.0
"""A session that could not be renewed for so long is not acted on."""
GATHERING_S = 0.5


class Outage:
    """The store is away from an agent's n-th call on, for some seconds."""

    def __init__(self, scene: Scene, agent: Agent, *, at_call: int, how: str, for_s: float) -> None:
        self._clock = scene.clock
        self._current_session = agent.current_session
        self._at_call = at_call
        self._how = how
        self._for_s = for_s
        self._calls = 0
        self.began_at: float | None = None
        inner = agent.store._inner

        class Rigged:
            def __getattr__(_, name: str) -> Any:
                return lambda *args, **named: self._call(getattr(inner, name), args, named)

        agent.store._inner = Rigged()

    @property
    def left_s(self) -> float:
        return 0.0 if self.began_at is None else max(0.0, self.began_at + self._for_s - self._clock.monotonic())

    async def _call(self, method: Any, args: Any, named: Any) -> Any:
        self._calls += 1
        if self._calls == self._at_call:
            self.began_at = self._clock.monotonic()
        if not self.left_s:
            return await method(*args, **named)
        if self._how == "unanswered":
            await method(*args, **named)
        if self._how == "hangs":
            await self._clock.sleep(CALL_S)
        raise Unavailable(f"the store is away; how={self._how}")

    def renew(self) -> None:
        """What heartbeats make of it."""
        late = self.began_at is not None and self._clock.monotonic() - self.began_at >= USABLE_S
        self._current_session.is_valid = not (late and self.left_s)


class TimedLink(Link):
    """Records the longest wait for a response."""

    clock: StandingClock
    longest_s = 0.0

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        request = self.clock.monotonic()
        try:
            return await super().ask(call)
        finally:
            self.longest_s = max(self.longest_s, self.clock.monotonic() - request)


class SeekingConsumer(Consumer):
    """Looks up the coordinator before it joins, as clients do after every error of a coordinator."""

    async def _join(self) -> None:
        await self._link.ask(self._link.groups.coordinator_of("g"))
        await super()._join()


@pytest.mark.parametrize("how", ["refused", "unanswered", "hangs"])
@pytest.mark.parametrize("for_s", scaled(quick=(0.1, 15.0), nightly=(0.1, 3.0, 15.0, 40.0)))
@pytest.mark.parametrize("at_call", range(1, CALLS))
async def test_a_new_group_reads_soon_after_the_store_is_back(at_call: int, for_s: float, how: str) -> None:
    async with open_scene(initial_rebalance_delay_s=GATHERING_S) as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=len(ORDERS))
        outage = Outage(scene, agent, at_call=at_call, how=how, for_s=for_s)
        link = TimedLink(agent.groups)
        link.clock = scene.clock
        book = Book()
        consumers = [SeekingConsumer(scene.clock, lambda: link, book) for _ in range(2)]
        for consumer in consumers:
            scene.start(consumer.live())
        while outage.began_at is None or outage.left_s:
            await scene.clock.advance(0.5)
            outage.renew()
        # A call that hung may have kept others waiting; a member that is gone is waited for as long as its session.
        await scene.clock.advance(CALL_S + SESSION_S + 5)
        before = book.turns
        await scene.clock.advance(3)
        await settle()
        assert book.turns >= before + 2 * len(consumers)
        assert sorted(name for consumer in consumers for name in consumer.positions) == ORDERS
        assert link.longest_s <= for_s + CALL_S + SESSION_S + 2 * GATHERING_S
