"""Null store: what does the object WAL do where the object server isn't the bottleneck, beside three Kafka brokers?

Data path   `rates` (the limit), `paced_load` -> **null_store** -> `table`
Owns        one agent on an object server that forgets records, three Kafka brokers, and shares of the limit of each
Leaves      sending to `paced_load`; the server to `null_s3`

What a bucket adds to the wait for an ack, some 10 to 30 ms, isn't in these numbers: the server answers at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Final

from benchmarks.blaster import Count, pipeline
from benchmarks.cluster.kafka_team import BROKERS, KafkaTeam
from benchmarks.cluster.null_s3 import NullS3Process
from benchmarks.cluster.plan import ClusterPlan
from benchmarks.cluster.rates import CONNECTIONS, NO_LIMIT, Work, together
from benchmarks.cluster.routes import Routes, connect, serve
from benchmarks.cluster.team import Team
from benchmarks.fixed_rate import SHARES, shot
from benchmarks.measure import Answer, Reading
from benchmarks.pace import Schedule
from benchmarks.paced_load import MAX_IN_FLIGHT, PacedLoad
from benchmarks.raw_client import Connection

PARTITIONS: Final = 12
TOPIC: Final = "null-store"
SETTINGS: Final = {
    "store.url": "s3://bench/null",
    "wal.kind": "object",
    "integrity.objects": "0",  # which would find that they are empty
}


class NullStore:
    name = "null-store"
    question = "What does the object WAL do where the object server isn't the bottleneck, beside Kafka?"

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]:
        with NullS3Process() as store, Team(1, settings=SETTINGS, environment=store.environment) as team:
            before_s = store.cpu_s()
            yield from _ask_team(team, plan, "1 agent")
            yield Reading(scenario="the object server", metric="cpu of the broker", value=store.cpu_s() - before_s)
        with KafkaTeam() as brokers:
            yield from _ask_team(brokers, plan, f"{BROKERS} Kafka brokers")


def _ask_team(team: Team | KafkaTeam, plan: ClusterPlan, who: str) -> Iterator[Answer]:
    found, work = serve(team.bootstrap, TOPIC, PARTITIONS), _producing()
    together(found, work, max_s=plan.warm_up_s)
    before = team.bill()
    moved = together(found, work, max_s=plan.produce_s)
    used_s = sum(team.bill().agents.values()) - sum(before.agents.values())
    bytes_per_s = moved.bytes / plan.produce_s
    yield Reading(scenario=f"limit, {who}", metric="bytes", value=bytes_per_s / 1e6)
    yield Reading(scenario=f"limit, {who}", metric="cpu", value=used_s / (moved.bytes / 1e9))
    for share in SHARES:
        yield from _paced(team, found, plan, f"ack at {share:.0%} of the limit, {who}", share * bytes_per_s)


def _producing() -> Work:
    """As many requests under way as `PacedLoad` has at most, of the same kind."""
    turns = count()

    def work(connection: Connection, partitions: Sequence[int], deadline: float) -> Count:
        sent = shot(TOPIC, partitions[next(turns) % len(partitions)])
        in_flight = MAX_IN_FLIGHT * PARTITIONS // CONNECTIONS
        done = pipeline(connection, sent.request, requests=NO_LIMIT, deadline=deadline, in_flight=in_flight)
        return Count(requests=done, records=done * sent.records, bytes=done * sent.bytes)

    return work


def _paced(
    team: Team | KafkaTeam, found: Routes, plan: ClusterPlan, scenario: str, bytes_per_s: float
) -> Iterator[Answer]:
    shots = [shot(TOPIC, partition) for partition in range(PARTITIONS)]
    before = team.bill()
    with ExitStack() as stack:
        # Connections and requests take turns in step: each request goes to the leader of its partition.
        addresses = [found.address(partition) or team.bootstrap for partition in range(PARTITIONS)]
        connections = [stack.enter_context(connect(address)) for address in addresses]
        rate_per_s = max(1, round(bytes_per_s / shots[0].bytes))
        load = PacedLoad(connections, [each.request for each in shots])
        waits = load.run(Schedule(seconds=plan.latency_s, rate_per_s=rate_per_s))
    yield from waits.responses(scenario)
    used_s = sum(team.bill().agents.values()) - sum(before.agents.values())
    yield Reading(scenario=scenario, metric="cpu", value=used_s / (waits.count * shots[0].bytes / 1e9))
