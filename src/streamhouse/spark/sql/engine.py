"""Engine: the Spark of a SQL worker, quick to answer and quiet.

Data path   worker -> **engine** -> a session that stays
Owns        settings that a warm Spark for short queries needs; what is run once so that the first question is quick
Leaves      settings that every Spark gets to `spark.session`, questions to `answering`
"""

import logging
import os
import shutil
from pathlib import Path
from typing import Final

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from streamhouse.spark.opening import open_session
from streamhouse.spark.sql.limits import SqlLimits
from streamhouse.spark.sql.untrusted import GUEST_DATABASE

MASTER: Final = "local[*]"
_CONTEXTS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def settings_of(limits: SqlLimits, folder: Path) -> dict[str, str]:
    """Many small queries at once, each of which should begin now."""
    return {
        "spark.driver.memory": limits.memory,
        "spark.driver.maxResultSize": str(limits.max_result_bytes),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.runSQLOnFiles": "false",  # files are tables by CREATE TABLE, not by a name that is a path
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def open_engine(agents: str, *, limits: SqlLimits, folder: Path, master: str = MASTER) -> SparkSession:
    """A session that has answered once: classes are loaded, and Python workers are there."""
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet()
    spark = open_session("streamhouse-sql", agents=agents, master=master, settings=settings_of(limits, folder))
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {GUEST_DATABASE}")
    spark.range(10).selectExpr("id", "CAST(id AS STRING) AS text").groupBy("text").count().limit(5).toArrow()
    return spark


def quiet() -> None:
    """PySpark writes every mistake of a question to the log, as JSON; whoever asked is told instead."""
    for name in _CONTEXTS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
