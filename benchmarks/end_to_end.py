"""End to end: how long after a record was due to be produced does a waiting consumer hold it?

Data path   `pace` -> **end_to_end** -> `runner`
Owns        one producer and one long-polling consumer on one topic, driven from one thread
Leaves      the schedule to `pace`, percentiles to `histogram`
"""

import select
import time
from collections.abc import Iterator
from typing import Final

from benchmarks.histogram import Histogram
from benchmarks.measure import Answer, Plan, topic
from benchmarks.pace import RATE_PER_S, Schedule
from benchmarks.peer import Peer
from benchmarks.raw_client import Connection, fetch_frame, fetched, first_offsets
from benchmarks.requests import flat_out, one_record

LAST_RECORDS_S: Final = 5.0
PACED_WARM_UP_S: Final = 1.0


class EndToEnd:
    name = "end-to-end"
    question = "How long until a waiting consumer holds the record?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        with topic(peer, "end-to-end-flat-out", 1) as name:
            flat_out(peer, name, max_s=plan.short_warm_up_s)
        for name, seconds in (("end-to-end-warm-up", PACED_WARM_UP_S), ("end-to-end", plan.latency_s)):
            with topic(peer, name, 1), peer.connect() as producer, peer.connect() as consumer:
                waits_s = Tail(producer, consumer, name).follow(Schedule(seconds=seconds))
        yield from Histogram(waits_s).responses(f"produce to consume, {RATE_PER_S:,}/s")


class Tail:
    """A consumer at the end of a topic, and the producer it waits for. Nobody else writes: offsets count records."""

    def __init__(self, producer: Connection, consumer: Connection, topic_name: str) -> None:
        self._producer, self._consumer, self._topic = producer, consumer, topic_name
        self._request = one_record(topic_name, acks=1).request
        self._due: list[float] = []
        self._waits_s: list[float] = []

    def follow(self, schedule: Schedule) -> list[float]:
        self._poll()
        for due in schedule:
            self._take_answers(until=due)
            self._producer.send(self._request)
            self._due.append(due)
        deadline = time.perf_counter() + LAST_RECORDS_S
        while len(self._waits_s) < len(self._due) and time.perf_counter() < deadline:
            self._take_answers(until=time.perf_counter() + 0.01)
        if len(self._waits_s) < len(self._due):
            raise TimeoutError(f"records missing; produced={len(self._due)} consumed={len(self._waits_s)}")
        return self._waits_s

    def _take_answers(self, *, until: float) -> None:
        sockets = [self._consumer.sock, self._producer.sock]
        while ready := select.select(sockets, [], [], max(0.0, until - time.perf_counter()))[0]:
            if self._consumer.sock in ready:
                self._take_records()
            if self._producer.sock in ready:
                first_offsets(self._producer.receive())

    def _take_records(self) -> None:
        (part,) = fetched(self._consumer.receive())
        now, seen = time.perf_counter(), len(self._waits_s)
        self._waits_s += [now - due for due in self._due[seen : max(seen, part.next_offset)]]
        self._poll()

    def _poll(self) -> None:
        offsets = [(0, len(self._waits_s))]
        self._consumer.send(
            fetch_frame(self._topic, offsets, max_bytes=50 << 20, partition_max_bytes=1 << 20, max_wait_ms=500)
        )
