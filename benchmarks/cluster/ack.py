"""Ack: how long does a producer wait for its ack on the object WAL, on the disk WAL of the same machine, and of Kafka?

Data path   `pace` -> **ack** -> `table`
Owns        one agent with each kind of WAL, three Kafka brokers, a trickle and a load
Leaves      the schedule to `pace`, percentiles to `histogram`

With the object WAL an ack means that the bucket has the record: its price is a PUT, and the rest of a window when one
was sent a moment ago. Disks that don't fsync before each ack promise less; `always` is the one that compares. Three
Kafka brokers wait for a second replica, and for no disk.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks.cluster.kafka_team import BROKERS, KafkaTeam
from benchmarks.cluster.plan import ClusterPlan
from benchmarks.cluster.routes import connect, serve
from benchmarks.cluster.team import Team
from benchmarks.histogram import Histogram
from benchmarks.latency import produce_at_a_rate
from benchmarks.measure import Answer
from benchmarks.pace import Schedule
from benchmarks.requests import one_record

WALS: Final = {
    "object WAL, 50 ms windows": {"wal.kind": "object", "wal.window_ms": "50"},
    "object WAL, 5 ms windows": {"wal.kind": "object", "wal.window_ms": "5"},
    "disk WAL, fsync always": {"wal.kind": "disk", "wal.fsync": "always"},
    "disk WAL, fsync interval": {"wal.kind": "disk", "wal.fsync": "interval"},
}
RATES_PER_S: Final = {"trickle, 10/s": 10, "loaded, 1,000/s": 1000}
WARM_UP_S: Final = 1.0


class Ack:
    name = "ack"
    question = "How long does a producer wait for its ack on the object WAL, on the disk WAL, and of Kafka?"

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]:
        for wal, settings in WALS.items():
            with Team(1, settings=settings) as team:
                yield from _waits(team.bootstrap, plan, wal)
        with KafkaTeam() as brokers:
            yield from _waits(brokers.bootstrap, plan, f"{BROKERS} Kafka brokers")


def _waits(bootstrap: str, plan: ClusterPlan, who: str) -> Iterator[Answer]:
    leader = serve(bootstrap, "ack", 1).address(0)
    assert leader is not None, "the topic is served"
    with connect(leader) as connection:
        request = one_record("ack", acks=-1).request
        produce_at_a_rate(connection, request, Schedule(seconds=WARM_UP_S))
        for load, rate_per_s in RATES_PER_S.items():
            schedule = Schedule(seconds=plan.latency_s, rate_per_s=rate_per_s)
            waits_s = produce_at_a_rate(connection, request, schedule)
            yield from Histogram(waits_s).responses(f"{load}, {who}")
