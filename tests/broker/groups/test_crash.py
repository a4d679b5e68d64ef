"""The coordinator dies, or is believed dead, at any of its calls to the store: the group's promises hold."""

import asyncio
from typing import Any

import pytest

from streamhouse.errors import Unavailable
from tests.broker.groups.consumers import Book, Consumer, Link
from tests.broker.groups.scene import ORDERS, Agent, Scene, open_scene, settle

CALLS = 22
"""About as many calls as it takes from an empty store to a second generation and its first commits."""


class Crash:
    """Counts an agent's calls to the store, and at one of them brings about its end.

    before   it dies, and the call never happens
    after    it dies, and the call has happened
    zombie   another agent takes over, and the first one does not notice
    lost     the answers to this call and to the next two are lost
    """

    def __init__(self, scene: Scene, at_call: int, how: str) -> None:
        self._scene = scene
        self._at_call = at_call
        self._how = how
        self._calls = 0
        self.link: Link | None = None
        self.took_over: list[Agent] = []

    def rig(self, agent: Agent) -> Link:
        self.link = Link(agent.groups)
        weather = agent.store
        inner = weather._inner

        class Rigged:
            def __getattr__(_, name: str) -> Any:
                return lambda *args, **named: self._call(getattr(inner, name), args, named)

        weather._inner = Rigged()
        return self.link

    async def _call(self, method: Any, args: Any, named: Any) -> Any:
        assert self.link is not None
        self._calls += 1
        if self.link.dead.is_set():
            await asyncio.Event().wait()
        now = self._calls == self._at_call
        if now and self._how == "before":
            await self._die()
        if now and self._how == "zombie":
            self.took_over.append(await self._scene.successor(of=self._scene.agents[0]))
        response = await method(*args, **named)
        if now and self._how == "after":
            await self._die()
        if self._how == "lost" and 0 <= self._calls - self._at_call < 3:
            raise Unavailable("answer lost")
        return response

    async def _die(self) -> None:
        assert self.link is not None
        self.link.dead.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["before", "after", "zombie", "lost"])
@pytest.mark.parametrize("at_call", range(1, CALLS))
async def test_no_partition_has_two_owners_and_no_offset_goes_back(at_call: int, how: str) -> None:
    async with open_scene(initial_rebalance_delay_s=0.5) as scene:
        agent = await scene.agent()
        await agent.catalog.create("orders", partitions=len(ORDERS))
        crash = Crash(scene, at_call, how)
        links = [crash.rig(agent)]
        book = Book()
        consumers = [Consumer(scene.clock, lambda: links[-1], book) for _ in range(3)]
        for consumer in consumers[:2]:
            scene.start(consumer.live())
        for second in range(12):
            await scene.clock.advance(1)
            if second == 4:
                scene.start(consumers[2].live())
            if len(links) == 1 and links[0].dead.is_set():
                links.append(Link((await scene.successor(of=agent)).groups))
            if len(links) == 1 and crash.took_over:
                links.append(Link(crash.took_over[0].groups))
        await check_health(scene, consumers, book)


async def check_health(scene: Scene, consumers: list[Consumer], book: Book) -> None:
    """In the end one generation has all of them, every partition is read, and commits go on."""
    await scene.clock.advance(15)
    before = book.turns
    await scene.clock.advance(3)
    await settle()
    assert book.turns >= before + 2 * len(consumers)
    assert len({consumer.joined.generation for consumer in consumers if consumer.joined is not None}) == 1
    assert sorted(name for consumer in consumers for name in consumer.positions) == ORDERS
