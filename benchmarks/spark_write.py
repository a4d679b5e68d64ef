"""How fast does Spark write a topic, beside `write.parquet` and Spark's own Kafka connector with the same rows?

    .venv/bin/python -m benchmarks.spark_write [--records N] [--bytes B] [--repeat R] [--write-readme] [--no-run]

One agent (embedded stores) with topics of 4 partitions, and an Apache Kafka broker; Spark in local mode with the
settings of `streamhouse spark config`. Rows are a key and a value, cached by Spark before anything is measured. Writers
take turns, and the first turn, in which Java compiles, doesn't count. Spark's connector writes to the agent and to
Kafka, each row at least once; `format("streamhouse")` writes each exactly once. Where Maven is missing, the connector
is left out, and a note says so. `CPU` is that of Spark, its Java and its Pythons, for a million rows.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import streamhouse.spark
from benchmarks import readme, results
from benchmarks.kafka_jars import PeerUnavailable, spark_connector_jars
from benchmarks.kafka_peer import KafkaPeer
from benchmarks.peer import PeerFailed
from benchmarks.process import cpu_s
from benchmarks.raw_client import Connection, create_topic
from benchmarks.results import Run, Sample
from benchmarks.script import Frame, add_flags, load_at_the_end, show
from streamhouse.client.sync import SyncClient
from tests.support.agent import LiveAgent

RESULTS: Final = results.FOLDER / "spark-write"
CORES: Final = 2
PARTITIONS: Final = 4
RECORDS: Final = 2_000_000
TOPIC: Final = "measured"
PEER: Final = "spark"
ABOUT: Final = {PEER: f"Spark on {CORES} cores"}
CODECS: Final = ("lz4", "none", "zstd")

Writes = Mapping[str, Callable[[], None]]


def session(folder: Path, jars: Sequence[Path]) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
    }
    spark = streamhouse.spark.open_session(master=f"local[{CORES}]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows_of(spark: SparkSession, records: int, record_bytes: int) -> DataFrame:
    """Keys that come again, and values of which half shrinks."""
    half = record_bytes // 2
    value = f"concat(substr(repeat(sha2(string(id), 512), {half // 128 + 1}), 1, {half}), repeat('x', {half}))"
    rows = spark.range(records).selectExpr("concat('key-', id % 10000) AS key", f"{value} AS value").cache()
    assert rows.count() == records
    return rows


def writes_of(rows: DataFrame, running: Mapping[str, Any], folder: Path, *, has_connector: bool) -> Writes:
    agent = running["agent"]

    def topic(codec: str) -> Callable[[], None]:
        options = {"agents": agent.http, "topic": TOPIC, "compression": codec}
        return lambda: rows.write.format("streamhouse").options(**options).mode("append").save()

    def connector(bootstrap: str, codec: str) -> Callable[[], None]:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": TOPIC, "kafka.compression.type": codec}
        return lambda: rows.write.format("kafka").options(**options).save()

    writes = {f"topic, {codec}": topic(codec) for codec in CODECS}
    writes["Parquet"] = lambda: rows.write.mode("overwrite").parquet(str(folder / "parquet"))
    if has_connector:
        writes["connector to the agent, lz4"] = connector(agent.bootstrap, "lz4")
        if "kafka" in running:
            writes["connector to Kafka, lz4"] = connector(running["kafka"].bootstrap, "lz4")
    return writes


@contextmanager
def brokers(folder: Path, notes: list[str]) -> Iterator[Mapping[str, Any]]:
    with ExitStack() as stack:
        running: dict[str, Any] = {"agent": stack.enter_context(LiveAgent(folder / "data", "--set", "wal.fsync=never"))}
        with SyncClient(running["agent"].http) as client:
            client.topics.create(TOPIC, partitions=PARTITIONS)
        try:
            running["kafka"] = stack.enter_context(KafkaPeer())
            host, _, port = running["kafka"].bootstrap.rpartition(":")
            with Connection(host, int(port)) as connection:
                create_topic(connection, TOPIC, PARTITIONS)
        except (PeerUnavailable, PeerFailed) as error:
            notes.append(f"no Kafka broker: {str(error).partition(': ')[0]}")
        yield running


def connector_jars(notes: list[str]) -> list[Path]:
    try:
        return spark_connector_jars()
    except PeerUnavailable as error:
        notes.append(f"without Spark's Kafka connector: {error}")
        return []


def take_turns(
    measure: str, writes: Writes, *, records: int, repeat: int, agent: int, others: Sequence[int] = ()
) -> Iterator[Sample]:
    """Turn 0 is for the compilers. `agent` and `others` are processes that aren't Spark's."""
    for turn in range(repeat + 1):
        for scenario, write in writes.items():
            used_s, agent_s, began = _spark_cpu_s([agent, *others]), cpu_s(agent), time.perf_counter()
            write()
            took = time.perf_counter() - began
            found = {
                "records": records / took,
                "spark cpu": (_spark_cpu_s([agent, *others]) - used_s) / records * 1e6,
                "agent busy": (cpu_s(agent) - agent_s) / took,
            }
            for metric, value in found.items() if turn else ():
                yield Sample(
                    measure=measure, scenario=scenario, metric=metric, peer=PEER, repetition=turn - 1, value=value
                )


def _spark_cpu_s(others: Sequence[int]) -> float:
    """Of this process and what it started, brokers left out."""
    return cpu_s(os.getpid()) - sum(map(cpu_s, others))


def measured(asked: argparse.Namespace, folder: Path, notes: list[str]) -> list[Sample]:
    jars = connector_jars(notes)
    with brokers(folder, notes) as running:
        spark = session(folder, jars)
        try:
            rows = rows_of(spark, asked.records, asked.bytes)
            writes = writes_of(rows, running, folder, has_connector=bool(jars))
            turns = take_turns(
                f"writing {asked.records:,} rows of {asked.bytes} B",
                writes,
                records=asked.records,
                repeat=asked.repeat,
                agent=running["agent"].pid,
                others=[each.pid for name, each in running.items() if name != "agent"],
            )
            return list(turns)
        finally:
            spark.stop()


def run(asked: argparse.Namespace) -> Run:
    frame, notes = Frame(), list[str]()
    with tempfile.TemporaryDirectory(prefix="streamhouse-spark-write-") as folder:
        samples = measured(asked, Path(folder), notes)
    plan = "full" if asked.records >= RECORDS else "small"
    return frame.run(samples, plan=plan, peers=ABOUT, notes=[*notes, load_at_the_end("up to 4")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("records", RECORDS), ("bytes", 100), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    add_flags(parser)
    asked, console = parser.parse_args(), Console()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    show(asked, lambda: run(asked), folder=RESULTS, marks=readme.SPARK_WRITE, console=console)


if __name__ == "__main__":
    main()
