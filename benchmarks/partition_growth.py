"""Partition growth: what does the same number of bytes a second cost over one partition, and over a thousand?

Data path   `paced_load` -> **partition_growth** -> `runner`
Owns        the rate, which is the same for all, and requests with a batch for each partition
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


class PartitionGrowth:
    name = "partitions"
    question = "What does the same rate cost over more and more partitions?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        for partitions in plan.partition_counts:
            with ExitStack() as stack:
                name = stack.enter_context(topic(peer, f"growth-{partitions}", partitions))
                prepared = shot(name, partitions)
                rate = RATE_MB_S * 1e6 / prepared.bytes
                for _ in paced(peer, [prepared] * CONNECTIONS, "warm-up", rate_per_s=rate, seconds=1.0):
                    pass
                label = f"{RATE_MB_S:.0f} MB/s over {partitions:,} partition{'s' * (partitions > 1)}"
                yield from paced(peer, [prepared] * CONNECTIONS, label, rate_per_s=rate, seconds=plan.latency_s)


def shot(topic_name: str, partitions: int) -> Shot:
    """A request with a batch for each partition; of as many as possible the records have the same bytes in all."""
    records = max(1, REQUEST_BYTES // partitions // (RECORD_BYTES + 8))
    prepared = batch(record_bytes=RECORD_BYTES, records=records, codec="none")
    request = produce_frame(topic_name, [(number, prepared.body) for number in range(partitions)], acks=-1)
    return Shot(request=request, records=records * partitions, bytes=records * partitions * RECORD_BYTES)
