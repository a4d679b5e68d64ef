"""Hand-over: an agent joins, one is stopped with SIGTERM, a partition is moved; how long do producers pause?

Data path   `probes` -> **transfer** -> `table`
Owns        the three kinds of hand-over, and which partitions changed hands in each
Leaves      the waits to `probes`

A partition's pause is the longest time that one of its records waited around the hand-over. The same over as long a
time without one stands beside it: what a busy machine does to the longest wait all by itself.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from benchmarks.cluster.plan import ClusterPlan, spread
from benchmarks.cluster.probes import Prober, RealProducer, probes, wait_until_steady
from benchmarks.cluster.routes import Routes, routes, serve
from benchmarks.cluster.team import Team
from benchmarks.measure import Answer, Reading
from benchmarks.streamhouse_peer import COMMAND

PARTITIONS: Final = 24
TOPIC: Final = "hand-over"
MOVED: Final = 0
STABLE_S: Final = 1.5
SETTLE_TIMEOUT_S: Final = 20.0
CALM_S: Final = 2.0


@dataclass(slots=True)
class Pauses:
    """What one kind of hand-over did to both producers."""

    pauses_s: dict[str, list[float]] = field(default_factory=dict)
    refused: int = 0
    failed: int = 0
    settled_s: list[float] = field(default_factory=list)


class HandOver:
    name = "hand-over"
    question = "How long do producers pause when partitions change hands, and does a request fail?"

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]:
        found: dict[str, Pauses] = {}
        with Team(3) as team:
            serve(team.bootstrap, TOPIC, PARTITIONS)
            running = probes([member.kafka for member in team.members], TOPIC, PARTITIONS)
            with running[0], running[1]:
                wait_until_steady(running, PARTITIONS)
                for _ in range(plan.hand_overs):
                    _one_round(_Watch(team, running, found))
        for what, pauses in found.items():
            yield from _answers(what, pauses)


@dataclass(frozen=True, slots=True)
class _Watch:
    team: Team
    running: tuple[Prober, RealProducer]
    found: dict[str, Pauses]

    def during(self, what: str, act: Callable[[], object]) -> None:
        """Do something, wait until no leader changes any more, and keep the pauses of partitions that moved."""
        before, began = routes(self.team.bootstrap, TOPIC), time.perf_counter()
        act()
        after, settled = self._settled()
        moved = [p for p in range(PARTITIONS) if before.address(p) != after.address(p)]
        pauses = self.found.setdefault(what, Pauses())
        pauses.settled_s.append(settled - began)
        self._keep(pauses, moved, began, settled + 0.1)

    def calm(self) -> None:
        began = time.perf_counter()
        time.sleep(CALM_S)
        self._keep(self.found.setdefault("nothing", Pauses()), list(range(PARTITIONS)), began, time.perf_counter())

    def _keep(self, pauses: Pauses, moved: list[int], began: float, end: float) -> None:
        for probe in self.running:
            waits_s = [probe.history.pause_s(partition, began, end) for partition in moved]
            pauses.pauses_s.setdefault(probe.name, []).extend(waits_s)
            pauses.refused += sum(probe.history.refused(began, end).values())
            pauses.failed += probe.history.failed(began, end)

    def _settled(self) -> tuple[Routes, float]:
        """Who leads when nothing has changed for a while, and since when."""
        deadline = time.perf_counter() + SETTLE_TIMEOUT_S
        now, since = routes(self.team.bootstrap, TOPIC), time.perf_counter()
        while time.perf_counter() < min(deadline, since + STABLE_S):
            time.sleep(0.05)
            if (newer := routes(self.team.bootstrap, TOPIC)) != now:
                now, since = newer, time.perf_counter()
        return now, since


def _one_round(watch: _Watch) -> None:
    watch.calm()
    watch.during("a fourth agent joins", watch.team.join)
    joined = watch.team.members[-1]
    watch.during("SIGTERM of an agent", lambda: watch.team.leave(joined))
    now = routes(watch.team.bootstrap, TOPIC)
    target = next(node for node in sorted(now.agents) if node != now.leaders[MOVED])
    watch.during("partitions move", partial(_move, watch.team, MOVED, "--to", str(target)))
    watch.during("partitions move", partial(_move, watch.team, MOVED, "--unpin"))


def _move(team: Team, partition: int, *where: str) -> None:
    command = [str(COMMAND), "partitions", "move", TOPIC, str(partition), *where, "--http", team.members[0].http]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"partition not moved; partition={partition} said={done.stderr[-300:]}")


def _answers(what: str, pauses: Pauses) -> Iterator[Answer]:
    for name, waits_s in pauses.pauses_s.items():
        yield from spread(f"{what}, {name}", waits_s)
    scenario = f"{what}, {RealProducer.name}"
    yield Reading(scenario=scenario, metric="failed", value=pauses.failed)
    yield Reading(scenario=f"{what}, {Prober.name}", metric="sent again", value=pauses.refused)
    if pauses.settled_s:
        yield Reading(scenario=scenario, metric="settled", value=max(pauses.settled_s))
