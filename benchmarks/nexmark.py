"""How many of Nexmark's events do pipelines take in a second, per core, and how long is a micro-batch at a steady rate?

    .venv/bin/python -m benchmarks.nexmark [--events N] [--queries q0,q5] [--rate R] [--seconds S] [--cores C]
        [--write-readme] [--no-run]

One agent (embedded stores) and one Spark in local mode with the settings of a supervisor. First the events are written,
which isn't measured; then each query of `examples/nexmark` reads them all from the beginning and writes its topic or
view; the first query does so once before, for Java to warm up. A rate is events of all the query's streams in a second;
`per core` divides by the cores that the whole tree of processes, the agent's too, kept busy. Then events come in at a
steady rate, and micro-batches run one after the other: of one stateless and one windowed query their times are told,
and of a query that passes bids on, how long after a bid was sent a consumer has it.
"""

import argparse
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx
import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import track

import streamhouse.spark
from benchmarks import readme, results
from benchmarks.pace import quantile
from benchmarks.results import Run, Sample
from benchmarks.script import Frame, add_flags, load_at_the_end, show
from examples.nexmark.generate import TOPICS, Event, events
from streamhouse.client.sync import SyncClient
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.pipelines.runner_protocol import pipeline_job
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateTable, CreateView, Statement
from tests.support.agent import LiveAgent

FOLDER: Final = Path(__file__).resolve().parents[1] / "examples/nexmark"
ALL: Final = ",".join(
    f"q{number}" for number in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 22)
)
STEADY: Final = ("q1", "q7")
PASSED: Final = """
CREATE PIPELINE passed WITH (dead_letters = 'none') AS
INSERT INTO passed SELECT auction, price, unix_millis(_timestamp) AS sent_ms FROM STREAM(bid);
"""
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
}
LIMIT_S: Final = 600
SETTLE_S: Final = 5
PEER: Final = "nexmark"
READING: Final = "Nexmark, from the beginning to the end"
EVENTS: Final = 1_000_000
RESULTS: Final = results.FOLDER / "nexmark"


class Bench:
    def __init__(self, spark: SparkSession, agent: LiveAgent, client: SyncClient, folder: Path) -> None:
        self._http = httpx.Client(base_url=f"http://{agent.http}", trust_env=False, timeout=60)
        self._builder = PipelineBuilder(spark, agents=agent.http, checkpoints=str(folder))
        self._client = client
        self.samples: list[Sample] = []
        for each in _statements("tables"):
            assert isinstance(each, CreateTable)
            columns = [{"name": column.name, "type": column.type} for column in each.table.columns or ()]
            body = {"connector": "topic", "columns": columns, "options": dict(each.table.options), "text": each.text}
            self._http.put(f"/v1/tables/{each.name}", json=body).raise_for_status()

    def start(self, each: Statement, name: str, trigger: str, starting: str = "earliest") -> StreamingQuery:
        """A statement as a pipeline of its own, which writes what has its name."""
        assert isinstance(each, CreatePipeline | CreateView)
        body = {
            "kind": "view" if isinstance(each, CreateView) else "sql",
            "text": each.text.replace(each.name, name),
            "options": {**each.options, "trigger": trigger, "starting": starting},
            "target": name,
            "key": list(each.key) if isinstance(each, CreateView) else [],
        }
        self._http.put(f"/v1/pipelines/{name}", json=body).raise_for_status()
        heartbeat = {"host": "here", "slots": 1000, "running": []}
        told = self._http.post("/v1/supervisors/bench/heartbeat", json=heartbeat).json()
        [mine] = [each for each in told["assigned"] if each["pipeline"]["name"] == name]
        return self._builder.build(pipeline_job(mine["pipeline"], epoch=mine["epoch"])).main

    def read_all(self, query: str) -> dict[str, float]:
        before_s, began = tree_cpu_s(), time.perf_counter()
        running = self.start(_statements(query)[0], _unique(query), "available now")
        assert running.awaitTermination(LIMIT_S), f"{query} took longer than {LIMIT_S} s"
        took_s, cpu_s = time.perf_counter() - began, tree_cpu_s() - before_s
        count = sum(each["numInputRows"] for each in running.recentProgress)
        return {"events": count / took_s, "events per core": count / cpu_s, "busy": cpu_s / took_s}

    def batches(self, query: str, rate: int, seconds: float) -> list[float]:
        """How long micro-batches took, in milliseconds; the first ones, which compile, are left out."""
        running = self.start(_statements(query)[0], _unique(query), "0 seconds", "latest")
        self._feed(rate, seconds)
        running.stop()
        full = [each for each in running.recentProgress if each["numInputRows"]][2:]
        if not full:
            raise SystemExit(f"{query}: not one micro-batch was over in {seconds:g} s; do=give --seconds more")
        return [float(each["durationMs"]["triggerExecution"]) for each in full]

    def delays(self, rate: int, seconds: float) -> list[float]:
        """How long after it was sent a consumer has a bid that a pipeline passes on, in milliseconds."""
        name = _unique("passed")
        running = self.start(parse(PASSED)[0], name, "0 seconds", "latest")
        found: list[float] = []
        ended = threading.Event()

        def consume() -> None:
            for record in self._client.consume(name):
                found.append(time.time() * 1000 - msgspec.json.decode(record.value)["sent_ms"])
                if ended.is_set():
                    return

        consuming = threading.Thread(target=consume, daemon=True)
        consuming.start()
        self._feed(rate, seconds)
        kept = found[len(found) // 10 :]
        ended.set()
        self._feed(rate, 2)  # one more, for the consumer to look up
        consuming.join(LIMIT_S)
        running.stop()
        return kept

    def _feed(self, rate: int, seconds: float) -> None:
        time.sleep(SETTLE_S)
        steadily(self._client, rate, seconds)

    def note(self, measure: str, scenario: str, values: Mapping[str, float]) -> None:
        self.samples += [
            Sample(measure=measure, scenario=scenario, metric=metric, peer=PEER, repetition=0, value=round(value, 2))
            for metric, value in values.items()
        ]


def _unique(query: str) -> str:
    return f"{query}_{uuid.uuid4().hex[:8]}"


def _waits(took_ms: Sequence[float]) -> dict[str, float]:
    ascending = sorted(took_ms)
    return {"p50": quantile(ascending, 0.5), "p99": quantile(ascending, 0.99), "least": ascending[0]}


def _statements(name: str) -> tuple[Statement, ...]:
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


@contextmanager
def senders(client: SyncClient, linger_ms: int) -> Iterator[Callable[[Event], None]]:
    """What sends an event to its topic; at the end all are stored."""
    with ExitStack() as stack:
        found = {
            kind: stack.enter_context(client.producer(topic, linger_ms=linger_ms)) for kind, topic in TOPICS.items()
        }

        def send(event: Event) -> None:
            found[event.kind].enqueue(event.row, key=event.key)

        yield send


def produce_all(client: SyncClient, count: int) -> None:
    with senders(client, linger_ms=5) as send:
        for event in track(events(count), total=count, description="events"):
            send(event)


def steadily(client: SyncClient, rate: int, seconds: float) -> None:
    """So many events a second, in twentieths."""
    step, made = max(1, rate // 20), events(10**9, seed=2)
    with senders(client, linger_ms=0) as send:
        began = time.monotonic()
        for number in range(int(seconds * 20)):
            for event, _ in zip(made, range(step), strict=False):
                send(event)
            time.sleep(max(0.0, began + (number + 1) / 20 - time.monotonic()))


def measure(asked: argparse.Namespace, folder: Path, console: Console) -> list[Sample]:
    with LiveAgent(folder / "data", "--set", "pipelines.ttl_s=1h") as agent, SyncClient(agent.http) as client:
        for topic in TOPICS.values():
            client.topics.create(topic, partitions=2)
        produce_all(client, asked.events)
        spark = streamhouse.spark.open_session(agents=agent.http, master=f"local[{asked.cores}]", settings=SETTINGS)
        spark.sparkContext.setLogLevel("ERROR")
        bench, queries = Bench(spark, agent, client, folder / "checkpoints"), asked.queries.split(",")
        bench.read_all(queries[0])
        for query in queries:
            found = bench.read_all(query)
            bench.note(READING, query, found)
            console.print(f"[dim]{query}: {found['events']:,.0f} events/s[/]", highlight=False)
        measure = f"Nexmark, at {asked.rate:,} events/s"
        for query in STEADY:
            bench.note(measure, f"{query}: a micro-batch", _waits(bench.batches(query, asked.rate, asked.seconds)))
        bench.note(measure, "a bid, sent to read", _waits(bench.delays(asked.rate, asked.seconds)))
        spark.stop()
    return bench.samples


def run(asked: argparse.Namespace, console: Console) -> Run:
    frame = Frame()
    with tempfile.TemporaryDirectory(prefix="streamhouse-nexmark-") as folder:
        samples = measure(asked, Path(folder), console)
    plan, about = "full" if asked.events >= EVENTS else "small", f"{asked.events:,} events"
    return frame.run(samples, plan=plan, peers={PEER: about}, notes=[load_at_the_end("up to 3")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--queries", default=ALL)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cores", type=int, default=2)
    add_flags(parser)
    asked, console = parser.parse_args(), Console()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    show(asked, lambda: run(asked, console), folder=RESULTS, marks=readme.NEXMARK, console=console)


if __name__ == "__main__":
    main()
