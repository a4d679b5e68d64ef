"""Start-up: how soon is an agent that joins a cluster ready, how soon has one ended, and how much memory does it hold?

Data path   `team` -> **start_up** -> `table`
Owns        agents that join one by one, and when their memory is looked at
Leaves      the life of processes to `team`
"""

import time
from collections.abc import Iterator
from typing import Final

from benchmarks.cluster.plan import ClusterPlan
from benchmarks.cluster.routes import serve
from benchmarks.cluster.team import Team
from benchmarks.cluster.upkeep import MANY, trickle
from benchmarks.measure import Answer, Reading

REST_S: Final = 2.0
TRICKLE_S: Final = 5.0


class StartUp:
    name = "start-up"
    question = "How soon is an agent ready that joins a cluster, and how much memory does it hold?"

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]:
        began = time.perf_counter()
        with Team(1) as team:
            yield Reading(
                scenario="PostgreSQL, S3 server and first agent, from nothing",
                metric="start-up",
                value=time.perf_counter() - began,
            )
            yield from _joins(team, plan.joins)
            found = serve(team.bootstrap, "start-up", MANY)
            trickle(found, "start-up", seconds=TRICKLE_S)
            value = team.rss_bytes(team.members[0]) / 1e6
            yield Reading(
                scenario=f"one agent leads {MANY:,} partitions, each written to", metric="memory", value=value
            )
            yield from _joins(team, plan.joins, f" {MANY:,} partitions")


def _joins(team: Team, count: int, to: str = "") -> Iterator[Reading]:
    for _ in range(count):
        member, ready_s = team.join()
        yield Reading(scenario=f"joins a cluster{' of' * bool(to)}{to}", metric="start-up", value=ready_s)
        time.sleep(REST_S)
        value = team.rss_bytes(member) / 1e6
        yield Reading(scenario=f"joins a cluster{' of' * bool(to)}{to}", metric="memory", value=value)
        yield Reading(scenario=f"joins a cluster{' of' * bool(to)}{to}", metric="ended", value=team.leave(member))
