"""Cost: how much CPU does a produced gigabyte cost in all, once everything that was put off has been done?

Data path   `batches` -> `blaster` -> **cost** -> `runner`
Owns        a load over 16 partitions and the broker's whole bill for it, a graceful stop included
Leaves      rates, and the price of each kind of load, to `throughput`

A broker that buffers may look cheap for as long as nobody waits for its buffers to be written. A graceful stop writes
them, and what the system says of an ended process leaves nothing out. Ends the broker: asked last.
"""

from collections.abc import Iterator

from benchmarks import blaster
from benchmarks.measure import Answer, Load, Plan, Reading, serve, topic
from benchmarks.peer import Peer
from benchmarks.throughput import shot


class Cost:
    name = "cost"
    question = "How much CPU does a gigabyte cost in all, a graceful stop included?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        load = Load(record_bytes=1000, partitions=16, codec="none")
        with topic(peer, "cost-warm-up", load.partitions) as name:
            blaster.produce(peer, shot(load, name), requests=10_000, max_s=plan.short_warm_up_s, settle_s=0.0)
        serve(peer, "cost", load.partitions)
        prepared, cpu_s = shot(load, "cost"), peer.cpu_s()
        moved = blaster.produce(
            peer, prepared, requests=plan.cost_bytes // prepared.bytes, max_s=plan.cost_max_s, settle_s=0.0
        )
        peer.stop()
        value = (peer.life_cpu_s - cpu_s) / (moved.bytes / 1e9)
        yield Reading(scenario=f"produce {load}, and stop", metric="cpu", value=value)
