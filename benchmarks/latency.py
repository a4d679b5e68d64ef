"""Latency: how long does a producer wait for its ack, at a rate that keeps the broker far from busy?

Data path   `pace` -> **latency** -> `runner`
Owns        producing one record a request at a fixed rate, with acks=1 and acks=all
Leaves      the schedule to `pace`, percentiles to `histogram`
"""

import select
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from benchmarks.histogram import Histogram
from benchmarks.measure import Answer, Plan, topic
from benchmarks.pace import RATE_PER_S, Schedule
from benchmarks.peer import Peer
from benchmarks.raw_client import Connection, first_offsets
from benchmarks.requests import flat_out, one_record

PACED_WARM_UP_S: Final = 0.5


class ProduceLatency:
    name = "latency"
    question = "How long does a producer wait for its ack?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        with topic(peer, "latency-warm-up", 1) as name:
            flat_out(peer, name, max_s=plan.short_warm_up_s)
        for label, acks in (("1", 1), ("all", -1)):
            with topic(peer, f"latency-acks-{label}", 1) as name, peer.connect() as connection:
                request = one_record(name, acks=acks).request
                produce_at_a_rate(connection, request, Schedule(seconds=PACED_WARM_UP_S))
                waits_s = produce_at_a_rate(connection, request, Schedule(seconds=plan.latency_s))
                yield from Histogram(waits_s).responses(f"ack, acks={label}, {RATE_PER_S:,}/s")


def produce_at_a_rate(connection: Connection, request: bytes, schedule: Schedule) -> list[float]:
    """Seconds from the moment each request was due, whether or not it could be sent then, to its ack."""
    waiting: deque[float] = deque()
    waits_s: list[float] = []
    for due in schedule:
        while select.select([connection.sock], [], [], max(0.0, due - time.perf_counter()))[0]:
            first_offsets(connection.receive())
            waits_s.append(time.perf_counter() - waiting.popleft())
        connection.send(request)
        waiting.append(due)
    while waiting:
        first_offsets(connection.receive())
        waits_s.append(time.perf_counter() - waiting.popleft())
    return waits_s
