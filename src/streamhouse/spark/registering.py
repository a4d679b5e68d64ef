"""Registering: a session learns what `format("streamhouse")` is.

Data path   none; called once for a session
Owns        what is set in a session; which Python a local Spark runs our code in
Leaves      sessions without code to the module `pyspark_streamhouse`, which Spark finds by its name
"""

import os
from typing import Any, Final

from pyspark.sql import SparkSession

from streamhouse.spark.preloading import python_for_spark
from streamhouse.spark.session import is_local
from streamhouse.spark.source import StreamhouseSource

PUSH_DOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `format("streamhouse")` known, and let filters on topic, partition, offset and timestamp narrow reads.

    A local Spark for which nobody has named a Python (PYSPARK_PYTHON, spark.pyspark.python) would start whatever
    `python3` is on the PATH, which need not have this package: it gets the Python that calls this.
    """
    _choose_python(spark)
    spark.dataSource.register(StreamhouseSource)
    spark.conf.set(PUSH_DOWN, "true")


def _choose_python(spark: SparkSession) -> None:
    context: Any = getattr(spark, "_sc", None)  # a session of Spark Connect has none: its server has its own Python
    if context is None or "PYSPARK_PYTHON" in os.environ or not is_local(context.master, os.environ):
        return
    if context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = python_for_spark()
