"""Fixed rate: how long do acks take at a tenth, a half and four fifths of what the broker can do?

Data path   `blaster` (the limit), `paced_load` -> **fixed_rate** -> `runner`
Owns        the limit of each broker, measured right before, and the shares of it
Leaves      sending to `paced_load`

A broker that is asked for more than it can do shows its queue, not itself: each is asked for shares of its own limit,
and for the same rate as the others, a tenth of `COMMON_MB_S`, beside it. Requests have one batch of 64 records of 1 KB.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks import blaster
from benchmarks.batches import batch
from benchmarks.blaster import Shot
from benchmarks.measure import Answer, Plan, Reading, topic
from benchmarks.pace import Schedule
from benchmarks.paced_load import PacedLoad
from benchmarks.peer import Peer
from benchmarks.raw_client import produce_frame

PARTITIONS: Final = 16
CONNECTIONS: Final = 4
RECORDS: Final = 64
RECORD_BYTES: Final = 1000
SHARES: Final = (0.1, 0.5, 0.8)
COMMON_MB_S: Final = 20.0
NO_LIMIT: Final = 10_000_000


class FixedRate:
    name = "fixed-rate"
    question = "How long do acks take at 10, 50 and 80 % of the limit?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        with topic(peer, "fixed-rate", PARTITIONS) as name:
            shots = [shot(name, partition) for partition in range(PARTITIONS)]
            _limit(peer, shots[0], max_s=plan.warm_up_s)
            limit = _limit(peer, shots[0], max_s=plan.load_max_s)
            yield Reading(scenario="limit", metric="bytes", value=limit * shots[0].bytes / 1e6)
            for share in SHARES:
                label = f"ack at {share:.0%} of the limit"
                yield from paced(peer, shots, label, rate_per_s=limit * share, seconds=plan.latency_s)
            rate = COMMON_MB_S * 1e6 / shots[0].bytes
            yield from paced(peer, shots, f"ack at {COMMON_MB_S:.0f} MB/s", rate_per_s=rate, seconds=plan.latency_s)


def shot(topic_name: str, partition: int) -> Shot:
    prepared = batch(record_bytes=RECORD_BYTES, records=RECORDS, codec="none")
    request = produce_frame(topic_name, [(partition, prepared.body)], acks=-1)
    return Shot(request=request, records=RECORDS, bytes=len(prepared.body))


def _limit(peer: Peer, prepared: Shot, *, max_s: float) -> float:
    """Requests a second."""
    moved = blaster.produce(peer, prepared, requests=NO_LIMIT, max_s=max_s, settle_s=0.0)
    return moved.requests / moved.wall_s


def paced(peer: Peer, shots: list[Shot], label: str, *, rate_per_s: float, seconds: float) -> Iterator[Answer]:
    """The waits at a rate; what the broker's CPU took for each gigabyte of it."""
    with ExitStack() as stack:
        connections = [stack.enter_context(peer.connect()) for _ in range(CONNECTIONS)]
        before_s = peer.cpu_s()
        load = PacedLoad(connections, [each.request for each in shots])
        waits = load.run(Schedule(seconds=seconds, rate_per_s=max(1, round(rate_per_s))))
    yield from waits.responses(label)
    value = (peer.cpu_s() - before_s) / (waits.count * shots[0].bytes / 1e9)
    yield Reading(scenario=label, metric="cpu", value=value)
