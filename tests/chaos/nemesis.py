"""Nemesis: does to the cluster what was planned, at its time, and says when it was over.

Data path   faults -> **nemesis** -> cluster, history
Owns        one task per fault; what a fault is, step by step
Leaves      the plan to `faults`; processes and tunnels to `cluster`
"""

import asyncio
from collections.abc import Callable, Iterable

from .bucket_front import BadAnswers
from .cluster import ChaosAgent, ChaosCluster
from .faults import (
    ANSWERS,
    CLIENTS_HOLE,
    CLIENTS_RESET,
    CLOCK,
    CONNECTIONS,
    CUTS,
    DATABASE_HOLE,
    DATABASE_RESET,
    HICCUP,
    JOIN,
    KILL,
    PAUSE,
    PEERS_HOLE,
    PEERS_RESET,
    RESTART,
    STORE_HOLE,
    STORE_RESET,
    TERM,
    Planned,
)
from .history import Fault, History, Life, Note
from .roles import Roles

REFUSALS = ("exit code 1", "exit code 2")
HOLES = tuple(kind for kind in CUTS if kind.endswith("hole"))
WIRES = {
    STORE_HOLE: "store",
    STORE_RESET: "store",
    DATABASE_HOLE: "database",
    DATABASE_RESET: "database",
    CLIENTS_HOLE: "clients",
    CLIENTS_RESET: "clients",
    PEERS_HOLE: "peers",
    PEERS_RESET: "peers",
}


class Nemesis:
    def __init__(self, cluster: ChaosCluster, history: History, now: Callable[[], float], roles: Roles) -> None:
        """`roles` hears of an agent and of what is about to be done to it, and knows a good moment for it."""
        self._cluster = cluster
        self._history = history
        self._now = now
        self._roles = roles
        self._cut: dict[tuple[str, str], int] = {}
        self._busy: set[str] = set()
        cluster.on_end = self._on_end

    async def run(self, plan: Iterable[Planned], say: Callable[[str], None]) -> None:
        """All of it; returns when everything that was broken is whole again."""
        begun_at = self._now()
        async with asyncio.TaskGroup() as tasks:
            for planned in plan:
                await asyncio.sleep(max(0.0, begun_at + planned.at_s - self._now()))
                say(f"{planned.kind} {', '.join(planned.targets)} for {planned.lasts_s:.1f} s")
                tasks.create_task(self._perform(planned), name=planned.kind)
        for agent in self._cluster.agents.values():
            agent.heal()

    async def _perform(self, planned: Planned) -> None:
        agents = [self._cluster.agents[name] for name in planned.targets if name in self._cluster.agents]
        if planned.kind not in CONNECTIONS:
            if self._busy.intersection(planned.targets):
                self._history.note(self._now(), planned.kind, f"left out: {planned.targets[0]} is not back yet")
                return
            self._busy.update(planned.targets)
        try:
            await self._do(agents, planned)
        finally:
            if planned.kind not in CONNECTIONS:
                self._busy.difference_update(planned.targets)

    async def _do(self, agents: list[ChaosAgent], planned: Planned) -> None:
        fault = Fault(kind=planned.kind, targets=list(planned.targets), begun_at=self._now())
        self._history.faults.append(fault)
        if planned.kind in CUTS:
            await self._cut_off(agents, planned, fault)
        elif planned.kind in ANSWERS:
            await self._answer_badly(agents, planned, fault)
        elif planned.kind == CLOCK:
            await self._set_wrong(agents[0], planned, fault)
        elif planned.kind == RESTART:
            await self._restart_database(planned, fault)
        else:
            if planned.kind in (KILL, PAUSE):
                await self._roles.moment(planned.targets[0])
                fault.begun_at = self._now()
            self._roles.strike(planned.targets[0], planned.kind)
            deeds = {KILL: self._kill, TERM: self._terminate, PAUSE: self._pause, HICCUP: self._pause, JOIN: self._join}
            await deeds[planned.kind](agents[0], planned, fault)
        fault.healed_at = self._now()

    # --- processes ------------------------------------------------------------------------------------------------

    async def _kill(self, agent: ChaosAgent, planned: Planned, fault: Fault) -> None:
        agent.kill()
        self._life(agent, "down")
        await self._come_back(agent, planned.lasts_s, fault)

    async def _terminate(self, agent: ChaosAgent, planned: Planned, fault: Fault) -> None:
        await self._leave(agent, gently=True, fault=fault)
        await self._come_back(agent, planned.lasts_s, fault)

    async def _pause(self, agent: ChaosAgent, planned: Planned, fault: Fault) -> None:
        agent.pause()
        self._life(agent, "paused")
        await asyncio.sleep(planned.lasts_s)
        agent.resume()
        fault.ended_at = self._now()
        self._life(agent, "waking")
        await self._until_ready(agent)

    async def _join(self, agent: ChaosAgent, planned: Planned, fault: Fault) -> None:
        agent.start()
        self._life(agent, "starting")
        await self._until_ready(agent)
        fault.ended_at = self._now()
        await asyncio.sleep(planned.lasts_s)
        leaving = Fault(
            kind=TERM if planned.gently else KILL, targets=list(planned.targets), begun_at=self._now(), note="leaves"
        )
        self._history.faults.append(leaving)
        await self._leave(agent, gently=planned.gently, fault=leaving)
        leaving.healed_at = leaving.ended_at = self._now()

    async def _leave(self, agent: ChaosAgent, *, gently: bool, fault: Fault) -> None:
        if gently:
            self._life(agent, "stopping")
            begun_at = self._now()
            await agent.stop()
            fault.note = f"{fault.note} stopped in {self._now() - begun_at:.2f} s".strip()
            if agent.ending != "exit code 0":
                self._trouble(agent.name, f"SIGTERM ended with {agent.ending}")
        else:
            agent.kill()
        self._life(agent, "down")

    async def _come_back(self, agent: ChaosAgent, away_s: float, fault: Fault) -> None:
        await asyncio.sleep(away_s)
        agent.start()
        self._life(agent, "starting")
        fault.ended_at = self._now()
        await self._until_ready(agent)

    async def _until_ready(self, agent: ChaosAgent) -> None:
        try:
            await self._cluster.wait_until_ready([agent])
        except TimeoutError:
            self._trouble(agent.name, "was not ready in time")
        else:
            self._life(agent, "ready")

    # --- stores ---------------------------------------------------------------------------------------------------

    async def _cut_off(self, agents: list[ChaosAgent], planned: Planned, fault: Fault) -> None:
        """Where two cuts meet, the last one to end heals."""
        which = WIRES[planned.kind]
        tunnels = {agent.name: getattr(agent.wires, which) for agent in agents}
        before = sum(tunnel.cut for tunnel in tunnels.values())
        for name, tunnel in tunnels.items():
            self._cut[name, which] = self._cut.get((name, which), 0) + 1
            tunnel.swallow() if planned.kind in HOLES else tunnel.refuse()
        await asyncio.sleep(planned.lasts_s)
        fault.hits = sum(tunnel.cut for tunnel in tunnels.values()) - before
        for name, tunnel in tunnels.items():
            self._cut[name, which] -= 1
            if not self._cut[name, which]:
                tunnel.heal()
        await self._over(agents, fault)

    async def _answer_badly(self, agents: list[ChaosAgent], planned: Planned, fault: Fault) -> None:
        bad = BadAnswers(kind=planned.kind)
        for agent in agents:
            agent.front.begin(bad)
        await asyncio.sleep(planned.lasts_s)
        for agent in agents:
            agent.front.end(bad)
        fault.hits, fault.note = bad.given, " ".join(sorted(bad.gone))
        await self._over(agents, fault)

    async def _set_wrong(self, agent: ChaosAgent, planned: Planned, fault: Fault) -> None:
        """The agent's clock jumps, and jumps back."""
        if agent.clock is None:
            fault.note = "left out: needs Linux and a C compiler"
            return
        before = agent.clock.told
        agent.clock.set(planned.wrong_s)
        await asyncio.sleep(planned.lasts_s)
        agent.clock.set(0.0)
        fault.hits, fault.note = agent.clock.told - before, f"by {planned.wrong_s:+.1f} s"
        await self._over([agent], fault)

    async def _over(self, agents: Iterable[ChaosAgent], fault: Fault) -> None:
        fault.ended_at = self._now()
        for agent in agents:
            if not agent.paused:
                await self._quietly_until_ready(agent)

    async def _quietly_until_ready(self, agent: ChaosAgent) -> None:
        """Ready or no longer wanted; whoever broke it besides tells of it when it takes too long."""
        try:
            await self._cluster.wait_until_ready([agent])
        except TimeoutError:
            self._history.note(self._now(), agent.name, "was not ready in time after a cut")

    async def _restart_database(self, planned: Planned, fault: Fault) -> None:
        await self._cluster.restart_postgres(away_s=planned.lasts_s, gently=planned.gently)
        fault.ended_at = self._now()
        fault.note = "stopped" if planned.gently else "killed"
        for agent in self._cluster.agents.values():
            if not agent.paused:
                await self._quietly_until_ready(agent)

    # --- what is told ---------------------------------------------------------------------------------------------

    def _on_end(self, agent: ChaosAgent) -> None:
        """An agent that finds no store when it starts says so and ends; whoever starts it does so again."""
        text = f"ended by itself ({agent.ending}); see {agent.log_path.name}"
        states = [life.state for life in self._history.lives if life.agent == agent.name]
        if states[-1:] == ["starting"] and agent.ending in REFUSALS:
            self._history.note(self._now(), agent.name, text)
        else:
            self._trouble(agent.name, text)
        self._life(agent, "starting")

    def _life(self, agent: ChaosAgent, state: str) -> None:
        self._history.lives.append(Life(self._now(), agent.name, state))

    def _trouble(self, who: str, text: str) -> None:
        self._history.troubles.append(Note(self._now(), who, text))
