"""A program as people submit it: rows to a topic and back, on whatever Spark it is given; the result is a file of JSON.

On a cluster, one task sleeps behind its upload, so that Spark starts a second one of it beside. With Connect there is
no JVM here at all: the program talks to a server.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from streamhouse.spark.datasource.data_source import StreamhouseSource
from streamhouse.spark.datasource.data_writer import BatchWriter, batch_writer
from streamhouse.spark.datasource.write_options import write_options

ROWS, TASKS = 400, 4
ASLEEP_S = 120
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.python.task.killTimeout": "100ms",
}
SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SlowWriter(BatchWriter):
    """The first try of the first task has stored everything, and tells nobody."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = super().write(iterator)
        task = TaskContext.get()
        if task is not None and (task.partitionId(), task.attemptNumber()) == (0, 0):
            time.sleep(ASLEEP_S)
        return written


class SlowSource(StreamhouseSource):
    def writer(self, schema: StructType, overwrite: bool) -> SlowWriter:
        whole = batch_writer(write_options(dict(self.options)), schema, overwrite=overwrite)
        return SlowWriter(whole._destination, whole._identity)


def on_cluster(master: str, agents: str, topic: str) -> dict[str, object]:
    builder = SparkSession.builder.master(master).appName("elsewhere")
    settings = {
        **SMALL,
        **SPECULATION,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SlowSource)
    result = written_and_read(spark, agents, topic)
    spark.stop()
    return result


def on_connect(server: str, agents: str, topic: str, checkpoint: str) -> dict[str, object]:
    spark = SparkSession.builder.remote(server).getOrCreate()
    result = written_and_read(spark, agents, topic)
    stream = spark.readStream.format("streamhouse").option("agents", agents).option("topic", topic)
    writer = stream.option("startingOffsets", "earliest").load().select("key", "value").writeStream
    writer = writer.format("streamhouse").option("agents", agents).option("topic", f"{topic}-copies")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(120)
    spark.stop()
    return {**result, "is_connect": type(spark).__module__.startswith("pyspark.sql.connect")}


def written_and_read(spark: SparkSession, agents: str, topic: str) -> dict[str, object]:
    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("concat('key-', id) AS key", "string(id) AS value")
    rows.write.format("streamhouse").option("agents", agents).option("topic", topic).mode("append").save()
    frame = spark.read.format("streamhouse").option("agents", agents).option("topic", topic).load()
    (row,) = frame.selectExpr("count(*) AS rows", "sum(int(string(value))) AS total").collect()
    return {"rows": row["rows"], "total": row["total"]}


def main(result: str, where: str, *arguments: str) -> None:
    match = (on_connect if where.startswith("sc://") else on_cluster)(where, *arguments)
    Path(result).write_text(json.dumps(match))


if __name__ == "__main__":
    main(*sys.argv[1:])
