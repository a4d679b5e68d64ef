"""How long does a micro-batch of 1,000 records take, from a topic to another one, and until somebody can read it there?

    .venv/bin/python -m benchmarks.spark_latency [--batches M] [--warm-up W] [--rows N] [--cores C] [--json]

One agent (embedded stores); Spark in local mode with the settings of `streamhouse spark config`, and nothing else to
do. `trigger` is Spark's `triggerExecution` of a batch with N records, which one request publishes. `end to end` is from
the answer to that request to the moment a consumer has all the copies: it has the wait for Spark's next look in it.
Beside them, in the same run, what Spark itself takes for a source and a sink that do nothing (`rate-micro-batch` to
`noop`). The first W batches are told apart: Java runs a stream's code slowly until it has compiled it, which takes it
some hundred batches; the rest are what a stream takes that goes on.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamhouse.spark
from streamhouse.client.sync import SyncClient
from tests.support.agent import LiveAgent

LIMIT_S: Final = 60
PROGRESSES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    what: str
    p50_ms: float
    p99_ms: float
    least_ms: float
    batches: int


def figure(what: str, took_ms: Sequence[float]) -> Figure:
    ordered = sorted(took_ms)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return Figure(what=what, p50_ms=statistics.median(ordered), p99_ms=last, least_ms=ordered[0], batches=len(ordered))


def triggers(progresses: Iterable[Mapping[str, Any]]) -> list[Mapping[str, int]]:
    return [each["durationMs"] for each in progresses if each["numInputRows"]]


def parts(durations: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """The median of every step that Spark tells of."""
    steps: dict[str, list[int]] = defaultdict(list)
    for each in durations:
        for name, took in each.items():
            steps[name].append(took)
    return {name: statistics.median(took) for name, took in steps.items()}


def copy_query(spark: SparkSession, folder: Path) -> StreamingQuery:
    source = spark.readStream.format("streamhouse").option("topic", "source").load()
    writer = source.select("key", "value").writeStream.format("streamhouse").option("topic", "copies")
    writer = writer.option("checkpointLocation", str(folder / "copy"))
    return writer.trigger(processingTime="0 seconds").start()


def end_to_end(agent: LiveAgent, client: SyncClient, rows: int, batches: int) -> list[float]:
    """One batch after the other, each when the copies of the one before are all there."""
    found = iter(client.consume("copies"))
    took = []
    with httpx.Client(base_url=f"http://{agent.http}", trust_env=False) as http:
        for number in range(batches):
            lines = [json.dumps({"key": f"{number}-{row}", "value": "x" * 100}) for row in range(rows)]
            headers = {"content-type": "application/x-ndjson"}
            http.post("/v1/topics/source/records", content="\n".join(lines), headers=headers).raise_for_status()
            began = time.perf_counter()
            for _ in range(rows):
                next(found)
            took.append((time.perf_counter() - began) * 1000)
    return took


def baseline(spark: SparkSession, folder: Path, rows: int, batches: int) -> list[Mapping[str, int]]:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    writer = source.writeStream.format("noop").option("checkpointLocation", str(folder / "rate"))
    query = writer.trigger(processingTime="0 seconds").start()
    deadline = time.monotonic() + LIMIT_S
    while len(triggers(query.recentProgress)) < batches and time.monotonic() < deadline:
        time.sleep(0.2)
    query.stop()
    return triggers(query.recentProgress)


def measured(
    spark: SparkSession, agent: LiveAgent, client: SyncClient, folder: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    count, first = asked.batches + asked.warm_up, asked.warm_up
    query = copy_query(spark, folder)
    query.processAllAvailable()
    took = end_to_end(agent, client, asked.rows, count)
    query.stop()
    ours = triggers(query.recentProgress)[first:]
    theirs = baseline(spark, folder, asked.rows, count)[first:]
    figures = [
        figure("trigger", [float(each["triggerExecution"]) for each in ours]),
        figure("end to end", took[first:]),
        figure("at first", took[:first]),
        figure("rate to noop", [float(each["triggerExecution"]) for each in theirs]),
    ]
    return {"figures": [asdict(each) for each in figures], "steps_ms": parts(ours), "rate_steps_ms": parts(theirs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batches", 100), ("warm-up", 150), ("rows", 1000), ("cores", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = Path(tempfile.mkdtemp(prefix="streamhouse-spark-latency-"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.numRecentProgressUpdates": str(PROGRESSES),
    }
    with LiveAgent(folder / "data", "--set", "wal.fsync=never") as agent, SyncClient(agent.http) as client:
        for topic in ("source", "copies"):
            client.topics.create(topic, partitions=1)
        spark = streamhouse.spark.open_session(agents=agent.http, master=f"local[{asked.cores}]", settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        found = measured(spark, agent, client, folder, asked)
        spark.stop()
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for each in found["figures"]:
        print(
            f"{each['what']:14} p50 {each['p50_ms']:6.0f} ms  p99 {each['p99_ms']:6.0f}  least {each['least_ms']:6.0f}"
        )
    for name in ("steps_ms", "rate_steps_ms"):
        print(f"{name:14} {', '.join(f'{step} {took:.0f}' for step, took in found[name].items())}")


if __name__ == "__main__":
    main()
