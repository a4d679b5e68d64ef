"""How many of Nexmark's events do pipelines take in a second, per core, and how long is a micro-batch at a steady rate?

    .venv/bin/python -m benchmarks.nexmark [--events N] [--queries q0,q5] [--rate R] [--seconds S] [--cores C] [--json]

One agent (embedded stores) and one Spark in local mode with the settings of a supervisor. First the events are written,
which isn't measured; then each query of `examples/nexmark` reads them all from the beginning and writes its topic or
view, once to warm up and once measured. A rate is events of all the query's streams in a second; `per core` divides by
the cores that the whole tree of processes, the agent's too, kept busy. Then, for one stateless and one windowed query,
events come in at a steady rate, and micro-batches run one after the other: their times are p50 and p99.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import track

import streamhouse.spark
from examples.nexmark.generate import TOPICS, events
from streamhouse.client.sync import SyncClient
from streamhouse.format.statements import CreatePipeline, CreateTable, CreateView, parse
from streamhouse.spark.pipelines.building import Builder
from streamhouse.spark.pipelines.jobs import job_of
from tests.live import LiveAgent

FOLDER: Final = Path(__file__).resolve().parents[1] / "examples/nexmark"
ALL: Final = ",".join(
    f"q{number}" for number in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 22)
)
STEADY: Final = ("q1", "q7")
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
}
LIMIT_S: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    query: str
    events: int
    took_s: float
    events_per_s: float
    busy_cores: float
    events_per_core_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    query: str
    rate: int
    batches: int
    p50_ms: float
    p99_ms: float
    rows_a_batch: float


class Bench:
    def __init__(self, spark: SparkSession, agent: LiveAgent, folder: Path) -> None:
        self._http = httpx.Client(base_url=f"http://{agent.http}", trust_env=False, timeout=60)
        self._builder = Builder(spark, agents=agent.http, checkpoints=str(folder))
        self._spark = spark
        for each in _statements("tables"):
            assert isinstance(each, CreateTable)
            columns = [{"name": column.name, "type": column.type} for column in each.table.columns or ()]
            body = {"connector": "topic", "columns": columns, "options": dict(each.table.options), "text": each.text}
            self._http.put(f"/v1/tables/{each.name}", json=body).raise_for_status()

    def start(self, query: str, trigger: str, starting: str = "earliest") -> StreamingQuery:
        """The first statement of a query, as a pipeline of its own."""
        each = _statements(query)[0]
        assert isinstance(each, CreatePipeline | CreateView)
        name = f"{each.name}_{uuid.uuid4().hex[:8]}"
        text = each.text.replace(each.name, name)
        body = {
            "kind": "view" if isinstance(each, CreateView) else "sql",
            "text": text,
            "options": {**each.options, "trigger": trigger, "starting": starting},
            "target": name,
            "key": list(each.key) if isinstance(each, CreateView) else [],
        }
        self._http.put(f"/v1/pipelines/{name}", json=body).raise_for_status()
        heartbeat = {"host": "here", "slots": 1000, "running": []}
        told = self._http.post("/v1/supervisors/bench/heartbeat", json=heartbeat).json()
        [mine] = [each for each in told["assigned"] if each["pipeline"]["name"] == name]
        return self._builder.build(job_of(mine["pipeline"], epoch=mine["epoch"])).main

    def read_all(self, query: str) -> Figure:
        before_s, began = tree_cpu_s(), time.perf_counter()
        running = self.start(query, "available now")
        assert running.awaitTermination(LIMIT_S), f"{query} took longer than {LIMIT_S} s"
        took_s, cpu_s = time.perf_counter() - began, tree_cpu_s() - before_s
        count = sum(each["numInputRows"] for each in running.recentProgress)
        return Figure(
            query=query,
            events=count,
            took_s=took_s,
            events_per_s=count / took_s,
            busy_cores=cpu_s / took_s,
            events_per_core_s=count / cpu_s,
        )

    def steady(self, query: str, rate: int, seconds: float, produce: Callable[[int, float], None]) -> Steady:
        running = self.start(query, "0 seconds", "latest")
        time.sleep(5)
        feeding = threading.Thread(target=produce, args=(rate, seconds))
        feeding.start()
        feeding.join(seconds + 60)
        running.stop()
        full = [each for each in running.recentProgress if each["numInputRows"]][2:]
        if not full:
            raise SystemExit(f"{query}: not one micro-batch was over in {seconds:g} s; do=give --seconds more")
        took = sorted(each["durationMs"]["triggerExecution"] for each in full)
        return Steady(
            query=query,
            rate=rate,
            batches=len(took),
            p50_ms=statistics.median(took),
            p99_ms=took[min(len(took) - 1, int(len(took) * 0.99))],
            rows_a_batch=statistics.mean(each["numInputRows"] for each in full),
        )


def _statements(name: str) -> tuple[Any, ...]:
    return parse((FOLDER / f"{name}.sql").read_text())


def tree_cpu_s() -> float:
    """What this process and all below it have used, those included that have ended."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0
    for pid in (os.getpid(), *_below(os.getpid())):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / ticks


def _below(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from _below(child)


def produce_all(client: SyncClient, count: int) -> None:
    senders = {kind: client.producer(topic, linger_ms=5) for kind, topic in TOPICS.items()}
    for event in track(events(count), total=count, description="events"):
        senders[event.kind].enqueue(event.row, key=event.key)
    for sender in senders.values():
        sender.flush()


def steadily(client: SyncClient, rate: int, seconds: float) -> None:
    """So many events a second, in twentieths."""
    step, made = max(1, rate // 20), events(10**9, seed=2)
    senders = {kind: client.producer(topic) for kind, topic in TOPICS.items()}
    began = time.monotonic()
    for number in range(int(seconds * 20)):
        for event, _ in zip(made, range(step), strict=False):
            senders[event.kind].enqueue(event.row, key=event.key)
        time.sleep(max(0.0, began + (number + 1) / 20 - time.monotonic()))
    for sender in senders.values():
        sender.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--queries", default=ALL)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="streamhouse-nexmark-"))
    with LiveAgent(folder / "data", "--set", "pipelines.ttl_s=1h") as agent, SyncClient(agent.http) as client:
        for topic in TOPICS.values():
            client.topics.create(topic, partitions=2)
        produce_all(client, asked.events)
        spark = streamhouse.spark.open_session(agents=agent.http, master=f"local[{asked.cores}]", settings=SETTINGS)
        spark.sparkContext.setLogLevel("ERROR")
        bench = Bench(spark, agent, folder / "checkpoints")
        queries = asked.queries.split(",")
        bench.read_all(queries[0])  # compiles
        figures = [_told(bench.read_all(query), asked.json) for query in queries]
        rates = [
            _told_steady(
                bench.steady(query, asked.rate, asked.seconds, lambda r, s: steadily(client, r, s)), asked.json
            )
            for query in STEADY
        ]
        spark.stop()
    if asked.json:
        load = os.getloadavg()
        print(
            json.dumps({"load": load, "read": list(map(asdict, figures)), "steady": list(map(asdict, rates))}, indent=2)
        )


def _told(found: Figure, is_json: bool) -> Figure:
    if not is_json:
        print(
            f"{found.query:4} {found.events:9,} events {found.took_s:6.1f} s  {found.events_per_s:9,.0f}/s"
            f"  {found.busy_cores:4.2f} cores  {found.events_per_core_s:9,.0f}/s per core"
        )
    return found


def _told_steady(found: Steady, is_json: bool) -> Steady:
    if not is_json:
        print(
            f"{found.query:4} at {found.rate:,} events/s: {found.batches} batches of {found.rows_a_batch:.0f},"
            f" p50 {found.p50_ms:.0f} ms, p99 {found.p99_ms:.0f} ms"
        )
    return found


if __name__ == "__main__":
    main()
