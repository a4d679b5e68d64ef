"""A driver of its own, for tests that kill it: a stream from files to a topic that is ended at a named place.

The sink is ours but for the place where it is killed: `FAULT` is PLACE:MICRO_BATCH, `PIDS` a file with the processes of
the driver.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from streamhouse.spark.datasource.data_source import StreamhouseSource
from streamhouse.spark.datasource.data_writer import StreamWriter, stream_commit_id, stream_writer
from streamhouse.spark.datasource.write_options import write_options


def reach(place: str, epoch: int) -> None:
    """End driver and JVM, without a goodbye, if this is the place."""
    if os.environ.get("FAULT") == f"{place}:{epoch}":
        for pid in Path(os.environ["PIDS"]).read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        os._exit(1)


class KilledWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        epoch = stream_commit_id().epoch
        written = super().write(iterator)
        task = TaskContext.get()
        if os.environ.get("FAULT") == f"task:{epoch}" and task is not None and task.attemptNumber() < 2:
            if task.attemptNumber() == 0:
                raise RuntimeError("this try fails behind its upload")
            os.kill(os.getpid(), signal.SIGKILL)  # an executor's Python dies
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reach("before-commit", batchId)
        super().commit(messages, batchId)
        reach("after-commit", batchId)


class KilledSource(StreamhouseSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> KilledWriter:
        whole = stream_writer(write_options(dict(self.options)), schema, overwrite=overwrite)
        return KilledWriter(whole._destination)


def main(agents: str, topic: str, lines: str, checkpoint: str, master: str) -> None:
    builder = SparkSession.builder.master(master).appName("sink")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    assert spark._jvm is not None
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {jvm}")
    spark.dataSource.register(KilledSource)
    query = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(lines)
        .writeStream.format("streamhouse")
        .option("agents", agents)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
