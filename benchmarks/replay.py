"""How fast is a topic copied, and how fast is it restored from Parquet, beside Spark's sink that writes the same?

    .venv/bin/python -m benchmarks.replay [--records N] [--bytes B] [--cores C] [--repeat R] [--json]

One agent (embedded stores) with topics of 4 partitions; Spark in local mode, which is there already, as are its
Pythons. Records are a key and a value. The sink writes them out of Spark's cache; a copy reads them from their topic,
as they are or with other keys; a restore reads Parquet files in which Spark saved the topic, as records or as rows that
become JSON. The best of R rounds counts, each into a topic of its own. MB are those of keys and values.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

import streamhouse.spark
from benchmarks.spark_write import Figure, measured, rows_of
from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.sync import SyncClient
from streamhouse.spark.replaying import copying, restoring
from streamhouse.spark.replaying.copying import CopyAsked
from streamhouse.spark.replaying.restoring import RestoreAsked
from tests.live import LiveAgent

PARTITIONS: Final = 4
SOURCE: Final = "source"
MB: Final = 1e6
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

    def writes(self, rows: DataFrame, records: int) -> dict[str, Callable[[], None]]:
        def copied(key: str | None) -> None:
            asked = CopyAsked(source=SOURCE, target=self._named(), key=key)
            assert self._copy(asked) == records

        def restored(name: str, key: str | None) -> None:
            asked = RestoreAsked(source=str(self._folder / name), topic=self._made(), key=key)
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

    def _copy(self, asked: CopyAsked) -> int:
        return copying.run(asked, agents=self._agent.http, start=lambda: self._spark, loop=self._loop).records

    def _restore(self, asked: RestoreAsked) -> int:
        return restoring.run(asked, agents=self._agent.http, start=lambda: self._spark, loop=self._loop).records

    def _named(self) -> str:
        self._topics += 1
        return f"target-{self._topics}"

    def _made(self) -> str:
        name = self._named()
        self._client.topics.create(name, partitions=PARTITIONS)
        return name


@contextmanager
def session(agent: LiveAgent, cores: int) -> Iterator[SparkSession]:
    spark = streamhouse.spark.open_session(agents=agent.http, master=f"local[{cores}]", settings=DRIVER)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def measure(records: int, record_bytes: int, cores: int, repeat: int) -> list[Figure]:
    loop = LoopThread()
    with (
        tempfile.TemporaryDirectory(prefix="streamhouse-replay-") as name,
        LiveAgent(Path(name) / "data", "--set", "wal.fsync=never") as agent,
        session(agent, cores) as spark,
        SyncClient(agent.http) as client,
    ):
        replays, rows = Replays(spark, agent, client, Path(name), loop), rows_of(spark, records, record_bytes)
        replays.prepare(rows)
        writes = replays.writes(rows, records)
        for write in writes.values():  # what comes first would pay for the JVM's compiling
            write()
        found = [measured(what, write, records, agent, repeat) for what, write in writes.items()]
    loop.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("records", 1_000_000), ("bytes", 100), ("cores", 2), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = measure(asked.records, asked.bytes, asked.cores, asked.repeat)
    if asked.json:
        print(json.dumps({"asked": vars(asked), "writes": [asdict(each) for each in figures]}, indent=2))
        return
    record_bytes = asked.bytes + len("key-5000")
    for figure in figures:
        speed = f"{figure.rows_per_s:12,.0f} records/s {figure.rows_per_s * record_bytes / MB:7.1f} MB/s"
        print(f"{figure.write:17} {speed}   CPU of a million: Spark {figure.spark_cpu_s:5.2f} s")


if __name__ == "__main__":
    main()
