"""Throughput: how many records a second go in and come out of a broker, and how much CPU does a gigabyte cost it?

Data path   `batches` -> `blaster` -> **throughput** -> `runner`
Owns        the size of a request, and turning what was moved into rates
Leaves      the traffic to `blaster`

Bytes are those of record batches as they travel (after compression): what a broker has to move and to keep. The CPU
that a broker spends right after the load, on work it had put off, counts as part of the price of producing.
"""

import time
from collections.abc import Iterator
from itertools import count
from typing import Final

from benchmarks import blaster
from benchmarks.batches import batch
from benchmarks.blaster import Moved, Shot
from benchmarks.measure import Answer, Load, Plan, Reading, topic
from benchmarks.peer import Peer
from benchmarks.raw_client import produce_frame

REQUEST_BYTES: Final = 960_000  # about what librdkafka's default batch.size of 1,000,000 makes
OVERHEAD_BYTES: Final = 8  # of a record without key and headers, at most, beside its value

WARM_UP_STEP_S: Final = 0.75


def shot(load: Load, topic_name: str) -> Shot:
    """A request of about `REQUEST_BYTES` before compression, with one batch for each partition."""
    records = REQUEST_BYTES // load.partitions // (load.record_bytes + OVERHEAD_BYTES)
    prepared = batch(record_bytes=load.record_bytes, records=records, codec=load.codec)
    request = produce_frame(topic_name, [(p, prepared.body) for p in range(load.partitions)], acks=-1)
    return Shot(request=request, records=records * load.partitions, bytes=len(prepared.body) * load.partitions)


class Throughput:
    name = "throughput"
    question = "How many records a second, and how much CPU for a gigabyte?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        self._warm_up(peer, plan)
        for number, load in enumerate(plan.loads):
            with topic(peer, f"throughput-{number}", load.partitions) as name:
                yield from self._ask_load(peer, plan, load, name)
        yield Reading(scenario="after load", metric="memory", value=peer.rss_bytes() / 1e6)
        yield Reading(scenario="peak under load", metric="memory", value=peer.rss_peak_bytes() / 1e6)

    def _warm_up(self, peer: Peer, plan: Plan) -> None:
        """Both kinds of load, in turns, until the time is over: a JVM compiles for many seconds before it is fast."""
        deadline = time.perf_counter() + plan.warm_up_s
        for number in count():
            load = (plan.loads[0], plan.loads[-1])[number % 2]
            with topic(peer, f"warm-up-{number}", load.partitions) as name:
                self._run(peer, plan, load, name, max_s=WARM_UP_STEP_S, settle_s=0.0)
            if time.perf_counter() > deadline:
                return

    def _ask_load(self, peer: Peer, plan: Plan, load: Load, name: str) -> Iterator[Answer]:
        written, read = self._run(peer, plan, load, name, max_s=plan.load_max_s, settle_s=plan.settle_max_s)
        yield from rates(f"produce {load}", written)
        yield from rates(f"consume {load}", read)

    def _run(
        self, peer: Peer, plan: Plan, load: Load, name: str, *, max_s: float, settle_s: float
    ) -> tuple[Moved, Moved]:
        prepared = shot(load, name)
        requests = plan.load_bytes // prepared.bytes
        written = blaster.produce(peer, prepared, requests=requests, max_s=max_s, settle_s=settle_s)
        ends = [written.records // load.partitions] * load.partitions
        read = blaster.consume(peer, name, ends, bytes_wanted=2 * plan.load_bytes, max_s=max_s)
        return written, read


def rates(scenario: str, moved: Moved) -> Iterator[Reading]:
    yield Reading(scenario=scenario, metric="records", value=moved.records / moved.wall_s)
    yield Reading(scenario=scenario, metric="bytes", value=moved.bytes / 1e6 / moved.wall_s)
    yield Reading(scenario=scenario, metric="cpu", value=moved.broker_cpu_s / (moved.bytes / 1e9))
    yield Reading(scenario=scenario, metric="client busy", value=moved.client_cpu_s / moved.wall_s)
