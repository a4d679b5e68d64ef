"""Folders: what is on the file systems that Spark knows, asked for by the driver.

Data path   files, view -> **folders** -> Hadoop's file systems, through the JVM
Owns        whether something is there; the text of a small file
Leaves      data in folders to Spark
"""

from typing import Any

from pyspark.sql import SparkSession


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or a folder; `path` may be a pattern."""
    files, found = _opened(spark, path)
    return bool(files.globStatus(found))


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


def _opened(spark: SparkSession, path: str) -> tuple[Any, Any]:
    assert spark._jvm is not None
    found: Any = spark._jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), found
