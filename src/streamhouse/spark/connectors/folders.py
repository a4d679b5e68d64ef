"""Folders: what is on the file systems that Spark knows, asked for by the driver.

Data path   files, view -> **folders** -> Hadoop's file systems, through the JVM
Owns        whether something is there; the text of a small file; which paths are this machine's own
Leaves      data in folders to Spark
"""

from typing import Any

from pyspark.sql import SparkSession

from streamhouse.spark.progress import BatchOffsets, read_batch_offsets


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or a folder; `path` may be a pattern."""
    files, found = _opened(spark, path)
    return bool(files.globStatus(found))


def newest_number(spark: SparkSession, path: str) -> int | None:
    """The largest number that a file of a folder is named after, as Spark's logs of micro-batches are; None without."""
    files, found = _opened(spark, f"{path.rstrip('/')}/*")
    names = [str(each.getPath().getName()).removesuffix(".compact") for each in files.globStatus(found) or ()]
    return max((int(name) for name in names if name.isdigit()), default=None)


def read_text(spark: SparkSession, path: str) -> str | None:
    """A small file; None where there is none."""
    files, found = _opened(spark, path)
    if not files.exists(found):
        return None
    assert spark._jvm is not None
    stream = files.open(found)
    try:
        return str(spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def is_local(spark: SparkSession, path: str) -> bool:
    """Whether a path is on this machine's own file system, as Spark understands it."""
    assert spark._jvm is not None
    jvm: Any = spark._jvm
    default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(spark.sparkContext._jsc.hadoopConfiguration())
    return str(jvm.org.apache.hadoop.fs.Path(path).toUri().getScheme() or default.getScheme()) == "file"


def batch_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> BatchOffsets | None:
    """Where a micro-batch ends, by a checkpoint on any file system; None where that isn't written down."""
    return read_batch_offsets(lambda name: read_text(spark, f"{checkpoint.rstrip('/')}/{name}"), batch_id)


def _opened(spark: SparkSession, path: str) -> tuple[Any, Any]:
    assert spark._jvm is not None
    found: Any = spark._jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), found
