"""Failover: an agent is killed with SIGKILL; how long until each of its partitions acknowledges again?

Data path   `probes` -> **failover** -> `table`
Owns        killing one agent after the other, and waiting for the cluster to be whole again in between
Leaves      the waits to `probes`

A lease of 3 s means: a session lives 1.8 s without a heartbeat, heartbeats come every half second, and 1.2 s are left
for others to notice, to recover the dead session's WAL and to open the partitions.

The dead agent is started again at its address a second later. Its return is part of the story: clients that were
refused there shun the address for a while, and what is led there meanwhile waits.
"""

import time
from collections.abc import Iterator
from typing import Final

from benchmarks.cluster.plan import ClusterPlan, spread
from benchmarks.cluster.probes import Prober, RealProducer, probes, wait_until, wait_until_steady
from benchmarks.cluster.routes import routes, serve, wait_until_served
from benchmarks.cluster.team import Member, Team
from benchmarks.measure import Answer, Reading

LEASE_TTL_S: Final = 3.0
PARTITIONS: Final = 24
TOPIC: Final = "failover"
RESUME_TIMEOUT_S: Final = 30.0
BACK_TIMEOUT_S: Final = 40.0
# Kills come at another moment of the victim's heartbeat each time; these seconds are added to the rest in between.
STAGGER_S: Final = (0.0, 0.4, 0.8, 0.2, 0.6)


class Failover:
    name = "failover"
    question = "How long after kill -9 of an agent until its partitions acknowledge again? Lease TTL 3 s"

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]:
        with Team(3, lease_ttl_s=LEASE_TTL_S, restart=True) as team:
            serve(team.bootstrap, TOPIC, PARTITIONS)
            bootstraps = [member.kafka for member in team.members]
            prober, real = probes(bootstraps, TOPIC, PARTITIONS)
            running: list[Prober | RealProducer] = [prober, real]
            times: dict[str, list[float]] = {}
            returns: dict[str, list[float]] = {}
            with prober, real:
                wait_until_steady(running, PARTITIONS)
                for number in range(plan.kills):
                    time.sleep(STAGGER_S[number % len(STAGGER_S)])
                    victim = team.members[number % 3]
                    _add(times, _kill_one(team, victim, running))
                    resumed = time.perf_counter()
                    _wait_until_whole(team, victim)
                    _add(returns, _waits(running, resumed))
        for name, found_s in times.items():
            yield from spread(f"kill -9 to first ack, {name}", found_s)
        for name, found_s in returns.items():
            yield from spread(f"the dead agent returns, {name}", found_s)
        yield Reading(scenario="kill -9 to first ack, librdkafka", metric="failed", value=len(real.history.failures))


def _kill_one(team: Team, victim: Member, running: list[Prober | RealProducer]) -> dict[str, list[float]]:
    """Seconds from the kill to the first ack of each partition that the victim led, for each producer."""
    led = routes(team.bootstrap, TOPIC).by_address().get(victim.kafka, [])
    moment = team.kill(victim)
    resumed = wait_until(
        lambda: all(probe.history.acked_after(moment + 0.1, led) for probe in running), timeout_s=RESUME_TIMEOUT_S
    )
    if not resumed:
        raise RuntimeError(f"no ack in {RESUME_TIMEOUT_S:.0f} s after the kill; agent={victim.kafka}")
    return {probe.name: [probe.history.first_ack_s(partition, moment) for partition in led] for probe in running}


def _waits(running: list[Prober | RealProducer], since: float) -> dict[str, list[float]]:
    """Seconds that a record of each partition waited at most, of those due since then; for each producer."""
    now, everywhere = time.perf_counter(), range(PARTITIONS)
    if not wait_until(
        lambda: all(probe.history.acked_after(now, everywhere) for probe in running), timeout_s=RESUME_TIMEOUT_S
    ):
        raise RuntimeError(f"no ack in {RESUME_TIMEOUT_S:.0f} s after the return of an agent")
    return {
        probe.name: [
            max(ack.wait_s for ack in probe.history.of(partition) if ack.due > since) for partition in everywhere
        ]
        for probe in running
    }


def _add(found: dict[str, list[float]], more: dict[str, list[float]]) -> None:
    for name, values_s in more.items():
        found.setdefault(name, []).extend(values_s)


def _wait_until_whole(team: Team, victim: Member) -> None:
    """Until the victim is back and leads again what it led."""
    team.wait_until_ready(victim, time.perf_counter() + BACK_TIMEOUT_S)
    wait_until(lambda: victim.kafka in routes(team.bootstrap, TOPIC).by_address(), timeout_s=BACK_TIMEOUT_S)
    time.sleep(1.5)  # partitions come back one after the other
    wait_until_served(team.bootstrap, TOPIC, PARTITIONS)
