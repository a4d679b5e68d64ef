"""Cold reads: what do producers notice of readers that read old records as fast as they can?

Data path   `paced_load`, `blaster` -> **cold_reads** -> `runner`
Owns        old records, more than an agent's caches hold, and readers of them beside a producer at a fixed rate
Leaves      sending to `paced_load`, reading to `blaster`

Both are read from the system's page cache where memory allows: what is measured is the broker's fairness, not a disk.
"""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Final

from benchmarks import blaster
from benchmarks.blaster import Moved
from benchmarks.measure import Answer, Load, Plan, topic
from benchmarks.pace import RATE_PER_S, Schedule
from benchmarks.paced_load import PacedLoad
from benchmarks.peer import Peer
from benchmarks.raw_client import BrokerRefused
from benchmarks.requests import flat_out, one_record
from benchmarks.throughput import rates, shot

NO_LIMIT: Final = 10**12
MARGIN_S: Final = 1.0
PATIENCE_S: Final = 60.0


class ColdReads:
    name = "cold-reads"
    question = "What do producers notice of readers of old records?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        load = Load(record_bytes=1000, partitions=16, codec="none")
        with topic(peer, "old", load.partitions) as old, topic(peer, "beside", 1) as name:
            prepared = shot(load, old)
            requests = plan.cold_bytes // prepared.bytes
            written = blaster.produce(peer, prepared, requests=requests, max_s=plan.cost_max_s * 3, settle_s=2.0)
            ends = [written.records // load.partitions] * load.partitions
            flat_out(peer, name, max_s=plan.short_warm_up_s)
            yield from _acks(peer, name, "ack, nobody reads", plan)
            readers = Readers(peer, old, ends, seconds=plan.latency_s + MARGIN_S)
            readers.start()
            yield from _acks(peer, name, "ack, beside readers of old records", plan)
            yield from rates("readers of old records", readers.result())


class Readers:
    """Two connections that read a topic for some seconds, in a process of their own: in this one, they and the
    producer would wait for each other's interpreter."""

    def __init__(self, peer: Peer, topic_name: str, ends: list[int], *, seconds: float) -> None:
        context = multiprocessing.get_context("fork")
        self._theirs, mine = context.Pipe(duplex=False)
        self._process = context.Process(target=_read, args=(mine, peer, topic_name, ends, seconds), daemon=True)

    def start(self) -> None:
        self._process.start()

    def result(self) -> Moved:
        if not self._theirs.poll(PATIENCE_S):
            raise BrokerRefused("the readers didn't end")
        moved: Moved = self._theirs.recv()
        self._process.join()
        return moved


def _read(response: Connection, peer: Peer, topic_name: str, ends: list[int], seconds: float) -> None:
    response.send(blaster.consume(peer, topic_name, ends, bytes_wanted=NO_LIMIT, max_s=seconds))


def _acks(peer: Peer, topic_name: str, label: str, plan: Plan) -> Iterator[Answer]:
    request = one_record(topic_name, acks=-1).request
    with peer.connect() as connection:
        waits = PacedLoad([connection], [request]).run(Schedule(seconds=plan.latency_s, rate_per_s=RATE_PER_S))
    yield from waits.responses(f"{label}, {RATE_PER_S:,}/s")
