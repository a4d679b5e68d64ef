"""Nemesis: what goes wrong, when, and for how long.

Owns        the faults by name; `options.PROFILES` says which of them a seed has
Leaves      what a fault means to `world`, `weather` and the disk
"""

import asyncio
import random
from collections.abc import Callable

from .weather import StoreWeather
from .world import Agent, World


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
            "object-storm": lambda _: self._storm(world.weather.objects),
            "metadata-storm": lambda _: self._storm(world.weather.metadata),
            "objects-away": lambda _: self._away(world.weather.objects),
            "metadata-away": lambda _: self._away(world.weather.metadata),
            "slow": self._slow,
            "rot": self._rot,
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
            if (agent := world.agent) is None:
                continue
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
        hours = self._chance.choice((-5, -0.001, 0.001, 0.01, 5))
        self._world.clock.jump(int(hours * 3600 * 1000 * self._chance.random()))

    def _storm(self, store: StoreWeather) -> None:
        kind = self._chance.choice(("refused", "lost", "late", "all"))
        rate = self._chance.choice((0.1, 0.4, 0.8))
        if kind == "all":
            store.refused = store.lost = store.late = rate / 3
        else:
            setattr(store, kind, rate)
        self._after(2.0, store.clear)

    def _away(self, store: StoreWeather) -> None:
        store.away_until = self._loop.time() + self._chance.choice((0.5, 3.0, 8.0)) * self._chance.random()

    def _slow(self, _: Agent) -> None:
        weather = self._world.weather
        store = self._chance.choice((weather.objects, weather.metadata))
        store.slow = self._chance.random()
        self._after(3.0, store.clear)

    def _rot(self, _: Agent) -> None:
        self._world.weather.objects.rot = self._chance.choice((0.1, 0.5))
        self._after(2.0, self._world.weather.objects.clear)

    def _fill(self, agent: Agent) -> None:
        weather = self._world.weather
        weather.disk_is_full = True
        agent.files.fill_up_after(self._chance.randrange(1500))
        self._after(3.0, self._make_room)

    def _make_room(self) -> None:
        self._world.weather.disk_is_full = False
        self._world.files.make_room()

    def _after(self, longest_s: float, act: Callable[[], None]) -> None:
        self._loop.call_later(self._chance.uniform(0.1, longest_s), act)

    def heal(self) -> None:
        """Everything works again. What is dead stays dead until somebody starts the next."""
        self._world.is_quiet = True
        self._loop.starve = 0.0
        self._world.weather.clear()
        self._world.clock.settle()
        self._world.files.make_room()
        if (agent := self._world.agent) is not None:
            agent.process.fuse = None
