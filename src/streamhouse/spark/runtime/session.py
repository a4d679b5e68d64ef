"""Session: a Spark session with all settings, for programs and notebooks.

Data path   none; called once in a program
Owns        applying settings and environment, and their precedence: the program's, those Spark was started with, ours
Leaves      the settings themselves to `launch`; registering the format to `pyspark_streamhouse`
"""

import os
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from streamhouse.spark.runtime.launch import MASTER, PUSH_DOWN, spark_environment, spark_settings

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Spark sets it for programs that it starts: shells and submitted ones."""


def open_session(
    name: str = "streamhouse",
    *,
    agents: str | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """`spark = streamhouse.spark.open_session("orders", agents="localhost:8080")`.

    In a shell or a submitted program the Spark that runs is taken as it was started; `settings` go before that.
    """
    builder = SparkSession.Builder().appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in _settings(agents, master, settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.conf.set(PUSH_DOWN, "true")
    _spare_checksum_files(spark)
    return spark


def _settings(agents: str | None, master: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of the session. Also sets environment variables, which a JVM reads only when it starts."""
    if SUBMITTED in os.environ or SparkSession.getActiveSession() is not None:
        return dict(given)
    os.environ.update(spark_environment(os.environ, agents=agents, master=master or given.get(MASTER)))
    return {**spark_settings(agents), **given}


def _spare_checksum_files(spark: SparkSession) -> None:
    """Checkpoints in a local folder have no .crc files: Hadoop starts a command for each file that it makes.

    Another file system would do it by a setting alone, but RocksDB's snapshots are copied by this one only: with
    another, state is nothing but changes, and never shorter.
    """
    jvm, context = getattr(spark, "_jvm", None), getattr(spark, "_jsc", None)  # none where Spark is elsewhere
    if jvm is not None and context is not None:
        jvm.org.apache.hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration()).setWriteChecksum(False)
