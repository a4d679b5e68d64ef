"""How fast does Spark read a topic, beside `spark.read.parquet` of the same records in the same run?

    .venv/bin/python -m benchmarks.spark_read [--records N] [--bytes B] [--cores C] [--repeat R] [--json]

One agent (embedded stores) with a topic of 4 partitions, all of it flushed; Spark in local mode. Rows go to Spark's
`noop` sink, which takes all columns and does nothing with them. The best of R rounds counts. `CPU` is that of Spark,
Java and Python, for a million records: it says more than the time where the machine has other work, too. `agent` is the
agent's CPU during the read, in cores: near nothing, because executors read the object store themselves.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import httpx
from pyspark.sql import DataFrame, SparkSession

import streamhouse.spark
from benchmarks.batches import batch
from benchmarks.process import cpu_s
from streamhouse.client.sync import SyncClient
from tests.live import LiveAgent

PARTITIONS: Final = 4
BATCH: Final = 1000
TOPIC: Final = "measured"
LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    read: str
    records_per_s: float
    agent_cores: float
    cpu_s_per_million: float


def fill(agent: LiveAgent, records: int, record_bytes: int) -> None:
    """Whole batches over HTTP, then a restart, which leaves nothing in the tail."""
    with SyncClient(agent.http) as client:
        client.topics.create(TOPIC, partitions=PARTITIONS)
    body = batch(record_bytes=record_bytes, records=BATCH, codec="none").body
    kind = {"content-type": "application/vnd.streamhouse.batches"}
    with httpx.Client(base_url=f"http://{agent.http}", trust_env=False, timeout=LIMIT_S) as http:
        for number in range(records // BATCH):
            path = f"/v1/topics/{TOPIC}/partitions/{number % PARTITIONS}/batches"
            http.post(path, content=body, headers=kind).raise_for_status()
    agent.stop()
    agent.start()


def measured(name: str, frame: Callable[[], DataFrame], records: int, agent: LiveAgent, repeat: int) -> Figure:
    def once() -> Figure:
        agents, own, began = cpu_s(agent.pid), spark_cpu_s(agent), time.perf_counter()
        frame().write.format("noop").mode("overwrite").save()
        took = time.perf_counter() - began
        return Figure(
            read=name,
            records_per_s=records / took,
            agent_cores=(cpu_s(agent.pid) - agents) / took,
            cpu_s_per_million=(spark_cpu_s(agent) - own) / records * 1e6,
        )

    return max((once() for _ in range(repeat)), key=lambda figure: figure.records_per_s)


def spark_cpu_s(agent: LiveAgent) -> float:
    """Of this process and what it started, the agent left out."""
    return cpu_s(os.getpid()) - cpu_s(agent.pid)


def session(cores: int, folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    spark = builder.config("spark.driver.memory", "2g").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    streamhouse.spark.register(spark)
    return spark


def run(records: int, record_bytes: int, cores: int, repeat: int) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="streamhouse-spark-read-"))
    with LiveAgent(folder / "data", "--set", "wal.fsync=never") as agent:
        fill(agent, records, record_bytes)
        spark = session(cores, folder)
        parquet = str(folder / "parquet")

        def topic(columns: str | None = None) -> DataFrame:
            reader = spark.read.format("streamhouse").option("agents", agent.http).option("topic", TOPIC)
            return (reader.schema(columns) if columns else reader).load()

        topic().write.parquet(parquet)
        assert spark.read.parquet(parquet).count() == records
        reads: dict[str, Callable[[], DataFrame]] = {
            "topic, all columns": topic,
            "parquet, all columns": lambda: spark.read.parquet(parquet),
            "topic, value only": lambda: topic("value binary"),
            "parquet, value only": lambda: spark.read.parquet(parquet).select("value"),
            "topic, offset only": lambda: topic("offset long"),
            "parquet, offset only": lambda: spark.read.parquet(parquet).select("offset"),
        }
        found = [measured(name, frame, records, agent, repeat) for name, frame in reads.items()]
        spark.stop()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = run(asked.records, asked.bytes, asked.cores, asked.repeat)
    if asked.json:
        print(json.dumps([asdict(figure) for figure in figures]))
        return
    for figure in figures:
        rate, cpu = figure.records_per_s / 1e6, figure.cpu_s_per_million
        print(f"{figure.read:24} {rate:6.2f} M records/s   CPU {cpu:5.2f} s   agent {figure.agent_cores:5.2f} cores")


if __name__ == "__main__":
    main()
