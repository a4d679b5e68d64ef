"""Output modes: whether Spark would start a query in one.

Data path   a frame's analysed plan -> **output modes** -> why not
Owns        asking Spark before anything is started
Leaves      which mode is right to `view_plan` and to `pipelines.building`
"""

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamhouse.spark.jvm import analyzed_plan


def unsupported(frame: DataFrame, modes: Sequence[str]) -> PySparkException | None:
    """Why Spark would not start the query in any of these modes; None where it would."""
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    plan, first = analyzed_plan(frame).root, None
    for mode in modes:
        try:
            checker.checkForStreaming(plan, getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())())
        except PySparkException as error:
            first = first or error
        else:
            return None
    return first
