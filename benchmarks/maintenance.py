"""What does maintenance cost, and what does it bring? A topic in small pieces, merged by a job on Spark.

    .venv/bin/python -m benchmarks.maintenance [--flushes N] [--partitions N] [--records N] [--record-bytes N] [--json]

An agent with embedded stores, which merges nothing by itself, gets a topic in many small objects. Then a job merges it,
on Spark with the given number of cores. Measured are the job (MB/s in all and per core, requests, CPU), the rows that
the metadata store has of the topic, and what a cold reader needs before and after: time, and requests to the store.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer

from benchmarks.process import cpu_s
from streamhouse.spark.maintenance import merge_job
from streamhouse.spark.maintenance.job import JobResult, SparkTasks
from streamhouse.spark.maintenance.job_session import start_session
from tests.support.agent import LiveAgent

TOPIC: Final = "pieces"
FLAGS: Final = ("--set", "flush.age_s=0.005", "--set", "flush.check_s=0.01", "--set", "compaction.merge_runs=0")
MB: Final = 1e6
READ_LIMIT_S: Final = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A topic: so many flushes, each with so many records for every partition."""

    flushes: int
    partitions: int
    records: int
    record_bytes: int
    cores: int

    @property
    def total(self) -> int:
        return self.flushes * self.partitions * self.records

    @property
    def total_bytes(self) -> int:
        return self.total * self.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRead:
    """A consumer behind a restart: nothing is cached."""

    seconds: float
    mb_per_s: float
    get_requests: int
    metadata_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    seconds: float
    mb_per_s: float
    mb_per_s_and_core: float
    cpu_s_per_gb: float
    gets: int
    puts: int
    written_mb: float


def ask(agent: LiveAgent, path: str, body: object | None = None) -> Any:
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(f"http://{agent.http}{path}", data=data)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()


def fill(agent: LiveAgent, plan: Plan) -> None:
    settings = {"retention.ms": "-1"}
    ask(agent, "/v1/topics", {"name": TOPIC, "partitions": plan.partitions, "settings": settings})
    for flush in range(plan.flushes):
        records = [
            {"value": os.urandom(plan.record_bytes // 2).hex(), "partition": partition, "key": f"{flush}-{number}"}
            for partition in range(plan.partitions)
            for number in range(plan.records)
        ]
        ask(agent, f"/v1/topics/{TOPIC}/records", {"records": records, "acks": "stored"})


def rows_of(agent: LiveAgent) -> int:
    runs, cursor = 0, None
    while True:
        page = msgspec.json.decode(ask(agent, "/v1/maintenance/plan", {"topic": TOPIC, "cursor": cursor}))
        runs += sum(len(each["runs"]) for each in page["partitions"])
        cursor = page["next"]
        if cursor is None:
            return runs


def gets_of(agent: LiveAgent) -> int:
    lines = ask(agent, "/metrics").decode().splitlines()
    wanted = 'streamhouse_object_store_requests_total{operation="get_range"'
    return round(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted)))


def read_cold(agent: LiveAgent, plan: Plan) -> ColdRead:
    agent.stop()
    agent.start()
    begun, requests = time.perf_counter(), gets_of(agent)
    asyncio.run(_consume(agent, plan.total))
    took = time.perf_counter() - begun
    return ColdRead(
        seconds=round(took, 3),
        mb_per_s=round(plan.total_bytes / took / MB, 2),
        get_requests=gets_of(agent) - requests,
        metadata_rows=rows_of(agent),
    )


async def _consume(agent: LiveAgent, count: int) -> None:
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=agent.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(READ_LIMIT_S):
            while count > 0:
                count -= sum(len(each) for each in (await consumer.getmany(timeout_ms=1000)).values())
    finally:
        await consumer.stop()


def run_job(agent: LiveAgent, plan: Plan, job: Callable[[SparkTasks], JobResult]) -> JobCost:
    """A job on a Spark that is there already: its start would hide everything else in a small run."""
    settings = {"spark.driver.memory": "1g"}
    spark = start_session("measured", agents=agent.http, master=f"local[{plan.cores}]", settings=settings)
    tasks = SparkTasks(lambda: spark)
    try:
        spark.sparkContext.parallelize(range(plan.cores), plan.cores).map(str).collect()  # workers are there, too
        begun, own = time.perf_counter(), cpu_s(os.getpid()) - cpu_s(agent.pid)
        done = job(tasks)
        took, used = time.perf_counter() - begun, cpu_s(os.getpid()) - cpu_s(agent.pid) - own
    finally:
        spark.stop()
    read = done.costs.read_bytes
    return JobCost(
        seconds=round(took, 3),
        mb_per_s=round(read / took / MB, 2),
        mb_per_s_and_core=round(read / took / MB / plan.cores, 2),
        cpu_s_per_gb=round(used / max(read, 1) * 1e9, 2),
        gets=done.costs.gets,
        puts=done.costs.puts,
        written_mb=round(done.costs.written_bytes / MB, 2),
    )


def measure(plan: Plan) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="maintenance-") as folder,
        LiveAgent(Path(folder) / "data", *FLAGS) as agent,
    ):
        fill(agent, plan)
        before = read_cold(agent, plan)
        merged = run_job(agent, plan, lambda tasks: merge_job.run(TOPIC, agents=agent.http, tasks=tasks))
        after = read_cold(agent, plan)
    return {"plan": asdict(plan), "before": asdict(before), "merge": asdict(merged), "after": asdict(after)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flushes", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    plan = Plan(
        flushes=given.flushes,
        partitions=given.partitions,
        records=given.records,
        record_bytes=given.record_bytes,
        cores=given.cores,
    )
    found = measure(plan)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, numbers in found.items():
        print(f"{name}: " + "  ".join(f"{key}={value:,}" for key, value in numbers.items()))


if __name__ == "__main__":
    main()
