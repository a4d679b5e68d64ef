"""How fast is a topic copied, and how fast is it restored from Parquet, beside Spark's sink that writes the same?

    .venv/bin/python -m benchmarks.replay [--records N] [--bytes B] [--repeat R] [--write-readme] [--no-run]

One agent (embedded stores) with topics of 4 partitions; Spark in local mode, which is there already, as are its
Pythons. Records are a key and a value. The sink writes them out of Spark's cache; a copy reads them from their topic,
as they are or with other keys; a restore reads Parquet files in which Spark saved the topic, as records or as rows that
become JSON. Each goes into a topic of its own, in turns, of which the first doesn't count: Java compiles in it.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import streamhouse.spark
from benchmarks import readme, results
from benchmarks.results import Run, Sample
from benchmarks.script import Frame, add_flags, load_at_the_end, show
from benchmarks.spark_write import ABOUT, CORES, Writes, rows_of, take_turns
from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.sync import SyncClient
from streamhouse.spark.replay import copy_job, restore_job
from streamhouse.spark.replay.copy_job import CopySpec
from streamhouse.spark.replay.restore_job import RestoreSpec
from tests.support.agent import LiveAgent

PARTITIONS: Final = 4
SOURCE: Final = "source"
RECORDS: Final = 1_000_000
RESULTS: Final = results.FOLDER / "replay"
DRIVER: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
}


class Replays:
    """What is measured, each with a new topic whenever it is called."""

    def __init__(
        self, spark: SparkSession, agent: LiveAgent, client: SyncClient, folder: Path, loop: LoopThread
    ) -> None:
        self._spark, self._agent, self._client, self._folder, self._loop = spark, agent, client, folder, loop
        self._topics = 0

    def writes(self, rows: DataFrame, records: int) -> Writes:
        def copied(key: str | None) -> None:
            asked = CopySpec(source=SOURCE, target=self._named(), key=key)
            assert self._copy(asked) == records

        def restored(name: str, key: str | None) -> None:
            asked = RestoreSpec(source=str(self._folder / name), topic=self._made(), key=key)
            assert self._restore(asked) == records

        return {
            "sink": lambda: self._sink(rows, self._made()),
            "copy": lambda: copied(None),
            "copy, re-keyed": lambda: copied("value"),
            "restore, records": lambda: restored("records", None),
            "restore, JSON": lambda: restored("rows", "id"),
        }

    def prepare(self, rows: DataFrame) -> None:
        """The topic, and what was saved of it."""
        self._client.topics.create(SOURCE, partitions=PARTITIONS)
        self._sink(rows, SOURCE)
        saved = self._spark.read.format("streamhouse").option("topic", SOURCE).option("includeHeaders", "true").load()
        saved.write.parquet(str(self._folder / "records"))
        rows.selectExpr("key AS id", "value AS name").write.parquet(str(self._folder / "rows"))

    def _sink(self, rows: DataFrame, topic: str) -> None:
        rows.write.format("streamhouse").option("topic", topic).mode("append").save()

    def _copy(self, asked: CopySpec) -> int:
        return copy_job.run(asked, agents=self._agent.http, start=lambda: self._spark, loop=self._loop).records

    def _restore(self, asked: RestoreSpec) -> int:
        return restore_job.run(asked, agents=self._agent.http, start=lambda: self._spark, loop=self._loop).records

    def _named(self) -> str:
        self._topics += 1
        return f"target-{self._topics}"

    def _made(self) -> str:
        name = self._named()
        self._client.topics.create(name, partitions=PARTITIONS)
        return name


@contextmanager
def session(agent: LiveAgent) -> Iterator[SparkSession]:
    spark = streamhouse.spark.open_session(agents=agent.http, master=f"local[{CORES}]", settings=DRIVER)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def measured(asked: argparse.Namespace) -> list[Sample]:
    loop = LoopThread()
    with (
        tempfile.TemporaryDirectory(prefix="streamhouse-replay-") as name,
        LiveAgent(Path(name) / "data", "--set", "wal.fsync=never") as agent,
        session(agent) as spark,
        SyncClient(agent.http) as client,
    ):
        replays, rows = Replays(spark, agent, client, Path(name), loop), rows_of(spark, asked.records, asked.bytes)
        replays.prepare(rows)
        found = list(
            take_turns(
                f"replaying {asked.records:,} records of {asked.bytes} B",
                replays.writes(rows, asked.records),
                records=asked.records,
                repeat=asked.repeat,
                agent=agent.pid,
            )
        )
    loop.close()
    return found


def run(asked: argparse.Namespace) -> Run:
    frame = Frame()
    plan = "full" if asked.records >= RECORDS else "small"
    return frame.run(measured(asked), plan=plan, peers=ABOUT, notes=[load_at_the_end("up to 4")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("records", RECORDS), ("bytes", 100), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    add_flags(parser)
    asked, console = parser.parse_args(), Console()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    show(asked, lambda: run(asked), folder=RESULTS, marks=readme.REPLAY, console=console)


if __name__ == "__main__":
    main()
