"""Registering: a session learns what `format("streamhouse")` is.

Data path   none; called once for a session
Owns        what is set in a session
Leaves      sessions without code to the module `pyspark_streamhouse`, which Spark finds by its name
"""

from typing import Final

from pyspark.sql import SparkSession

from streamhouse.spark.source import StreamhouseSource

PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `format("streamhouse")` known, and let filters on topic, partition, offset and timestamp narrow reads."""
    spark.dataSource.register(StreamhouseSource)
    spark.conf.set(PUSH_DOWN, "true")
