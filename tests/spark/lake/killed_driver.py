"""A driver of its own, for a test that kills it: a stream of changes from files into an Iceberg table, by key.

It writes down which micro-batches it begins. Small files are merged as soon as there are two, so that kills meet that
as well.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streamhouse.model.table import Connector, Table
from streamhouse.spark.connectors import WriteContext
from streamhouse.spark.lake import connector
from streamhouse.spark.lake import connector as writing

QUERY_ID = "99999999-2222-3333-4444-555555555555"
CHANGES = "id BIGINT, amount BIGINT, _key STRING, _partition INT, _offset BIGINT, _deleted BOOLEAN"


def table_at(location: str) -> Table:
    options = {"location": location, "mode": "upsert"}
    return Table(name="orders", connector=Connector.ICEBERG, key=("id",), options=options)


def started() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("lake")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "512m")
    return builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()


def main(location: str, changes: str, checkpoint: str, began: str) -> None:
    spark = started()
    spark.sparkContext.setLogLevel("ERROR")
    writing.SMALL_FILES = 2  # type: ignore[misc]

    def before_batch() -> None:
        with Path(began).open("a") as result:
            result.write(".")

    how = WriteContext(
        agents="127.0.0.1:1",
        pipeline="p",
        epoch=1,
        query_id=QUERY_ID,
        checkpoint=checkpoint,
        before_batch=before_batch,
    )
    stream = spark.readStream.schema(CHANGES).option("maxFilesPerTrigger", 1).json(changes)
    connector.write_stream(stream, table_at(location), how).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
