"""Footprint: how soon does a broker answer after its start, and how much memory does it hold while it does nothing?

Data path   `peer` -> **footprint** -> `runner`
Owns        idle connections, and when memory is looked at
Leaves      the start-up time, which every measure's broker gives, to `runner`; memory after load to `throughput`
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.measure import Answer, Plan, Reading
from benchmarks.peer import Peer
from benchmarks.raw_client import metadata_brokers

REST_S: Final = 1.5


class Footprint:
    name = "footprint"
    question = "How soon does it answer, and how much memory does it hold?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        time.sleep(REST_S)
        yield Reading(scenario="idle", metric="memory", value=peer.rss_bytes() / 1e6)
        with ExitStack() as connections:
            for _ in range(plan.idle_connections):
                metadata_brokers(connections.enter_context(peer.connect(buffer_bytes=4096)))
            time.sleep(REST_S)
            scenario = f"{plan.idle_connections:,} idle connections"
            yield Reading(scenario=scenario, metric="memory", value=peer.rss_bytes() / 1e6)
