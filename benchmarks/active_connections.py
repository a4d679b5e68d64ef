"""Active connections: of a thousand clients that send a record a second each, what does a request cost?

Data path   `paced_load` -> **active_connections** -> `runner`
Owns        as many connections, and a rate that is the same however many there are
Leaves      sending to `paced_load`
"""

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.measure import Answer, Plan, Reading, topic
from benchmarks.pace import RATE_PER_S, Schedule
from benchmarks.paced_load import PacedLoad
from benchmarks.peer import Peer
from benchmarks.requests import flat_out, one_record


class ActiveConnections:
    name = "connections"
    question = "What does a request cost when it comes from one of many connections?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        with topic(peer, "connections", 1) as name:
            flat_out(peer, name, max_s=plan.short_warm_up_s)
            request = one_record(name, acks=-1).request
            for count in (1, plan.idle_connections):
                label = f"{RATE_PER_S:,} records/s over {count:,} connection{'s' * (count > 1)}"
                with ExitStack() as stack:
                    connections = [stack.enter_context(peer.connect(buffer_bytes=4096)) for _ in range(count)]
                    before_s = peer.cpu_s()
                    waits = PacedLoad(connections, [request]).run(
                        Schedule(seconds=plan.latency_s, rate_per_s=RATE_PER_S)
                    )
                    value = (peer.cpu_s() - before_s) / waits.count * 1e6
                yield from waits.responses(label)
                yield Reading(scenario=label, metric="cpu per request", value=value)
