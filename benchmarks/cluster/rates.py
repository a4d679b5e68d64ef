"""Rates: how much goes through one agent, three agents and three Kafka brokers, and what does a gigabyte cost all who
touch it?

Data path   `batches` -> **rates** -> `table`
Owns        the same load whoever serves it: as many connections, batches of the same size, as many under way
Leaves      pipelining and reading to `blaster`

All of them share the machine: agents, PostgreSQL, the S3 server and this client. On few cores three agents can't be
faster than one; whether they cost more for a gigabyte, and how the work divides, can be seen all the same. Kafka's
brokers keep three replicas, where agents have a bucket that does so.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks import blaster
from benchmarks.batches import batch
from benchmarks.blaster import Count, Shot
from benchmarks.cluster.kafka_team import BROKERS, KafkaTeam
from benchmarks.cluster.plan import ClusterPlan
from benchmarks.cluster.routes import Routes, connect, serve
from benchmarks.cluster.team import Bill, Team
from benchmarks.measure import Answer, Load, Reading
from benchmarks.raw_client import Connection, produce_frame
from benchmarks.throughput import OVERHEAD_BYTES, REQUEST_BYTES

TEAMS: Final = (1, 3)
CONNECTIONS: Final = 6  # over all agents
LOADS: Final = (
    Load(record_bytes=1000, partitions=12, codec="none"),
    Load(record_bytes=100, partitions=12, codec="lz4"),
)
NO_LIMIT: Final = 1 << 40
SETTLE_S: Final = 2.0

Work = Callable[[Connection, Sequence[int], float], Count]


class Rates:
    name = "rates"
    question = "How much goes through one agent, three, and three Kafka brokers, and what does a gigabyte cost?"

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]:
        for _ in range(plan.rates_repetitions):
            for agents in TEAMS:
                with Team(agents) as team:
                    yield from _ask_team(team, plan, f"{agents} agent{'s' * (agents > 1)}")
        for _ in range(plan.rates_repetitions):
            with KafkaTeam() as brokers:
                yield from _ask_team(brokers, plan, f"{BROKERS} Kafka brokers")


def _ask_team(team: Team | KafkaTeam, plan: ClusterPlan, who: str) -> Iterator[Answer]:
    warm = serve(team.bootstrap, "rates-warm-up", LOADS[0].partitions)
    together(warm, producing("rates-warm-up", LOADS[0], Counter()), max_s=plan.warm_up_s)
    for number, load in enumerate(LOADS):
        topic = f"rates-{number}"
        found = serve(team.bootstrap, topic, load.partitions)
        ends: Counter[int] = Counter()
        work = producing(topic, load, ends)
        yield from _measured(team, found, f"produce {load}, {who}", work, plan.produce_s)
        yield from _measured(team, found, f"consume {load}, {who}", _consuming(topic, ends), plan.consume_s)


def _measured(team: Team | KafkaTeam, found: Routes, scenario: str, work: Work, max_s: float) -> Iterator[Reading]:
    before, client_s, began = team.bill(), time.process_time(), time.perf_counter()
    moved = together(found, work, max_s=max_s)
    wall_s, client_s = time.perf_counter() - began, time.process_time() - client_s
    time.sleep(SETTLE_S if scenario.startswith("produce") else 0.0)  # what was put off is part of the price
    yield from _readings(scenario, moved, wall_s, before, team.bill())
    yield Reading(scenario=scenario, metric="client busy", value=client_s / wall_s)


def _readings(scenario: str, moved: Count, wall_s: float, before: Bill, after: Bill) -> Iterator[Reading]:
    gigabytes = moved.bytes / 1e9
    used_s = [after.agents[address] - spent_s for address, spent_s in before.agents.items()]
    servers_s = {name: after.servers[name] - spent_s for name, spent_s in before.servers.items()}
    yield Reading(scenario=scenario, metric="records", value=moved.records / wall_s)
    yield Reading(scenario=scenario, metric="bytes", value=moved.bytes / 1e6 / wall_s)
    yield Reading(scenario=scenario, metric="cpu", value=sum(used_s) / gigabytes)
    yield Reading(scenario=scenario, metric="agent busy", value=max(used_s) / wall_s)
    yield Reading(scenario=scenario, metric="store cpu", value=servers_s.get("s3", 0.0) / gigabytes)
    yield Reading(scenario=scenario, metric="metadata cpu", value=servers_s.get("postgres", 0.0) / gigabytes)


def together(found: Routes, work: Work, *, max_s: float) -> Count:
    """The same number of connections whoever leads: they are dealt out to the leaders."""
    led = sorted(found.by_address().items())
    dealt = [led[number % len(led)] for number in range(CONNECTIONS)]
    connections = [connect(address, buffer_bytes=blaster.FETCH_MAX_BYTES) for address, _ in dealt]
    deadline = time.perf_counter() + max_s
    try:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            counts = list(
                pool.map(work, connections, [partitions for _, partitions in dealt], [deadline] * CONNECTIONS)
            )
    finally:
        for connection in connections:
            connection.sock.close()
    return Count(
        requests=sum(count.requests for count in counts),
        records=sum(count.records for count in counts),
        bytes=sum(count.bytes for count in counts),
    )


def producing(topic: str, load: Load, ends: Counter[int]) -> Work:
    """Adds to `ends` how many records each partition has in the end."""

    def work(connection: Connection, partitions: Sequence[int], deadline: float) -> Count:
        shot = shot_for(topic, load, partitions)
        in_flight = blaster.IN_FLIGHT * load.partitions // len(partitions)
        done = blaster.pipeline(connection, shot.request, requests=NO_LIMIT, deadline=deadline, in_flight=in_flight)
        ends.update(dict.fromkeys(partitions, done * shot.records // len(partitions)))
        return Count(requests=done, records=done * shot.records, bytes=done * shot.bytes)

    return work


def shot_for(topic: str, load: Load, partitions: Sequence[int]) -> Shot:
    """A request with one batch for each of these partitions; batches are as large whoever leads how many."""
    records = max(1, REQUEST_BYTES // load.partitions // (load.record_bytes + OVERHEAD_BYTES))
    prepared = batch(record_bytes=load.record_bytes, records=records, codec=load.codec)
    request = produce_frame(topic, [(partition, prepared.body) for partition in partitions], acks=-1)
    return Shot(request=request, records=records * len(partitions), bytes=len(prepared.body) * len(partitions))


def _consuming(topic: str, ends: Mapping[int, int]) -> Work:
    def work(connection: Connection, partitions: Sequence[int], deadline: float) -> Count:
        own = {partition: ends[partition] for partition in partitions}
        return blaster.read(connection, topic, own, bytes_wanted=NO_LIMIT, deadline=deadline)

    return work
