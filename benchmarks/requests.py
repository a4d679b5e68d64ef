"""Requests: how many requests a second can a broker answer when each one carries a single small record?

Data path   `batches` -> `blaster` -> **requests** -> `runner`
Owns        the smallest useful request, pipelined
Leaves      the traffic to `blaster`

The opposite end from `throughput`: no byte is expensive here, only the way that each request takes through the broker.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks import blaster
from benchmarks.batches import batch
from benchmarks.blaster import Moved, Shot
from benchmarks.measure import Answer, Plan, Reading, topic
from benchmarks.peer import Peer
from benchmarks.raw_client import produce_frame

RECORD_BYTES: Final = 100
NO_LIMIT: Final = 10_000_000
IN_FLIGHT: Final = 32


class Requests:
    name = "requests"
    question = "How many one-record requests a second, and how much CPU for each?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        with topic(peer, "requests", 1) as name:
            flat_out(peer, name, max_s=plan.short_warm_up_s)
            moved = flat_out(peer, name, max_s=plan.load_max_s)
        scenario = "produce one record, acks=all"
        yield Reading(scenario=scenario, metric="requests", value=moved.requests / moved.wall_s)
        yield Reading(scenario=scenario, metric="cpu per request", value=moved.broker_cpu_s / moved.requests * 1e6)
        yield Reading(scenario=scenario, metric="client busy", value=moved.client_cpu_s / moved.wall_s)


def flat_out(peer: Peer, topic_name: str, *, max_s: float) -> Moved:
    """One-record requests as fast as they are answered; also what warms a broker up for the latency measures."""
    prepared = one_record(topic_name, acks=-1)
    return blaster.produce(peer, prepared, requests=NO_LIMIT, max_s=max_s, settle_s=0.0, in_flight=IN_FLIGHT)


def one_record(topic_name: str, *, acks: int) -> Shot:
    single = batch(record_bytes=RECORD_BYTES, records=1, codec="none")
    request = produce_frame(topic_name, [(0, single.body)], acks=acks)
    return Shot(request=request, records=1, bytes=len(single.body))
