"""How fast does Spark write a topic, beside `write.parquet` of the same rows? How long does a micro-batch take?

    .venv/bin/python -m benchmarks.spark_write [--records N] [--bytes B] [--cores C] [--repeat R] [--batches M] [--json]

One agent (embedded stores) with topics of 4 partitions; Spark in local mode with the settings of `streamhouse spark
config`. Rows are a key and a value, cached by Spark before anything is measured; the best of R rounds counts. A
micro-batch is 1,000 records from a topic to another one, of which the median of M is told (Spark's `triggerExecution`).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

import streamhouse.spark
from benchmarks.process import cpu_s
from streamhouse.client.sync import SyncClient
from tests.live import LiveAgent

PARTITIONS: Final = 4
MICRO_BATCH: Final = 1000
LIMIT_S: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    write: str
    rows_per_s: float
    spark_cpu_s: float
    """Of Spark's JVM and its Pythons, for a million rows: it says more than the clock on a machine that is busy."""
    agent_cpu_s: float


def measured(name: str, write: Callable[[], None], rows: int, agent: LiveAgent, repeat: int) -> Figure:
    rounds: list[Figure] = []
    for _ in range(repeat):
        agent_cpu, spark_cpu, began = cpu_s(agent.pid), spark_cpu_s(agent), time.perf_counter()
        write()
        took, million = time.perf_counter() - began, rows / 1e6
        spark_cpu, agent_cpu = (spark_cpu_s(agent) - spark_cpu) / million, (cpu_s(agent.pid) - agent_cpu) / million
        rounds.append(Figure(write=name, rows_per_s=rows / took, spark_cpu_s=spark_cpu, agent_cpu_s=agent_cpu))
    return max(rounds, key=lambda figure: figure.rows_per_s)


def spark_cpu_s(agent: LiveAgent) -> float:
    """Of all processes that this one has begun, but the agent: Spark and its Pythons."""
    return cpu_s(os.getpid()) - cpu_s(agent.pid)


def rows_of(spark: SparkSession, records: int, record_bytes: int) -> DataFrame:
    """Keys that come again, and values of which half shrinks."""
    half = record_bytes // 2
    value = f"concat(substr(repeat(sha2(string(id), 512), {half // 128 + 1}), 1, {half}), repeat('x', {half}))"
    rows = spark.range(records).selectExpr("concat('key-', id % 10000) AS key", f"{value} AS value").cache()
    assert rows.count() == records
    return rows


def write_batches(
    spark: SparkSession, agent: LiveAgent, folder: Path, rows: DataFrame, records: int, repeat: int
) -> list[Figure]:
    def topic(compression: str) -> Callable[[], None]:
        options = {"topic": "measured", "compression": compression}
        return lambda: rows.write.format("streamhouse").options(**options).mode("append").save()

    writes = {f"topic, {codec}": topic(codec) for codec in ("lz4", "none", "zstd")}
    writes["parquet"] = lambda: rows.write.mode("overwrite").parquet(str(folder / "parquet"))
    for write in writes.values():  # what comes first would pay for the JVM's compiling
        write()
    return [measured(name, write, records, agent, repeat) for name, write in writes.items()]


def micro_batches(spark: SparkSession, folder: Path, batches: int) -> list[float]:
    """How long each one took, in milliseconds, without the first few, which compile."""
    source = spark.range(batches * MICRO_BATCH).selectExpr("string(id) AS key", "repeat('x', 100) AS value")
    source.coalesce(1).write.format("streamhouse").option("topic", "source").mode("append").save()
    stream = spark.readStream.format("streamhouse").option("topic", "source").option("startingOffsets", "earliest")
    stream = stream.option("maxOffsetsPerTrigger", MICRO_BATCH)
    writer = stream.load().select("key", "value").coalesce(1).writeStream.format("streamhouse")
    writer = writer.option("topic", "copies").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S)
    took = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
    print(f"the last one: {dict(took[-1])}", file=sys.stderr)
    return [float(each["triggerExecution"]) for each in took[3:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("records", 2_000_000), ("bytes", 100), ("cores", 2), ("repeat", 3), ("batches", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="streamhouse-spark-write-"))
    with LiveAgent(folder / "data", "--set", "wal.fsync=never") as agent:
        with SyncClient(agent.http) as client:
            for topic in ("measured", "source", "copies"):
                client.topics.create(topic, partitions=PARTITIONS)
        settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
        spark = streamhouse.spark.open_session(agents=agent.http, master=f"local[{asked.cores}]", settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        took = micro_batches(spark, folder, asked.batches)
        rows = rows_of(spark, asked.records, asked.bytes)
        figures = write_batches(spark, agent, folder, rows, asked.records, asked.repeat)
        spark.stop()
    if asked.json:
        print(json.dumps({"writes": [asdict(each) for each in figures], "micro_batch_ms": took}))
        return
    for figure in figures:
        speed, cpu = f"{figure.rows_per_s / 1e6:6.2f} M rows/s", f"Spark {figure.spark_cpu_s:5.2f} s"
        print(f"{figure.write:14} {speed}   CPU of a million: {cpu}, agent {figure.agent_cpu_s:5.3f} s")
    print(f"micro-batch    {statistics.median(took):6.0f} ms (fastest {min(took):.0f})")


if __name__ == "__main__":
    main()
