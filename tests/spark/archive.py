"""Classes that every Spark loads, in an archive of Java's: `python -m tests.spark.archive`.

Half of the work of a Spark that answers a few queries is loading and verifying some thousands of classes, and tests
start dozens of Sparks: fixtures, the commands of pages, drivers that are killed. With the archive they begin with that
done. It is written by Java when a Spark that did a little of everything ends.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, window

from streamhouse.spark.runtime.java import java_home
from tests.support.java_options import ARCHIVE, BRIEF

TIMEOUT_S = 300.0
STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Write beside the place and move there: nobody finds half an archive."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        written = Path(folder) / ARCHIVE.name
        os.environ["SPARK_SUBMIT_OPTS"] = f"{BRIEF} -XX:ArchiveClassesAtExit={written} -Xlog:cds*=off"
        os.environ |= {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        spark = started(Path(folder))
        do_a_little_of_everything(spark, Path(folder))
        end(spark)
        keep(written)


def keep(written: Path) -> None:
    """Of a Java that writes none, as a trimmed one, an empty file says that it was asked."""
    if written.exists():
        written.rename(ARCHIVE)
    else:
        ARCHIVE.unlink(missing_ok=True)
        ARCHIVE.touch()


def started(folder: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("classes")
    settings = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": STATE,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def do_a_little_of_everything(spark: SparkSession, folder: Path) -> None:
    """Files, joins, windows, Python, and a stream with state."""
    rows = spark.range(100).selectExpr("id", "id % 7 AS key", "timestamp_seconds(id) AS time", "string(id) AS text")
    for kind in ("parquet", "json"):
        rows.write.format(kind).save(str(folder / kind))
    spark.read.json(str(folder / "json")).createOrReplaceTempView("texts")
    spark.read.parquet(str(folder / "parquet")).createOrReplaceTempView("facts")
    spark.sql(
        "SELECT f.key, count(*), sum(f.id), max(to_json(struct(t.*))) FROM facts f JOIN texts t ON f.id = t.id "
        "WHERE t.text LIKE '1%' GROUP BY f.key ORDER BY f.key"
    ).collect()
    spark.sql("SELECT *, row_number() OVER (PARTITION BY key ORDER BY time) FROM facts").toPandas()
    rows.mapInArrow(lambda batches: batches, rows.schema).count()
    stream = spark.readStream.schema(rows.schema).parquet(str(folder / "parquet")).withWatermark("time", "1 second")
    counts = stream.groupBy(window(col("time"), "10 seconds"), "key").count()
    query = counts.writeStream.format("memory").queryName("counts").outputMode("append").trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def end(spark: SparkSession) -> None:
    """Java writes the archive when it ends by itself, not when it is ended."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    process.wait(TIMEOUT_S)


if __name__ == "__main__":
    main()
