"""Clients: what do real clients get, when they have to share the machine with the broker?

Data path   `client_worker` processes -> **clients** -> `runner`
Owns        two processes of confluent-kafka (librdkafka) at a time, first producing, then consuming
Leaves      the client to `client_worker`

Here the clients are the bottleneck as often as the broker is: on a small machine they need more CPU than it does. So
the CPU that the broker spent on a gigabyte of values stands beside the rate. It includes what the broker does right
after the load: who consumes next doesn't pay for work that producers left.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from benchmarks import process
from benchmarks.measure import Answer, Load, Plan, Reading, topic
from benchmarks.peer import Peer

WORKERS: Final = 2
WARM_UP_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 60.0


class Clients:
    name = "clients"
    question = "What do real clients (librdkafka) get on the same machine?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        with topic(peer, "clients-warm-up", 1) as name:
            for role in ("produce", "consume"):
                run_workers(peer, role, plan.client_loads[0], name, seconds=plan.short_warm_up_s / 2, settle_s=0.0)
        for number, load in enumerate(plan.client_loads):
            with topic(peer, f"clients-{number}", load.partitions) as name:
                for role in ("produce", "consume"):
                    settle_s = plan.settle_max_s
                    yield from run_workers(peer, role, load, name, seconds=plan.client_s, settle_s=settle_s)


def run_workers(
    peer: Peer, role: str, load: Load, topic_name: str, *, seconds: float, settle_s: float
) -> list[Reading]:
    command = [sys.executable, "-m", "benchmarks.client_worker", role, "--bootstrap", peer.bootstrap]
    command += ["--topic", topic_name, "--partitions", str(load.partitions)]
    command += ["--record-bytes", str(load.record_bytes), "--seconds", str(seconds)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(WORKERS)
    ]
    try:
        cpu_s, responses = _start_together(peer, workers, settle_s=settle_s)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    records = sum(response["records"] for response in responses)
    rate = sum(response["records"] / response["wall_s"] for response in responses)
    gigabytes = records * load.record_bytes / 1e9
    scenario = f"{role} {load}"
    return [
        Reading(scenario=scenario, metric="records", value=rate),
        Reading(scenario=scenario, metric="cpu", value=cpu_s / gigabytes),
    ]


def _start_together(
    peer: Peer, workers: list[subprocess.Popen[str]], *, settle_s: float
) -> tuple[float, list[dict[str, float]]]:
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    cpu_s = peer.cpu_s()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    responses = [json.loads(worker.communicate(timeout=ANSWER_TIMEOUT_S)[0]) for worker in workers]
    return process.cpu_s_when_quiet(peer.pid, max_wait_s=settle_s) - cpu_s, responses
