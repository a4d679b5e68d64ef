"""Fan-out: what do two, three, five readers of the same topic get, and what does each gigabyte cost?

Data path   `batches` -> `blaster` -> **fan_out** -> `runner`
Owns        how many read at once
Leaves      the traffic to `blaster`
"""

from collections.abc import Iterator
from typing import Final

from benchmarks import blaster
from benchmarks.measure import Answer, Load, Plan, topic
from benchmarks.peer import Peer
from benchmarks.throughput import rates, shot

READERS: Final = (1, 2, 5)


class FanOut:
    name = "fan-out"
    question = "What do several readers of one topic get?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        load = Load(record_bytes=1000, partitions=16, codec="none")
        with topic(peer, "fan-out", load.partitions) as name:
            prepared = shot(load, name)
            requests = plan.load_bytes // prepared.bytes
            written = blaster.produce(peer, prepared, requests=requests, max_s=plan.load_max_s, settle_s=1.0)
            ends = [written.records // load.partitions] * load.partitions
            for readers in READERS:
                wanted = 2 * plan.load_bytes * readers
                read = blaster.consume(
                    peer, name, ends, bytes_wanted=wanted, max_s=plan.load_max_s, connections=readers
                )
                yield from rates(f"{readers} reader{'s' * (readers > 1)} of one topic", read)
