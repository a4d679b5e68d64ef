"""Partition growth: what does the same number of bytes a second cost over one partition, and over a thousand?

Data path   `paced_load` -> **partition_growth** -> `runner`
Owns        the rate, which is the same for all, and requests with a batch for each of up to `AT_ONCE` partitions
Leaves      sending to `paced_load`
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.batches import batch
from benchmarks.blaster import Shot
from benchmarks.fixed_rate import CONNECTIONS, paced
from benchmarks.measure import Answer, Plan, topic
from benchmarks.peer import Peer
from benchmarks.raw_client import produce_frame

REQUEST_BYTES: Final = 480_000
RECORD_BYTES: Final = 100
RATE_MB_S: Final = 10.0
AT_ONCE: Final = 1000
"""Partitions of a request; of more, requests take turns, as a client's batches would be one record each otherwise."""


class PartitionGrowth:
    name = "partitions"
    question = "What does the same rate cost over more and more partitions?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        for partitions in plan.partition_counts:
            with ExitStack() as stack:
                name = stack.enter_context(topic(peer, f"growth-{partitions}", partitions))
                prepared = shots(name, partitions)
                rate = RATE_MB_S * 1e6 / prepared[0].bytes
                seconds = max(1.0, len(prepared) / rate)  # each partition once: it is opened then
                for _ in paced(peer, prepared, "warm-up", rate_per_s=rate, seconds=seconds):
                    pass
                label = f"{RATE_MB_S:.0f} MB/s over {partitions:,} partition{'s' * (partitions > 1)}"
                yield from paced(peer, prepared, label, rate_per_s=rate, seconds=plan.latency_s)


def shots(topic_name: str, partitions: int) -> list[Shot]:
    """Requests with a batch for each of their partitions, about as large whatever their number; at least one for each
    connection."""
    slices = [range(first, min(first + AT_ONCE, partitions)) for first in range(0, partitions, AT_ONCE)]
    return [shot(topic_name, each) for each in slices] * max(1, CONNECTIONS // len(slices))


def shot(topic_name: str, partitions: range) -> Shot:
    count = len(partitions)
    records = max(1, REQUEST_BYTES // count // (RECORD_BYTES + 8))
    prepared = batch(record_bytes=RECORD_BYTES, records=records, codec="none")
    request = produce_frame(topic_name, [(number, prepared.body) for number in partitions], acks=-1)
    return Shot(request=request, records=records * count, bytes=records * count * RECORD_BYTES)
