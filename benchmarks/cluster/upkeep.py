"""Upkeep: what does a cluster ask of its stores, by the minute and by the gigabyte, with few partitions and with many?

Data path   agents' `/metrics` and `pg_stat_database` -> **maintenance** -> `table`
Owns        the loads: nothing, the same trickle over 1, 12 and 1,000 partitions, as much as goes in
Leaves      counting to the agents and to PostgreSQL

What a store is asked must follow bytes, time and agents, never the number of partitions. A trickle is as many records a
second however many partitions share it. One partition has one leader, so one agent writes; with 12 all three do.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks.batches import batch
from benchmarks.blaster import Count
from benchmarks.cluster.plan import ClusterPlan
from benchmarks.cluster.rates import producing, together
from benchmarks.cluster.routes import Routes, connect, serve
from benchmarks.cluster.team import Team
from benchmarks.measure import Answer, Load, Reading
from benchmarks.pace import Schedule
from benchmarks.raw_client import Connection, first_offsets, produce_frame

AGENTS: Final = 3
TRICKLE_PER_S: Final = 300
FEW: Final = 12
MANY: Final = 1000
RECORD_BYTES: Final = 100
SETTLE_S: Final = 2.0
KINDS: Final = {"put_new": "put", "get_range": "get", "get_suffix": "get"}


class Upkeep:
    name = "upkeep"
    question = "What do three agents ask of the object store and of PostgreSQL, with few partitions and with many?"

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]:
        with Team(AGENTS) as team:
            time.sleep(SETTLE_S)
            yield from _window(team, "idle, no topic", lambda: time.sleep(plan.idle_s))
            for partitions in (1, FEW, MANY):
                yield from _with_partitions(team, plan, partitions)


def _with_partitions(team: Team, plan: ClusterPlan, partitions: int) -> Iterator[Answer]:
    topic = f"upkeep-{partitions}"
    found = serve(team.bootstrap, topic, partitions)
    words = f"{partitions:,} partition{'s' * (partitions > 1)}"
    time.sleep(SETTLE_S)
    if partitions == MANY:
        yield from _window(team, f"idle, {words}", lambda: time.sleep(plan.idle_s))
    yield from _window(
        team, f"{TRICKLE_PER_S} records/s, {words}", lambda: trickle(found, topic, seconds=plan.trickle_s)
    )
    if partitions > 1:
        load = Load(record_bytes=1000, partitions=partitions, codec="none")
        work = producing(topic, load, Counter())
        yield from _window(team, f"as fast as it goes, {words}", lambda: together(found, work, max_s=plan.loaded_s))


def _window(team: Team, scenario: str, act: Callable[[], Count | None]) -> Iterator[Reading]:
    requests, transactions, bill = team.store_requests(), team.transactions(), team.bill()
    began = time.perf_counter()
    moved = act()
    seconds = time.perf_counter() - began
    used_s = sum(team.bill().agents.values()) - sum(bill.agents.values())
    made = team.transactions() - transactions
    asked: Counter[str] = Counter()
    for operation, count in (team.store_requests() - requests).items():
        asked[KINDS.get(operation, "other")] += count
    for kind in ("put", "get", "other"):
        yield Reading(scenario=scenario, metric=kind, value=asked[kind] / seconds * 60)
    if moved is not None and moved.bytes > 1e7:  # of less, a share of a gigabyte says nothing
        yield Reading(scenario=scenario, metric="per GB", value=asked.total() / (moved.bytes / 1e9))
    yield Reading(scenario=scenario, metric="transactions", value=made / seconds)
    yield Reading(scenario=scenario, metric="cpu share", value=used_s / seconds)


def trickle(found: Routes, topic: str, *, seconds: float) -> Count:
    """One-record requests at one rate over all, to one partition after the other."""
    led = sorted(found.by_address().items())
    rates = [TRICKLE_PER_S * len(partitions) / len(found.leaders) for _, partitions in led]

    def run(address: str, partitions: Sequence[int], rate_per_s: float) -> Count:
        with connect(address) as connection:
            return _trickle_to(connection, topic, partitions, Schedule(seconds=seconds, rate_per_s=round(rate_per_s)))

    with ThreadPoolExecutor(len(led)) as pool:
        counts = list(pool.map(run, [address for address, _ in led], [led_by for _, led_by in led], rates))
    return Count(requests=0, records=sum(each.records for each in counts), bytes=sum(each.bytes for each in counts))


def _trickle_to(connection: Connection, topic: str, partitions: Sequence[int], schedule: Schedule) -> Count:
    body = batch(record_bytes=RECORD_BYTES, records=1, codec="none").body
    sent = acked = 0
    for due in schedule:
        time.sleep(max(0.0, due - time.perf_counter()))
        connection.send(produce_frame(topic, [(partitions[sent % len(partitions)], body)], acks=-1))
        sent += 1
        while sent - acked > 32 or (sent - acked and connection.readable()):
            first_offsets(connection.receive())
            acked += 1
    while acked < sent:
        first_offsets(connection.receive())
        acked += 1
    return Count(requests=sent, records=sent, bytes=sent * len(body))
