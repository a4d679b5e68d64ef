"""Nemesis: what goes wrong, when, and for how long.

Owns        the faults by name; `options.PROFILES` says which of them a seed has
Leaves      what a fault means to `world`, `weather` and the disk
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from streamhouse.errors import StreamhouseError
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.base import MetadataStore

from .clocks import settle
from .weather import StoreWeather, Weather
from .world import Agent, World

LIST_LATE_S = 3.0


class Nemesis:
    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self._chance = random.Random(f"nemesis-{world.options.seed}")
        self.struck: dict[str, int] = {}
        self._acts: dict[str, Callable[[Agent], None]] = {
            "kill": lambda agent: world.kill(agent, power=False),
            "power": lambda agent: world.kill(agent, power=True),
            "fuse": lambda agent: self._light(agent, power=False),
            "power-fuse": lambda agent: self._light(agent, power=True),
            "stop": self._stop,
            "pause": self._pause,
            "clock-jump": self._jump,
            "object-storm": lambda agent: self._storm([each.objects for each in self._around(agent)]),
            "metadata-storm": lambda agent: self._storm([each.metadata for each in self._around(agent)]),
            "objects-away": lambda agent: self._away([each.objects for each in self._around(agent)]),
            "metadata-away": lambda agent: self._away([each.metadata for each in self._around(agent)]),
            "cut-off": self._cut_off,
            "unanswered": self._ignore,
            "zombie": lambda agent: agent.sleep(self._chance),
            "deaf": self._deafen,
            "drain": self._drain,
            "pin": self._pin,
            "slow": self._slow,
            "rot": self._lie,
            "disk-full": self._fill,
            "sync-error": lambda agent: agent.files.fail_next_sync(),
        }

    async def run(self) -> None:
        """Strike again and again, until cancelled."""
        world = self._world
        profile = world.profile
        while profile:
            await asyncio.sleep(self._chance.expovariate(1 / world.options.calm_between_s))
            name = self._chance.choices(list(profile), list(profile.values()))[0]
            alive = world.alive()
            if not alive:
                continue
            agent = alive[0] if len(alive) == 1 else self._chance.choice(alive)
            self._loop.note(f"nemesis {name}")
            self.struck[name] = self.struck.get(name, 0) + 1
            self._acts[name](agent)

    def _light(self, agent: Agent, *, power: bool) -> None:
        """Death after so many steps, wherever the agent is then: at any await."""
        steps = int(self._chance.choice((5, 50, 500)) * self._chance.random())
        agent.process.fuse = (steps, lambda: self._world.kill(agent, power=power))

    def _stop(self, agent: Agent) -> None:
        if agent.is_listening:
            self._loop.call_soon(agent.broker.stop, context=agent.process.context.copy())

    def _pause(self, agent: Agent) -> None:
        if not agent.process.is_paused:
            self._loop.pause(agent.process, self._chance.choice((0.2, 2.0, 9.0)) * self._chance.random())

    def _jump(self, _: Agent) -> None:
        # Seals are kept for longer than clocks of a team jump.
        hours = self._chance.choice((-0.001, 0.001) if self._world.is_team else (-5, -0.001, 0.001, 0.01, 5))
        self._world.clock.jump(int(hours * 3600 * 1000 * self._chance.random()))

    def _around(self, agent: Agent) -> Sequence[Weather]:
        """Who feels it: this agent, or everybody."""
        weathers = self._world.weathers
        if len(weathers) == 1 or self._chance.random() < 0.5:
            return weathers
        return [agent.weather]

    def _storm(self, stores: Sequence[StoreWeather]) -> None:
        kind = self._chance.choice(("refused", "lost", "late", "all"))
        rate = self._chance.choice((0.1, 0.4, 0.8))
        for store in stores:
            if kind == "all":
                store.refused = store.lost = store.late = rate / 3
            else:
                setattr(store, kind, rate)
            self._after(2.0, store.clear)

    def _away(self, stores: Sequence[StoreWeather]) -> None:
        until = self._loop.time() + self._chance.choice((0.5, 3.0, 8.0)) * self._chance.random()
        for store in stores:
            store.away_until = until

    def _cut_off(self, agent: Agent) -> None:
        """One agent reaches neither store, and clients reach it all the same."""
        self._away([agent.weather.objects, agent.weather.metadata])

    def _ignore(self, agent: Agent) -> None:
        """What one agent asks of the metadata store happens, and it is not told; others see what has happened."""
        agent.weather.metadata.lost = self._chance.choice((0.6, 1.0))
        self._after(1.0, agent.weather.metadata.clear)

    def _deafen(self, agent: Agent) -> None:
        """News are lost; sometimes the listener knows that it hears nothing."""
        store = agent.weather.metadata
        store.deaf = self._chance.choice((0.3, 1.0))
        store.knows_deaf = self._chance.random() < 0.5

        def hear() -> None:
            store.deaf, store.knows_deaf = 0.0, False
            agent.metadata.hear_again()

        self._after(5.0, hear)

    def _drain(self, agent: Agent) -> None:
        """Somebody asks an agent to give everything away, and thinks better of it later."""
        if (agent_session := agent.broker.agent_session) is not None:
            self._administer(lambda store: store.drain_session(agent_session.session.session_id))
            undo = partial(self._undrain, agent_session.session.session_id)
            self._after(4.0, undo)

    def _undrain(self, session_id: SessionId) -> None:
        self._administer(lambda store: store.drain_session(session_id, draining=False))

    def _pin(self, agent: Agent) -> None:
        """Some partition should be with this agent, wherever it is; or nowhere in particular any more."""
        if (agent_session := agent.broker.agent_session) is None:
            return
        node = agent_session.session.node_id if self._chance.random() < 0.8 else None
        logs = self._world.history.partitions()
        some = self._chance.sample(logs, min(len(logs), self._chance.randint(1, 3)))
        self._administer(lambda store: store.pin_partitions({log.partition: node for log in some}))

    def _administer(self, act: Callable[[MetadataStore], Awaitable[None]]) -> None:
        async def perform() -> None:
            with suppress(StreamhouseError):
                await act(self._world.database.store())

        self._loop.create_task(perform(), name="administrator")

    def _slow(self, agent: Agent) -> None:
        stores = [each for weather in self._around(agent) for each in (weather.objects, weather.metadata)]
        store = self._chance.choice(stores)
        store.slow = self._chance.random()
        self._after(3.0, store.clear)

    def _lie(self, agent: Agent) -> None:
        """Reads are wrong or cut short, and lists leave out what is new."""
        agent.weather.objects.rot = self._chance.choice((0.1, 0.5))
        agent.weather.objects.list_late_s = LIST_LATE_S
        self._after(2.0, agent.weather.objects.clear)

    def _fill(self, agent: Agent) -> None:
        weather = agent.weather
        weather.disk_is_full = True
        agent.files.fill_up_after(self._chance.randrange(1500))
        self._after(3.0, self._make_room)

    def _make_room(self) -> None:
        for weather in self._world.weathers:
            weather.disk_is_full = False
        for files in self._world.disks:
            files.make_room()

    def _after(self, longest_s: float, act: Callable[[], None]) -> None:
        self._loop.call_later(self._chance.uniform(0.1, longest_s), act)

    def heal(self) -> None:
        """Everything works again. What is dead stays dead until somebody starts the next."""
        self._world.is_quiet = True
        self._loop.starve = 0.0
        for weather in self._world.weathers:
            weather.clear()
        before_ms = self._world.database_clock.jumped_ms
        settle(self._world.clock, self._world.database_clock)
        self._world.database.prolong_sessions(self._world.database_clock.jumped_ms - before_ms)
        for files in self._world.disks:
            files.make_room()
        for agent in self._world.alive():
            agent.process.fuse = None
            agent.metadata.hear_again()
            if self._world.is_team and (agent_session := agent.broker.agent_session) is not None:
                self._undrain(agent_session.session.session_id)
